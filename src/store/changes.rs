//! Change events, packed: a few bytes a run, one blob a commit and source.
//!
//! Events of one kind whose rows follow one another are one run: its kind, how
//! far its first row lies from where the run before ended, and how many more
//! there are. A first read is one run, however long; an event by itself takes
//! three to five bytes.

use std::collections::HashSet;

use super::sql::{Connection, params};

use super::log_order::{self, Log};
use super::{StoreError, engine};
use crate::model::{ChangeKind, CrawlId, SourceId, UrlId};

/// The kind of an event whose row is one of `robots_changes`.
const OF_ROBOTS: u8 = u8::MAX;

/// Most events of a run, less one: damaged bytes are not read as more.
const MAX_MORE: u64 = 0xffff;

/// What an event tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// What happened to a URL.
    Url(ChangeKind, UrlId),
    /// A row of `robots_changes`.
    Robots(i64),
}

/// The events of one job, in the order in which they happened.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    data: Vec<u8>,
    events: i64,
    /// The run that is being gathered, not in `data` yet.
    run: Option<Run>,
    /// The last row of the runs in `data`.
    last: i64,
}

/// Events of one kind, of rows that follow one another.
#[derive(Debug, Clone, Copy)]
struct Run {
    kind: u8,
    first: i64,
    more: u64,
}

impl Run {
    fn last(self) -> i64 {
        self.first.wrapping_add_unsigned(self.more)
    }
}

impl ChangeLog {
    pub(super) fn push(&mut self, kind: ChangeKind, url: UrlId) {
        // Far fewer kinds than a byte counts.
        self.add(u8::try_from(kind as usize).unwrap_or(u8::MAX), url.0);
    }

    /// Something that a robots.txt says otherwise.
    pub(super) fn push_robots(&mut self, row: i64) {
        self.add(OF_ROBOTS, row);
    }

    fn add(&mut self, kind: u8, row: i64) {
        self.events += 1;
        if let Some(run) = &mut self.run
            && run.kind == kind
            && run.more < MAX_MORE
            && run.last().wrapping_add(1) == row
        {
            run.more += 1;
            return;
        }
        self.end_run();
        self.run = Some(Run { kind, first: row, more: 0 });
    }

    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        self.data.push(run.kind);
        put(folded(run.first.wrapping_sub(self.last)), &mut self.data);
        put(run.more, &mut self.data);
        self.last = run.last();
    }

    /// Writes the events; says whether there are any.
    pub(super) fn write(
        mut self,
        conn: &Connection,
        at: i64,
        crawl: CrawlId,
        source: SourceId,
        generation: i64,
    ) -> Result<bool, StoreError> {
        self.end_run();
        if self.data.is_empty() {
            return Ok(false);
        }
        let id = log_order::next(conn, Log::Changes)?;
        conn.prepare_cached(
            "INSERT INTO changes (/*pg: part, */ at, crawl_id, source_id, generation, events, data, id)
             VALUES (/*pg: CAST(?3 AS BIGINT) & 255, */ ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )
        .and_then(|mut insert| {
            insert.execute(params![at, crawl.0, source.0, generation, self.events, self.data, id])
        })
        .map(|_| true)
        .map_err(engine)
    }
}

/// The events that a read of a source has logged so far: not none when the
/// process died in the middle of it.
pub(super) fn logged(
    conn: &Connection,
    source: SourceId,
    generation: i64,
) -> Result<HashSet<(ChangeKind, UrlId)>, StoreError> {
    let mut query = conn
        .prepare_cached(
            "SELECT data FROM changes WHERE source_id = ?1
             /*pg: AND part = (?1 & 255) */ AND generation = ?2",
        )
        .map_err(engine)?;
    let mut rows = query.query(params![source.0, generation]).map_err(engine)?;
    let mut all = HashSet::new();
    while let Some(row) = rows.next().map_err(engine)? {
        let data: Vec<u8> = row.get(0).map_err(engine)?;
        all.extend(events(&data));
    }
    Ok(all)
}

/// Reads the events of one blob; what is cut off or damaged ends it.
pub(super) fn all(data: &[u8]) -> impl Iterator<Item = Told> + '_ {
    runs(data).flat_map(|run| {
        let rows = (0..=run.more).map(move |n| run.first.wrapping_add_unsigned(n));
        let kind = ChangeKind::ALL.get(usize::from(run.kind)).copied();
        rows.filter_map(move |row| match kind {
            Some(kind) => Some(Told::Url(kind, UrlId(row))),
            None => (run.kind == OF_ROBOTS).then_some(Told::Robots(row)),
        })
    })
}

fn runs(data: &[u8]) -> impl Iterator<Item = Run> + '_ {
    let (mut rest, mut last) = (data, 0_i64);
    std::iter::from_fn(move || {
        let (kind, after) = rest.split_first()?;
        let (distance, after) = take(after)?;
        let (more, after) = take(after).filter(|(more, _)| *more <= MAX_MORE)?;
        rest = after;
        let run = Run { kind: *kind, first: last.wrapping_add(unfolded(distance)), more };
        last = run.last();
        Some(run)
    })
}

/// Small distances either way become small numbers.
fn folded(distance: i64) -> u64 {
    (distance << 1 ^ distance >> 63).cast_unsigned()
}

fn unfolded(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// Writes a number, seven bits a byte, low ones first.
fn put(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        // The low byte, on purpose.
        #[allow(clippy::cast_possible_truncation)]
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    #[allow(clippy::cast_possible_truncation)] // less than 128
    out.push(number as u8);
}

/// Reads what [`put`] wrote, and what follows it.
fn take(data: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    for (at, byte) in data.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            return Some((number, data.get(at + 1..)?));
        }
    }
    None
}

/// Reads those of URLs.
pub(super) fn events(data: &[u8]) -> impl Iterator<Item = (ChangeKind, UrlId)> + '_ {
    all(data).filter_map(|told| match told {
        Told::Url(kind, id) => Some((kind, id)),
        Told::Robots(_) => None,
    })
}

/// The same events, in the same order, of rows that have other numbers.
pub(super) fn renumbered(data: &[u8], new: impl Fn(UrlId) -> UrlId) -> Vec<u8> {
    let mut log = ChangeLog::default();
    for told in all(data) {
        match told {
            Told::Url(kind, id) => log.push(kind, new(id)),
            Told::Robots(row) => log.push_robots(row),
        }
    }
    log.end_run();
    log.data
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is written of these events.
    fn packed(told: &[Told]) -> Vec<u8> {
        let mut log = ChangeLog::default();
        for event in told {
            match event {
                Told::Url(kind, row) => log.push(*kind, *row),
                Told::Robots(row) => log.push_robots(*row),
            }
        }
        log.end_run();
        log.data
    }

    fn told() -> impl Strategy<Value = Told> {
        let row = prop_oneof![0_i64..20, any::<i64>()];
        (0..=ChangeKind::ALL.len(), row).prop_map(|(kind, row)| match ChangeKind::ALL.get(kind) {
            Some(kind) => Told::Url(*kind, UrlId(row)),
            None => Told::Robots(row),
        })
    }

    proptest! {
        #[test]
        fn events_come_back_in_the_order_they_happened(
            written in prop::collection::vec(told(), 0..100),
        ) {
            prop_assert_eq!(all(&packed(&written)).collect::<Vec<_>>(), written);
        }

        #[test]
        fn events_of_renumbered_rows_are_the_same_in_the_same_order(
            written in prop::collection::vec(told(), 0..100),
        ) {
            let new = |id: UrlId| UrlId(id.0.wrapping_mul(256).wrapping_add(7));
            let expected = written.iter().map(|told| match told {
                Told::Url(kind, id) => Told::Url(*kind, new(*id)),
                Told::Robots(row) => Told::Robots(*row),
            });
            let expected: Vec<Told> = expected.collect();
            let read: Vec<Told> = all(&renumbered(&packed(&written), new)).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(all(&bytes).take(1_000).count() <= 1_000);
        }
    }

    #[test]
    fn a_first_read_takes_a_few_bytes_however_long_it_is() {
        let new: Vec<_> = (1..=5_000).map(|row| Told::Url(ChangeKind::New, UrlId(row))).collect();
        assert!(packed(&new).len() <= 5);
    }

    #[test]
    fn a_cut_blob_gives_the_whole_runs_only() {
        let new = Told::Url(ChangeKind::New, UrlId(1));
        let data = packed(&[new, Told::Url(ChangeKind::Removed, UrlId(2_000))]);
        assert_eq!(all(&data[..data.len() - 1]).collect::<Vec<_>>(), [new]);
    }
}
