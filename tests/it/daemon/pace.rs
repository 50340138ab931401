//! A start with much to catch up on.

use std::time::Duration;

use crate::support::Origin;
use crate::support::daemon::{Daemon, HOUR, World};

/// Homes and robots.txt of so many hosts, all with one origin behind them.
const HOSTS: usize = 70;

fn sites(origin: &Origin) -> String {
    let port = origin.port();
    let site = |n: usize| {
        format!(
            "[[site]]\nname = \"s{n}\"\nurl = \"http://h{n}.test:{port}/\"\nsitemaps = [\"http://h{n}.test:{port}/s.xml\"]\nfeeds = []\n"
        )
    };
    (0..HOSTS).map(site).collect()
}

async fn overdue(daemon: &Daemon) -> usize {
    let now = daemon.clock.now();
    let sources = daemon.sources().await;
    sources.iter().filter(|source| source.next_poll_at.is_some_and(|at| at <= now)).count()
}

#[tokio::test]
async fn what_is_overdue_at_a_start_is_worked_off_at_an_even_pace() {
    let origin = Origin::start().await;
    let world = World::with_names(&[&origin]);
    let text = sites(&origin);
    let daemon = world.start(&text).await;
    daemon.wait("the first polls", async || (overdue(&daemon).await == 0).then_some(())).await;
    let first = origin.all_requests().len();
    daemon.stop().await;
    // Down for a month: everything is overdue, three sources a host.
    world.clock.advance(HOUR * 24 * 30);
    let daemon = world.start(&text).await;
    let asked = |from: usize| origin.all_requests().len() - from;
    daemon
        .wait("a first portion", async || (overdue(&daemon).await <= 3 * HOSTS - 50).then_some(()))
        .await;
    // The clock stands: nothing more of the backlog may start.
    let second = asked(first);
    assert!(second <= 70, "{second} requests at once");
    // But what somebody asks for does.
    let now = world.clock.now();
    let mut waiting = daemon.sources().await;
    waiting.retain(|source| {
        source.url.ends_with("/robots.txt") && source.next_poll_at.is_some_and(|at| at <= now)
    });
    let last = waiting.iter().max_by_key(|source| source.next_poll_at).unwrap();
    daemon.store.poll_source(last.id).await.unwrap();
    let is_polled = async || daemon.source(&last.url).await.last_poll_at.filter(|at| *at >= now);
    daemon.wait("what was asked for", is_polled).await;
    for _ in 0..30 {
        world.clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
    }
    daemon.wait("the rest", async || (overdue(&daemon).await == 0).then_some(())).await;
    daemon.stop().await;
}
