//! The end of a lease: settled, extended, given back, or expired.
//!
//! A token that is not the current one changes nothing: settled (or released)
//! again within the hour it answers `ok`, after it expired or a newer lease was
//! made `stale`, otherwise `unknown`. Where the URL goes is for `ending`.

use std::sync::Arc;
use std::time::Duration;

use super::sql::{OptionalExtension, params};
use jiff::Timestamp;

use super::at_hand::Out;
use super::ending::{End, Lease, Report, ceil_seconds};
use super::expiry::{MOST, Of};
use super::history::known_until;
use super::hosts::millis;
use super::record::{Fetched, Rare, Record};
use super::rows::{UrlRow, read_leased, url_key};
use super::state::State;
use super::told::Count;
use super::worth::look_of;
use super::{StoreError, engine, timestamp};
use crate::by_id::{ById, IdSet};
use crate::metrics::Way;
use crate::model::{CrawlId, HostId, Outcome, Reason, UrlId};
use crate::queue::{Settlement, Token, TokenResult};
use crate::recrawl::model::Look;
use crate::recrawl::{self, Fate};
use crate::url::authority;

/// A settled token answers `ok` for this long.
const TOKEN_MEMORY_MS: i64 = 3_600_000;
/// A page that answers 429 without saying how long pauses its host for this.
const THROTTLED: Duration = Duration::from_secs(300);
/// A page may pause its host for at most this.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3600);

/// Leases that one call is about, by URL.
pub(super) type LeasedRows = ById<UrlId, Out>;

impl State {
    /// Settles leases; one result each, in order. Of `unheld` nobody had one: theirs
    /// were made to be settled here, and count as none.
    pub(super) fn settle(
        &mut self,
        settlements: Vec<Settlement>,
        unheld: &IdSet<UrlId>,
    ) -> Result<Vec<TokenResult>, StoreError> {
        let tokens: Vec<Token> = settlements.iter().map(|settlement| settlement.token).collect();
        let mut leased = self.read_leases(&tokens)?;
        let mut times: ById<CrawlId, Vec<Duration>> = ById::default();
        let mut settled: Vec<(Option<Outcome>, u64)> = Vec::new();
        let mut refreshed: ById<CrawlId, u32> = ById::default();
        let mut results = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            let token = settlement.token;
            let Some((row, lease)) = self.current_of(&mut leased, token)? else {
                results.push(self.past_token(token, End::Settled)?);
                continue;
            };
            if !unheld.contains(&row.id) {
                let held = self.steady_ms().abs_diff(lease.leased_at);
                times.entry(row.crawl).or_default().push(Duration::from_millis(held));
                match settled.iter_mut().find(|(outcome, _)| *outcome == settlement.outcome) {
                    Some((_, count)) => *count += 1,
                    None => settled.push((settlement.outcome, 1)),
                }
            }
            if matches!(lease.reason, Reason::Recrawl | Reason::Changed) {
                *refreshed.entry(row.crawl).or_default() += 1;
            }
            results.push(self.settle_one(settlement, row, &lease)?);
        }
        for (crawl, fetches) in refreshed {
            self.account(crawl, |ledger| ledger.settled(fetches))?;
        }
        for (outcome, leases) in settled {
            self.told.tell(Count::Settled(outcome, leases));
        }
        for (crawl, times) in times {
            if let Some(crawl) = self.crawls.get(&crawl) {
                self.told.tell(Count::Came(Way::LeasedToSettled, crawl.name.clone(), times));
            }
        }
        Ok(results)
    }

    fn settle_one(
        &mut self,
        settlement: Settlement,
        mut row: Box<UrlRow>,
        lease: &Lease,
    ) -> Result<TokenResult, StoreError> {
        let now = self.steady_ms();
        // A fetch from before the lease or from the future is a wrong clock
        // over there, and must not make the URL due at once or never.
        let fetched_at = settlement
            .fetched_at
            .map_or(now, |at| at.as_millisecond().max(lease.leased_at).min(now));
        // A crawl log may have told of a newer fetch while it was out: what that saw stays.
        let told_since = timestamp(fetched_at + 1)..=timestamp(now);
        let newer = known_until(&row).filter(|known| told_since.contains(known));
        let fetched_at = newer.map_or(fetched_at, Timestamp::as_millisecond);
        let outcome = settlement.outcome.unwrap_or_else(|| derive_outcome(&settlement, &row));
        let outcome = match (newer, &row.record.fetched) {
            (Some(_), Some(fetched)) => fetched.outcome,
            _ => outcome,
        };
        let bounds = Arc::clone(&self.policy.of(row.site).bounds);
        let throttled = settlement.status == Some(429);
        let attempt = if throttled { lease.attempt.saturating_sub(1) } else { lease.attempt };
        let target = self.redirect_target(outcome, &settlement, &row)?;
        let now_s = now.div_euclid(1000);
        let look = look_of(outcome, &settlement, &row).filter(|_| newer.is_none());
        let learned = match look {
            Some(look) => {
                let at = timestamp(fetched_at);
                let learned = self.look(&row, look, at, lease.has_changed())?;
                row.record.keep_looks(learned);
                learned
            }
            None => row.learned(),
        };
        let mut fate = match target {
            Some(_) => Fate::Park,
            None => recrawl::after_settle(
                outcome,
                timestamp(fetched_at),
                &row.known(attempt, now_s),
                &bounds,
            ),
        };
        let valued = match learned.filter(|_| fate.is_queued()) {
            Some(learned) => self.valued_by(&row, &learned, now_s)?,
            None => None,
        };
        let place = valued.map(|valued| valued.place(timestamp(now)));
        if let Some(place) = &place
            && is_regular(outcome)
            && let Fate::Queue { due, .. } = &mut fate
        {
            *due = self.due_by_value(&row, place.surfaces, timestamp(fetched_at))?;
        }
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
        if let Fate::Queue { due, .. } = fate
            && row.is_expired(due.as_second())
        {
            // Nothing of it will be there when its turn comes.
            fate = Fate::Park;
        }
        let band = match place {
            Some(place) => place.band,
            None => self.rank_unvalued(&row, Reason::Recrawl, now_s)?,
        };
        self.pause_for(&row, &settlement, throttled, now)?;
        if newer.is_none() {
            let hash = (settlement.content_hash, settlement.hash_kind);
            note_fetch(&mut row.record, fetched_at, outcome, hash);
            row.record.gone = match Look::of(outcome) {
                Some(Look::Gone) => row.record.gone + 1,
                Some(_) => 0,
                // Nobody saw whether it is back.
                None => row.record.gone,
            };
        }
        if newer.is_none()
            && let Some(fetched) = &mut row.record.fetched
        {
            fetched.status = settlement.status;
            fetched.noindex = settlement.noindex;
            let hash_kind = fetched.rare.take().and_then(|rare| rare.hash_kind);
            fetched.set_rare(Rare {
                hash_kind,
                folded_into: target,
                canonical: settlement.canonical,
                error: settlement.error,
            });
        }
        let not_before_s = settlement.not_before.map(|at| ceil_seconds(at.as_millisecond()));
        // Who asks to be left alone means any fetch of it.
        let retry_s = match fate {
            Fate::Queue { due, .. } if throttled && outcome == Outcome::Failed => {
                Some(ceil_seconds(due.as_millisecond()))
            }
            _ => None,
        };
        row.record.not_before_s = not_before_s.max(retry_s).filter(|floor| *floor > now_s);
        let report = Report { band, has_failed: outcome == Outcome::Failed, not_before_s };
        self.end_lease(row, lease, End::Settled, fate, Some(report))?;
        Ok(TokenResult::Ok)
    }

    /// When a URL that was seen is due by its value, or sooner, after a day whose
    /// date its lastmod is, if its dates are believed.
    pub(super) fn due_by_value(
        &mut self,
        row: &UrlRow,
        surfaces: Timestamp,
        fetched_at: Timestamp,
    ) -> Result<Timestamp, StoreError> {
        let bounds = &self.policy.of(row.site).bounds;
        let soonest = recrawl::later(fetched_at, bounds.min);
        let end = recrawl::day_end_after(row.lastmod, fetched_at, &bounds.timezone);
        match end {
            Some(end) if self.believes_dates_of(row)? => Ok(surfaces.min(end.max(soonest))),
            _ => Ok(surfaces),
        }
    }

    /// Moves the end of leases; one result each, in order.
    pub(super) fn extend(
        &mut self,
        tokens: &[Token],
        ttl: Duration,
    ) -> Result<Vec<TokenResult>, StoreError> {
        let mut leased = self.read_leases(tokens)?;
        let results = tokens.iter().map(|token| self.extend_one(&mut leased, *token, ttl));
        let results = results.collect::<Result<_, _>>()?;
        for (row, lease) in leased.into_values() {
            self.at_hand.keep_leased(row, lease);
        }
        Ok(results)
    }

    fn extend_one(
        &mut self,
        leased: &mut LeasedRows,
        token: Token,
        ttl: Duration,
    ) -> Result<TokenResult, StoreError> {
        let is_current = self.is_current(leased, token);
        let current = leased.get_mut(&token.url).filter(|_| is_current);
        let Some(current) = current else {
            return match self.past_token(token, End::Settled)? {
                TokenResult::Unknown => Ok(TokenResult::Unknown),
                // Settled or not: the caller must not think that it holds it.
                TokenResult::Ok | TokenResult::Stale => Ok(TokenResult::Stale),
            };
        };
        let until = self.steady_ms().saturating_add(millis(ttl));
        self.conn
            .prepare_cached(
                "UPDATE leases SET expires_at = ?2 WHERE url_id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut update| update.send(params![token.url.0, until]))
            .map_err(engine)?;
        current.1.expires_at = until;
        // It may be sooner than it was.
        self.expiry.lower(until);
        Ok(TokenResult::Ok)
    }

    /// Takes leases back unfetched; one result each, in order.
    pub(super) fn release(
        &mut self,
        tokens: &[Token],
        after: Duration,
    ) -> Result<Vec<TokenResult>, StoreError> {
        let mut leased = self.read_leases(tokens)?;
        tokens.iter().map(|token| self.release_one(&mut leased, *token, after)).collect()
    }

    fn release_one(
        &mut self,
        leased: &mut LeasedRows,
        token: Token,
        after: Duration,
    ) -> Result<TokenResult, StoreError> {
        let Some(current) = self.current_of(leased, token)? else {
            return self.past_token(token, End::Released);
        };
        let (mut row, lease) = current;
        let back = recrawl::later(timestamp(self.steady_ms()), after);
        let due = if after.is_zero() { lease.due_since() } else { back };
        if !after.is_zero() {
            row.record.not_before_s = Some(ceil_seconds(back.as_millisecond()));
        }
        let fate =
            Fate::Queue { due, reason: lease.reason, attempt: lease.attempt.saturating_sub(1) };
        self.end_lease(row, &lease, End::Released, fate, None)?;
        Ok(TokenResult::Ok)
    }

    /// Takes back leases that have expired; says how many, and how many of
    /// them were given up for good.
    pub(super) fn reap(&mut self) -> Result<(usize, usize), StoreError> {
        let (returned, given_up) = self.return_expired()?;
        // Of those that come back without a pause there may be more.
        let tokens = if returned < MOST as usize { self.expired(Of::All)? } else { Vec::new() };
        let now = self.steady_ms();
        let (mut dead, now_s) = (0, now.div_euclid(1000));
        for (row, lease) in self.read_leases(&tokens)?.into_values() {
            let bounds = Arc::clone(&self.policy.of(row.site).bounds);
            let mut fate =
                recrawl::after_expiry(timestamp(now), &row.known(lease.attempt, now_s), &bounds);
            if let Fate::Queue { reason, .. } = &mut fate {
                *reason = lease.reason;
            }
            dead += usize::from(self.end_lease(row, &lease, End::Expired, fate, None)?);
        }
        Ok((tokens.len() + returned, dead + given_up))
    }

    /// The leases of the URLs that tokens name.
    pub(super) fn read_leases(&mut self, tokens: &[Token]) -> Result<LeasedRows, StoreError> {
        let mut leased = LeasedRows::default();
        leased.reserve(tokens.len());
        for token in tokens {
            leased.extend(self.at_hand.take_leased(token.url).map(|out| (token.url, out)));
        }
        debug_assert!(self.is_as_leased(&leased)?, "a lease in memory is not the table's");
        let missing: Vec<Token> =
            tokens.iter().copied().filter(|token| !leased.contains_key(&token.url)).collect();
        if !missing.is_empty() {
            // Ended earlier in this transaction, they stand in the table still.
            if missing.iter().any(|token| self.pending.holds(token.url)) {
                self.write_pending()?;
            }
            read_leased(&self.conn, &missing, |row, lease| {
                leased.insert(row.id, (Box::new(row), lease));
            })?;
        }
        Ok(leased)
    }

    /// Are leases from memory what the tables say? For debug builds.
    fn is_as_leased(&self, leased: &LeasedRows) -> Result<bool, StoreError> {
        let written = leased.keys().filter(|url| !self.pending.holds(**url));
        let tokens: Vec<Token> = written.map(|url| Token { url: *url, secret: [0; 16] }).collect();
        let mut same = 0;
        read_leased(&self.conn, &tokens, |row, lease| {
            same += usize::from(
                leased.get(&row.id).is_some_and(|out| (&*out.0, &out.1) == (&row, &lease)),
            );
        })?;
        Ok(same == tokens.len())
    }

    /// The lease that a token names, while it lasts, and its URL; of those that
    /// were read for this call, and read again where the call comes to a URL
    /// again.
    fn current_of(
        &mut self,
        leased: &mut LeasedRows,
        token: Token,
    ) -> Result<Option<Out>, StoreError> {
        if self.pending.holds(token.url) {
            self.write_pending()?;
            leased.remove(&token.url);
            leased.extend(self.read_leases(&[token])?);
        }
        let is_current = self.is_current(leased, token);
        Ok(if is_current { leased.remove(&token.url) } else { None })
    }

    fn is_current(&self, leased: &LeasedRows, token: Token) -> bool {
        let now = self.steady_ms();
        let lease = leased.get(&token.url).map(|out| &out.1);
        lease.is_some_and(|lease| lease.secret == token.secret && lease.expires_at > now)
    }

    /// What a token that is not current answers to a call that would end its
    /// lease as `end`: `ok` where that very call has done so within the hour.
    fn past_token(&self, token: Token, end: End) -> Result<TokenResult, StoreError> {
        let now = self.steady_ms();
        let packed: Option<Vec<u8>> = self
            .conn
            .prepare_cached(
                "SELECT record FROM feedback WHERE url_id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut query| query.query_row([token.url.0], |row| row.get(0)).optional())
            .map_err(engine)?;
        let last = packed.and_then(|packed| Record::unpack(&packed).ended);
        let leased: bool = self
            .conn
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM leases WHERE url_id = ?1
                 /*pg: AND part = (?1 & 255) */)",
            )
            .and_then(|mut query| query.query_row([token.url.0], |row| row.get(0)))
            .map_err(engine)?;
        Ok(match last {
            Some(ended) if ended.was_of(token) => {
                let remembered = now - ended.at() <= TOKEN_MEMORY_MS;
                match ended.how {
                    End::Settled if !remembered => TokenResult::Unknown,
                    how if how == end && remembered => TokenResult::Ok,
                    _ => TokenResult::Stale,
                }
            }
            // A lease of this row has ended, or is held, under another token.
            Some(_) => TokenResult::Stale,
            _ if leased => TokenResult::Stale,
            _ => TokenResult::Unknown,
        })
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
        // It may be one that this very call has settled.
        self.write_pending()?;
        let found = self.find_spelled(row.crawl, crate::url::likely_identities(&url))?;
        let Some(target) = found else { return Ok(None) };
        // A parked one cannot stand for it: two that name each other would
        // both be gone.
        let stands = target.can_stand_for_others();
        Ok((target.id != row.id && stands).then_some(target.id))
    }

    /// The row of a URL as someone wrote it.
    pub(super) fn find_normalised(
        &mut self,
        crawl: crate::model::CrawlId,
        url: &url::Url,
    ) -> Result<Option<UrlRow>, StoreError> {
        self.find_spelled(crawl, crate::url::identities(url))
    }

    /// The row of the first of these that there is.
    fn find_spelled(
        &mut self,
        crawl: crate::model::CrawlId,
        spellings: Vec<url::Url>,
    ) -> Result<Option<UrlRow>, StoreError> {
        for spelling in spellings {
            let authority = authority(&spelling);
            let Some(host) = self.find_host(&authority)? else { continue };
            let path = &spelling[url::Position::BeforePath..];
            let key = url_key(self.seed, crawl, &authority, path);
            if let Some(row) = self.find_url(crawl, host, path, key)? {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// A page's 429 or Retry-After is meant for the whole host.
    fn pause_for(
        &mut self,
        row: &UrlRow,
        settlement: &Settlement,
        throttled: bool,
        now: i64,
    ) -> Result<(), StoreError> {
        // A host that wants no pause does not throttle.
        let asked = settlement.retry_after.filter(|pause| !pause.is_zero());
        let asked = asked.or(throttled.then_some(THROTTLED));
        let Some(pause) = asked else { return Ok(()) };
        let until = now.saturating_add(millis(pause.min(LONGEST_PAUSE)));
        let host: HostId = row.host;
        self.pause_host(host, until, "a page asked for it")
    }
}

/// Was the page seen, so that its interval begins anew?
fn is_regular(outcome: Outcome) -> bool {
    use Outcome::{Changed, Redirected, Unchanged, Unknown};
    matches!(outcome, Changed | Unchanged | Unknown | Redirected)
}

/// Without an outcome the hash tells: equal of the same kind is unchanged,
/// another is changed, and a new kind starts anew.
pub(super) fn derive_outcome(settlement: &Settlement, row: &UrlRow) -> Outcome {
    match (settlement.content_hash.as_deref(), row.record.content_hash()) {
        (Some(now), Some(before)) if settlement.hash_kind.as_deref() == row.record.hash_kind() => {
            if now == before {
                Outcome::Unchanged
            } else {
                Outcome::Changed
            }
        }
        _ => Outcome::Unknown,
    }
}

/// Adds one report to a record, with its hash and what kind of hash that is; one
/// without a hash, or of something else than the page, leaves the last.
pub(super) fn note_fetch(
    record: &mut Record,
    at: i64,
    outcome: Outcome,
    (content_hash, hash_kind): (Option<String>, Option<String>),
) {
    let fetched = record.fetched.get_or_insert_with(|| Fetched::first(at, outcome));
    (fetched.at, fetched.outcome) = (at, outcome);
    fetched.fetches = fetched.fetches.saturating_add(1);
    fetched.changes = fetched.changes.saturating_add(u64::from(outcome == Outcome::Changed));
    if content_hash.is_some() && is_regular(outcome) {
        fetched.content_hash = content_hash;
        let rare = fetched.rare.take().map_or_else(Rare::default, |rare| *rare);
        fetched.set_rare(Rare { hash_kind, ..rare });
    }
}
