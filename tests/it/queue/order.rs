//! `order = "protocol"`, and any order without evidence: the highest priority
//! first, then the earliest due.

use std::cmp::Reverse;
use std::time::Duration;

use proptest::prelude::*;
use sitemapd::diff::snapshot::EntryHints;
use sitemapd::model::{ChangeFreq, Lastmod, Outcome, Precision, Priority, Reason, UrlId};
use sitemapd::store::Effect;

use sitemapd::queue::LeaseRequest;

use crate::support::queue_daemon::{Queue, ask, entry, paths, site};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn of_two_urls_that_differ_only_in_priority_the_higher_is_leased_first() {
    let queue = Queue::simple().await;
    let plain = |path: &str| entry(format!("http://a.test/{path}"));
    let entries = [
        plain("low").priority(0.2),
        plain("none"),
        plain("high").priority(0.9),
        plain("top").priority(1.0),
        plain("zero").priority(0.0),
    ];
    queue.list("a", &entries).await;
    assert_eq!(paths(&queue.lease(10).await), ["/top", "/high", "/none", "/low", "/zero"]);
}

#[tokio::test]
async fn of_two_settled_urls_that_differ_only_in_changefreq_the_shorter_interval_is_due_first() {
    let queue = Queue::simple().await;
    let entries = [
        ("yearly", ChangeFreq::Yearly),
        ("daily", ChangeFreq::Daily),
        ("hourly", ChangeFreq::Hourly),
    ]
    .map(|(path, word)| entry(format!("http://a.test/{path}")).changefreq(word));
    queue.list("a", &entries).await;
    for leased in queue.lease(10).await {
        queue.settle(leased.token, Outcome::Unchanged).await;
    }
    assert!(queue.lease(10).await.is_empty());
    let mut order = Vec::new();
    for hours in [1, 23, 180 * 24 - 24] {
        queue.clock.advance(HOUR * hours);
        let urls = queue.lease(10).await;
        order.push(paths(&urls).into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert!(urls.iter().all(|leased| leased.reason == Reason::Recrawl));
    }
    assert_eq!(order, [vec!["/hourly"], vec!["/daily"], vec!["/yearly"]]);
}

#[tokio::test]
async fn of_equal_priorities_the_earlier_due_is_leased_first() {
    let queue = Queue::simple().await;
    for path in ["first", "second", "third"] {
        queue.list_urls("a", [format!("http://a.test/{path}")]).await;
        queue.clock.advance(Duration::from_secs(5));
    }
    assert_eq!(paths(&queue.lease(10).await), ["/first", "/second", "/third"]);
}

#[tokio::test]
async fn what_someone_asked_for_goes_before_every_priority() {
    let queue = Queue::simple().await;
    queue
        .list(
            "a",
            &[entry("http://a.test/top").priority(1.0), entry("http://a.test/asked").priority(0.1)],
        )
        .await;
    let asked = vec!["http://a.test/asked".to_owned()];
    assert_eq!(queue.store.requeue("default".to_owned(), asked).await, Ok(1));
    let urls = queue.lease(10).await;
    assert_eq!(paths(&urls), ["/asked", "/top"]);
    assert_eq!(urls[0].reason, Reason::Submitted);
}

#[tokio::test]
async fn what_someone_asked_for_keeps_its_place_when_its_sitemap_drops_it() {
    let queue = Queue::simple().await;
    let all = ["asked", "top"].map(|path| entry(format!("http://a.test/{path}")).priority(0.5));
    let rows = queue.list("a", &all).await;
    let asked = vec!["http://a.test/asked".to_owned()];
    assert_eq!(queue.store.requeue("default".to_owned(), asked).await, Ok(1));
    queue.apply(Effect::Drop { url: rows[0] }).await;
    assert!(!queue.view("http://a.test/asked").await.listed);
    let urls = queue.lease(10).await;
    assert_eq!(paths(&urls), ["/asked", "/top"]);
    assert_eq!(urls[0].reason, Reason::Submitted);
}

#[tokio::test]
async fn a_changed_priority_moves_a_url_that_is_buffered_already() {
    let queue = Queue::simple().await;
    let rows = queue.list_urls("a", (0..50).map(|n| format!("http://a.test/{n}"))).await;
    // The first lease fills the buffer with the rest.
    assert_eq!(paths(&queue.lease(1).await), ["/0"]);
    let hints = EntryHints { priority: Priority::from_f64(0.7), changefreq: None };
    queue.apply(Effect::Hints { url: rows[33], lastmod: None, hints }).await;
    assert_eq!(paths(&queue.lease(2).await), ["/33", "/1"]);
}

/// What can happen to the queue of one host.
#[derive(Debug, Clone)]
enum Step {
    List(u16),
    Reprioritise(prop::sample::Index, u16),
    Change(prop::sample::Index),
    Lease(u32),
    SettleAll,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // A few levels only, so that due times decide often.
    let level = (0_u16..5).prop_map(|n| n * 250);
    prop_oneof![
        4 => level.clone().prop_map(Step::List),
        2 => (any::<prop::sample::Index>(), level).prop_map(|(i, p)| Step::Reprioritise(i, p)),
        2 => any::<prop::sample::Index>().prop_map(Step::Change),
        4 => (1_u32..6).prop_map(Step::Lease),
        2 => Just(Step::SettleAll),
        2 => (0_u64..5_000).prop_map(Step::Pass),
    ]
}

/// One URL as the rules have it.
#[derive(Debug, Clone, Copy)]
struct Known {
    id: UrlId,
    priority: u16,
    due_s: i64,
    leased: bool,
    changed_meanwhile: bool,
}

/// Lists of queued URLs against the store, step by step.
async fn follow(order: &str, outcome: Outcome, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let text = format!(
        "[queue]\norder = \"{order}\"\n[store]\ndurability = \"normal\"\n{}",
        site("a", "http://a.test/", "")
    );
    let queue = Queue::open(&text).await;
    let mut known: Vec<Known> = Vec::new();
    let mut held = Vec::new();
    for step in steps {
        let now = queue.clock.now();
        let now_s = now.as_second();
        match step {
            Step::List(priority) => {
                let new = entry(format!("http://a.test/{}", known.len()))
                    .priority(f64::from(priority) / 1000.0)
                    .changefreq(ChangeFreq::Hourly)
                    .lastmod("2020-01-01T00:00:00Z".parse().unwrap());
                let id = queue.list("a", &[new]).await[0];
                known.push(Known {
                    id,
                    priority,
                    due_s: now_s,
                    leased: false,
                    changed_meanwhile: false,
                });
            }
            Step::Reprioritise(which, priority) if !known.is_empty() => {
                let url = which.get_mut(&mut known);
                url.priority = priority;
                let effect = Effect::Hints { url: url.id, lastmod: None, hints: hints(priority) };
                queue.apply(effect).await;
            }
            Step::Change(which) if !known.is_empty() => {
                let number = which.index(known.len());
                let url = &mut known[number];
                if url.leased {
                    url.changed_meanwhile = true;
                } else {
                    url.due_s = url.due_s.min(now_s);
                }
                // Each change is a second newer than the one before.
                let view = queue.view(&format!("http://a.test/{number}")).await;
                let lastmod = Lastmod {
                    at: view.lastmod.unwrap().at + Duration::from_secs(1),
                    precision: Precision::Second,
                };
                let effect = Effect::Changed { url: url.id, lastmod, hints: hints(url.priority) };
                queue.apply(effect).await;
            }
            Step::Lease(max) => {
                let mut due: Vec<&mut Known> =
                    known.iter_mut().filter(|url| !url.leased && url.due_s <= now_s).collect();
                due.sort_by_key(|url| (Reverse(url.priority), url.due_s, url.id));
                due.truncate(max as usize);
                let leased = queue.lease_as(LeaseRequest { ttl: HOUR * 12, ..ask(max) }).await.urls;
                let got: Vec<_> = leased.iter().map(|leased| leased.id).collect();
                prop_assert_eq!(got, due.iter().map(|url| url.id).collect::<Vec<_>>());
                for url in due {
                    url.leased = true;
                }
                held.extend(leased);
            }
            Step::SettleAll => {
                for leased in held.drain(..) {
                    queue.settle(leased.token, outcome).await;
                    let url = known.iter_mut().find(|url| url.id == leased.id).unwrap();
                    let rest = i64::from(now.subsec_nanosecond() > 0);
                    url.due_s = if url.changed_meanwhile { now_s } else { now_s + rest + 3_600 };
                    (url.leased, url.changed_meanwhile) = (false, false);
                }
            }
            // All together less than a lease lasts, so that none expires.
            Step::Pass(ms) => queue.clock.advance(Duration::from_millis(ms * 50)),
            Step::Reprioritise(..) | Step::Change(..) => {}
        }
    }
    Ok(())
}

fn hints(priority: u16) -> EntryHints {
    EntryHints {
        priority: Priority::from_thousandths(priority),
        changefreq: Some(ChangeFreq::Hourly),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_leases_follow_priority_then_due_time(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(follow("protocol", Outcome::Changed, steps))?;
    }

    #[test]
    fn the_learned_order_without_evidence_is_exactly_that(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(follow("learned", Outcome::Unknown, steps))?;
    }
}
