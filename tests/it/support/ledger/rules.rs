//! The rules themselves: what may follow what among the deliveries of a URL, and
//! what its row must show.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::{Act, Delivery, End};
use crate::support::engine::Look;
use crate::support::record::Kept;

/// Rules 3, 5 and 6 over the deliveries of one URL.
pub(super) fn check_order(
    list: &[Delivery],
    was_asked_for: bool,
    unanswered: u64,
    rounding: Duration,
) {
    for pair in list.windows(2) {
        let [first, second] = pair else { unreachable!() };
        let is_over = first.until < second.answered + rounding;
        let is_ended = first.ended.is_some_and(|called| called < second.answered);
        assert!(is_over || is_ended, "two holders: {pair:#?}");
        if first.end == End::Done(Act::Settled) {
            let is_newer = second.lastmod > first.lastmod;
            assert!(
                is_newer || was_asked_for && second.reason == "submitted",
                "settled, and delivered again for nothing: {pair:#?}"
            );
        }
        let is_anew = matches!(second.reason.as_str(), "changed" | "submitted");
        let least = match first.end {
            End::Done(Act::Settled) | End::Perhaps(Act::Settled) => 1,
            End::Done(Act::Released) | End::Perhaps(Act::Released) => first.attempt,
            End::Done(Act::Failed) | End::Perhaps(Act::Failed) | End::Open | End::Late => {
                first.attempt + 1
            }
        };
        assert!(is_anew || second.attempt >= least, "attempts were forgotten: {pair:#?}");
    }
    // Beside those that are known there are those whose answer nobody heard.
    let most = list.len() as u64 + unanswered;
    assert!(list.iter().all(|delivery| delivery.attempt <= most), "{list:#?}");
}

/// What the tables have of each URL.
pub(super) struct Rows(HashMap<i64, Row>);

impl Rows {
    /// All of them.
    pub(super) fn read(look: &Look) -> Self {
        let sql = "
            SELECT u.id, l.token, coalesce(l.dirty, 0), coalesce(l.reason, 0),
                u.lastmod_s, q.due_s, q.band, coalesce(f.attempt, 0), coalesce(f.state, 0), f.record
            FROM urls u LEFT JOIN feedback f ON f.url_id = u.id LEFT JOIN leases l ON l.url_id = u.id
            LEFT JOIN queue q ON q.crawl_id = u.crawl_id AND q.host_id = u.host_id
                AND q.band = coalesce(f.band, u.band) AND q.due_s = coalesce(f.due_s, u.first_seen_s)
                AND q.url_id = u.id";
        let read = |row: Vec<Option<String>>| {
            let [id, token, dirty, reason, lastmod_s, due_s, band, attempt, state, record] =
                <[_; 10]>::try_from(row).unwrap();
            let number = |text: Option<String>| text.map(|text| text.parse::<i64>().unwrap());
            let row = Row {
                fetches: record.map_or(0, |packed| Kept::of_hex(&packed).fetches),
                token,
                dirty: number(dirty).unwrap(),
                reason: number(reason).unwrap(),
                lastmod_s: number(lastmod_s),
                due_s: number(due_s),
                band: number(band),
                attempt: number(attempt).unwrap(),
                state: number(state).unwrap(),
            };
            (number(id).unwrap(), row)
        };
        Self(look.rows(sql).into_iter().map(read).collect())
    }

    /// Rules 1, 4, 7 and 8 in the row of one URL.
    pub(super) fn check(
        &self,
        id: i64,
        list: &[Delivery],
        asked: Option<&Instant>,
        now_s: i64,
        rounding: Duration,
    ) {
        let row = self.0.get(&id).unwrap_or_else(|| panic!("row {id} is lost"));
        row.check(list, asked, now_s, rounding);
    }
}

#[derive(Debug)]
struct Row {
    fetches: u64,
    token: Option<String>,
    dirty: i64,
    reason: i64,
    lastmod_s: Option<i64>,
    due_s: Option<i64>,
    band: Option<i64>,
    attempt: i64,
    state: i64,
}

impl Row {
    fn check(&self, list: &[Delivery], asked: Option<&Instant>, now_s: i64, rounding: Duration) {
        let count = |wanted: &[End]| list.iter().filter(|d| wanted.contains(&d.end)).count();
        let done = count(&[End::Done(Act::Settled), End::Done(Act::Failed)]);
        let perhaps = count(&[End::Perhaps(Act::Settled), End::Perhaps(Act::Failed)]);
        assert!(
            (done..=done + perhaps).contains(&usize::try_from(self.fetches).unwrap()),
            "{done} settled, {perhaps} perhaps, and kept are {}: {list:#?}",
            self.fetches
        );
        let Some(delivery) = list.last() else { return };
        let now = Instant::now();
        if delivery.end == End::Open && now + rounding < delivery.until {
            let kept = self.token.as_deref() == Some(&delivery.token[..32]);
            assert!(kept, "the lease is lost: {delivery:#?}, {self:?}");
        }
        let is_held = self.token.as_ref().is_some_and(|token| !token.is_empty());
        let is_due =
            self.due_s.is_some_and(|due| due <= now_s) || self.attempt > 0 || self.state == 3;
        let known = self.lastmod_s.and_then(|s| Timestamp::from_second(s).ok());
        if delivery.end == End::Done(Act::Settled) && known > delivery.lastmod {
            assert!(is_held || is_due, "a change is lost: {delivery:#?}, {self:?}");
        }
        if asked.is_some_and(|at| *at > delivery.answered) {
            let is_first = self.band == Some(102) || self.dirty > 0 || is_held && self.reason == 3;
            assert!(is_first || self.attempt > 0, "an order is lost: {delivery:#?}, {self:?}");
        }
    }
}
