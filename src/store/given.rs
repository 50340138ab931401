//! Making a lease, and saying what was leased: to who asked, and again to who
//! lost the answer.

use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use super::sql::{OptionalExtension, params};

use super::ending::Lease;
use super::hosts::{HostRules, millis, page_text};
use super::pending::NewLease;
use super::rows::{UrlRow, reason};
use super::state::State;
use super::{StoreError, engine, timestamp};
use crate::model::{CrawlId, HostId, Priority, Reason, SiteId, SourceId, UrlId};
use crate::queue::window::Rank;
use crate::queue::{Candidate, LeaseBatch, LeaseRequest, Leased, Token};

/// One call of lease while it is worked on.
pub(super) struct Call {
    pub(super) crawl: CrawlId,
    pub(super) crawl_name: Arc<str>,
    /// Only URLs of these sites; empty means all.
    pub(super) sites: Vec<SiteId>,
    /// Where those sites have URLs.
    pub(super) hosts: Vec<HostId>,
    /// Those of them that may be served, the next one on top, once that was asked.
    pub(super) line: Option<BinaryHeap<(Rank, HostId)>>,
    /// The same, to be looked at once nothing is left of those.
    pub(super) later: Vec<HostId>,
    /// Is it the turn of what is worth less than the price?
    pub(super) spare: bool,
    /// How many of that may be leased.
    pub(super) most_spare: usize,
    /// URLs that were blocked or forbidden, or put back.
    pub(super) held: usize,
    /// Octets looked at to judge URLs, of which many count as one more that is held.
    pub(super) judged: usize,
    /// Did it end for what it may look at or hold back, and not for want of anything due?
    pub(super) is_cut: bool,
    /// URLs that are not worth the price, or of other sites.
    pub(super) passed: usize,
    pub(super) per_host: usize,
    pub(super) max: usize,
    pub(super) ttl: Duration,
    pub(super) worker: Option<Arc<str>>,
    pub(super) request_id: Option<Arc<str>>,
    pub(super) now: i64,
    secrets: Secrets,
}

/// Random bits for tokens, asked of the system many at a time.
struct Secrets {
    bits: [[u8; 16]; 32],
    left: usize,
}

impl Secrets {
    fn next(&mut self) -> Result<[u8; 16], StoreError> {
        if self.left == 0 {
            getrandom::fill(self.bits.as_flattened_mut())
                .map_err(|e| StoreError::Engine(format!("no randomness: {e}")))?;
            self.left = self.bits.len();
        }
        self.left -= 1;
        Ok(self.bits[self.left])
    }
}

impl Call {
    pub(super) fn new(crawl: CrawlId, request: &LeaseRequest, now: i64) -> Self {
        Self {
            crawl,
            crawl_name: Arc::from(request.crawl.as_str()),
            sites: Vec::new(),
            hosts: Vec::new(),
            line: None,
            later: Vec::new(),
            spare: false,
            most_spare: 0,
            held: 0,
            judged: 0,
            is_cut: false,
            passed: 0,
            // More is never given to it, and need not be read for it.
            per_host: request.per_host.min(request.max).max(1) as usize,
            max: request.max as usize,
            ttl: request.ttl,
            worker: request.worker.as_deref().map(Arc::from),
            request_id: request.request_id.as_deref().map(Arc::from),
            now,
            secrets: Secrets { bits: [[0; 16]; 32], left: 0 },
        }
    }
}

/// Names of a URL's site and of its source.
type Names = (Option<Arc<str>>, Option<Arc<str>>);

/// What URLs of one host, site and source have in common.
pub(super) struct Common {
    of: (HostId, Option<SiteId>, Option<SourceId>),
    authority: Arc<str>,
    names: Names,
    pub(super) robots: Verdict,
}

/// What the robots.txt of a host says to the agent of a site.
pub(super) enum Verdict {
    /// The site does not ask.
    Unasked,
    /// It is not known yet.
    Unknown,
    Known(Arc<HostRules>),
}

impl Common {
    pub(super) fn is_of(&self, row: &UrlRow) -> bool {
        self.of == (row.host, row.site, row.source)
    }

    /// What robots.txt says beside its rules.
    fn said<'r>(&'r self, line: impl Fn(&'r HostRules) -> Option<&'r str>) -> Option<Arc<str>> {
        match &self.robots {
            Verdict::Known(rules) => line(rules).map(Arc::from),
            Verdict::Unasked | Verdict::Unknown => None,
        }
    }
}

/// A lease that was given before, as the table has it.
struct Repeat {
    token: Token,
    reason: Reason,
    band: u8,
    due_s: i64,
    attempt: u32,
    not_before: i64,
    expires_at: i64,
}

impl State {
    /// Makes the lease of one URL.
    pub(super) fn give(
        &mut self,
        call: &mut Call,
        common: &Common,
        mut row: Box<UrlRow>,
        candidate: &Candidate,
        not_before: i64,
    ) -> Result<Leased, StoreError> {
        self.dequeue_leased(row.place(), call.sites.is_empty());
        let value = candidate.value();
        let secret = call.secrets.next()?;
        let token = Token { url: row.id, secret };
        let attempt = row.attempt + 1;
        let expires_at = call.now.saturating_add(millis(call.ttl));
        self.pending.lease(NewLease {
            url: row.id,
            secret,
            crawl: row.crawl,
            host: row.host,
            reason: row.reason,
            band: in_hundredths(value),
            due_s: row.due_s,
            attempt,
            leased_at: call.now,
            expires_at,
            not_before,
            worker: call.worker.clone(),
            request_id: call.request_id.clone(),
        });
        let leased = leased(call, common, &row, token, attempt, not_before, expires_at);
        let lease = Lease {
            reason: row.reason,
            due_s: row.due_s,
            attempt,
            leased_at: call.now,
            expires_at,
            dirty: 0,
            secret,
        };
        row.leased = true;
        self.at_hand.keep_leased(row, lease);
        Ok(Leased { value, ..leased })
    }

    /// What this URL has in common with others of its host.
    pub(super) fn common(&mut self, row: &UrlRow) -> Result<Common, StoreError> {
        let robots = match self.policy.of(row.site).robots_agent.clone() {
            None => Verdict::Unasked,
            Some(agent) => {
                if let Some(rules) = self.host_rules(row.host, &agent)? {
                    Verdict::Known(rules)
                } else {
                    self.await_robots(row.host, row.site)?;
                    Verdict::Unknown
                }
            }
        };
        let authority = Arc::clone(&self.host(row.host)?.authority);
        let names = self.names(row)?;
        Ok(Common { of: (row.host, row.site, row.source), authority, names, robots })
    }

    /// Names of a URL's site and of the source that comes first for it.
    fn names(&mut self, row: &UrlRow) -> Result<Names, StoreError> {
        let conn = &self.conn;
        let text = |sql: &str, id: i64| -> Result<Option<String>, StoreError> {
            conn.prepare_cached(sql)
                .and_then(|mut query| query.query_row([id], |row| row.get(0)).optional())
                .map_err(engine)
        };
        let site = |id: SiteId| text("SELECT name FROM sites WHERE id = ?1", id.0);
        let source = |id: SourceId| {
            let by_id = "SELECT url FROM sources WHERE id = ?1 /*pg: AND part = (?1 & 255) */";
            text(by_id, id.0)
        };
        let site = match row.site {
            Some(id) => self.at_hand.site_name(id, || site(id))?,
            None => None,
        };
        let source = match row.source {
            Some(id) => self.at_hand.source_url(id, || source(id))?,
            None => None,
        };
        Ok((site, source))
    }

    /// The leases that a call with the same `request_id` got before: its
    /// answer was lost on the way.
    pub(super) fn leased_before(
        &mut self,
        crawl: CrawlId,
        request: &LeaseRequest,
    ) -> Result<Option<LeaseBatch>, StoreError> {
        let Some(request_id) = &request.request_id else { return Ok(None) };
        // It may have been worked on a moment ago.
        self.write_pending()?;
        let now = self.steady_ms();
        let mut query = self
            .conn
            .prepare_cached(
                "SELECT url_id, token, reason, band, due_s, attempt, not_before, expires_at FROM leases
                 WHERE request_id = ?1 AND crawl_id = ?2 AND worker IS NOT DISTINCT FROM ?3 AND expires_at > ?4
                 ORDER BY not_before, url_id",
            )
            .map_err(engine)?;
        let rows: Vec<Repeat> = query
            .query_map(params![request_id, crawl.0, request.worker, now], |row| {
                Ok(Repeat {
                    token: Token { url: UrlId(row.get(0)?), secret: row.get(1)? },
                    reason: reason(row.get(2)?),
                    band: row.get(3)?,
                    due_s: row.get(4)?,
                    attempt: row.get(5)?,
                    not_before: row.get(6)?,
                    expires_at: row.get(7)?,
                })
            })
            .and_then(Iterator::collect)
            .map_err(engine)?;
        drop(query);
        if rows.is_empty() {
            return Ok(None);
        }
        let call = Call::new(crawl, request, now);
        let mut batch = LeaseBatch { is_again: true, ..LeaseBatch::default() };
        for repeat in rows {
            let Repeat { token, reason, band, due_s, attempt, not_before, expires_at } = repeat;
            let Some(row) = self.url_row(token.url)? else { continue };
            let row = UrlRow { reason, band, due_s, ..row };
            let common = self.common(&row)?;
            batch.urls.push(leased(&call, &common, &row, token, attempt, not_before, expires_at));
        }
        Ok(Some(batch))
    }
}

/// What the fetcher is told of a lease.
fn leased(
    call: &Call,
    common: &Common,
    row: &UrlRow,
    token: Token,
    attempt: u32,
    not_before: i64,
    expires_at: i64,
) -> Leased {
    let left = u64::try_from(expires_at - call.now).unwrap_or(0);
    let (site, source) = common.names.clone();
    Leased {
        token,
        id: row.id,
        kind: row.kind,
        url: page_text(&common.authority, &row.path),
        site,
        source,
        host: Arc::clone(&common.authority),
        crawl: Arc::clone(&call.crawl_name),
        reason: row.reason,
        priority: row.hints.priority.unwrap_or(Priority::DEFAULT),
        value: f64::from(row.band) / 100.0,
        changefreq: row.hints.changefreq,
        lastmod: row.lastmod,
        previous_lastmod: row.record.previous,
        content_hash: row.record.content_hash().map(str::to_owned),
        due_at: timestamp(row.due_s.saturating_mul(1000)),
        not_before: timestamp(not_before),
        attempt,
        expires_at: timestamp(expires_at),
        expires_in: Duration::from_millis(left),
        content_signal: common.said(|rules| rules.content_signal.of(&row.path)),
        content_usage: common.said(|rules| rules.content_usage.of(&row.path)),
        license: common.said(|rules| rules.license.as_deref()),
    }
}

/// A value from 0 to 1.02 as the table of leases keeps it.
fn in_hundredths(value: f64) -> u8 {
    // Within 0 and 102.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let band = (value * 100.0).round().clamp(0.0, 255.0) as u8;
    band
}
