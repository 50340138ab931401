//! Sitemaps that webmasters name: a hint to look sooner, never an authority.
//!
//! A ping of a source that we poll brings its next poll forward, once in
//! [`SPACING`]. One of anything else on a host that a site has makes us read
//! that host's robots.txt again, as seldom, since that is what may name it. One
//! of any other host makes nobody do anything: it waits for an operator, or for
//! the robots.txt of a site to name it. What is kept is bounded and expires.

use std::collections::BTreeMap;

use super::sql::{self, Connection, OptionalExtension, params};
use jiff::Timestamp;
use url::{Host, Url};

use super::given_up::is_given_up;
use super::hosts::partition;
use super::sources::check_length;
use super::state::State;
use super::views::{Page, SourceView};
use super::writer::Lane;
use super::{Store, StoreError, engine, poll_reads, timestamp};
use crate::model::{HostId, SourceId};
use crate::url::authority;

/// Least time between two polls of one source that pings bring forward
/// (Google's old advice to those who ping: once an hour).
pub const SPACING: std::time::Duration = std::time::Duration::from_secs(3_600);
/// The same in milliseconds.
pub(super) const SPACING_MS: i64 = 3_600_000;
/// Submissions of sources kept at most; the longest unnamed goes first.
const MAX_KNOWN: i64 = 10_000;
/// Submissions kept at most of what is no source; more are refused.
pub const MAX_PENDING: i64 = 1_000;
/// The same of one scheme, host and port.
pub const MAX_PENDING_OF_HOST: i64 = 20;
/// How long one of these is kept after it was last named.
const PENDING_MS: i64 = 7 * 24 * 3_600_000;
/// Submissions dropped in one job at most.
const DROP: i64 = 1_000;

/// Names one submission: 128 random bits, written as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubmissionId(pub [u8; 16]);

impl SubmissionId {
    /// One that nobody has.
    fn random() -> Result<Self, StoreError> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits)
            .map_err(|e| StoreError::Engine(format!("no randomness: {e}")))?;
        Ok(Self(bits))
    }

    /// Reads what was written by `Display`.
    pub fn parse(text: &str) -> Option<Self> {
        let is_one = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let bits = u128::from_str_radix(text, 16).ok().filter(|_| is_one)?;
        Some(Self(bits.to_be_bytes()))
    }
}

impl std::fmt::Display for SubmissionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// What a ping came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It is a source; its next poll is then.
    Source(Timestamp),
    /// It is none, but its host is one of a site: its robots.txt is read then.
    Robots(Timestamp),
    /// No site has anything to do with its host.
    Unknown,
}

/// One submission.
#[derive(Debug, Clone)]
pub struct SubmissionView {
    /// The row, for lists.
    pub row: i64,
    /// Its public name.
    pub id: SubmissionId,
    /// What was named.
    pub url: String,
    /// First named.
    pub at: Timestamp,
    /// Last named.
    pub last_at: Timestamp,
    /// How often.
    pub times: u64,
    /// The source that it is, if it is one.
    pub source: Option<SourceView>,
}

impl Store {
    /// Takes in that somebody named a sitemap or feed as changed.
    pub async fn hear(&self, url: Url) -> Result<(SubmissionId, Heard), StoreError> {
        let fresh = SubmissionId::random()?;
        self.write(Lane::Bulk, move |state| state.hear(&url, fresh)).await
    }

    /// Is a sitemap or feed polled whose URL is this one, as people may spell it, or
    /// looked at again for a ping?
    pub async fn polls(&self, url: Url) -> Result<bool, StoreError> {
        self.read(move |conn| {
            for place in spellings(&url) {
                for source in sources_at(conn, &place)? {
                    if source.polled || is_given_up(conn, source.id)? {
                        return Ok(true);
                    }
                }
            }
            Ok(false)
        })
        .await
    }

    /// One submission, as it stands.
    pub async fn submission(&self, id: SubmissionId) -> Result<SubmissionView, StoreError> {
        self.read(move |conn| submission(conn, id)).await
    }

    /// Submissions in the order in which they were first named; with `pending`
    /// only those that are no source.
    pub async fn submissions(
        &self,
        pending: bool,
        limit: u32,
        after: Option<i64>,
    ) -> Result<Page<SubmissionView>, StoreError> {
        self.read(move |conn| submissions(conn, pending, limit, after.unwrap_or(0))).await
    }

    /// An operator makes what was submitted a source of a site.
    pub async fn grant(&self, id: SubmissionId, site: String) -> Result<SourceId, StoreError> {
        let url = self.submission(id).await?.url;
        let url = Url::parse(&url).map_err(|e| StoreError::Engine(format!("{url:?}: {e}")))?;
        self.write(Lane::Bulk, move |state| {
            let source = state.submit_source(&site, url)?;
            state.mark_known(id)?;
            Ok(source)
        })
        .await
    }

    /// Drops a submission; its source, if it is one, stays.
    pub async fn forget_submission(&self, id: SubmissionId) -> Result<(), StoreError> {
        self.write(Lane::Bulk, move |state| state.forget_submission(id)).await
    }
}

impl State {
    fn hear(
        &mut self,
        url: &Url,
        fresh: SubmissionId,
    ) -> Result<(SubmissionId, Heard), StoreError> {
        check_length(url)?;
        let now = self.now_ms();
        let mut heard = Heard::Unknown;
        for place in spellings(url) {
            for source in sources_at(&self.conn, &place)?.into_iter().filter(|one| one.polled) {
                heard = Heard::Source(timestamp(self.hint(source.id, now)?));
                self.hint_undated(source.id, now)?;
            }
            if matches!(heard, Heard::Source(_)) {
                break;
            }
        }
        if heard == Heard::Unknown {
            heard = self.hear_of_given_up(url, now)?;
        }
        for place in spellings(url) {
            if heard == Heard::Unknown
                && let Some(host) = self.find_host(&authority(&place))?
                && let Some(robots) = self.robots_of_site(host)?
            {
                heard = Heard::Robots(timestamp(self.hint(robots, now)?));
            }
        }
        let id = self.keep_submission(url, heard, fresh, now)?;
        Ok((id, heard))
    }

    /// It may be a source that was given up, and that the configuration still names.
    fn hear_of_given_up(&mut self, url: &Url, now: i64) -> Result<Heard, StoreError> {
        for place in spellings(url) {
            for source in sources_at(&self.conn, &place)? {
                if let Some(at) = self.hint_given_up(source.id, now)? {
                    return Ok(Heard::Source(timestamp(at)));
                }
            }
        }
        Ok(Heard::Unknown)
    }

    /// Brings the next poll of a source forward, as far as that may be; says
    /// when it is.
    pub(super) fn hint(&mut self, source: SourceId, now: i64) -> Result<i64, StoreError> {
        let (next, hinted): (Option<i64>, Option<i64>) = self
            .conn
            .prepare_cached(
                "SELECT next_poll_at, hinted_at FROM sources WHERE id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut query| query.query_row([source.0], |row| Ok((row.get(0)?, row.get(1)?))))
            .map_err(engine)?;
        let at = hinted.map_or(now, |hinted| now.max(hinted.saturating_add(SPACING_MS)));
        if let Some(next) = next.filter(|next| *next <= at) {
            // Its poll may be under way, and have read what was there before.
            if next <= now && hinted.is_none_or(|hinted| hinted <= now) {
                // No poll was made yet for one that has come since it was due.
                let is_noted = hinted.is_some_and(|hinted| hinted > next);
                self.note_hint(source, if is_noted { now } else { at })?;
            }
            return Ok(next);
        }
        self.sources_moved = true;
        self.conn
            .prepare_cached(
                "UPDATE sources SET next_poll_at = ?2, hinted_at = ?2, rule = 'pinged',
                     why = 'somebody says that it has changed' WHERE id = ?1
                     /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut update| update.execute(params![source.0, at]))
            .map_err(engine)?;
        Ok(at)
    }

    /// Has the poll that is under way, or about to begin, followed by another one,
    /// unless it begins after this time.
    fn note_hint(&mut self, source: SourceId, at: i64) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "UPDATE sources SET hinted_at = ?2 WHERE id = ?1 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut update| update.execute(params![source.0, at]))
            .map(|_| ())
            .map_err(engine)
    }

    /// The robots.txt of a host, where an active site is the reason to read it.
    fn robots_of_site(&self, host: HostId) -> Result<Option<SourceId>, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT s.id FROM sources s JOIN sites n ON n.id = s.site_id
                 WHERE s.host_id = ?1 /*pg: AND s.part = (?1 & 255) */ AND s.role = 0 AND s.state = 0 AND n.state = 0",
            )
            .and_then(|mut query| {
                query.query_row([host.0], |row| row.get(0).map(SourceId)).optional()
            })
            .map_err(engine)
    }

    fn keep_submission(
        &mut self,
        url: &Url,
        heard: Heard,
        fresh: SubmissionId,
        now: i64,
    ) -> Result<SubmissionId, StoreError> {
        let known = matches!(heard, Heard::Source(_));
        let kept: Option<[u8; 16]> = self
            .conn
            .prepare_cached(
                "UPDATE submissions SET known = ?2, last_at = ?3, times = times + 1
                 WHERE url = ?1 RETURNING token",
            )
            .and_then(|mut update| {
                update.query_row(params![url.as_str(), known, now], |row| row.get(0)).optional()
            })
            .map_err(engine)?;
        if let Some(token) = kept {
            return Ok(SubmissionId(token));
        }
        match heard {
            Heard::Source(_) => self.make_room_for_known()?,
            Heard::Robots(_) => self.make_room_for_pending(url)?,
            Heard::Unknown => self.check_room_for_pending(url)?,
        }
        self.conn
            .prepare_cached(
                "INSERT INTO submissions (token, url, known, at, last_at) VALUES (?1, ?2, ?3, ?4, ?4)",
            )
            .and_then(|mut insert| insert.execute(params![fresh.0, url.as_str(), known, now]))
            .map_err(engine)?;
        Ok(fresh)
    }

    fn make_room_for_known(&mut self) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "DELETE FROM submissions WHERE id IN (SELECT id FROM submissions WHERE known = 1
                     ORDER BY last_at DESC
                     LIMIT /*lite*/ -1 /*end*/ /*pg: ALL */ OFFSET ?1)",
            )
            .and_then(|mut delete| delete.execute([MAX_KNOWN - 1]))
            .map(|_| ())
            .map_err(engine)
    }

    fn check_room_for_pending(&self, url: &Url) -> Result<(), StoreError> {
        let (all, of_host) = self.pending_submissions(&below(url))?;
        if all >= MAX_PENDING || of_host >= MAX_PENDING_OF_HOST {
            return Err(StoreError::Refused(
                "too many sitemaps that no site has wait already".to_owned(),
            ));
        }
        Ok(())
    }

    /// On a host that a site has what waits for longest goes: of that host, where
    /// it has its share. Strangers who fill the table keep nobody's word out.
    fn make_room_for_pending(&mut self, url: &Url) -> Result<(), StoreError> {
        let below = below(url);
        let (all, of_host) = self.pending_submissions(&below)?;
        let among = match (all >= MAX_PENDING, of_host >= MAX_PENDING_OF_HOST) {
            (_, true) => below.as_str(),
            (true, false) => "",
            (false, false) => return Ok(()),
        };
        self.conn
            .prepare_cached(
                "DELETE FROM submissions WHERE id IN (SELECT id FROM submissions
                     WHERE known = 0 AND substr(url, 1, length(?1)) = ?1
                     ORDER BY last_at, id LIMIT 1)",
            )
            .and_then(|mut delete| delete.execute([among]))
            .map(|_| ())
            .map_err(engine)
    }

    /// How many wait, and how many of those `below` a host; looks at
    /// [`MAX_PENDING`] rows at most.
    fn pending_submissions(&self, below: &str) -> Result<(i64, i64), StoreError> {
        self.conn
            .prepare_cached(
                "SELECT count(*), coalesce(sum(CASE substr(url, 1, length(?1)) WHEN ?1 THEN 1 ELSE 0 END), 0)
                 FROM submissions WHERE known = 0",
            )
            .and_then(|mut query| query.query_row([below], |row| Ok((row.get(0)?, row.get(1)?))))
            .map_err(engine)
    }

    fn mark_known(&mut self, id: SubmissionId) -> Result<(), StoreError> {
        self.conn
            .execute("UPDATE submissions SET known = 1 WHERE token = ?1", [id.0])
            .map(|_| ())
            .map_err(engine)
    }

    fn forget_submission(&mut self, id: SubmissionId) -> Result<(), StoreError> {
        let dropped = self
            .conn
            .execute("DELETE FROM submissions WHERE token = ?1", [id.0])
            .map_err(engine)?;
        if dropped == 0 { Err(no_submission(id)) } else { Ok(()) }
    }

    /// Drops what nobody has named for long; `true` if there was any.
    pub(super) fn forget_submissions(&mut self, known_before: i64) -> Result<bool, StoreError> {
        let pending_before = self.now_ms() - PENDING_MS;
        let mut more = false;
        for (known, before) in [(0, pending_before), (1, known_before)] {
            let dropped = self
                .conn
                .prepare_cached(
                    "DELETE FROM submissions WHERE id IN (SELECT id FROM submissions
                         WHERE known = ?1 AND last_at < ?2 LIMIT ?3)",
                )
                .and_then(|mut delete| delete.execute(params![known, before, DROP]))
                .map_err(engine)?;
            more |= i64::try_from(dropped).is_ok_and(|count| count == DROP);
        }
        Ok(more)
    }
}

/// A source with some URL.
struct Place {
    id: SourceId,
    /// Is it polled, and its site active?
    polled: bool,
}

/// The sitemaps and feeds with exactly this URL, those that are polled first.
fn sources_at(conn: &Connection, url: &Url) -> Result<Vec<Place>, StoreError> {
    let mut query = conn
        .prepare_cached(
            "SELECT s.id, s.state = 0 AND n.state = 0 AS polled
             FROM hosts h JOIN sources s ON s.host_id = h.id /*pg: AND s.part = h.part */
                 JOIN sites n ON n.id = s.site_id
             WHERE /*pg: h.part = ?1 AND */ h.authority = ?2 AND s.url = ?3 AND s.role <> 0 AND s.role <> 1
             ORDER BY polled DESC, s.id",
        )
        .map_err(engine)?;
    query
        .query_map(params![partition(&authority(url)), authority(url), url.as_str()], |row| {
            Ok(Place { id: SourceId(row.get(0)?), polled: row.get(1)? })
        })
        .and_then(Iterator::collect)
        .map_err(engine)
}

/// A URL and its twins: people name the form that they type.
fn spellings(url: &Url) -> Vec<Url> {
    let mut all = vec![url.clone()];
    let Some(Host::Domain(host)) = url.host() else { return all };
    if url.port().is_some() {
        return all;
    }
    let other = host.strip_prefix("www.").map_or_else(|| format!("www.{host}"), str::to_owned);
    for (scheme, host) in
        [("https", host), ("https", other.as_str()), ("http", host), ("http", other.as_str())]
    {
        let mut twin = url.clone();
        let is_set = twin.set_scheme(scheme).is_ok() && twin.set_host(Some(host)).is_ok();
        if is_set && !all.contains(&twin) {
            all.push(twin);
        }
    }
    all
}

fn no_submission(id: SubmissionId) -> StoreError {
    StoreError::NotFound(format!("there is no submission {id}; they are forgotten in time"))
}

const SUBMISSION: &str = "SELECT id, token, url, at, last_at, times FROM submissions";

fn read_submission(row: &sql::Row<'_>) -> sql::Result<SubmissionView> {
    Ok(SubmissionView {
        row: row.get(0)?,
        id: SubmissionId(row.get(1)?),
        url: row.get(2)?,
        at: timestamp(row.get(3)?),
        last_at: timestamp(row.get(4)?),
        times: row.get::<i64>(5)?.unsigned_abs(),
        source: None,
    })
}

/// Looks up what a submission is by now.
fn follow(conn: &Connection, view: &mut SubmissionView) -> Result<(), StoreError> {
    let Ok(url) = Url::parse(&view.url) else { return Ok(()) };
    // The best of all spellings: one that is polled, else one that was.
    let mut found = BTreeMap::new();
    for (order, place) in spellings(&url).iter().enumerate() {
        for source in sources_at(conn, place)? {
            found.entry((!source.polled, order)).or_insert(source.id);
        }
    }
    if let Some(id) = found.into_values().next() {
        view.source = Some(poll_reads::source(conn, id)?.0);
    }
    Ok(())
}

fn submission(conn: &Connection, id: SubmissionId) -> Result<SubmissionView, StoreError> {
    let mut view = conn
        .prepare_cached(&format!("{SUBMISSION} WHERE token = ?1"))
        .and_then(|mut query| query.query_row([id.0], read_submission).optional())
        .map_err(engine)?
        .ok_or_else(|| no_submission(id))?;
    follow(conn, &mut view)?;
    Ok(view)
}

fn submissions(
    conn: &Connection,
    pending: bool,
    limit: u32,
    after: i64,
) -> Result<Page<SubmissionView>, StoreError> {
    let sql = format!("{SUBMISSION} WHERE id > ?1 AND (?2 = 0 OR known = 0) ORDER BY id LIMIT ?3");
    let mut query = conn.prepare_cached(&sql).map_err(engine)?;
    let mut items: Vec<SubmissionView> = query
        .query_map(params![after, pending, limit], read_submission)
        .and_then(Iterator::collect)
        .map_err(engine)?;
    let full = items.len() == limit as usize;
    let next = items.last().filter(|_| full).map(|view| view.row);
    for view in &mut items {
        follow(conn, view)?;
    }
    if pending {
        items.retain(|view| view.source.is_none());
    }
    Ok(Page { items, next })
}

/// What URLs of the same host begin with.
fn below(url: &Url) -> String {
    format!("{}/", authority(url))
}
