//! What concurrent clients of a daemon were told while it was killed, stopped
//! and its clock stepped, and whether that keeps the promises of a queue:
//!
//! 1. Nothing that was answered is lost.
//! 2. Nothing is invented.
//! 3. A URL has one holder at a time, by the time that really passed.
//! 4. An old token changes nothing, and settling twice is settling once.
//! 5. What was settled comes again for a newer change only, or if asked for.
//! 6. Attempts are counted one by one, and not forgotten.
//! 7. A call without an answer may have worked or not.
//! 8. What changes while it is leased is delivered again.
//!
//! The clients keep it, in their own time. The daemon's tables are read after it
//! was killed.

mod rules;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use sitemapd::clock::Clock;

use super::engine::Look;
use rules::{Rows, check_order};

/// Rounding of the two clocks that are compared.
const ROUNDING: Duration = Duration::from_millis(20);
/// The same where daemons share the work: each has read the server's clock, and
/// that took a moment.
const ROUNDING_OF_SEVERAL: Duration = Duration::from_millis(250);
/// A call that took longer may have been passed on twice: its owner has died.
const PASSED_ON_ONCE: Duration = Duration::from_millis(150);

/// How a client ends a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Settled,
    Failed,
    Released,
}

/// How far that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// Called, and not answered (yet).
    Perhaps(Act),
    Done(Act),
    /// The call came too late.
    Late,
}

/// One delivery of a URL.
#[derive(Debug, Clone)]
struct Delivery {
    token: String,
    /// In which life of the daemon, and when by its clock: their order.
    life: u32,
    granted: Timestamp,
    answered: Instant,
    /// Held until then at least, and then at most.
    until: Instant,
    latest: Instant,
    attempt: u64,
    reason: String,
    lastmod: Option<Timestamp>,
    end: End,
    /// When the call that ended it was made.
    ended: Option<Instant>,
}

/// A lease as it was answered.
#[derive(Debug, Clone)]
pub struct Lease {
    pub id: i64,
    pub url: String,
    pub token: String,
    pub expires: Timestamp,
    pub attempt: u64,
    pub reason: String,
    pub lastmod: Option<Timestamp>,
}

/// A token that somebody holds, or forgot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub id: i64,
    pub token: String,
}

/// What happened, in numbers.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    pub leases: u64,
    pub settles: u64,
    pub releases: u64,
    pub extends: u64,
    pub requeues: u64,
    pub stale: u64,
    pub unanswered: u64,
    pub checks: u64,
}

#[derive(Default)]
struct Book {
    urls: HashMap<i64, Vec<Delivery>>,
    names: HashMap<i64, String>,
    tokens: BTreeSet<String>,
    /// Held by whoever takes them next.
    open: Vec<Held>,
    /// Left alone until they are over.
    forgotten: Vec<Held>,
    /// Rows that somebody asked for and was answered, and when the call was made.
    asked: HashMap<i64, Instant>,
    /// The same, answered or not.
    asking: BTreeSet<i64>,
    /// Delivered since the last check.
    touched: BTreeSet<i64>,
    totals: Totals,
    life: u32,
    /// The highest poll that was listed.
    polls: i64,
    rows: i64,
    is_of_several: bool,
    /// One moment by two clocks, neither of them the daemon's.
    began: Option<(Timestamp, Instant)>,
}

impl Book {
    /// When a lease was given that the daemon's wall clock says was given then, by a
    /// clock that nobody steps: it is stepped by hours only.
    fn unstepped(&mut self, told: Timestamp, answered: Instant) -> Timestamp {
        const STEP: i64 = 1_800;
        let (start, began) = *self.began.get_or_insert((Clock::system().now(), answered));
        let here = start + answered.duration_since(began);
        let ahead = told.duration_since(here).as_secs();
        let steps = (ahead + STEP / 2).div_euclid(STEP);
        told - SignedDuration::from_secs(steps * STEP)
    }
}

/// The book of all clients.
#[derive(Default)]
pub struct Ledger(Mutex<Book>);

impl Ledger {
    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A book of the clients of daemons that share their work.
    pub fn of_several() -> Self {
        Self(Mutex::new(Book { is_of_several: true, ..Book::default() }))
    }

    /// The daemon lives again.
    pub fn next_life(&self) {
        self.book().life += 1;
    }

    pub fn totals(&self) -> Totals {
        self.book().totals.clone()
    }

    /// A call was answered with these leases; it was made at `called`, and each
    /// lasts for `ttl` from some time after that on.
    pub fn leased(&self, leases: &[Lease], called: Instant, ttl: Duration) {
        let answered = Instant::now();
        let mut book = self.book();
        for lease in leases {
            assert!(book.tokens.insert(lease.token.clone()), "token {} twice", lease.token);
            let known = book.names.entry(lease.id).or_insert_with(|| lease.url.clone());
            assert_eq!(*known, lease.url, "row {} is two URLs", lease.id);
            let granted = book.unstepped(lease.expires - ttl, answered);
            let delivery = Delivery {
                token: lease.token.clone(),
                life: book.life,
                granted,
                answered,
                until: called + ttl,
                latest: answered + ttl,
                attempt: lease.attempt,
                reason: lease.reason.clone(),
                lastmod: lease.lastmod,
                end: End::Open,
                ended: None,
            };
            book.urls.entry(lease.id).or_default().push(delivery);
            book.open.push(Held { id: lease.id, token: lease.token.clone() });
            book.touched.insert(lease.id);
            book.totals.leases += 1;
        }
    }

    /// Nobody heard the answer.
    pub fn unanswered(&self) {
        self.book().totals.unanswered += 1;
    }

    /// So many answers of one daemon to another may have been lost.
    pub fn unheard(&self, count: u64) {
        self.book().totals.unanswered += count;
    }

    /// Some tokens that nobody else uses from now on, by `pick` of how many.
    pub fn take(&self, count: usize, mut pick: impl FnMut(usize) -> usize) -> Vec<Held> {
        let mut book = self.book();
        let mut taken = Vec::new();
        while taken.len() < count && !book.open.is_empty() {
            let index = pick(book.open.len());
            taken.push(book.open.swap_remove(index));
        }
        taken
    }

    /// The same of these only, as far as nobody else has them.
    pub fn take_these(&self, wanted: &[Held]) -> Vec<Held> {
        let mut book = self.book();
        let (taken, left) = std::mem::take(&mut book.open)
            .into_iter()
            .partition(|held| wanted.iter().any(|one| one.token == held.token));
        book.open = left;
        taken
    }

    /// Tokens are given back to be used again.
    pub fn keep(&self, held: Vec<Held>) {
        self.book().open.extend(held);
    }

    /// Tokens are left to expire.
    pub fn forget(&self, held: Vec<Held>) {
        self.book().forgotten.extend(held);
    }

    /// A token that was left alone and is over by now.
    pub fn over(&self) -> Option<Held> {
        let mut book = self.book();
        let now = Instant::now();
        let rounding = book.rounding();
        let index = book.forgotten.iter().position(|held| {
            let list = &book.urls[&held.id];
            list.iter().any(|d| d.token == held.token && d.latest + rounding < now)
        })?;
        Some(book.forgotten.swap_remove(index))
    }

    /// A URL that was delivered once, by `pick` of how many.
    pub fn some_url(&self, mut pick: impl FnMut(usize) -> usize) -> Option<(i64, String)> {
        let book = self.book();
        let index = if book.names.is_empty() { return None } else { pick(book.names.len()) };
        book.names.iter().nth(index).map(|(id, url)| (*id, url.clone()))
    }

    /// Somebody is about to ask for a URL.
    pub fn asking(&self, id: i64) -> Instant {
        self.book().asking.insert(id);
        Instant::now()
    }

    /// That call, made at `called`, was answered.
    pub fn asked(&self, id: i64, called: Instant) {
        let mut book = self.book();
        book.asked.insert(id, called);
        book.totals.requeues += 1;
    }

    /// A poll is listed.
    pub fn polled(&self, id: i64) {
        let mut book = self.book();
        book.polls = book.polls.max(id);
    }

    /// A call that ends leases is about to be made.
    pub fn ending(&self, held: &[Held], act: Act) -> Instant {
        let called = Instant::now();
        let mut book = self.book();
        for held in held {
            let delivery = book.delivery(held);
            delivery.end = End::Perhaps(act);
            delivery.ended.get_or_insert(called);
        }
        called
    }

    /// It was answered with `result`.
    pub fn ended(&self, held: &Held, act: Act, called: Instant, result: &str) {
        let mut book = self.book();
        let answered = Instant::now();
        let rounding = book.rounding();
        let may_be_second = book.is_of_several && answered - called > PASSED_ON_ONCE;
        let delivery = book.delivery(held);
        match result {
            "ok" => {
                assert!(
                    called < delivery.latest + rounding,
                    "ended when it was over: {delivery:#?}"
                );
                delivery.end = End::Done(act);
                match act {
                    Act::Settled | Act::Failed => book.totals.settles += 1,
                    Act::Released => book.totals.releases += 1,
                }
            }
            "stale" | "unknown" if may_be_second => book.totals.stale += 1,
            "stale" | "unknown" => {
                let was_held = answered + rounding < delivery.until;
                assert!(!was_held, "its holder was turned away ({result}): {delivery:#?}");
                delivery.end = End::Late;
                delivery.ended = None;
                book.totals.stale += 1;
            }
            other => panic!("{other} is no result"),
        }
    }

    /// A late or doubled call was answered.
    pub fn fenced(&self, held: &Held, result: &str) {
        let mut book = self.book();
        let delivery = book.delivery(held);
        let settled = matches!(delivery.end, End::Done(_) | End::Perhaps(_));
        assert!(result != "ok" || settled, "an old token was taken: {delivery:#?}");
        book.totals.stale += u64::from(result != "ok");
    }

    /// A lease was, or may have been, prolonged by a call made at `called`.
    pub fn extended(&self, held: &Held, called: Instant, ttl: Duration, result: Option<&str>) {
        let answered = Instant::now();
        let mut book = self.book();
        let rounding = book.rounding();
        let delivery = book.delivery(held);
        match result {
            Some("ok") => {
                assert!(called < delivery.latest + rounding, "prolonged when over: {delivery:#?}");
                (delivery.until, delivery.latest) = (called + ttl, answered + ttl);
                book.totals.extends += 1;
            }
            Some(result) => {
                let was_held = answered + rounding < delivery.until;
                assert!(!was_held, "its holder was turned away ({result}): {delivery:#?}");
                book.totals.stale += 1;
            }
            None => {
                delivery.until = delivery.until.min(called + ttl);
                delivery.latest = delivery.latest.max(answered + ttl);
            }
        }
    }

    /// Checks what was told since the last check, and all of it against the
    /// tables of a daemon that is dead. `listed` is everything that any
    /// document named; `now_s` is late by the daemon's clock.
    pub fn check(&self, look: &Look, listed: &BTreeMap<String, Timestamp>, now_s: i64) {
        let mut book = self.book();
        let rounding = book.rounding();
        for id in std::mem::take(&mut book.touched) {
            let name = &book.names[&id];
            assert!(listed.contains_key(name), "{name} was invented");
            let unanswered = book.totals.unanswered;
            let asked = book.asking.contains(&id);
            let list = book.urls.get_mut(&id).unwrap();
            list.sort_by_key(|delivery| (delivery.life, delivery.granted, delivery.answered));
            check_order(list, asked, unanswered, rounding);
        }
        let kept = Rows::read(look);
        for (id, list) in &book.urls {
            kept.check(*id, list, book.asked.get(id), now_s, rounding);
        }
        let polls = look.number("SELECT coalesce(max(id), 0) FROM polls");
        assert!(polls >= book.polls, "poll {} is lost", book.polls);
        let rows = look.number("SELECT count(*) FROM urls");
        assert!(rows >= book.rows, "of {} rows {rows} are left", book.rows);
        book.rows = rows;
        book.totals.checks += 1;
    }

    /// After all was read and delivered: the last version of each URL was
    /// settled, unless it was given up.
    pub fn check_end(&self, look: &Look, listed: &BTreeMap<String, Timestamp>) {
        let book = self.book();
        let mut delivered: BTreeMap<&str, Option<Timestamp>> = BTreeMap::new();
        for (id, list) in &book.urls {
            let done = list.iter().filter(|delivery| {
                matches!(delivery.end, End::Done(Act::Settled) | End::Perhaps(Act::Settled))
            });
            let last = done.filter_map(|delivery| delivery.lastmod).max();
            delivered.insert(&book.names[id], last);
        }
        let dead = look.rows(
            "SELECT u.url FROM url_view u JOIN feedback f ON f.url_id = u.id WHERE f.state = 3",
        );
        let dead: BTreeSet<String> = dead.into_iter().flatten().flatten().collect();
        for (url, lastmod) in listed {
            let seen = delivered.get(url.as_str()).copied().flatten();
            if seen != Some(*lastmod) && !dead.contains(url) {
                let view = format!("SELECT state, due FROM url_view WHERE url = '{url}'");
                let state = look.rows(&view);
                panic!("{url} is listed as of {lastmod}, settled as of {seen:?}, and {state:?}");
            }
        }
    }
}

impl Book {
    fn rounding(&self) -> Duration {
        if self.is_of_several { ROUNDING_OF_SEVERAL } else { ROUNDING }
    }

    fn delivery(&mut self, held: &Held) -> &mut Delivery {
        let list = self.urls.get_mut(&held.id).unwrap();
        list.iter_mut().find(|delivery| delivery.token == held.token).unwrap()
    }
}
