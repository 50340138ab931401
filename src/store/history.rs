//! Fetches of the past, taken in as if they had been reported then; and all that
//! is known of every URL, for those who take it elsewhere.
//!
//! A fetch that is not newer than what is known of its URL changes nothing, so
//! taking in the same history twice is harmless. Nothing is fetched for being
//! in a history: only URLs that are known are trained.

use std::sync::Arc;

use super::sql::{Connection, params};
use jiff::Timestamp;
use url::Url;

use super::hindrance::Hindrances;
use super::policy::Policy;
use super::rows::{UrlRow, held};
use super::settle::{derive_outcome, note_fetch};
use super::state::State;
use super::views::{Page, UrlView};
use super::worth::look_of;
use super::{StoreError, engine, timestamp, url_reads};
use crate::model::{CrawlId, Outcome, Reason, UrlId};
use crate::queue::{Settlement, Token};
use crate::recrawl::model::UrlState;
use crate::recrawl::signal::Signal;
use crate::recrawl::{self, Fate};

/// Text of extensions after which a page of URLs ends.
const MAX_SAID_BYTES: usize = 8 * 1024 * 1024;

/// One fetch of the past.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct PastFetch {
    /// What was fetched.
    pub url: Url,
    /// When.
    pub at: Timestamp,
    /// Was it another page than at the fetch before? `None` where the hash tells,
    /// or nobody compared.
    pub changed: Option<bool>,
    /// Hash of its content.
    pub content_hash: Option<String>,
    /// What the hash is over.
    pub hash_kind: Option<String>,
}

/// What became of fetches of the past.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
pub struct Imported {
    /// Taken in.
    pub taken: u64,
    /// Of URLs that no source lists.
    pub unknown: u64,
    /// Not newer than what was known of the URL, not past, or from before 1970.
    pub ignored: u64,
}

impl State {
    /// Takes in fetches of the past, oldest first.
    pub(super) fn import(
        &mut self,
        crawl: &str,
        mut fetches: Vec<PastFetch>,
    ) -> Result<Imported, StoreError> {
        let crawl = self.known_crawl(crawl)?;
        fetches.sort_by_key(|fetch| fetch.at);
        self.gathering(|state| {
            state.look_up_ahead(crawl, fetches.iter().map(|fetch| &fetch.url))?;
            let mut imported = Imported::default();
            for fetch in &fetches {
                match state.import_one(crawl, fetch)? {
                    Some(true) => imported.taken += 1,
                    Some(false) => imported.ignored += 1,
                    None => imported.unknown += 1,
                }
            }
            Ok(imported)
        })
    }

    /// Was it taken in? `None` where its URL is not known.
    fn import_one(
        &mut self,
        crawl: CrawlId,
        fetch: &PastFetch,
    ) -> Result<Option<bool>, StoreError> {
        let Some(mut row) = self.find_normalised(crawl, &fetch.url)? else { return Ok(None) };
        self.must_own(row.host.0)?;
        // As it is kept: else it would be newer than itself.
        let at = timestamp(fetch.at.as_millisecond());
        let is_past = (Timestamp::UNIX_EPOCH..=timestamp(self.steady_ms())).contains(&at);
        if !is_past || !is_newer(&row, at) {
            return Ok(Some(false));
        }
        let report = report(fetch, row.id);
        let outcome = report.outcome.unwrap_or_else(|| derive_outcome(&report, &row));
        if let Some(look) = look_of(outcome, &report, &row) {
            // A log has no pages that are gone: it was there again.
            row.record.gone = 0;
            // What was edited after that fetch, as its date says, or came after it is for
            // the next one.
            let is_edited = is_edited_since(&row, at);
            let since = is_edited || is_signalled_since(&row, at);
            let mut learned = self.look(&row, look, at, since)?;
            if is_edited && let Some(learned) = &mut learned {
                self.note_edit(&row, learned)?;
            }
            row.record.keep_looks(learned);
        }
        let hash = (report.content_hash, report.hash_kind);
        let is_signalled = is_signalled_since(&row, at);
        note_fetch(&mut row.record, at.as_millisecond(), outcome, hash);
        if let Some(fetched) = &mut row.record.fetched {
            fetched.forget_page();
        }
        self.write_record(&row)?;
        row.has_feedback = true;
        let waits = matches!(row.reason, Reason::New | Reason::Recrawl | Reason::Changed);
        if row.is_queued() && row.listed && row.attempt == 0 && waits {
            self.place_after(&row, outcome, at, is_signalled)?;
        }
        Ok(Some(true))
    }

    /// The date of a page says that it was edited since its last look: of that it has a
    /// signal, unless one was noted when the date was seen. There was nowhere to note it
    /// while nobody had looked.
    fn note_edit(&mut self, row: &UrlRow, learned: &mut UrlState) -> Result<(), StoreError> {
        let is_noted = learned.pending().iter().any(|(_, count)| *count > 0);
        if self.policy.learns() && !is_noted {
            learned.signal(self.moves_of(row)?);
        }
        Ok(())
    }

    /// Gives a URL the place that it would have had after that fetch: where its source
    /// says that it was edited since, as soon as that is believed.
    fn place_after(
        &mut self,
        row: &UrlRow,
        outcome: Outcome,
        at: Timestamp,
        is_signalled: bool,
    ) -> Result<(), StoreError> {
        let now_s = self.steady_ms().div_euclid(1000);
        let is_edited = is_edited_since(row, at) && self.believes_dates_of(row)?;
        let has_changed = is_signalled && row.reason == Reason::Changed;
        let reason = if is_edited || has_changed { Reason::Changed } else { Reason::Recrawl };
        let valued = self.valued(row)?;
        if has_changed && valued.is_none() {
            return Ok(());
        }
        if is_edited && valued.is_none() {
            let band = self.rank(row, reason, now_s)?;
            let due_s = row.soonest(reason, now_s);
            return self.place_url(row, held::QUEUED, reason, band, due_s, 0);
        }
        let bounds = Arc::clone(&self.policy.of(row.site).bounds);
        let known = row.known(0, now_s);
        let Fate::Queue { mut due, .. } = recrawl::after_settle(outcome, at, &known, &bounds)
        else {
            return Ok(());
        };
        if let Some(valued) = valued {
            // What waits for it weighs in its value already.
            let surfaces = valued.place(timestamp(now_s.saturating_mul(1000))).surfaces;
            due = self.due_by_value(row, surfaces, at)?;
        }
        let band = self.rank(row, reason, now_s)?;
        let due_s = due.as_second().max(row.record.floor_s().unwrap_or(i64::MIN));
        self.place_url(row, held::QUEUED, reason, band, due_s, 0)
    }
}

/// Does the date of a page say that it was edited after a fetch?
fn is_edited_since(row: &UrlRow, at: Timestamp) -> bool {
    row.lastmod.is_some_and(|lastmod| lastmod.at > at)
}

/// Did something say that a page has moved that may have come after a fetch? Of what has
/// no date it is only known that it came after the last look, and, where the URL was
/// pulled forward for it, before it is due.
fn is_signalled_since(row: &UrlRow, at: Timestamp) -> bool {
    let may_be_since = row.reason != Reason::Changed || row.due_s > at.as_second();
    let undated = |learned: UrlState| {
        [Signal::Touched, Signal::Pushed].iter().any(|kind| learned.pending()[*kind] > 0)
    };
    let is_undated = row.learned().is_some_and(undated);
    may_be_since && (is_undated || row.reason == Reason::Changed && row.lastmod.is_none())
}

/// Does a fetch tell more than what is known?
fn is_newer(row: &UrlRow, at: Timestamp) -> bool {
    known_until(row).is_none_or(|known| known < at)
}

/// When a URL was fetched last, as far as anybody has told.
pub(super) fn known_until(row: &UrlRow) -> Option<Timestamp> {
    let looked = row.learned().map(|learned| learned.seen());
    let fetched = row.record.fetched.as_ref().map(super::record::Fetched::time);
    looked.max(fetched)
}

/// The fetch as its fetcher would have reported it.
fn report(fetch: &PastFetch, url: UrlId) -> Settlement {
    let outcome = match (fetch.changed, &fetch.content_hash) {
        (Some(true), _) => Some(Outcome::Changed),
        (Some(false), _) => Some(Outcome::Unchanged),
        (None, Some(_)) => None,
        (None, None) => Some(Outcome::Unknown),
    };
    Settlement {
        content_hash: fetch.content_hash.clone(),
        hash_kind: fetch.hash_kind.clone(),
        fetched_at: Some(fetch.at),
        ..Settlement::new(Token { url, secret: [0; 16] }, outcome)
    }
}

/// All that is known of the URLs after a row, in the order of their rows. A page
/// ends early where sources say more of its URLs than is held at once.
pub(super) fn urls(
    conn: &Connection,
    policy: &Policy,
    limit: u32,
    after: Option<UrlId>,
    (now, wall): (Timestamp, Timestamp),
) -> Result<Page<UrlView>, StoreError> {
    let ids: Vec<i64> = conn
        .prepare_cached(
            "SELECT id FROM urls WHERE /*lite*/ id > ?1 ORDER BY id /*end*/
                 /*pg: (part, id) > (CAST(?1 AS BIGINT) & 255, ?1) ORDER BY part, id */ LIMIT ?2",
        )
        .and_then(|mut query| {
            query
                .query_map(params![after.map_or(0, |id| id.0), limit], |row| row.get(0))
                .and_then(Iterator::collect)
        })
        .map_err(engine)?;
    let last = ids.last().copied().filter(|_| ids.len() == limit as usize);
    let (mut items, mut total) = (Vec::with_capacity(ids.len()), 0);
    let mut hindrances = Hindrances::new(conn, policy, (now, wall))?;
    for id in ids {
        let (view, bytes) = url_reads::view(conn, UrlId(id), policy, &mut hindrances, (now, None))?;
        items.push(view);
        total += bytes;
        if total > MAX_SAID_BYTES {
            return Ok(Page { items, next: Some(id) });
        }
    }
    Ok(Page { items, next: last })
}
