//! Sources: registered, due, polled, retired.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};
use url::Url;

use super::apply::Origin;
use super::rows::{decode, lastmod, lastmod_columns};
use super::state::State;
use super::views::Counts;
use super::{StoreError, engine, timestamp};
use crate::fetch::Validators;
use crate::model::{CrawlId, DocumentKind, HostId, Lastmod, Role, SiteId, SourceId};
use crate::url::authority;

/// A retired source, and a child that its index dropped, holds its URLs for
/// this long: it may come back.
pub(crate) const GRACE_MS: i64 = 7 * 24 * 3_600_000;

/// A dead source that is still named by someone is tried again this often.
const PROBE_DEAD_MS: i64 = 30 * 24 * 3_600_000;

/// A source to be registered.
#[derive(Debug, Clone)]
pub struct NewSource {
    /// Where it is.
    pub url: Url,
    /// What it is asked for.
    pub role: Role,
    /// Who named it.
    pub named_by: &'static str,
    /// The index that lists it, and how deep it lies.
    pub parent: Option<(SourceId, u32)>,
    /// As its index lists it.
    pub lastmod: Option<Lastmod>,
}

/// A source as a poll needs it.
#[derive(Debug, Clone)]
pub struct PollTarget {
    /// The row.
    pub id: SourceId,
    /// Its site; robots.txt of a host that no site registered has none.
    pub site: Option<SiteId>,
    /// Name of its site.
    pub site_name: Option<String>,
    /// The site's crawl.
    pub crawl: CrawlId,
    /// Whose clock it takes.
    pub host: HostId,
    /// Who named it.
    pub named_by: String,
    /// The index that lists it.
    pub parent: Option<SourceId>,
    /// Indexes above it.
    pub depth: u32,
    /// What it is asked for.
    pub role: Role,
    /// Where it is.
    pub url: Url,
    /// What it turned out to be.
    pub kind: Option<DocumentKind>,
    /// Code of `sources.window`: 0 full, 1 by its kind, 2 learned.
    pub window: u8,
    /// Reads in a row in which only the oldest left.
    pub rolls: u32,
    /// Since when removals are held.
    pub shrunk_at: Option<Timestamp>,
    /// Entries that are missing now.
    pub pending: u64,
    /// As its index lists it.
    pub index_lastmod: Option<Lastmod>,
    /// When it was due.
    pub due_at: Timestamp,
    /// The interval that led to now.
    pub interval_ms: i64,
    /// Failures in a row.
    pub failures: u32,
    /// Since when.
    pub failing_since: Option<Timestamp>,
    /// Number of the last read.
    pub generation: i64,
    /// Reader and rules of the last read.
    pub epoch: i64,
    /// Exactly as received.
    pub validators: Validators,
    /// Of the bytes as sent.
    pub wire_hash: Option<u128>,
    /// Of the bytes as decoded.
    pub body_hash: Option<u128>,
    /// When it was first registered.
    pub added_at: Timestamp,
    /// Last answer that was no failure.
    pub last_success_at: Option<Timestamp>,
    /// Last read that was complete.
    pub last_complete_at: Option<Timestamp>,
    /// Last read that no validator or hash cut short.
    pub last_full_at: Option<Timestamp>,
    /// Entries of the last read.
    pub entries: u64,
    /// Is it due because someone asked? Then it is really fetched.
    pub asked: bool,
    /// What its publisher says of polling, as [`ReadResult::hints`] was.
    pub hints: Option<String>,
}

impl PollTarget {
    /// What effects of this poll belong to; `None` without a site.
    pub fn origin(&self, window: bool) -> Option<Origin> {
        Some(Origin {
            source: self.id,
            site: self.site?,
            crawl: self.crawl,
            window,
            generation: self.generation + 1,
        })
    }
}

/// When a source is polled next, and why then.
#[derive(Debug, Clone)]
pub struct NextPollAt {
    /// When; `None` retires the source.
    pub at: Option<Timestamp>,
    /// The interval that this makes.
    pub interval_ms: i64,
    /// The rule that decided.
    pub rule: String,
    /// One plain sentence.
    pub why: String,
}

/// What a successful read leaves behind.
#[derive(Debug, Clone)]
pub struct ReadResult {
    /// What the document turned out to be.
    pub kind: DocumentKind,
    /// Code of `sources.window` from now on.
    pub window: u8,
    /// Reads in a row in which only the oldest left.
    pub rolls: u32,
    /// Since when removals are held.
    pub shrunk_at: Option<Timestamp>,
    /// Entries that are missing now.
    pub pending: u64,
    /// Was it read to its end?
    pub complete: bool,
    /// Reader and rules of this read.
    pub epoch: i64,
    /// Validators to send next time: only of a whole read, without redirects.
    pub validators: Validators,
    /// Of the bytes as sent.
    pub wire_hash: Option<u128>,
    /// Of the bytes as decoded.
    pub body_hash: Option<u128>,
    /// Decoded bytes.
    pub bytes: u64,
    /// Entries read.
    pub entries: u64,
    /// JSON: entries by what became of them.
    pub admitted: String,
    /// JSON: defects.
    pub issues: String,
    /// What the publisher says of polling, in the words of the schedule.
    pub hints: Option<String>,
    /// The next snapshot, encoded; `None` leaves the old one.
    pub snapshot: Option<Vec<u8>>,
    /// Did it show anything new?
    pub changed: bool,
}

/// How a poll ended.
#[derive(Debug, Clone)]
pub struct PollEnd {
    /// Which source.
    pub source: SourceId,
    /// When the poll began.
    pub at: Timestamp,
    /// Fetch to commit.
    pub took_ms: i64,
    /// A word for tables: `changed`, `unchanged`, `not-modified`, `failed`, …
    pub result: &'static str,
    /// `success`, `has-errors` or `could-not-fetch`.
    pub status: &'static str,
    /// HTTP status.
    pub http_status: Option<u16>,
    /// Bytes over the wire.
    pub wire_bytes: u64,
    /// What it made of the URLs.
    pub counts: Counts,
    /// What went wrong.
    pub error: Option<String>,
    /// When it is polled next.
    pub next: NextPollAt,
    /// Did it fail?
    pub failed: bool,
    /// What it leaves behind.
    pub kept: Kept,
}

/// What a poll leaves behind.
#[derive(Debug, Clone)]
pub enum Kept {
    /// Nothing: what was known stands.
    Nothing,
    /// The source was seen whole and is as it was (a 304, an equal hash).
    Seen(SeenAgain),
    /// A robots.txt was read, which is kept elsewhere: validators for next time.
    Robots(Validators),
    /// A document was read.
    Read(ReadResult),
}

/// What a read that brought nothing new leaves behind.
#[derive(Debug, Clone)]
pub struct SeenAgain {
    /// Validators to send next time.
    pub validators: Validators,
    /// Entries that were missing are missing once more.
    pub recounted: Option<Recounted>,
}

/// The absences of a source, counted once more without a new document.
#[derive(Debug, Clone)]
pub struct Recounted {
    /// The next snapshot, encoded.
    pub snapshot: Vec<u8>,
    /// Entries that are missing now.
    pub pending: u64,
    /// Since when the source has been less than half of what it was.
    pub shrunk_at: Option<Timestamp>,
    /// Are its removals held for that?
    pub held: bool,
}

/// One child of an index, as the store has it.
#[derive(Debug, Clone)]
pub struct Child {
    /// The row.
    pub id: SourceId,
    /// Where it is.
    pub url: String,
    /// As its index listed it.
    pub lastmod: Option<Lastmod>,
    /// Reads of the index in a row without it.
    pub misses: u32,
    /// First of these.
    pub dropped_at: Option<Timestamp>,
    /// Is it retired?
    pub retired: bool,
}

/// What a read of an index asks of a child.
#[derive(Debug, Clone)]
pub enum ChildEffect {
    /// Listed for the first time.
    Add(NewSource),
    /// Its lastmod moved, or it came back: it is due now.
    Due {
        /// The row.
        id: SourceId,
        /// As listed now.
        lastmod: Option<Lastmod>,
    },
    /// Not listed in this complete read.
    Missing {
        /// The row.
        id: SourceId,
    },
}

pub(super) const TARGET: &str = "SELECT
    s.id, s.site_id, n.name, coalesce(n.crawl_id, 1), s.host_id, s.parent_id, s.depth, s.role, s.url,
    s.kind, s.window, s.rolls, s.shrunk_at, s.pending, s.index_lastmod, s.index_precision,
    coalesce(s.next_poll_at, 0), s.interval_ms, s.failures, s.failing_since, s.generation, s.epoch,
    s.etag, s.last_modified, s.wire_hash, s.body_hash, s.last_complete_at, s.last_full_at, s.entries,
    s.added_at, s.named_by, s.rule = 'asked', s.hints, s.last_success_at
    FROM sources s LEFT JOIN sites n ON n.id = s.site_id";

impl State {
    /// Registers sources of a site; known ones stay as they are. Says how many
    /// are new and how many the site's quota refused.
    pub(super) fn register(
        &mut self,
        site: SiteId,
        sources: &[NewSource],
    ) -> Result<(u64, u64), StoreError> {
        let quota = self.policy.of(Some(site)).max_sources;
        let delay = self.policy.of(Some(site)).host_delay;
        let mut used = self.site_sources(site)?;
        let (mut added, mut refused) = (0_u64, 0_u64);
        for source in sources {
            let known = self.find_source(site, source.url.as_str())?;
            if let Some((id, retired_at)) = known {
                // A dead source that is still named is probed again, rarely.
                let now = self.now_ms();
                if self.adopt(id, source)? || retired_at.is_some_and(|at| now - at >= PROBE_DEAD_MS)
                {
                    self.revive(id)?;
                }
                continue;
            }
            if used >= quota {
                refused += 1;
                continue;
            }
            let host = self.host_named(&authority(&source.url), delay)?;
            self.ensure_robots(host, Some(site))?;
            self.insert_source(Some(site), host, source)?;
            used += 1;
            added += 1;
        }
        self.conn
            .prepare_cached("UPDATE sites SET sources = sources + ?2 WHERE id = ?1")
            .and_then(|mut update| update.execute(params![site.0, added.cast_signed()]))
            .map_err(engine)?;
        Ok((added, refused))
    }

    /// A child that its index dropped and another one lists is that one's from
    /// now on; says whether it is.
    fn adopt(&mut self, id: SourceId, source: &NewSource) -> Result<bool, StoreError> {
        let Some((parent, depth)) = source.parent else { return Ok(false) };
        let (second, precision) = lastmod_columns(source.lastmod);
        self.conn
            .prepare_cached(
                "UPDATE sources SET parent_id = ?2, depth = ?3, index_lastmod = ?4, index_precision = ?5
                 WHERE id = ?1 AND dropped_at IS NOT NULL AND parent_id <> ?2",
            )
            .and_then(|mut update| {
                update.execute(params![id.0, parent.0, depth, second, precision])
            })
            .map(|adopted| adopted > 0)
            .map_err(engine)
    }

    fn site_sources(&self, site: SiteId) -> Result<u64, StoreError> {
        self.conn
            .prepare_cached("SELECT sources FROM sites WHERE id = ?1")
            .and_then(|mut query| query.query_row([site.0], |row| row.get::<_, i64>(0)))
            .map(i64::unsigned_abs)
            .map_err(engine)
    }

    /// A source of a site by its URL, and since when it is retired.
    pub(super) fn find_source(
        &self,
        site: SiteId,
        url: &str,
    ) -> Result<Option<(SourceId, Option<i64>)>, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT id, retired_at FROM sources WHERE site_id = ?1 AND url = ?2 AND role <> 0",
            )
            .and_then(|mut query| {
                query
                    .query_row(params![site.0, url], |row| Ok((SourceId(row.get(0)?), row.get(1)?)))
                    .optional()
            })
            .map_err(engine)
    }

    fn insert_source(
        &mut self,
        site: Option<SiteId>,
        host: HostId,
        source: &NewSource,
    ) -> Result<SourceId, StoreError> {
        self.sources_moved = true;
        let now = self.now_ms();
        let (second, precision) = lastmod_columns(source.lastmod);
        let (parent, depth) = source.parent.map_or((None, 0), |(id, depth)| (Some(id.0), depth));
        self.conn
            .prepare_cached(
                "INSERT INTO sources (site_id, host_id, parent_id, depth, role, url, named_by,
                     index_lastmod, index_precision, next_poll_at, rule, why, added_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 'new', 'it has never been polled', ?10)",
            )
            .and_then(|mut insert| {
                insert.execute(params![
                    site.map(|site| site.0),
                    host.0,
                    parent,
                    depth,
                    source.role as i64,
                    source.url.as_str(),
                    source.named_by,
                    second,
                    precision,
                    now,
                ])
            })
            .map_err(engine)?;
        Ok(SourceId(self.conn.last_insert_rowid()))
    }

    /// Every host with anything on it has its robots.txt polled.
    pub(super) fn ensure_robots(
        &mut self,
        host: HostId,
        site: Option<SiteId>,
    ) -> Result<(), StoreError> {
        let exists: bool = self
            .conn
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM sources WHERE host_id = ?1 AND role = 0)")
            .and_then(|mut query| query.query_row([host.0], |row| row.get(0)))
            .map_err(engine)?;
        if exists {
            return self.take_over_robots(host, site);
        }
        let authority = self.host(host)?.authority.to_string();
        let Ok(url) = Url::parse(&format!("{authority}/robots.txt")) else { return Ok(()) };
        let source =
            NewSource { url, role: Role::Robots, named_by: "config", parent: None, lastmod: None };
        self.insert_source(site, host, &source).map(|_| ())
    }

    /// robots.txt whose own site left the config, or never was, is polled on
    /// behalf of the next one.
    fn take_over_robots(&mut self, host: HostId, site: Option<SiteId>) -> Result<(), StoreError> {
        let Some(site) = site else { return Ok(()) };
        let taken = self
            .conn
            .prepare_cached(
                "UPDATE sources SET state = 0, site_id = ?2 WHERE host_id = ?1 AND role = 0 AND state = 1
                 AND site_id <> ?2 AND EXISTS (SELECT 1 FROM sites WHERE id = ?2 AND state = 0)",
            )
            .and_then(|mut update| update.execute(params![host.0, site.0]))
            .map_err(engine)?;
        self.sources_moved |= taken > 0;
        Ok(())
    }

    /// Brings a retired source back; it is due now.
    pub(super) fn revive(&mut self, id: SourceId) -> Result<(), StoreError> {
        self.sources_moved = true;
        let now = self.now_ms();
        self.conn
            .prepare_cached(
                "UPDATE sources SET state = 0, retired_why = NULL, retired_at = NULL, failures = 0,
                     failing_since = NULL, dropped_at = NULL, index_misses = 0, next_poll_at = ?2,
                     rule = 'revived', why = 'it was given up, and is still named: looked at once more' WHERE id = ?1",
            )
            .and_then(|mut update| update.execute(params![id.0, now]))
            .map(|_| ())
            .map_err(engine)
    }

    /// Makes a source due now because someone asked.
    pub(super) fn poll_now(&mut self, id: SourceId) -> Result<(), StoreError> {
        self.sources_moved = true;
        let now = self.now_ms();
        let found = self
            .conn
            .prepare_cached(
                "UPDATE sources SET state = CASE state WHEN 2 THEN 0 ELSE state END, retired_why = NULL,
                     retired_at = NULL, next_poll_at = ?2, rule = 'asked',
                     why = 'someone asked for it' WHERE id = ?1",
            )
            .and_then(|mut update| update.execute(params![id.0, now]))
            .map_err(engine)?;
        if found == 0 {
            return Err(StoreError::NotFound(format!("there is no source {id}")));
        }
        Ok(())
    }

    /// Applies what a read of an index asks of its children.
    pub(super) fn apply_children(
        &mut self,
        site: SiteId,
        effects: Vec<ChildEffect>,
    ) -> Result<(u64, u64), StoreError> {
        let now = self.now_ms();
        let mut fresh = Vec::new();
        for effect in effects {
            match effect {
                ChildEffect::Add(source) => fresh.push(source),
                ChildEffect::Due { id, lastmod } => {
                    self.sources_moved = true;
                    let (second, precision) = lastmod_columns(lastmod);
                    self.conn
                        .prepare_cached(
                            "UPDATE sources SET index_lastmod = ?2, index_precision = ?3, index_misses = 0,
                                 dropped_at = NULL, state = CASE state WHEN 2 THEN 0 ELSE state END,
                                 retired_why = NULL, retired_at = NULL, next_poll_at = ?4, rule = 'index',
                                 why = 'its index says that it has changed' WHERE id = ?1",
                        )
                        .and_then(|mut update| update.execute(params![id.0, second, precision, now]))
                        .map_err(engine)?;
                }
                ChildEffect::Missing { id } => {
                    self.conn
                        .prepare_cached(
                            "UPDATE sources SET index_misses = index_misses + 1,
                                 dropped_at = coalesce(dropped_at, ?2) WHERE id = ?1",
                        )
                        .and_then(|mut update| update.execute(params![id.0, now]))
                        .map_err(engine)?;
                }
            }
        }
        self.register(site, &fresh)
    }

    /// The poll was not made: the host wants to be left alone until then.
    pub(super) fn defer_poll(&mut self, id: SourceId, until: Timestamp) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "UPDATE sources SET next_poll_at = ?2,
                     rule = CASE rule WHEN 'asked' THEN rule ELSE 'deferred' END,
                     why = 'its host is to be left alone until then' WHERE id = ?1",
            )
            .and_then(|mut update| update.execute(params![id.0, until.as_millisecond()]))
            .map(|_| ())
            .map_err(engine)
    }

    /// The poll was not needed.
    pub(super) fn skip_poll(&mut self, id: SourceId, next: &NextPollAt) -> Result<(), StoreError> {
        let at = next.at.map(Timestamp::as_millisecond);
        self.conn
            .prepare_cached(
                "UPDATE sources SET next_poll_at = ?2, interval_ms = ?3, rule = ?4,
                     why = 'its index says that it has not changed; ' || ?5 WHERE id = ?1",
            )
            .and_then(|mut update| {
                update.execute(params![id.0, at, next.interval_ms, next.rule, next.why])
            })
            .map(|_| ())
            .map_err(engine)
    }
}

/// Reads a row of [`TARGET`].
pub(super) fn read_target(row: &Row<'_>) -> rusqlite::Result<PollTarget> {
    let url: String = row.get(8)?;
    let url = Url::parse(&url).map_err(|e| {
        rusqlite::Error::FromSqlConversionFailure(8, rusqlite::types::Type::Text, Box::new(e))
    })?;
    let hash = |index: usize| -> rusqlite::Result<Option<u128>> {
        Ok(row.get::<_, Option<[u8; 16]>>(index)?.map(u128::from_be_bytes))
    };
    let time = |index: usize| -> rusqlite::Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<i64>>(index)?.map(timestamp))
    };
    Ok(PollTarget {
        id: SourceId(row.get(0)?),
        site: row.get::<_, Option<i64>>(1)?.map(SiteId),
        site_name: row.get(2)?,
        crawl: CrawlId(row.get(3)?),
        host: HostId(row.get(4)?),
        parent: row.get::<_, Option<i64>>(5)?.map(SourceId),
        depth: row.get(6)?,
        role: role(row.get(7)?),
        url,
        kind: row.get::<_, Option<String>>(9)?.as_deref().and_then(DocumentKind::parse),
        window: row.get(10)?,
        rolls: row.get(11)?,
        shrunk_at: time(12)?,
        pending: row.get::<_, i64>(13)?.unsigned_abs(),
        index_lastmod: lastmod(row.get(14)?, row.get(15)?),
        due_at: timestamp(row.get(16)?),
        interval_ms: row.get(17)?,
        failures: row.get(18)?,
        failing_since: time(19)?,
        generation: row.get(20)?,
        epoch: row.get(21)?,
        validators: Validators { etag: row.get(22)?, last_modified: row.get(23)? },
        wire_hash: hash(24)?,
        body_hash: hash(25)?,
        last_complete_at: time(26)?,
        last_full_at: time(27)?,
        entries: row.get::<_, i64>(28)?.unsigned_abs(),
        added_at: timestamp(row.get(29)?),
        named_by: row.get(30)?,
        asked: row.get(31)?,
        hints: row.get(32)?,
        last_success_at: time(33)?,
    })
}

/// The column that keeps a role.
pub(super) fn role(code: i64) -> Role {
    decode(&Role::ALL, code).unwrap_or(Role::Sitemap)
}
