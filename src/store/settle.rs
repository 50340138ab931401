//! The end of a lease: settled, extended, given back, or expired.
//!
//! A token that is not the current one changes nothing: settled again within
//! the hour it answers `ok`, after a newer lease `stale`, otherwise `unknown`.

use std::time::Duration;

use rusqlite::{OptionalExtension, params};

use super::hosts::millis;
use super::rows::{UrlRow, held, reason, url_key};
use super::state::State;
use super::turns::Place;
use super::{StoreError, engine, timestamp};
use crate::model::{HostId, Outcome, Reason, UrlId};
use crate::queue::{Settlement, Token, TokenResult};
use crate::recrawl::{self, Fate};
use crate::url::authority;

/// A settled token answers `ok` for this long.
const TOKEN_MEMORY_MS: i64 = 3_600_000;
/// A page that answers 429 without saying how long pauses its host for this.
const THROTTLED: Duration = Duration::from_secs(300);
/// A page may pause its host for at most this.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3600);
/// Expired leases taken back in one job at most.
const REAP: i64 = 1_000;

/// A lease that ended without a report: the place, and the token.
const END_UNSEEN: &str = "INSERT INTO feedback
        (url_id, state, reason, band, due_s, attempt, moved_at, token, token_end, ended_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?7)
    ON CONFLICT DO UPDATE SET
        state = ?2, reason = ?3, band = ?4, due_s = ?5, attempt = ?6,
        moved_at = CASE state WHEN ?2 THEN moved_at ELSE ?7 END,
        token = ?8, token_end = ?9, ended_at = ?7";

/// A lease that ended with a report: the same, and what was seen.
const END_SEEN: &str = "INSERT INTO feedback
        (url_id, state, reason, band, due_s, attempt, moved_at, token, token_end, ended_at,
         fetched_at, outcome, status, content_hash, hash_kind, fetches, changes, gone,
         folded_into, error, noindex, canonical)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?7,
            ?10, ?11, ?12, ?13, ?14, 1, ?15, ?16, ?17, ?18, ?19, ?20)
    ON CONFLICT DO UPDATE SET
        state = ?2, reason = ?3, band = ?4, due_s = ?5, attempt = ?6,
        moved_at = CASE state WHEN ?2 THEN moved_at ELSE ?7 END,
        token = ?8, token_end = ?9, ended_at = ?7,
        fetched_at = ?10, outcome = ?11, status = ?12,
        content_hash = coalesce(?13, content_hash),
        hash_kind = CASE WHEN ?13 IS NULL THEN hash_kind ELSE ?14 END,
        fetches = fetches + 1, changes = changes + ?15,
        gone = CASE ?16 WHEN 1 THEN gone + 1 ELSE 0 END,
        folded_into = ?17, error = ?18, noindex = ?19, canonical = ?20";

/// How a lease ended, as `feedback.token_end` keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Settled = 0,
    Expired = 1,
    Released = 2,
}

/// A lease row.
struct Lease {
    reason: Reason,
    due_s: i64,
    attempt: u32,
    leased_at: i64,
    expires_at: i64,
    /// 0, or one more than the code of the reason that made it due meanwhile.
    dirty: i64,
    secret: [u8; 16],
}

/// What is written of the fetch when a lease ends by being settled.
struct Seen<'a> {
    outcome: Outcome,
    fetched_at: i64,
    settlement: &'a Settlement,
    folded_into: Option<UrlId>,
}

impl State {
    /// Settles one lease.
    pub(super) fn settle(&mut self, settlement: &Settlement) -> Result<TokenResult, StoreError> {
        let token = settlement.token;
        let Some(lease) = self.current_lease(token)? else {
            return self.past_token(token, End::Settled);
        };
        let Some(row) = self.url_row(token.url)? else { return Ok(TokenResult::Unknown) };
        let now = self.steady_ms();
        // A fetch from before the lease or from the future is a wrong clock
        // over there, and must not make the URL due at once or never.
        let fetched_at = settlement
            .fetched_at
            .map_or(now, |at| at.as_millisecond().max(lease.leased_at).min(now));
        let outcome = settlement.outcome.unwrap_or_else(|| derive_outcome(settlement, &row));
        let bounds = self.policy.of(row.site).bounds.clone();
        let throttled = settlement.status == Some(429);
        let attempt = if throttled { lease.attempt.saturating_sub(1) } else { lease.attempt };
        let target = self.redirect_target(outcome, settlement, &row)?;
        let mut fate = match target {
            Some(_) => Fate::Park,
            None => {
                recrawl::after_settle(outcome, timestamp(fetched_at), &row.known(attempt), &bounds)
            }
        };
        if let Fate::Queue { due, reason, attempt } = &mut fate {
            if outcome == Outcome::Failed {
                *reason = lease.reason;
            } else {
                *attempt = 0;
            }
            if let Some(floor) = settlement.not_before {
                *due = (*due).max(floor);
            }
        }
        if fate == Fate::Dead {
            self.metrics.dead_lettered(1);
        }
        let seen = Seen { outcome, fetched_at, settlement, folded_into: target };
        self.pause_for(&row, settlement, throttled, now)?;
        self.end_lease(&row, &lease, End::Settled, fate, Some(&seen))?;
        Ok(TokenResult::Ok)
    }

    /// Moves the end of one lease.
    pub(super) fn extend(
        &mut self,
        token: Token,
        ttl: Duration,
    ) -> Result<TokenResult, StoreError> {
        if self.current_lease(token)?.is_none() {
            return match self.past_token(token, End::Settled)? {
                TokenResult::Unknown => Ok(TokenResult::Unknown),
                // Settled or not: the caller must not think that it holds it.
                TokenResult::Ok | TokenResult::Stale => Ok(TokenResult::Stale),
            };
        }
        let until = self.steady_ms().saturating_add(millis(ttl));
        self.conn
            .prepare_cached("UPDATE leases SET expires_at = ?2 WHERE url_id = ?1")
            .and_then(|mut update| update.execute(params![token.url.0, until]))
            .map_err(engine)?;
        Ok(TokenResult::Ok)
    }

    /// Takes one lease back unfetched.
    pub(super) fn release(
        &mut self,
        token: Token,
        after: Duration,
    ) -> Result<TokenResult, StoreError> {
        let Some(lease) = self.current_lease(token)? else {
            return self.past_token(token, End::Released);
        };
        let Some(row) = self.url_row(token.url)? else { return Ok(TokenResult::Unknown) };
        let back = recrawl::later(timestamp(self.steady_ms()), after);
        let was_due = timestamp(lease.due_s.saturating_mul(1000));
        let due = if after.is_zero() { was_due } else { back };
        let fate =
            Fate::Queue { due, reason: lease.reason, attempt: lease.attempt.saturating_sub(1) };
        self.end_lease(&row, &lease, End::Released, fate, None)?;
        Ok(TokenResult::Ok)
    }

    /// Takes back leases that have expired; says how many, and how many of
    /// them were given up for good.
    pub(super) fn reap(&mut self) -> Result<(usize, usize), StoreError> {
        let now = self.steady_ms();
        let mut query = self
            .conn
            .prepare_cached("SELECT url_id, token FROM leases WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2")
            .map_err(engine)?;
        let expired: Vec<(i64, [u8; 16])> = query
            .query_map(params![now, REAP], |row| Ok((row.get(0)?, row.get(1)?)))
            .and_then(Iterator::collect)
            .map_err(engine)?;
        drop(query);
        let mut dead = 0;
        for (id, secret) in &expired {
            let token = Token { url: UrlId(*id), secret: *secret };
            let (Some(lease), Some(row)) = (self.lease_row(token)?, self.url_row(token.url)?)
            else {
                continue;
            };
            let bounds = self.policy.of(row.site).bounds.clone();
            let mut fate =
                recrawl::after_expiry(timestamp(now), &row.known(lease.attempt), &bounds);
            if let Fate::Queue { reason, .. } = &mut fate {
                *reason = lease.reason;
            }
            dead += usize::from(fate == Fate::Dead);
            self.end_lease(&row, &lease, End::Expired, fate, None)?;
        }
        Ok((expired.len(), dead))
    }

    /// The lease that a token names, while it lasts.
    fn current_lease(&self, token: Token) -> Result<Option<Lease>, StoreError> {
        let now = self.steady_ms();
        Ok(self.lease_row(token)?.filter(|lease| lease.expires_at > now))
    }

    fn lease_row(&self, token: Token) -> Result<Option<Lease>, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT reason, due_s, attempt, leased_at, expires_at, dirty FROM leases
                 WHERE url_id = ?1 AND token = ?2",
            )
            .and_then(|mut query| {
                query
                    .query_row(params![token.url.0, token.secret], |row| {
                        Ok(Lease {
                            reason: reason(row.get(0)?),
                            due_s: row.get(1)?,
                            attempt: row.get(2)?,
                            leased_at: row.get(3)?,
                            expires_at: row.get(4)?,
                            dirty: row.get(5)?,
                            secret: token.secret,
                        })
                    })
                    .optional()
            })
            .map_err(engine)
    }

    /// What a token that is not current answers to a call that would end its
    /// lease as `end`: `ok` where that very call has done so within the hour.
    fn past_token(&self, token: Token, end: End) -> Result<TokenResult, StoreError> {
        let now = self.steady_ms();
        let kept: Option<(Option<[u8; 16]>, Option<i64>, i64)> = self
            .conn
            .prepare_cached("SELECT token, token_end, ended_at FROM feedback WHERE url_id = ?1")
            .and_then(|mut query| {
                query
                    .query_row([token.url.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                    .optional()
            })
            .map_err(engine)?;
        let leased: bool = self
            .conn
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM leases WHERE url_id = ?1)")
            .and_then(|mut query| query.query_row([token.url.0], |row| row.get(0)))
            .map_err(engine)?;
        Ok(match kept {
            Some((Some(last), ended, at)) if last == token.secret => {
                let remembered = now - at <= TOKEN_MEMORY_MS;
                match ended {
                    Some(how) if how == End::Settled as i64 && !remembered => TokenResult::Unknown,
                    Some(how) if how == End::Settled as i64 => TokenResult::Ok,
                    Some(how) if how == end as i64 && remembered => TokenResult::Ok,
                    _ => TokenResult::Stale,
                }
            }
            // A lease of this row has ended, or is held, under another token.
            Some((Some(_), ..)) => TokenResult::Stale,
            _ if leased => TokenResult::Stale,
            _ => TokenResult::Unknown,
        })
    }

    /// Ends a lease: the row goes where its fate says, or is due at once when
    /// it changed while it was out.
    fn end_lease(
        &mut self,
        row: &UrlRow,
        lease: &Lease,
        end: End,
        fate: Fate,
        seen: Option<&Seen<'_>>,
    ) -> Result<(), StoreError> {
        self.conn
            .prepare_cached("DELETE FROM leases WHERE url_id = ?1")
            .and_then(|mut delete| delete.execute([row.id.0]))
            .map_err(engine)?;
        let band = recrawl::band(row.hints.priority);
        let now_s = self.steady_ms().div_euclid(1000);
        // What was unlisted meanwhile and is gone need not be looked at again.
        let meanwhile = (lease.dirty > 0).then(|| super::rows::reason(lease.dirty - 1));
        let again = meanwhile.filter(|why| match fate {
            // Nobody saw it: it waits as it would have, for a newer reason.
            Fate::Queue { .. } => end == End::Settled,
            Fate::Park => *why != Reason::Removed,
            Fate::Dead => true,
        });
        let band_of = |why: Reason| {
            if why == Reason::Submitted { recrawl::SUBMITTED_BAND } else { band }
        };
        let (state, reason, band, due_s, attempt) = match (again, fate) {
            (Some(why), _) => (held::QUEUED, why, band_of(why), now_s, 0),
            (None, Fate::Queue { due, reason, attempt }) => {
                let why = meanwhile.unwrap_or(reason);
                (held::QUEUED, why, band_of(why), ceil_seconds(due.as_millisecond()), attempt)
            }
            (None, Fate::Park) => (held::PARKED, lease.reason, band, lease.due_s, lease.attempt),
            (None, Fate::Dead) => (held::DEAD, lease.reason, band, lease.due_s, lease.attempt),
        };
        if state == held::DEAD && end == End::Settled {
            self.metrics.dead_lettered(1);
        }
        let place = Place { crawl: row.crawl, host: row.host, band, due_s, url: row.id };
        self.write_end(place, (state, reason, attempt), lease, end, seen)?;
        if state == held::QUEUED {
            self.enqueue(place, row.site)?;
        }
        Ok(())
    }

    /// Writes in one statement where a URL stands after a lease, which token
    /// that was, and what was seen, if anything was.
    fn write_end(
        &mut self,
        place: Place,
        (state, reason, attempt): (i64, Reason, u32),
        lease: &Lease,
        end: End,
        seen: Option<&Seen<'_>>,
    ) -> Result<(), StoreError> {
        let now = self.steady_ms();
        let Some(seen) = seen else {
            return self
                .conn
                .prepare_cached(END_UNSEEN)
                .and_then(|mut upsert| {
                    upsert.execute(params![
                        place.url.0,
                        state,
                        reason as i64,
                        place.band,
                        place.due_s,
                        attempt,
                        now,
                        lease.secret,
                        end as i64,
                    ])
                })
                .map(|_| ())
                .map_err(engine);
        };
        let report = seen.settlement;
        self.conn
            .prepare_cached(END_SEEN)
            .and_then(|mut upsert| {
                upsert.execute(params![
                    place.url.0,
                    state,
                    reason as i64,
                    place.band,
                    place.due_s,
                    attempt,
                    now,
                    lease.secret,
                    end as i64,
                    seen.fetched_at,
                    seen.outcome as i64,
                    report.status,
                    report.content_hash,
                    report.content_hash.as_ref().and(report.hash_kind.as_ref()),
                    i64::from(seen.outcome == Outcome::Changed),
                    i64::from(seen.outcome == Outcome::Gone),
                    seen.folded_into.map(|url| url.0),
                    report.error,
                    report.noindex,
                    report.canonical,
                ])
            })
            .map(|_| ())
            .map_err(engine)
    }

    /// The listed row that a redirect leads to, if there is one.
    fn redirect_target(
        &mut self,
        outcome: Outcome,
        settlement: &Settlement,
        row: &UrlRow,
    ) -> Result<Option<UrlId>, StoreError> {
        if outcome != Outcome::Redirected {
            return Ok(None);
        }
        let Some(url) = settlement.final_url.as_deref().and_then(|text| url::Url::parse(text).ok())
        else {
            return Ok(None);
        };
        let Some(target) = self.find_normalised(row.crawl, url)? else { return Ok(None) };
        // A parked one cannot stand for it: two that name each other would
        // both be gone.
        let stands = target.listed && target.state != held::PARKED;
        Ok((target.id != row.id && stands).then_some(target.id))
    }

    /// The row of a URL as someone wrote it.
    pub(super) fn find_normalised(
        &mut self,
        crawl: crate::model::CrawlId,
        mut url: url::Url,
    ) -> Result<Option<UrlRow>, StoreError> {
        let steps = crate::config::Steps::default();
        if crate::url::normalise(&mut url, steps, &crate::config::glob::ParamSet::default())
            .is_err()
        {
            return Ok(None);
        }
        let authority = authority(&url);
        let Some(host) = self.find_host(&authority)? else { return Ok(None) };
        let path = &url[url::Position::BeforePath..];
        let key = url_key(self.seed, crawl, &authority, path);
        self.find_url(crawl, host, path, key)
    }

    /// A page's 429 or Retry-After is meant for the whole host.
    fn pause_for(
        &mut self,
        row: &UrlRow,
        settlement: &Settlement,
        throttled: bool,
        now: i64,
    ) -> Result<(), StoreError> {
        let asked = settlement.retry_after.or(throttled.then_some(THROTTLED));
        let Some(pause) = asked else { return Ok(()) };
        let until = now.saturating_add(millis(pause.min(LONGEST_PAUSE)));
        let host: HostId = row.host;
        self.pause_host(host, until, "a page asked for it")
    }
}

/// Without an outcome the hash tells: equal of the same kind is unchanged,
/// another is changed, and a new kind starts anew.
fn derive_outcome(settlement: &Settlement, row: &UrlRow) -> Outcome {
    match (&settlement.content_hash, &row.content_hash) {
        (Some(now), Some(before)) if settlement.hash_kind == row.hash_kind => {
            if now == before {
                Outcome::Unchanged
            } else {
                Outcome::Changed
            }
        }
        _ => Outcome::Unknown,
    }
}

/// Rounded up, so that nothing is due before its time.
fn ceil_seconds(ms: i64) -> i64 {
    ms.div_euclid(1000) + i64::from(ms.rem_euclid(1000) > 0)
}
