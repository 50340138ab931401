//! The rules themselves: what may follow what among the deliveries of a URL, and
//! what its row must show.

use std::time::Instant;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _};

use super::{Act, Delivery, End, ROUNDING};
use crate::support::record::Kept;

/// Rules 3, 5 and 6 over the deliveries of one URL.
pub(super) fn check_order(list: &[Delivery], was_asked_for: bool, unanswered: u64) {
    for pair in list.windows(2) {
        let [first, second] = pair else { unreachable!() };
        let is_over = first.until < second.answered + ROUNDING;
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

/// Rules 1, 4, 7 and 8 in the row of one URL.
pub(super) fn check_row(
    conn: &Connection,
    id: i64,
    list: &[Delivery],
    asked: Option<&Instant>,
    now_s: i64,
) {
    let count = |wanted: &[End]| list.iter().filter(|d| wanted.contains(&d.end)).count();
    let done = count(&[End::Done(Act::Settled), End::Done(Act::Failed)]);
    let perhaps = count(&[End::Perhaps(Act::Settled), End::Perhaps(Act::Failed)]);
    let mut query = conn
        .prepare_cached(
            "SELECT hex(l.token), coalesce(l.dirty, 0), coalesce(l.reason, 0),
                 u.lastmod_s, q.due_s, q.band, coalesce(f.attempt, 0), coalesce(f.state, 0)
             FROM urls u LEFT JOIN feedback f ON f.url_id = u.id LEFT JOIN leases l ON l.url_id = u.id
             LEFT JOIN queue q ON q.crawl_id = u.crawl_id AND q.host_id = u.host_id
                 AND q.band = coalesce(f.band, u.band) AND q.due_s = coalesce(f.due_s, u.first_seen_s)
                 AND q.url_id = u.id WHERE u.id = ?1",
        )
        .unwrap();
    let row = query.query_row([id], |row| {
        Ok(Row {
            fetches: Kept::of(conn, id).fetches,
            token: row.get(0)?,
            dirty: row.get(1)?,
            reason: row.get(2)?,
            lastmod_s: row.get(3)?,
            due_s: row.get(4)?,
            band: row.get(5)?,
            attempt: row.get(6)?,
            state: row.get(7)?,
        })
    });
    let row: Row = row.optional().unwrap().unwrap_or_else(|| panic!("row {id} is lost"));
    assert!(
        (done..=done + perhaps).contains(&usize::try_from(row.fetches).unwrap()),
        "{done} settled, {perhaps} perhaps, and kept are {}: {list:#?}",
        row.fetches
    );
    let Some(delivery) = list.last() else { return };
    let now = Instant::now();
    if delivery.end == End::Open && now + ROUNDING < delivery.until {
        let kept =
            row.token.as_deref().is_some_and(|token| delivery.token[..32].to_uppercase() == token);
        assert!(kept, "the lease is lost: {delivery:#?}, {row:?}");
    }
    let is_held = row.token.as_ref().is_some_and(|token| !token.is_empty());
    let is_due = row.due_s.is_some_and(|due| due <= now_s) || row.attempt > 0 || row.state == 3;
    let known = row.lastmod_s.and_then(|s| Timestamp::from_second(s).ok());
    if delivery.end == End::Done(Act::Settled) && known > delivery.lastmod {
        assert!(is_held || is_due, "a change is lost: {delivery:#?}, {row:?}");
    }
    if asked.is_some_and(|at| *at > delivery.answered) {
        let is_first = row.band == Some(102) || row.dirty > 0 || is_held && row.reason == 3;
        assert!(is_first || row.attempt > 0, "an order is lost: {delivery:#?}, {row:?}");
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
