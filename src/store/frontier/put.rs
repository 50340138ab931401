//! Taking in what clients push: new URLs, and reports on those they name.
//!
//! A report that names a URL settles the lease that there is, whoever has it;
//! where there is none, one is made that ends at once, so that what was seen
//! teaches the same, and the URL goes where it would have gone. Reports of one
//! job are settled together, and no URL twice at once.

use std::sync::{Arc, LazyLock};

use super::super::sql::{OptionalExtension, params};
use jiff::Timestamp;
use url::Url;

use super::super::abbreviations::Kept;
use super::super::hosts::{page_text, partition};
use super::super::packed::{Listing, SAID_NAMES, said_of};
use super::super::pending::NewLease;
use super::super::record::Record;
use super::super::rows::{UrlRow, held, url_key};
use super::super::sql::Many;
use super::super::state::State;
use super::super::told::Count;
use super::super::turns::Place;
use super::super::{StoreError, engine, timestamp};
use super::queues::keyed;
use super::{Known, MAX_CRAWLS, MAX_METADATA, MAX_NAME, MAX_URL, Put, Taken, WORKER};
use crate::by_id::{ById, IdSet};
use crate::config::glob::ParamSet;
use crate::config::{MAX_URL_CHARS, Steps};
use crate::diff::snapshot::EntryHints;
use crate::model::{CrawlId, HostId, Outcome, Reason, UrlId, UrlKind};
use crate::queue::{Settlement, Token};
use crate::recrawl;
use crate::url::{authority, normalise};

/// A lease that a report ends lasts until then.
const MOMENT_MS: i64 = 60_000;
/// What signatures are hashes over.
const SIGNATURE: &str = "urlfrontier";

static INSERT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "INSERT INTO urls (/*pg: part, key, */ id, crawl_id, host_id, path, {})
         VALUES (/*pg: CAST(?1 AS BIGINT) & 255, ?5, */ ?1, ?2, ?3, ?4, {})",
        *SAID_NAMES,
        said_of("?6")
    )
});

/// Where a URL is, or would be.
pub(super) struct Spot {
    /// As a site may list it that tells spellings apart.
    pub(super) listed: Url,
    pub(super) authority: String,
    pub(super) path: String,
}

/// A report on a URL that has a row.
struct Reported {
    row: UrlRow,
    known: Known,
    /// JSON; none where there is nothing.
    metadata: Option<String>,
}

/// What a settled lease was.
struct Held {
    secret: [u8; 16],
    dirty: bool,
}

static SECRETS: LazyLock<Many> =
    LazyLock::new(|| Many::of_ids("SELECT url_id, token, dirty FROM leases WHERE", "url_id"));

/// The place of a URL by its text, and the key that a client names.
pub(super) fn spot_of(key: Option<&str>, text: &str) -> Option<Spot> {
    // The text is kept as it was spelled, and no server keeps a zero byte.
    if text.len() > MAX_URL_CHARS || text.contains('\0') {
        return None;
    }
    if key.is_some_and(|key| key.chars().count() > MAX_NAME || key.contains(char::is_control)) {
        return None;
    }
    let mut listed = Url::parse(text).ok()?;
    // Of one host with the place of what is pushed, and so in one partition.
    let host = Steps { fragment: false, trailing_dot: true, escapes: false, empty_query: false };
    normalise(&mut listed, host, &ParamSet::default()).ok()?;
    let mut url = listed.clone();
    normalise(&mut url, Steps::default(), &ParamSet::default()).ok()?;
    let own = key.filter(|key| !key.is_empty() && url.host_str() != Some(*key));
    let (authority, path) = match own {
        Some(key) => (keyed(key), url.as_str().to_owned()),
        None => (authority(&url), url[url::Position::BeforePath..].to_owned()),
    };
    Some(Spot { listed, authority, path })
}

/// The partition that what a client pushes belongs to.
pub(super) fn partition_of(put: &Put) -> i64 {
    spot_of(put.key.as_deref(), &put.url).map_or(0, |spot| partition(&spot.authority))
}

impl State {
    /// Takes in what a client pushes; one answer each, in order.
    pub(super) fn frontier_put(&mut self, items: Vec<Put>) -> Result<Vec<Taken>, StoreError> {
        let (expired, dead) = self.return_expired()?;
        self.told.tell(Count::Expired(expired as u64, dead as u64));
        let mut taken = Vec::with_capacity(items.len());
        let mut reports: Vec<Reported> = Vec::new();
        let mut reported: IdSet<UrlId> = IdSet::default();
        let mut held: IdSet<CrawlId> = IdSet::default();
        for item in items {
            let Some(spot) = spot_of(item.key.as_deref(), &item.url) else {
                taken.push(Taken::Skipped);
                continue;
            };
            let metadata = if item.metadata.is_empty() {
                None
            } else {
                serde_json::to_string(&item.metadata).ok()
            };
            let too_much = metadata.as_ref().is_some_and(|json| json.len() > MAX_METADATA);
            let crawl = if too_much { None } else { self.crawl_to_fill(&item.crawl, &mut held)? };
            let Some(crawl) = crawl else {
                taken.push(Taken::Skipped);
                continue;
            };
            self.must_own(partition(&spot.authority))?;
            let row = self.row_at(crawl, &spot)?;
            taken.push(match (row, item.known) {
                (Some(_), None) => Taken::Skipped,
                (None, _) if item.url.len() > MAX_URL => Taken::Skipped,
                (None, known) => {
                    let put = Put { known, ..item };
                    self.insert_pushed(crawl, &spot, &put, metadata.as_deref())?;
                    Taken::Ok
                }
                (Some(row), Some(known)) => {
                    if !reported.insert(row.id) {
                        self.settle_reported(std::mem::take(&mut reports))?;
                        reported = std::iter::once(row.id).collect();
                    }
                    // What it was before this job's reports does not matter.
                    let row = self.url_row(row.id)?.unwrap_or(row);
                    reports.push(Reported { row, known, metadata });
                    Taken::Ok
                }
            });
        }
        self.settle_reported(reports)?;
        Ok(taken)
    }

    /// The crawl with a name, for what is put into it: those that are `held` stay until
    /// that is committed.
    fn crawl_to_fill(
        &mut self,
        name: &str,
        held: &mut IdSet<CrawlId>,
    ) -> Result<Option<CrawlId>, StoreError> {
        let Some(crawl) = self.crawl_within_limits(name)? else { return Ok(None) };
        if !held.insert(crawl) || self.hold_crawl(crawl)? {
            return Ok(Some(crawl));
        }
        // Another daemon has forgotten it, and we have not heard of that yet.
        self.crawls.remove(&crawl);
        self.windows.remove(&crawl);
        let made = self.crawl_within_limits(name)?;
        held.extend(made);
        Ok(made)
    }

    /// The crawl with a name, made where there may be one more.
    fn crawl_within_limits(&mut self, name: &str) -> Result<Option<CrawlId>, StoreError> {
        if let Some(crawl) = self.find_crawl(name) {
            return Ok(Some(crawl));
        }
        let fits = self.crawls.len() < MAX_CRAWLS && name.chars().count() <= MAX_NAME;
        if fits && !name.is_empty() && !name.contains(char::is_control) {
            self.crawl_named(name).map(Some)
        } else {
            Ok(None)
        }
    }

    /// The crawl with a name, for settings of its queues.
    pub(super) fn crawl_for(&mut self, name: &str) -> Result<CrawlId, StoreError> {
        self.crawl_within_limits(name)?.ok_or_else(|| {
            StoreError::Refused(format!(
                "there is no room for one more crawl: at most {MAX_CRAWLS}, with names of at \
                 most {MAX_NAME} characters, and no control characters"
            ))
        })
    }

    fn row_at(&mut self, crawl: CrawlId, spot: &Spot) -> Result<Option<UrlRow>, StoreError> {
        if !spot.authority.starts_with(super::super::hosts::KEYED) {
            return self.find_normalised(crawl, &spot.listed);
        }
        let Some(host) = self.find_host(&spot.authority)? else { return Ok(None) };
        let key = url_key(self.seed, crawl, &spot.authority, &spot.path);
        self.find_url(crawl, host, &spot.path, key)
    }

    /// Makes the row of a URL that nobody knew.
    fn insert_pushed(
        &mut self,
        crawl: CrawlId,
        spot: &Spot,
        put: &Put,
        metadata: Option<&str>,
    ) -> Result<(), StoreError> {
        let delay = self.policy.default.host_delay;
        let host = self.host_named(&spot.authority, delay)?;
        let now_s = self.steady_ms().div_euclid(1000);
        let created_s = put.created.map(Timestamp::as_second).filter(|at| (1..now_s).contains(at));
        let again = match &put.known {
            None => Some(timestamp(now_s.saturating_mul(1000))),
            Some(known) => known.again,
        };
        let (reason, band) = self.rank_of_pushed(host)?;
        let first_s = created_s.unwrap_or(now_s);
        let due_s = again.map_or(now_s, Timestamp::as_second);
        let id = self.next_url(host)?;
        let key = url_key(self.seed, crawl, &spot.authority, &spot.path);
        self.conn
            .prepare_cached(&INSERT)
            .and_then(|mut insert| {
                let said = Listing {
                    listed: true,
                    kind: UrlKind::Page,
                    precision: None,
                    hints: EntryHints::default(),
                    reason,
                    band,
                    first_seen_s: first_s,
                };
                insert.execute(params![
                    id.0,
                    crawl.0,
                    host.0,
                    Kept::by(&self.conn, &spot.path),
                    key.cast_signed(),
                    said.pack(),
                ])
            })
            .map_err(engine)?;
        self.lookup.insert(&self.conn, &[(key, id)]).map_err(engine)?;
        if again.is_some() {
            let place = Place { crawl, host, band, due_s, url: id, valued: false };
            if due_s != first_s {
                self.write_feedback(place, held::QUEUED, reason, 0, &Record::default())?;
            }
            self.enqueue(place, None)?;
        } else if let Some(row) = self.url_row(id)? {
            self.place_url(&row, held::PARKED, reason, band, due_s, 0)?;
            self.count_completed(crawl, host, 1)?;
        }
        let spelled = (page_text(&spot.authority, &spot.path) != put.url).then_some(&put.url);
        self.conn
            .prepare_cached(
                "INSERT INTO frontier_urls (/*pg: part, */ url_id, pushed, completed, spelled, metadata)
                 VALUES (/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, 1, ?2, ?3, ?4)
                 ON CONFLICT (/*pg: part, */ url_id) DO UPDATE SET pushed = 1, completed = ?2, spelled = ?3,
                     metadata = ?4",
            )
            .and_then(|mut insert| {
                insert.execute(params![id.0, again.is_none(), spelled, metadata])
            })
            .map(|_| ())
            .map_err(engine)
    }

    /// Why a pushed URL is due, and its place in line. Where a client's dates are
    /// obeyed they alone decide, so all of its URLs stand in one line.
    fn rank_of_pushed(&mut self, host: HostId) -> Result<(Reason, u8), StoreError> {
        if self.policy.trust_dates {
            return Ok((Reason::Submitted, recrawl::SUBMITTED_BAND));
        }
        Ok((Reason::New, self.rank_of_new(host, None)?))
    }

    /// Ends the leases of URLs that were reported on, each named once.
    fn settle_reported(&mut self, reports: Vec<Reported>) -> Result<(), StoreError> {
        if reports.is_empty() {
            return Ok(());
        }
        let unheld = self.lease_unleased(&reports)?;
        let mut leases: ById<UrlId, Held> = ById::default();
        SECRETS
            .query(
                &self.conn,
                &reports,
                |reported, values| values.bind(reported.row.id.0),
                |row| {
                    let dirty: i64 = row.get(2)?;
                    leases
                        .insert(UrlId(row.get(0)?), Held { secret: row.get(1)?, dirty: dirty > 0 });
                    Ok(())
                },
            )
            .map_err(engine)?;
        let mut settlements = Vec::with_capacity(reports.len());
        for Reported { row, known, .. } in &reports {
            if let Some(lease) = leases.get(&row.id) {
                let token = Token { url: row.id, secret: lease.secret };
                settlements.push(settlement(token, row, known));
            }
        }
        self.settle(settlements, &unheld)?;
        self.write_pending()?;
        for Reported { row, known, metadata } in reports {
            let moved = leases.get(&row.id).is_some_and(|lease| lease.dirty);
            // What a source said meanwhile is newer than what the client saw.
            if !moved {
                self.place_as_told(row.id, &known)?;
            }
            self.note_said(&row, known.again.is_none() && !moved, metadata.as_deref())?;
        }
        Ok(())
    }

    /// Makes leases, which end at once, for URLs that nobody has; says for which.
    fn lease_unleased(&mut self, reports: &[Reported]) -> Result<IdSet<UrlId>, StoreError> {
        let now = self.steady_ms();
        let mut secret = [0; 16];
        getrandom::fill(&mut secret)
            .map_err(|e| StoreError::Engine(format!("no randomness: {e}")))?;
        let mut unheld = IdSet::default();
        for Reported { row, .. } in reports {
            self.at_hand.forget(row.id);
            if row.leased {
                // One that has just expired, and was not yet taken back, counts.
                self.conn
                    .prepare_cached(
                        "UPDATE leases SET expires_at = ?2 WHERE url_id = ?1
                         /*pg: AND part = (?1 & 255) */ AND expires_at < ?2",
                    )
                    .and_then(|mut update| update.execute(params![row.id.0, now + MOMENT_MS]))
                    .map_err(engine)?;
                continue;
            }
            if row.is_queued() {
                self.dequeue(row.place())?;
            }
            unheld.insert(row.id);
            self.pending.lease(NewLease {
                url: row.id,
                secret,
                crawl: row.crawl,
                host: row.host,
                reason: row.reason,
                band: row.band,
                due_s: row.due_s,
                attempt: row.attempt.max(1),
                leased_at: now,
                expires_at: now + MOMENT_MS,
                not_before: now,
                worker: Some(Arc::from(WORKER)),
                request_id: None,
            });
        }
        self.write_pending()?;
        Ok(unheld)
    }

    /// Puts a URL where its client wants it, where that is to be obeyed: a URL
    /// that is completed leaves the queue in any case.
    fn place_as_told(&mut self, id: UrlId, known: &Known) -> Result<(), StoreError> {
        let Some(row) = self.url_row(id)? else { return Ok(()) };
        match known.again {
            None => self.place_url(&row, held::PARKED, row.reason, row.band, row.due_s, 0),
            Some(at) if self.policy.trust_dates => {
                let (band, due_s) = (recrawl::SUBMITTED_BAND, at.as_second());
                self.place_url(&row, held::QUEUED, Reason::Submitted, band, due_s, 0)
            }
            Some(_) => Ok(()),
        }
    }

    /// A URL that a client made known is not removed because no source lists it any
    /// more: says whether it is one, and lets it go from its last source and its site.
    pub(in super::super) fn keep_pushed(&mut self, id: UrlId) -> Result<bool, StoreError> {
        self.at_hand.forget(id);
        self.conn
            .prepare_cached(
                "UPDATE urls SET source_id = NULL, site_id = NULL WHERE id = ?1 /*pg: AND part = (?1 & 255) */
                     AND EXISTS (SELECT 1 FROM frontier_urls
                                 WHERE url_id = ?1 /*pg: AND part = (?1 & 255) */ AND pushed = 1)",
            )
            .and_then(|mut update| update.execute([id.0]))
            .map(|kept| kept > 0)
            .map_err(engine)
    }

    /// A URL is to be fetched again, whatever a client has said of it.
    pub(in super::super) fn take_back_completed(&mut self, row: &UrlRow) -> Result<(), StoreError> {
        // Whoever has completed any has a queue that counts them.
        if !self.frontier.any {
            return Ok(());
        }
        let taken_back = self
            .conn
            .prepare_cached(
                "UPDATE frontier_urls SET completed = 0 WHERE url_id = ?1 AND completed = 1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut update| update.execute([row.id.0]))
            .map_err(engine)?;
        if taken_back > 0 {
            self.count_completed(row.crawl, row.host, -1)?;
        }
        Ok(())
    }

    /// Keeps what a client said of a URL beside its report.
    fn note_said(
        &mut self,
        row: &UrlRow,
        completed: bool,
        metadata: Option<&str>,
    ) -> Result<(), StoreError> {
        let before: Option<bool> = self
            .conn
            .prepare_cached(
                "SELECT completed FROM frontier_urls WHERE url_id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut query| query.query_row([row.id.0], |row| row.get(0)).optional())
            .map_err(engine)?;
        let change = i64::from(completed) - i64::from(before.unwrap_or(false));
        if change != 0 {
            self.count_completed(row.crawl, row.host, change)?;
        }
        self.conn
            .prepare_cached(
                "INSERT INTO frontier_urls (/*pg: part, */ url_id, pushed, completed, metadata)
                 VALUES (/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, 0, ?2, ?3)
                 ON CONFLICT (/*pg: part, */ url_id) DO UPDATE SET completed = ?2, metadata = ?3",
            )
            .and_then(|mut upsert| upsert.execute(params![row.id.0, completed, metadata]))
            .map(|_| ())
            .map_err(engine)
    }
}

/// A report as a fetcher of ours would have made it.
fn settlement(token: Token, row: &UrlRow, known: &Known) -> Settlement {
    let by_date = known.outcome.is_none() && known.signature.is_none();
    let outcome = match known.changed.filter(|_| by_date) {
        Some(changed) => outcome_by_date(row, changed),
        None => known.outcome,
    };
    Settlement {
        token,
        outcome,
        status: known.status,
        content_hash: known.signature.clone(),
        hash_kind: known.signature.as_ref().map(|_| SIGNATURE.to_owned()),
        significance: None,
        final_url: known.final_url.clone(),
        canonical: None,
        noindex: false,
        retry_after: known.retry_after,
        not_before: known.again,
        fetched_at: None,
        error: known.error.clone(),
    }
}

/// Did a page change at this look, if it last did then?
fn outcome_by_date(row: &UrlRow, changed: Timestamp) -> Option<Outcome> {
    let before = row.record.fetched.as_ref()?.time();
    Some(if changed > before { Outcome::Changed } else { Outcome::Unchanged })
}
