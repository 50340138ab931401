//! What clients of the queue saw, and whether it keeps the queue's promises:
//! one holder at a time, nothing lost, nothing invented, nothing that was
//! settled delivered again, attempts counted one by one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use sitemapd::diff::snapshot::{Row as Listed, Snapshot};

use super::engine::{Look, Row};

/// How a client ended its lease, as far as it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Settled with success, and the answer was `ok`.
    Done,
    /// Settled as failed, and the answer was `ok`.
    Failed,
    /// Given back, and the answer was `ok`.
    Released,
    /// The call was made; what became of it is not known.
    Perhaps,
}

/// One delivery of a URL.
#[derive(Debug, Clone)]
struct Delivery {
    token: String,
    /// By the server's clock.
    granted: Timestamp,
    expires: Timestamp,
    attempt: u32,
    /// When the answer came, in the order of all events.
    answered: u64,
    /// When the call that ended it was made, and how it ended.
    ended: Option<(u64, End)>,
}

/// The history of all clients of one queue.
#[derive(Debug, Default)]
pub struct History {
    order: AtomicU64,
    deliveries: Mutex<BTreeMap<i64, Vec<Delivery>>>,
}

impl History {
    /// The place of an event among all events.
    pub fn now(&self) -> u64 {
        self.order.fetch_add(1, Ordering::SeqCst)
    }

    /// A client got a lease.
    pub fn leased(
        &self,
        id: i64,
        token: String,
        granted: Timestamp,
        expires: Timestamp,
        attempt: u32,
    ) {
        let answered = self.now();
        let delivery = Delivery { token, granted, expires, attempt, answered, ended: None };
        self.deliveries.lock().unwrap().entry(id).or_default().push(delivery);
    }

    /// A client ended a lease with a call made at `called`.
    pub fn ended(&self, id: i64, token: &str, called: u64, end: End) {
        let mut all = self.deliveries.lock().unwrap();
        let delivery = all
            .get_mut(&id)
            .and_then(|list| list.iter_mut().find(|delivery| delivery.token == token))
            .unwrap();
        assert_eq!(delivery.ended.map(|(_, end)| end).filter(|end| *end != End::Perhaps), None);
        delivery.ended = Some((called, end));
    }

    /// URLs that were settled with success.
    pub fn done(&self) -> usize {
        let all = self.deliveries.lock().unwrap();
        all.values()
            .filter(|list| list.iter().any(|d| matches!(d.ended, Some((_, End::Done)))))
            .count()
    }

    /// Deliveries in all.
    pub fn deliveries(&self) -> usize {
        self.deliveries.lock().unwrap().values().map(Vec::len).sum()
    }

    /// Tokens whose settling was answered `ok`, with their URLs.
    pub fn settled(&self) -> Vec<(i64, End)> {
        let all = self.deliveries.lock().unwrap();
        all.iter()
            .flat_map(|(id, list)| list.iter().filter_map(|d| Some((*id, d.ended?.1))))
            .filter(|(_, end)| *end != End::Perhaps)
            .collect()
    }

    /// Checks every promise that a history can break. `known` are the URLs
    /// there are; nothing changed meanwhile, so no success is delivered again.
    pub fn check(&self, known: &[i64]) {
        let all = self.deliveries.lock().unwrap();
        let mut tokens = HashMap::new();
        for (id, list) in all.iter() {
            assert!(known.contains(id), "URL {id} was invented");
            let mut list = list.clone();
            list.sort_by_key(|delivery| (delivery.granted, delivery.answered));
            for delivery in &list {
                let before = tokens.insert(delivery.token.clone(), *id);
                assert_eq!(before, None, "token {} was given twice", delivery.token);
            }
            assert_eq!(list[0].attempt, 1, "URL {id}: {list:#?}");
            for pair in list.windows(2) {
                let [first, second] = pair else { unreachable!() };
                let over = first.expires <= second.granted;
                let ended = first.ended.is_some_and(|(called, _)| called < second.answered);
                assert!(over || ended, "URL {id} had two holders: {pair:#?}");
                let end = first.ended.map(|(_, end)| end);
                assert_ne!(end, Some(End::Done), "URL {id} was done and came again: {pair:#?}");
                if end != Some(End::Perhaps) {
                    let counted = u32::from(end != Some(End::Released));
                    assert_eq!(second.attempt, first.attempt + counted, "URL {id}: {pair:#?}");
                }
            }
        }
    }
}

/// Checks that the tables agree with each other: each URL in exactly one
/// place, and the counts of the turns right.
pub fn audit(look: &Look) {
    let none: Vec<Row> = Vec::new();
    // The URL, times queued, whether it is leased, its state.
    let places = "
        WITH q AS (SELECT url_id, count(*) AS n FROM queue GROUP BY url_id)
        SELECT id, queued, leased, state FROM (
            SELECT u.id AS id, coalesce(q.n, 0) AS queued,
                CASE WHEN l.url_id IS NULL THEN 0 ELSE 1 END AS leased,
                coalesce(f.state, 0) AS state
            FROM urls u LEFT JOIN q ON q.url_id = u.id LEFT JOIN leases l ON l.url_id = u.id
            LEFT JOIN feedback f ON f.url_id = u.id) AS places
        WHERE queued + leased + CASE WHEN state > 1 THEN 1 ELSE 0 END <> 1";
    assert_eq!(look.rows(places), none);
    // Those that stand elsewhere in the queue.
    let moved = "
        SELECT q.url_id, q.band, q.due_s, u.band, f.band, u.first_seen_s, f.due_s
        FROM queue q LEFT JOIN urls u ON u.id = q.url_id LEFT JOIN feedback f ON f.url_id = u.id
        WHERE u.id IS NULL OR q.crawl_id <> u.crawl_id OR q.host_id <> u.host_id
           OR q.band <> coalesce(f.band, u.band) OR q.due_s <> coalesce(f.due_s, u.first_seen_s)";
    assert_eq!(look.rows(moved), none);
    // Hosts, queued and counted, due and taken to be.
    let turns = "
        WITH q AS (SELECT crawl_id, host_id, count(*) AS n, min(due_s) AS due
                   FROM queue GROUP BY crawl_id, host_id)
        SELECT q.host_id, q.n, t.queued, q.due, t.due_s
        FROM q LEFT JOIN turns t ON t.crawl_id = q.crawl_id AND t.host_id = q.host_id
        WHERE t.queued IS NULL OR t.queued <> q.n OR t.due_s > q.due
        UNION ALL
        SELECT t.host_id, 0, t.queued, 0, 0
        FROM turns t LEFT JOIN q ON q.crawl_id = t.crawl_id AND q.host_id = t.host_id
        WHERE q.n IS NULL AND t.queued <> 0";
    assert_eq!(look.rows(turns), none);
    if let Look::File(_) = look {
        assert_eq!(look.text("PRAGMA integrity_check").as_deref(), Some("ok"));
    }
}

/// Each entry that a source is known to list has its row.
pub fn snapshots_are_sound(look: &Look) {
    let column = |sql: &str| look.rows(sql).into_iter().flatten().flatten();
    let ids: BTreeSet<i64> =
        column("SELECT id FROM urls").map(|text| text.parse().unwrap()).collect();
    if let Look::File(_) = look {
        // There they are given out one by one.
        assert_eq!(ids.last().copied(), i64::try_from(ids.len()).ok(), "a row is missing");
    }
    for packed in column("SELECT data FROM snapshots") {
        let byte = |at| u8::from_str_radix(&packed[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..packed.len()).step_by(2).map(byte).collect();
        for entry in Snapshot::decode(&bytes).unwrap().into_entries() {
            if let Listed::Url(id) = entry.row {
                assert!(ids.contains(&id.0), "entry of row {}", id.0);
            }
        }
    }
}

/// Repeatable chance (xorshift64*): a seed that fails can be run again.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32;
        high % limit
    }
}
