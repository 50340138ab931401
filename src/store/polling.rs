//! What a poll takes from the store, and what it leaves there.

use std::sync::Arc;

use super::sql::{self, Row};
use jiff::Timestamp;
use url::Url;

use super::effect::Origin;
use super::hubs::Named;
use super::hubs::rules::Push;
use super::rows::lastmod;
use super::sources::role;
use super::timestamp;
use super::views::Counts;
use crate::diff::dates::Dates;
use crate::fetch::Validators;
use crate::model::{CrawlId, DocumentKind, HostId, Lastmod, Role, SiteId, SourceId};
use crate::recrawl::signal::Signal;

/// A source that is due. Ordered by how long it has been.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueSource {
    /// Since when.
    pub at: Timestamp,
    /// The row.
    pub id: SourceId,
    /// Whose turn it takes.
    pub host: HostId,
    /// Its site, if it has one.
    pub site: Option<SiteId>,
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
    /// As its index lists it; of one that it lists no more it says nothing.
    pub index_lastmod: Option<Lastmod>,
    /// When that index was last read; `None` where it is given up.
    pub index_read_at: Option<Timestamp>,
    /// When it was last read to its end.
    pub index_complete_at: Option<Timestamp>,
    /// When it was due.
    pub due_at: Timestamp,
    /// The interval that led to now.
    pub interval_ms: i64,
    /// How it fails: the result of its last polls, if they failed.
    pub failing: Option<String>,
    /// Failures of that kind in a row.
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
    /// Last read that no validator or hash cut short; of a robots.txt, when its body came.
    pub last_full_at: Option<Timestamp>,
    /// Entries of the last read.
    pub entries: u64,
    /// Is it due because someone asked, or its index says that it has changed? Then it
    /// is really fetched.
    pub asked: bool,
    /// What its publisher says of polling, as [`ReadResult::hints`] was.
    pub hints: Option<String>,
    /// What the schedule has learned of it, as [`NextPollAt::rhythm`] was.
    pub rhythm: Option<String>,
    /// Where its redirects lead.
    pub moved: Option<Moved>,
    /// The form of its site that twins are folded into, as learned so far.
    pub site_origin: Option<Url>,
    /// Has the home page of its site never been polled?
    pub home_unseen: bool,
    /// How its push does, where a hub has promised one.
    pub push: Option<Push>,
    /// As [`Origin::tenure`].
    pub tenure: i64,
}

/// Where permanent redirects of a source lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// The place where they end.
    pub to: Url,
    /// Polls in a row that ended there.
    pub polls: u32,
    /// When the first of them was.
    pub since: Timestamp,
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
            moves: Signal::Lastmod,
            stamped: None,
            tenure: self.tenure,
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
    /// What the schedule has learned of the source, in its own words.
    pub rhythm: Option<String>,
    /// The rule that decided.
    pub rule: String,
    /// One plain sentence.
    pub why: String,
}

/// What a successful read leaves behind.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // independent facts, each told by its name
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
    /// Reader and rules of this read; `None` where entries stay that it did not judge,
    /// and those before may have been others.
    pub epoch: Option<i64>,
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
    /// How its lastmods compare with those of the read before.
    pub dates: Arc<Dates>,
    /// What it says of hubs.
    pub hubs: Box<Named>,
    /// Has it found something new that a push should have brought?
    pub missed_push: bool,
    /// Did it let go of URLs while the quota refused others? Then the next read is
    /// one in full, though the document is the same.
    pub has_made_room: bool,
    /// Is it an index that does not list what it dropped before?
    pub tells_dropped: bool,
}

/// How a poll ended.
#[derive(Debug, Clone)]
pub struct PollEnd {
    /// Which source.
    pub source: SourceId,
    /// As [`Origin::tenure`].
    pub tenure: i64,
    /// When the poll began.
    pub at: Timestamp,
    /// Fetch to commit.
    pub took_ms: i64,
    /// A word for tables: `changed`, `unchanged`, `not-modified`, `failed`, …
    pub result: &'static str,
    /// What fails, if anything does: the result, or [`ROBOTS_UNREADABLE`](super::ROBOTS_UNREADABLE).
    pub failing: Option<&'static str>,
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
    /// Where its redirects lead, from now on.
    pub moved: Option<Moved>,
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
    /// A robots.txt was read, which is kept elsewhere.
    Robots {
        /// Validators to send next time.
        validators: Validators,
        /// The version in which it says something else than before.
        changed: Option<i64>,
        /// Did a body come, and no word that it is as it was?
        is_full: bool,
        /// Its defects, as a JSON array; `None`: those that are known.
        issues: Option<String>,
    },
    /// A document was read.
    Read(ReadResult),
}

impl Kept {
    /// Does it bring a snapshot, which may be large?
    pub(super) fn has_snapshot(&self) -> bool {
        match self {
            Self::Nothing | Self::Robots { .. } => false,
            Self::Seen(seen) => seen.recounted.is_some(),
            Self::Read(read) => read.snapshot.is_some(),
        }
    }
}

/// What a read that brought nothing new leaves behind.
#[derive(Debug, Clone)]
pub struct SeenAgain {
    /// Validators to send next time.
    pub validators: Validators,
    /// Is it the first such answer of its day?
    pub begins_day: bool,
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
    /// As [`ReadResult::has_made_room`].
    pub has_made_room: bool,
}

pub(super) const TARGET: &str = "SELECT
    s.id, s.site_id, n.name, coalesce(n.crawl_id, 1), s.host_id, s.parent_id, s.depth, s.role, s.url,
    s.kind, s.window, s.rolls, s.shrunk_at, s.pending,
    CASE WHEN s.dropped_at IS NULL THEN s.index_lastmod END, s.index_precision,
    coalesce(s.next_poll_at, 0), s.interval_ms, s.failures, s.failing_since, s.generation, s.epoch,
    s.etag, s.last_modified, s.wire_hash, s.body_hash, s.last_complete_at, s.last_full_at, s.entries,
    s.added_at, s.named_by, s.rule IN ('asked', 'pinged', 'index'), s.hints, s.last_success_at, s.failing,
    s.rhythm, s.moved_to, s.moved_polls, s.moved_since, n.origin,
    EXISTS (SELECT 1 FROM sources h WHERE h.site_id = s.site_id AND h.role = 1 AND h.state = 0
        AND h.last_poll_at IS NULL),
    k.since_at, k.expires_at, t.pushed_at, t.hinted_at, t.broken_at,
    EXISTS (SELECT 1 FROM deliveries d WHERE d.source_id = s.id /*pg: AND d.part = s.part */),
    /*lite*/ 0 /*end*/ /*pg: (SELECT p.epoch FROM partitions p WHERE p.part = s.part) */,
    i.last_success_at, i.last_complete_at
    FROM sources s LEFT JOIN sites n ON n.id = s.site_id
    LEFT JOIN sources i ON i.id = s.parent_id /*pg: AND i.part = (s.parent_id & 255) */ AND i.state = 0
    LEFT JOIN topics t ON t.source_id = s.id /*pg: AND t.part = s.part */
    LEFT JOIN callbacks k ON k.source_id = t.source_id /*pg: AND k.part = t.part */ AND k.state = 1";

/// Reads a row of [`TARGET`].
pub(super) fn read_target(row: &Row<'_>) -> sql::Result<PollTarget> {
    let url: String = row.get(8)?;
    let url = Url::parse(&url).map_err(|e| sql::Error::unread(8, Box::new(e)))?;
    let hash = |index: usize| -> sql::Result<Option<u128>> {
        Ok(row.get::<Option<[u8; 16]>>(index)?.map(u128::from_be_bytes))
    };
    let time = |index: usize| -> sql::Result<Option<Timestamp>> {
        Ok(row.get::<Option<i64>>(index)?.map(timestamp))
    };
    Ok(PollTarget {
        id: SourceId(row.get(0)?),
        site: row.get::<Option<i64>>(1)?.map(SiteId),
        site_name: row.get(2)?,
        crawl: CrawlId(row.get(3)?),
        host: HostId(row.get(4)?),
        parent: row.get::<Option<i64>>(5)?.map(SourceId),
        depth: row.get(6)?,
        role: role(row.get(7)?),
        url,
        kind: row.get::<Option<String>>(9)?.as_deref().and_then(DocumentKind::parse),
        window: row.get(10)?,
        rolls: row.get(11)?,
        shrunk_at: time(12)?,
        pending: row.get::<i64>(13)?.unsigned_abs(),
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
        entries: row.get::<i64>(28)?.unsigned_abs(),
        added_at: timestamp(row.get(29)?),
        named_by: row.get(30)?,
        asked: row.get(31)?,
        hints: row.get(32)?,
        last_success_at: time(33)?,
        failing: row.get(34)?,
        rhythm: row.get(35)?,
        moved: read_moved(row)?,
        site_origin: row.get::<Option<String>>(39)?.and_then(|text| Url::parse(&text).ok()),
        home_unseen: row.get(40)?,
        push: read_push(row)?,
        tenure: row.get(47)?,
        index_read_at: time(48)?,
        index_complete_at: time(49)?,
    })
}

fn read_push(row: &Row<'_>) -> sql::Result<Option<Push>> {
    let time = |index: usize| row.get::<Option<i64>>(index).map(|ms| ms.map(timestamp));
    let (Some(since), Some(until)) = (time(41)?, time(42)?) else { return Ok(None) };
    let (pushed_at, hinted_at, broken_at) = (time(43)?, time(44)?, time(45)?);
    Ok(Some(Push { since, until, pushed_at, hinted_at, broken_at, waiting: row.get(46)? }))
}

fn read_moved(row: &Row<'_>) -> sql::Result<Option<Moved>> {
    let to: Option<String> = row.get(36)?;
    let Some(to) = to.and_then(|to| Url::parse(&to).ok()) else { return Ok(None) };
    Ok(Some(Moved { to, polls: row.get(37)?, since: timestamp(row.get(38)?) }))
}
