//! All ways to misbehave at once, beside a site that behaves.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::canary::Canary;
use crate::support::daemon::sitemap;
use crate::support::engine::Look;
use crate::support::process::{Daemon, write_config};
use crate::support::{Origin, Reply};

#[path = "../../../examples/web/hostile.rs"]
mod sites;

/// Each of the 28 manners behind a sound robots.txt, and at once.
const SITES: u32 = 56;
/// Resident memory over idle that all of them together may cost.
const BOUND: u64 = 256 << 20;

/// A figure of the kernel on a process, in bytes.
fn memory(id: u32, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_misbehave_at_once_leaves_the_daemon_well() {
    let mut canary = Canary::start();
    let port = canary.port();
    sites::serve(SITES, port).await.unwrap();
    let origin = Origin::start().await;
    let list = origin.url("/sitemap.xml");
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), &[("/a", "2026-11-01")])));
    let mut config = format!(
        "[fetch]\nallow = [\"127.2.0.0/16:{port}\", \"{}\"]\ntotal_timeout = \"10s\"\n\
         [politeness]\nhost_delay = \"0s\"\n\
         [[site]]\nname = \"sound\"\nurl = \"{}/\"\nsitemaps = [\"{list}\"]\nfeeds = []\npoll = \"1s\"\n",
        origin.addr(),
        origin.base(),
    );
    let base = |n| format!("http://{}:{port}", sites::address(n));
    for n in 0..SITES {
        let _ = writeln!(
            config,
            "[[site]]\nname = \"hostile-{n}\"\nurl = \"{}/\"\nmax_sources = 20",
            base(n)
        );
    }
    let folder = TempDir::new().unwrap();
    let mut daemon = Daemon::start(&write_config(folder.path(), &config));
    let idle = memory(daemon.id(), "VmRSS:");
    // The first round of sites leads to sitemaps, the second shows at once.
    let first = (0..SITES / 2).map(|n| format!("{}/sitemap.xml", base(n)));
    let second = (SITES / 2..SITES).map(|n| format!("{}/robots.txt", base(n)));
    let mut waiting: HashSet<String> = first.chain(second).collect();
    let mut sound = 0;
    while !waiting.is_empty() || sound < 3 {
        let poll = daemon.hear("\"poll\"");
        let url = poll["url"].as_str().unwrap_or_default();
        waiting.remove(url);
        if url == list.as_str() {
            sound += 1;
            assert_ne!(poll["result"], "failed", "{poll}");
        }
    }
    let _: Value = daemon.client().get("/v1/status", &[]).await.unwrap();
    let over = memory(daemon.id(), "VmHWM:").saturating_sub(idle);
    assert!(over <= BOUND, "{over} bytes over idle");
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0));
    assert_eq!(canary.touched(), 0, "somebody was led to an inner address");
    let look = Look::into(&folder.path().join("data"));
    let injected = "SELECT count(*) FROM url_view WHERE lower(url) LIKE '%injected%'";
    assert_eq!(look.number(injected), 0, "an answer that nobody asked for was taken");
}
