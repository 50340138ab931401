//! Calls in random orders while a price falls and rises, held against the rules of the
//! queue: who may have what, and when, and that nothing is lost.

mod rules;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use sitemapd::model::{Outcome, Reason};
use sitemapd::queue::{LeaseRequest, Settlement, Token, TokenResult};
use sitemapd::store::PastFetch;
use sitemapd::store::frontier::{Get, Progress};

use crate::support::lease_history::Dice;
use crate::support::queue_daemon::{Queue, ask, report, site};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const CRAWL: &str = "default";
/// How long a lease lasts.
const TTL: Duration = Duration::from_secs(300);
/// Between two requests to `c.test`.
const DELAY: Duration = Duration::from_secs(2);

/// What is known of a page without asking the queue.
#[derive(Debug, Default)]
struct Page {
    site: &'static str,
    out: Option<Out>,
    /// Deliveries without success, where that is known.
    attempts: Option<u32>,
    /// What its fetcher asked for.
    floor: Option<Timestamp>,
    /// A day after it was refused to its fetcher.
    refused: Option<Timestamp>,
    /// Has somebody asked for it while it was out?
    asked: bool,
    /// Did its last lease come to nothing?
    nothing: bool,
    gone: bool,
}

#[derive(Debug, Clone)]
struct Out {
    token: Token,
    until: Timestamp,
    attempt: u32,
    of_frontier: bool,
}

struct Given {
    url: String,
    token: Token,
    due_at: Timestamp,
    reason: Reason,
    attempt: u32,
    not_before: Timestamp,
    expires_at: Timestamp,
}

struct Run {
    queue: Option<Queue>,
    dice: Dice,
    pages: BTreeMap<String, Page>,
    blocks: Vec<(String, bool)>,
    paused_sites: Vec<&'static str>,
    /// No host is asked before.
    clocks: BTreeMap<String, Timestamp>,
    early: usize,
    log: Vec<String>,
}

fn host_of(url: &str) -> String {
    let end = url.match_indices('/').nth(2).unwrap().0;
    url[..end].to_owned()
}

fn config() -> String {
    let delay = format!("host_delay = \"{}s\"", DELAY.as_secs());
    [
        site("a", "http://a.test/", ""),
        site("b", "http://b.test/", ""),
        site("c", "http://c.test/", &delay),
    ]
    .concat()
}

impl Run {
    async fn new(seed: u64) -> Self {
        let queue = Queue::open(&config()).await;
        let mut pages = BTreeMap::new();
        for (name, urls) in [
            ("a", (0..40).map(|n| format!("http://a.test/{n}")).collect::<Vec<_>>()),
            // Of two sites.
            (
                "b",
                (0..40)
                    .map(|n| format!("http://{}.test/b{n}", if n < 15 { "a" } else { "b" }))
                    .collect(),
            ),
            ("c", (0..40).map(|n| format!("http://c.test/{n}")).collect()),
        ] {
            queue.list_urls(name, urls.iter().cloned()).await;
            let page = |url| (url, Page { site: name, attempts: Some(0), ..Page::default() });
            pages.extend(urls.into_iter().map(page));
        }
        let mut run = Self {
            queue: Some(queue),
            dice: Dice::new(seed),
            pages,
            blocks: Vec::new(),
            paused_sites: Vec::new(),
            clocks: BTreeMap::new(),
            early: 0,
            log: Vec::new(),
        };
        run.look_at_all(&[Outcome::Unknown]).await;
        for _ in 0..4 {
            run.queue().clock.advance(20 * DAY);
            run.look_at_all(&[Outcome::Changed, Outcome::Unchanged]).await;
        }
        run.at_price(100.0).await;
        for _ in 0..6 {
            run.queue().clock.advance(5 * DAY);
            let urls: Vec<String> = run.pages.keys().cloned().collect();
            let some = urls.into_iter().filter(|_| run.dice.below(3) == 0).collect();
            run.queue().store.requeue(CRAWL.to_owned(), some).await.unwrap();
            run.look_at_all(&[Outcome::Changed, Outcome::Unchanged, Outcome::Unchanged]).await;
        }
        run
    }

    fn queue(&self) -> &Queue {
        self.queue.as_ref().unwrap()
    }

    fn now(&self) -> Timestamp {
        self.queue().clock.now()
    }

    fn say(&mut self, what: impl Into<String>) {
        let line = format!("{} {}", self.now(), what.into());
        self.log.push(line);
    }

    fn fail(&self, why: &str) -> ! {
        let from = self.log.len().saturating_sub(40);
        panic!("{why}\n{}", self.log[from..].join("\n"));
    }

    async fn look_at_all(&mut self, outcomes: &[Outcome]) {
        loop {
            let leased = self.queue().lease(1_000).await;
            if leased.is_empty() {
                break;
            }
            let of = u32::try_from(outcomes.len()).unwrap();
            let seen = leased
                .iter()
                .map(|leased| report(leased.token, outcomes[self.dice.below(of) as usize]));
            let seen = seen.collect();
            self.queue().store.settle(seen).await.unwrap();
        }
        self.queue().clock.advance(TTL);
    }

    /// A restart after which a fetch is so many times as dear.
    async fn at_price(&mut self, times: f64) {
        let queue = self.queue.take().unwrap().reopen(Duration::ZERO).await;
        let now = queue.clock.now().as_millisecond();
        queue.look().change(&format!(
            "UPDATE prices SET price = {times} * price, ticked_at = {now}, asked = 0"
        ));
        self.queue = Some(queue);
        self.say(format!("restart, price x {times}"));
    }

    async fn lease(&mut self, request: LeaseRequest) -> usize {
        let leased = self.queue().lease_as(request.clone()).await.urls;
        let count = leased.len();
        let is_asked =
            |url: &str| request.sites.is_empty() || request.sites[0] == self.pages[url].site;
        if let Some(other) = leased.iter().find(|leased| !is_asked(&leased.url)) {
            self.fail(&format!("{} is not of {:?}", other.url, request.sites));
        }
        let (max, per_host) = (request.max, request.per_host);
        self.say(format!("lease {max} {per_host} {:?}: {count}", request.sites));
        let given = leased.into_iter().map(|leased| Given {
            url: leased.url,
            token: leased.token,
            due_at: leased.due_at,
            reason: leased.reason,
            attempt: leased.attempt,
            not_before: leased.not_before,
            expires_at: leased.expires_at,
        });
        self.given(given.collect(), false).await;
        count
    }

    async fn frontier_get(&mut self) {
        let (per_queue, max_queues) = (1 + 9 * self.dice.below(2), self.dice.below(3));
        let get = Get { crawl: None, key: None, per_queue, max_queues, ttl: TTL };
        // What has expired of this protocol is had again at once.
        self.expire(true);
        let served = self.queue().store.frontier_get(get, Progress::default()).await.unwrap().0;
        self.say(format!("get {per_queue} {max_queues}: {}", served.len()));
        let mut given = Vec::new();
        for served in served {
            let row = self.queue().look().rows(&format!(
                "SELECT due_s, attempt, not_before, expires_at FROM leases WHERE url_id = {}",
                served.token.url.0
            ));
            let number = |at: usize| row[0][at].as_ref().unwrap().parse::<i64>().unwrap();
            given.push(Given {
                url: served.url,
                token: served.token,
                due_at: Timestamp::from_second(number(0)).unwrap(),
                reason: served.reason,
                attempt: u32::try_from(number(1)).unwrap(),
                not_before: Timestamp::from_millisecond(number(2)).unwrap(),
                expires_at: Timestamp::from_millisecond(number(3)).unwrap(),
            });
        }
        self.given(given, true).await;
    }

    fn some_out(&mut self) -> Option<(String, Out)> {
        let now = self.now();
        let out: Vec<_> = self
            .pages
            .iter()
            .filter_map(|(url, page)| Some((url.clone(), page.out.clone()?)))
            .filter(|(_, out)| out.until > now)
            .collect();
        let count = u32::try_from(out.len()).unwrap();
        (count > 0).then(|| out[self.dice.below(count) as usize].clone())
    }

    fn some_url(&mut self) -> String {
        let count = u32::try_from(self.pages.len()).unwrap();
        let at = self.dice.below(count) as usize;
        self.pages.keys().nth(at).unwrap().clone()
    }

    async fn settle_some(&mut self) {
        for _ in 0..=self.dice.below(12) {
            let Some((url, out)) = self.some_out() else { return };
            let now = self.now();
            let outcome = match self.dice.below(16) {
                0..6 => Outcome::Changed,
                6..11 => Outcome::Unchanged,
                11 => Outcome::Unknown,
                12 | 13 => Outcome::Failed,
                14 => Outcome::Blocked,
                _ => Outcome::Gone,
            };
            let mut seen = report(out.token, outcome);
            let mut floor = None;
            match self.dice.below(20) {
                0 => floor = Some(now + self.dice.below(40) * DAY),
                1 => {
                    let pause = (1 + self.dice.below(90)) * HOUR / 2;
                    seen = Settlement {
                        status: Some(429),
                        retry_after: Some(pause),
                        ..report(out.token, Outcome::Failed)
                    };
                    let until = now + pause.min(DAY);
                    let clock = self.clocks.entry(host_of(&url)).or_insert(until);
                    *clock = until.max(*clock);
                }
                _ => {}
            }
            seen.not_before = floor;
            let outcome = seen.outcome.unwrap();
            self.say(format!("settle {url} {outcome:?} {floor:?}"));
            let result = self.queue().settle_as(seen.clone()).await;
            if result != TokenResult::Ok {
                self.fail(&format!("{url}: {result:?}"));
            }
            let page = self.pages.get_mut(&url).unwrap();
            page.out = None;
            page.nothing = outcome == Outcome::Failed;
            page.gone = outcome == Outcome::Gone
                || page.gone && matches!(outcome, Outcome::Failed | Outcome::Blocked);
            page.floor = floor;
            if outcome != Outcome::Failed {
                let is_refused = outcome == Outcome::Blocked && !page.asked;
                page.refused = is_refused.then(|| now + DAY);
            }
            page.asked = false;
            page.attempts = match outcome {
                Outcome::Failed if seen.status.is_some() => None,
                Outcome::Failed => Some(out.attempt),
                Outcome::Gone | Outcome::Blocked => None,
                _ => Some(0),
            };
        }
    }

    async fn release(&mut self, token: Token, after: Duration) {
        let now = self.now();
        let result = self.queue().release(token, after).await;
        if result != TokenResult::Ok {
            self.fail(&format!("release {token}: {result:?}"));
        }
        let page = self
            .pages
            .values_mut()
            .find(|page| page.out.as_ref().is_some_and(|out| out.token == token));
        let page = page.unwrap();
        let out = page.out.take().unwrap();
        page.nothing = true;
        page.attempts = Some(out.attempt - 1);
        page.floor = (!after.is_zero()).then(|| now + after);
    }

    async fn step(&mut self) {
        match self.dice.below(32) {
            0..7 => {
                let max = [1, 7, 40, 300][self.dice.below(4) as usize];
                let per_host = [1, 5, 1_000][self.dice.below(3) as usize];
                self.lease(LeaseRequest { per_host, ..ask(max) }).await;
            }
            7 | 8 => {
                let sites = vec![["a", "b", "c"][self.dice.below(3) as usize].to_owned()];
                let max = [3, 300][self.dice.below(2) as usize];
                self.lease(LeaseRequest { sites, ..ask(max) }).await;
            }
            9 | 10 => self.frontier_get().await,
            11..16 => self.settle_some().await,
            16 => {
                if let Some((url, out)) = self.some_out() {
                    let after = self.dice.below(3) * HOUR;
                    self.say(format!("release {url} {after:?}"));
                    self.release(out.token, after).await;
                }
            }
            17 => {
                if let Some((url, out)) = self.some_out() {
                    let until = self.now() + HOUR;
                    self.say(format!("extend {url}"));
                    self.queue().extend(out.token, HOUR).await;
                    self.pages.get_mut(&url).unwrap().out.as_mut().unwrap().until = until;
                }
            }
            18..22 => {
                let by = match self.dice.below(5) {
                    0 | 1 => Duration::from_secs(self.dice.below(20).into()),
                    2 => Duration::from_secs(self.dice.below(600).into()),
                    3 => HOUR,
                    _ => DAY,
                };
                let back = self.queue().pass(by).await;
                self.expire(false);
                self.say(format!("{by:?} pass, {back:?} back"));
            }
            22 => {
                let urls: Vec<_> = (0..3).map(|_| self.some_url()).collect();
                self.say(format!("requeue {urls:?}"));
                self.queue().store.requeue(CRAWL.to_owned(), urls.clone()).await.unwrap();
                for url in urls {
                    let page = self.pages.get_mut(&url).unwrap();
                    // One that is out comes back as it is.
                    page.attempts.take_if(|_| page.out.is_none());
                    (page.floor, page.refused, page.asked) = (None, None, page.out.is_some());
                }
            }
            23 => {
                let url = self.some_url();
                self.say(format!("signal {url}"));
                let id = self.queue().view(&url).await.id;
                let name = self.pages[&url].site;
                let lastmod = sitemapd::model::Lastmod {
                    at: self.now(),
                    precision: sitemapd::model::Precision::Second,
                };
                let hints = sitemapd::diff::snapshot::EntryHints::default();
                let effect = sitemapd::store::Effect::Changed { url: id, lastmod, hints };
                let queue = self.queue();
                queue.store.apply(queue.origin(name), vec![effect]).await.unwrap();
            }
            24 => {
                if !self.blocks.is_empty() && self.dice.below(2) == 0 {
                    let (pattern, prefix) = self.blocks.remove(0);
                    self.say(format!("unblock {pattern}"));
                    self.queue().store.unblock(CRAWL.to_owned(), pattern, prefix).await.unwrap();
                } else {
                    let mut pattern = self.some_url();
                    let prefix = self.dice.below(3) == 0;
                    if prefix {
                        pattern.pop();
                    }
                    let is_known = self.blocks.contains(&(pattern.clone(), prefix));
                    if !is_known && host_of(&format!("{pattern}/")).len() < pattern.len() {
                        self.say(format!("block {pattern} {prefix}"));
                        self.queue()
                            .store
                            .block(CRAWL.to_owned(), pattern.clone(), prefix)
                            .await
                            .unwrap();
                        self.blocks.push((pattern, prefix));
                    }
                }
            }
            25 => {
                let name = ["a", "b", "c"][self.dice.below(3) as usize];
                let is_paused = self.paused_sites.contains(&name);
                self.say(format!("pause {name}: {}", !is_paused));
                self.queue().store.pause_site(name.to_owned(), !is_paused).await.unwrap();
                self.paused_sites.retain(|other| *other != name);
                if !is_paused && self.dice.below(2) == 0 {
                    self.paused_sites.push(name);
                } else if !is_paused {
                    self.queue().store.pause_site(name.to_owned(), false).await.unwrap();
                }
            }
            26 | 27 => {
                let times = [0.01, 0.1, 0.5, 0.9, 1.0, 1.1, 3.0, 30.0][self.dice.below(8) as usize];
                self.at_price(times).await;
                if self.dice.below(2) == 0 {
                    self.drain().await;
                }
            }
            28 => {
                let (url, at) = (self.some_url(), self.now() - self.dice.below(30) * HOUR);
                self.say(format!("import {url} {at}"));
                let fetch = PastFetch {
                    url: url.parse().unwrap(),
                    at,
                    changed: Some(self.dice.below(2) == 0),
                    content_hash: None,
                    hash_kind: None,
                };
                let told = self.queue().store.import(CRAWL.to_owned(), vec![fetch]).await.unwrap();
                if told.taken > 0 {
                    let page = self.pages.get_mut(&url).unwrap();
                    (page.attempts, page.refused) = (None, None);
                }
            }
            29 => self.queue().reload(&config()).await.unwrap(),
            _ => self.queue().maintain().await,
        }
    }
}

async fn run(seed: u64, steps: u32) -> usize {
    let mut run = Run::new(seed).await;
    for _ in 0..steps {
        run.step().await;
        run.audit();
    }
    run.early
}

#[tokio::test]
async fn in_whatever_order_it_is_called_the_queue_keeps_its_rules_while_a_price_falls_and_rises() {
    let number =
        |name: &str, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (first, seeds) = (number("SITEMAPD_SEED", 1), number("SITEMAPD_SEEDS", 2));
    let steps = u32::try_from(number("SITEMAPD_STEPS", 40)).unwrap();
    let mut early = 0;
    for seed in first..first + seeds {
        println!("seed {seed}");
        early += run(seed, steps).await;
    }
    println!("{early} before they were due");
    assert!(early > 0, "else nothing was tried");
}
