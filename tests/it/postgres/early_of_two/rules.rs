//! What holds for whoever asks whichever daemon, whatever was done before.

use std::time::Duration;

use jiff::Timestamp;
use sitemapd::model::Reason;
use sitemapd::queue::{LeaseRequest, Leased};
use sitemapd::store::views::{UrlState, UrlView};

use super::{CRAWL, DAY, DELAY, HOUR, Out, Run, SITES, host_of};
use crate::support::queue_daemon::ask;

impl Run {
    fn is_blocked(&self, url: &str) -> bool {
        let holds = |(pattern, prefix): &(String, bool)| {
            if *prefix { url.starts_with(pattern.as_str()) } else { url == pattern }
        };
        self.blocks.iter().any(holds)
    }

    async fn view(&self, url: &str) -> UrlView {
        self.all()[0].url(None, url.parse().unwrap()).await.unwrap()
    }

    pub(super) async fn given(&mut self, given: Vec<Leased>) {
        let now = self.now();
        let mut early = Vec::new();
        for one in given {
            let url = one.url.clone();
            let host = host_of(&url);
            if self.is_blocked(&url) {
                self.fail(&format!("{url} is blocked"));
            }
            let page = &self.pages[&url];
            if self.paused_sites.contains(&page.site) {
                self.fail(&format!("{url} is of a paused site"));
            }
            if page.out.as_ref().is_some_and(|out| out.until > now) {
                self.fail(&format!("{url} is with somebody"));
            }
            if page.floor.max(page.refused).is_some_and(|floor| floor > now) {
                self.fail(&format!("{url} was put off"));
            }
            if page.attempts.is_some_and(|attempts| one.attempt != attempts + 1) {
                self.fail(&format!("{url} is given as {}, {page:?}", one.attempt));
            }
            if self.clocks.get(&host).is_some_and(|clock| one.not_before < *clock) {
                self.fail(&format!("{url} before the clock of its host"));
            }
            if host == "http://c.test" {
                self.clocks.insert(host, one.not_before + DELAY);
            }
            if one.due_at > now {
                let is_refreshed = matches!(one.reason, Reason::Recrawl | Reason::Changed);
                if one.attempt != 1 || !is_refreshed || page.nothing || page.gone {
                    self.fail(&format!("{url} before it is due: {page:?}"));
                }
                early.push(url.clone());
            }
            let out = Out { token: one.token, until: one.expires_at, attempt: one.attempt };
            self.pages.get_mut(&url).unwrap().out = Some(out);
        }
        self.early += early.len();
        let price = self.lowest.min(self.price());
        for url in early {
            let numbers = self.view(&url).await.learned.unwrap().numbers;
            // What was believed of its host may be that of a few looks before.
            if numbers.value < 0.95 * price.min(numbers.price) {
                self.fail(&format!("{url} is worth {} of {price}", numbers.value));
            }
        }
    }

    /// Leases that have ended by now come back.
    pub(super) fn expire(&mut self) {
        let now = self.now();
        for page in self.pages.values_mut() {
            if let Some(out) = page.out.take_if(|out| out.until <= now) {
                page.attempts = Some(out.attempt);
                page.nothing = true;
            }
        }
    }

    /// All is had that somebody could have who asks for all, or for each site.
    pub(super) async fn drain_all(&mut self) {
        let (mut empty, by_site) = (0, self.dice.below(3) == 0);
        let sites: &[&str] = if by_site { &SITES } else { &[""] };
        for _ in 0..60 {
            let mut count = 0;
            for site in sites {
                let sites = if site.is_empty() { Vec::new() } else { vec![(*site).to_owned()] };
                let request = LeaseRequest { ttl: 6 * HOUR, sites, ..ask(1_000) };
                count += self.lease(request, 1).await;
            }
            if count == 0 {
                empty += 1;
                if empty > 4 {
                    break;
                }
                self.pass(Duration::from_secs(200)).await;
            }
        }
    }

    /// Nothing is left then that is due, or worth the price.
    pub(super) async fn drain(&mut self) {
        self.drain_all().await;
        let now = self.now();
        let urls: Vec<String> = self.pages.keys().cloned().collect();
        for url in urls {
            let host = host_of(&url);
            let page = &self.pages[&url];
            let waits = self.clocks.get(&host).is_some_and(|clock| *clock + 400 * DELAY > now);
            if waits || self.is_blocked(&url) || self.paused_sites.contains(&page.site) {
                continue;
            }
            let view = self.view(&url).await;
            let floor = page.floor.max(page.refused);
            if view.state != UrlState::Queued || floor.is_some_and(|floor| floor > now) {
                continue;
            }
            let due =
                self.look.number(&format!("SELECT due_s FROM queue WHERE url_id = {}", view.id.0));
            if due <= now.as_second() {
                self.fail(&format!("{url} is due and nobody gets it: {}", view.why));
            }
            if !page.nothing && !page.gone && is_worth_it(&view, now) {
                self.fail(&format!("{url} is worth it and nobody gets it: {}", view.why));
            }
        }
        let out: Vec<_> = self.pages.values().filter_map(|page| page.out.clone()).collect();
        let is_released = self.dice.below(2) == 0;
        self.say(format!("drained, released: {is_released}"));
        for out in out.iter().filter(|out| is_released && out.until > now) {
            self.release(out.token, Duration::ZERO).await;
        }
    }

    /// Whatever was done, all that is due can be had when all has been left alone for a while.
    pub(super) async fn rest(&mut self) {
        for name in std::mem::take(&mut self.paused_sites) {
            self.any().pause_site(name.to_owned(), false).await.unwrap();
        }
        for (pattern, prefix) in std::mem::take(&mut self.blocks) {
            self.any().unblock(CRAWL.to_owned(), pattern, prefix).await.unwrap();
        }
        self.pass(2 * DAY).await;
        for store in self.all() {
            while store.maintain().await.unwrap() {}
        }
        // The price moves with the first call; the other daemon hears of it a moment later.
        self.lease(ask(1), 1).await;
        self.all_know_the_price().await;
        self.drain().await;
        self.audit().await;
    }

    pub(super) async fn audit(&self) {
        let none = [
            ("has two places", "SELECT count(*) - count(DISTINCT url_id) FROM queue"),
            (
                "is leased and in the queue",
                "SELECT count(*) FROM queue q JOIN leases l ON l.url_id = q.url_id",
            ),
            (
                "is nowhere",
                "SELECT count(*) FROM urls u
                 LEFT JOIN feedback f ON f.url_id = u.id
                 LEFT JOIN queue q ON q.url_id = u.id LEFT JOIN leases l ON l.url_id = u.id
                 WHERE q.url_id IS NULL AND l.url_id IS NULL AND coalesce(f.state, 0) = 0",
            ),
            (
                "is held and in the queue",
                "SELECT count(*) FROM queue q JOIN feedback f ON f.url_id = q.url_id
                 WHERE f.state <> 0",
            ),
            (
                "stands elsewhere",
                "SELECT count(*) FROM queue q JOIN feedback f ON f.url_id = q.url_id
                 WHERE f.band <> q.band OR f.due_s <> q.due_s",
            ),
            (
                "is counted wrong",
                "SELECT count(*) FROM turns t WHERE t.queued <> (SELECT count(*) FROM queue q
                     WHERE q.host_id = t.host_id AND q.crawl_id = t.crawl_id)",
            ),
            (
                "is due before its host",
                "SELECT count(*) FROM turns t WHERE t.due_s > (SELECT min(q.due_s) FROM queue q
                     WHERE q.host_id = t.host_id AND q.crawl_id = t.crawl_id)",
            ),
            (
                "is of a site otherwise than that says",
                "SELECT count(*) FROM sites s WHERE s.urls <>
                     (SELECT count(*) FROM urls u WHERE u.site_id = s.id)",
            ),
        ];
        let each = none.map(|(what, sql)| format!("SELECT '{what}', ({sql})"));
        for row in self.look.rows(&each.join(" UNION ALL ")) {
            if row[1].as_deref() != Some("0") {
                self.fail(&format!("something {row:?}"));
            }
        }
        let now = self.now();
        let out = self.pages.values().filter_map(|page| page.out.as_ref());
        let out = out.filter(|out| out.until > now).count() as u64;
        let in_table = |sql: &str| self.look.number(sql).unsigned_abs();
        let queued = in_table("SELECT count(*) FROM queue");
        let held =
            |state: i64| in_table(&format!("SELECT count(*) FROM feedback WHERE state = {state}"));
        for store in self.all() {
            let counts = store.queue(Some(CRAWL.to_owned())).await.unwrap().remove(0);
            let told = (counts.queued, counts.leased);
            if told != (queued, out) {
                self.fail(&format!(
                    "{told:?} are told of {queued} that wait and {out} that are out"
                ));
            }
            let states = [counts.parked, counts.dead, counts.blocked, counts.forbidden];
            let of_table = [2, 3, 4, 5].map(held);
            if states != of_table {
                self.fail(&format!("{states:?} are told of {of_table:?}"));
            }
        }
    }
}

fn is_worth_it(view: &UrlView, now: Timestamp) -> bool {
    let Some(learned) = &view.learned else { return false };
    let is_long_ago = learned.seen_at + 2 * DAY < now;
    let is_refreshed = matches!(view.reason, Reason::Recrawl | Reason::Changed);
    let numbers = &learned.numbers;
    let is_worth = numbers.proof >= 1.0 && numbers.value > 1.1 * numbers.price;
    is_worth && is_refreshed && is_long_ago && view.attempt == 0
}
