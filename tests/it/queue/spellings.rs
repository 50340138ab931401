//! Pages that a site tells apart by spellings that are one page elsewhere, as
//! hash-bang sites do: what is said of one is not said of the other.

use std::collections::BTreeMap;
use std::time::Duration;

use sitemapd::model::{Outcome, Reason};
use sitemapd::queue::Settlement;
use sitemapd::store::frontier::{Known, Put};
use sitemapd::store::views::UrlState;
use sitemapd::store::{Effect, Imported, PastFetch};

use crate::support::queue_daemon::{Queue, report, site};

const CRAWL: &str = "default";
const HOME: &str = "http://a.test/";
const BANG: &str = "http://a.test/#!/a";
/// Each with what it would be, had the site not left a step out.
const PAIRS: [[&str; 2]; 3] = [
    [BANG, HOME],
    ["http://a.test/%7euser", "http://a.test/~user"],
    ["http://a.test/list?", "http://a.test/list"],
];

async fn with(urls: &[&str]) -> Queue {
    let extra = "normalise = []";
    let text = format!("[queue]\nmax_attempts = 1\n{}", site("a", HOME, extra));
    let queue = Queue::open(&text).await;
    queue.list_urls("a", urls.iter().map(|url| (*url).to_owned())).await;
    queue
}

/// Leases all and settles each so.
async fn settle_all(queue: &Queue, outcome: Outcome) {
    for leased in queue.lease(10).await {
        queue.settle(leased.token, outcome).await;
    }
}

async fn leased(queue: &Queue) -> Vec<String> {
    queue.lease(10).await.into_iter().map(|leased| leased.url).collect()
}

#[tokio::test]
async fn asking_for_one_of_two_spellings_asks_not_for_the_other() {
    for pair in PAIRS {
        for (one, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            let queue = with(&pair).await;
            settle_all(&queue, Outcome::Unchanged).await;
            queue.store.requeue(CRAWL.to_owned(), vec![one.to_owned()]).await.unwrap();
            let view = queue.view(one).await;
            assert_eq!((view.url.as_str(), view.reason), (one, Reason::Submitted));
            assert_eq!(queue.view(other).await.reason, Reason::Recrawl);
            assert_eq!(leased(&queue).await, [one]);
        }
    }
}

#[tokio::test]
async fn replaying_one_of_two_spellings_leaves_the_other_dead() {
    for pair in PAIRS {
        let queue = with(&pair).await;
        settle_all(&queue, Outcome::Failed).await;
        assert_eq!(queue.counts().await.dead, 2);
        let replayed = queue.store.replay(CRAWL.to_owned(), vec![pair[0].to_owned()]).await;
        assert_eq!(replayed, Ok(1));
        assert_eq!(leased(&queue).await, [pair[0]]);
        assert_eq!(queue.view(pair[1]).await.state, UrlState::Dead);
    }
}

#[tokio::test]
async fn a_block_on_one_of_two_spellings_holds_it_and_not_the_other() {
    for pair in PAIRS {
        for (one, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            let queue = with(&pair).await;
            let order = || (CRAWL.to_owned(), one.to_owned(), false);
            let (crawl, pattern, prefix) = order();
            assert_eq!(queue.store.block(crawl, pattern, prefix).await, Ok(1));
            assert_eq!(queue.store.blocks(None, 10, None).await.unwrap().0[0].pattern, one);
            assert_eq!(leased(&queue).await, [other]);
            // Its lease ends, and it is asked for: the gate knows it too.
            queue.pass(Duration::from_secs(86_400)).await;
            queue.store.requeue(CRAWL.to_owned(), vec![one.to_owned()]).await.unwrap();
            assert!(!leased(&queue).await.contains(&one.to_owned()));
            let (crawl, pattern, prefix) = order();
            assert_eq!(queue.store.unblock(crawl, pattern, prefix).await, Ok(1));
            assert_eq!(leased(&queue).await, [one]);
        }
    }
}

#[tokio::test]
async fn a_block_on_a_page_that_nobody_lists_yet_is_lifted_by_either_spelling() {
    let [one, other] = PAIRS[1];
    for lift in [one, other] {
        let queue = with(&[]).await;
        queue.store.block(CRAWL.to_owned(), one.to_owned(), false).await.unwrap();
        queue.list_urls("a", [other.to_owned()]).await;
        assert!(queue.lease(10).await.is_empty());
        assert_eq!(queue.store.unblock(CRAWL.to_owned(), lift.to_owned(), false).await, Ok(1));
    }
}

#[tokio::test]
async fn a_page_is_named_by_its_twin_or_as_it_was_listed_too() {
    let page = "http://www.a.test/private";
    for named in ["https://a.test/private", "http://www.a.test/private?utm_source=rss#top"] {
        let queue = with(&[page]).await;
        let order = || (CRAWL.to_owned(), named.to_owned(), false);
        assert_eq!(queue.view(named).await.url, page);
        let (crawl, pattern, prefix) = order();
        assert_eq!(queue.store.block(crawl, pattern, prefix).await, Ok(1));
        assert!(queue.lease(10).await.is_empty());
        let (crawl, pattern, prefix) = order();
        assert_eq!(queue.store.unblock(crawl, pattern, prefix).await, Ok(1));
        settle_all(&queue, Outcome::Unchanged).await;
        let named = || vec![named.to_owned()];
        assert_eq!(queue.store.requeue(CRAWL.to_owned(), named()).await, Ok(1));
        settle_all(&queue, Outcome::Failed).await;
        assert_eq!(queue.store.replay(CRAWL.to_owned(), named()).await, Ok(1));
        assert_eq!(leased(&queue).await, [page]);
    }
}

#[tokio::test]
async fn a_block_from_before_a_page_was_listed_as_its_twin_is_lifted_as_it_was_given() {
    let queue = with(&[]).await;
    let named = "https://a.test/private";
    queue.store.block(CRAWL.to_owned(), named.to_owned(), false).await.unwrap();
    queue.list_urls("a", ["http://www.a.test/private".to_owned()]).await;
    queue.store.unblock(CRAWL.to_owned(), named.to_owned(), false).await.unwrap();
    assert!(queue.store.blocks(None, 10, None).await.unwrap().0.is_empty());
}

#[tokio::test]
async fn a_prefix_is_not_widened_by_what_it_may_lose_elsewhere() {
    for (prefix, held, free) in [
        ("http://a.test/#!/", BANG, HOME),
        ("http://a.test/list?", "http://a.test/list?page=2", "http://a.test/listing"),
    ] {
        let queue = with(&[held, free]).await;
        queue.store.block(CRAWL.to_owned(), prefix.to_owned(), true).await.unwrap();
        assert_eq!(leased(&queue).await, [free]);
        assert_eq!(queue.view(held).await.state, UrlState::Blocked);
        assert_eq!(queue.store.unblock(CRAWL.to_owned(), prefix.to_owned(), true).await, Ok(1));
    }
}

#[tokio::test]
async fn a_prefix_is_named_by_the_twin_of_its_site_where_they_are_one() {
    let (held, named) = ("http://a.test/private/1", "https://www.a.test/private/");
    let queue = with(&[held, HOME]).await;
    queue.store.block(CRAWL.to_owned(), named.to_owned(), true).await.unwrap();
    let kept = "http://a.test/private/";
    assert_eq!(queue.store.blocks(None, 10, None).await.unwrap().0[0].pattern, kept);
    assert_eq!(leased(&queue).await, [HOME]);
    assert_eq!(queue.view(held).await.state, UrlState::Blocked);
    assert_eq!(queue.store.unblock(CRAWL.to_owned(), named.to_owned(), true).await, Ok(1));
    for (sites, kept) in [
        // Twins that are not one page are not held with one another.
        (site("a", HOME, "twins = \"separate\""), named),
        // Of a site that has this form, beside one that has the other.
        (site("a", HOME, "") + &site("b", "https://www.a.test/", ""), named),
        // Two sites fold them differently.
        (site("a", HOME, "") + &site("b", "https://a.test/", ""), named),
        (site("a", HOME, "") + &site("b", HOME, ""), kept),
    ] {
        let queue = Queue::open(&sites).await;
        queue.store.block(CRAWL.to_owned(), named.to_owned(), true).await.unwrap();
        assert_eq!(queue.store.blocks(None, 10, None).await.unwrap().0[0].pattern, kept);
    }
}

#[tokio::test]
async fn a_block_on_a_page_that_nobody_lists_yet_holds_it_as_its_site_will_have_it() {
    let page = "http://a.test/private?id=1";
    for named in ["https://www.a.test/private?id=1", "http://a.test/private?utm_source=x&id=1"] {
        let queue = with(&[]).await;
        queue.store.block(CRAWL.to_owned(), named.to_owned(), false).await.unwrap();
        queue.list_urls("a", [page.to_owned()]).await;
        assert!(queue.lease(10).await.is_empty(), "{named}");
        queue.store.unblock(CRAWL.to_owned(), named.to_owned(), false).await.unwrap();
        assert!(queue.store.blocks(None, 10, None).await.unwrap().0.is_empty());
        assert_eq!(leased(&queue).await, [page]);
    }
}

#[tokio::test]
async fn blocks_hold_the_pages_of_a_site_that_is_found_at_its_twin_until_lifted_by_either_name() {
    let (old, new) = ("http://a.test/private/", "https://www.a.test/private/");
    for lifted in [old, new] {
        let queue = with(&["http://a.test/private/1"]).await;
        for (path, prefix) in [("", true), ("2", false)] {
            let pattern = format!("{old}{path}");
            queue.store.block(CRAWL.to_owned(), pattern, prefix).await.unwrap();
        }
        assert!(queue.lease(10).await.is_empty());
        let twin = "https://www.a.test/".parse().unwrap();
        assert_eq!(queue.store.learn_origin(queue.origin("a").site, twin).await, Ok(true));
        let queue = queue.reopen(Duration::from_secs(1)).await;
        queue.list_urls("a", [format!("{new}1"), format!("{new}2")]).await;
        assert!(queue.lease(10).await.is_empty());
        queue.store.unblock(CRAWL.to_owned(), lifted.to_owned(), true).await.unwrap();
        assert!(!leased(&queue).await.contains(&format!("{new}2")));
        let one = format!("{lifted}2");
        assert_eq!(queue.store.unblock(CRAWL.to_owned(), one, false).await, Ok(1));
        assert!(queue.store.blocks(None, 10, None).await.unwrap().0.is_empty());
    }
}

#[tokio::test]
async fn a_block_holds_a_page_at_its_twin_too_where_the_other_form_is_known_only() {
    let (old, new) = ("http://a.test/private", "https://www.a.test/private");
    for (named, lifted) in [(old, new), (new, old), (old, old), (new, new)] {
        let queue = with(&[old]).await;
        let twin = "https://www.a.test/".parse().unwrap();
        assert_eq!(queue.store.learn_origin(queue.origin("a").site, twin).await, Ok(true));
        // The site was not read since.
        assert_eq!(queue.store.block(CRAWL.to_owned(), named.to_owned(), false).await, Ok(1));
        queue.list_urls("a", [new.to_owned()]).await;
        assert!(queue.lease(10).await.is_empty(), "{named}");
        assert_eq!(queue.store.unblock(CRAWL.to_owned(), lifted.to_owned(), false).await, Ok(2));
        assert!(queue.store.blocks(None, 10, None).await.unwrap().0.is_empty());
    }
}

#[tokio::test]
async fn a_log_trains_the_page_of_which_it_names_a_twin_or_that_it_names_as_listed() {
    let page = "http://www.a.test/a";
    let queue = with(&[page]).await;
    queue.pass(Duration::from_secs(86_400)).await;
    let fetch = |url: &str, hours: u64| PastFetch {
        url: url.parse().unwrap(),
        at: queue.clock.now() - Duration::from_secs(3_600 * hours),
        changed: Some(true),
        content_hash: None,
        hash_kind: None,
    };
    let log = vec![
        fetch("https://a.test/a", 5),
        fetch("http://a.test/a", 4),
        fetch("http://www.a.test/a?utm_source=rss", 3),
        fetch(page, 2),
        fetch("https://a.test/other", 1),
    ];
    let imported = queue.store.import(CRAWL.to_owned(), log.clone()).await.unwrap();
    assert_eq!(imported, Imported { taken: 4, unknown: 1, ignored: 0 });
    assert!(queue.view(page).await.learned.is_some());
    // Where twins are pages of their own, only the page itself is meant.
    let queue = Queue::open(&site("a", HOME, "twins = \"separate\"")).await;
    queue.list_urls("a", [page.to_owned()]).await;
    queue.pass(Duration::from_secs(86_400)).await;
    let imported = queue.store.import(CRAWL.to_owned(), log).await.unwrap();
    assert_eq!(imported, Imported { taken: 2, unknown: 3, ignored: 0 });
}

/// A page that was fetched, or given up, before its site was found at its twin.
async fn moved(page: &str, outcome: Outcome) -> Queue {
    let queue = with(&[page]).await;
    settle_all(&queue, outcome).await;
    let twin = "https://www.a.test/".parse().unwrap();
    assert_eq!(queue.store.learn_origin(queue.origin("a").site, twin).await, Ok(true));
    queue
}

#[tokio::test]
async fn an_order_for_a_page_by_its_old_name_reaches_what_took_its_place_at_the_twin() {
    let (old, new) = ("http://a.test/page", "https://www.a.test/page");
    for named in [old, new, "http://a.test/page?utm_source=x"] {
        let queue = moved(old, Outcome::Unchanged).await;
        queue.list_urls("a", [new.to_owned()]).await;
        settle_all(&queue, Outcome::Unchanged).await;
        queue.pass(Duration::from_secs(86_400)).await;
        let fetch = PastFetch {
            url: named.parse().unwrap(),
            at: queue.clock.now() - Duration::from_secs(3_600),
            changed: Some(true),
            content_hash: None,
            hash_kind: None,
        };
        let imported = queue.store.import(CRAWL.to_owned(), vec![fetch.clone()]).await.unwrap();
        assert_eq!(imported, Imported { taken: 1, ..Imported::default() }, "{named}");
        let requeued = queue.store.requeue(CRAWL.to_owned(), vec![named.to_owned()]).await;
        assert_eq!(requeued, Ok(1), "{named}");
        let (was, is) = (queue.view(old).await, queue.view(new).await);
        assert_eq!((was.reason, is.reason), (Reason::Recrawl, Reason::Submitted), "{named}");
        assert!(was.fetched_at < Some(fetch.at) && is.fetched_at == Some(fetch.at), "{named}");
        assert_eq!(leased(&queue).await, [new], "{named}");
    }
}

#[tokio::test]
async fn before_its_site_is_read_again_a_page_is_asked_for_as_it_was_known() {
    let old = "http://a.test/page";
    let queue = moved(old, Outcome::Unchanged).await;
    for named in [old, "https://www.a.test/page"] {
        let requeued = queue.store.requeue(CRAWL.to_owned(), vec![named.to_owned()]).await;
        assert_eq!(requeued, Ok(1), "{named}");
    }
    assert_eq!(leased(&queue).await, [old]);
    // Nor does a row stand for it that is listed no more.
    let queue = moved(old, Outcome::Unchanged).await;
    let url = queue.list_urls("a", ["https://www.a.test/page".to_owned()]).await[0];
    queue.apply(Effect::Drop { url }).await;
    settle_all(&queue, Outcome::Gone).await;
    assert_eq!(queue.store.requeue(CRAWL.to_owned(), vec![old.to_owned()]).await, Ok(1));
    assert_eq!(leased(&queue).await, [old]);
}

#[tokio::test]
async fn a_dead_letter_is_replayed_by_the_name_that_it_is_listed_with() {
    let (old, new) = ("http://a.test/page", "https://www.a.test/page");
    let queue = moved(old, Outcome::Failed).await;
    queue.list_urls("a", [new.to_owned()]).await;
    assert_eq!(queue.store.replay(CRAWL.to_owned(), vec![old.to_owned()]).await, Ok(1));
    assert_eq!(queue.view(old).await.state, UrlState::Queued);
}

#[tokio::test]
async fn a_prefix_also_holds_what_a_client_put_below_it_as_it_was_given() {
    let put = "https://www.a.test/private/1";
    let queue = with(&[HOME]).await;
    let item = Put {
        crawl: CRAWL.to_owned(),
        key: None,
        url: put.to_owned(),
        metadata: BTreeMap::new(),
        created: None,
        known: None,
    };
    queue.store.frontier_put(vec![item]).await.unwrap();
    let prefix = "https://www.a.test/private/".to_owned();
    queue.store.block(CRAWL.to_owned(), prefix.clone(), true).await.unwrap();
    assert_eq!(leased(&queue).await, [HOME]);
    assert_eq!(queue.store.unblock(CRAWL.to_owned(), prefix, true).await, Ok(1));
    assert!(queue.store.blocks(None, 10, None).await.unwrap().0.is_empty());
    assert_eq!(leased(&queue).await, [put]);
}

#[tokio::test]
async fn a_redirect_to_another_spelling_leads_there_and_not_to_itself() {
    for pair in PAIRS {
        let queue = with(&pair).await;
        for leased in queue.lease(10).await {
            let outcome =
                if leased.url == pair[1] { Outcome::Redirected } else { Outcome::Unchanged };
            let final_url = Some(pair[0].to_owned());
            queue.settle_as(Settlement { final_url, ..report(leased.token, outcome) }).await;
        }
        assert_eq!(queue.view(pair[1]).await.state, UrlState::Parked);
        assert_eq!(queue.view(pair[0]).await.state, UrlState::Queued);
    }
}

#[tokio::test]
async fn a_report_over_urlfrontier_is_on_the_spelling_that_it_names() {
    for pair in PAIRS {
        let queue = with(&pair).await;
        let put = Put {
            crawl: CRAWL.to_owned(),
            key: None,
            url: pair[0].to_owned(),
            metadata: [("seen".to_owned(), vec!["1".to_owned()])].into(),
            created: None,
            known: Some(Known { outcome: Some(Outcome::Unchanged), ..Known::default() }),
        };
        queue.store.frontier_put(vec![put]).await.unwrap();
        assert_eq!(queue.view(pair[0]).await.fetches, 1);
        assert_eq!(queue.view(pair[1]).await.fetches, 0);
        for (url, seen) in [(pair[0], true), (pair[1], false)] {
            let crawl = CRAWL.to_owned();
            let status = queue.store.frontier_url(crawl, None, url.to_owned()).await;
            let known = status.unwrap().unwrap();
            assert_eq!((known.url.as_str(), known.metadata.contains_key("seen")), (url, seen));
        }
    }
}
