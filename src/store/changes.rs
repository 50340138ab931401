//! Change events, packed: nine bytes each, one blob a commit and source.

use std::collections::HashSet;

use rusqlite::{Connection, params};

use super::{StoreError, engine};
use crate::model::{ChangeKind, CrawlId, SourceId, UrlId};

/// Bytes of one event: its kind, and its row in little-endian order.
const EVENT: usize = 9;
/// The kind of an event whose row is one of `robots_changes`.
const OF_ROBOTS: u8 = u8::MAX;

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
}

impl ChangeLog {
    pub(super) fn push(&mut self, kind: ChangeKind, url: UrlId) {
        // Far fewer kinds than a byte counts.
        self.data.push(u8::try_from(kind as usize).unwrap_or(u8::MAX));
        self.data.extend_from_slice(&url.0.to_le_bytes());
    }

    /// Something that a robots.txt says otherwise.
    pub(super) fn push_robots(&mut self, row: i64) {
        self.data.push(OF_ROBOTS);
        self.data.extend_from_slice(&row.to_le_bytes());
    }

    /// Writes the events; says whether there are any.
    pub(super) fn write(
        &self,
        conn: &Connection,
        at: i64,
        crawl: CrawlId,
        source: SourceId,
        generation: i64,
    ) -> Result<bool, StoreError> {
        if self.data.is_empty() {
            return Ok(false);
        }
        let events = i64::try_from(self.data.len() / EVENT).unwrap_or(i64::MAX);
        conn.prepare_cached(
            "INSERT INTO changes (at, crawl_id, source_id, generation, events, data)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )
        .and_then(|mut insert| {
            insert.execute(params![at, crawl.0, source.0, generation, events, self.data])
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
        .prepare_cached("SELECT data FROM changes WHERE source_id = ?1 AND generation = ?2")
        .map_err(engine)?;
    let mut rows = query.query(params![source.0, generation]).map_err(engine)?;
    let mut all = HashSet::new();
    while let Some(row) = rows.next().map_err(engine)? {
        let data: Vec<u8> = row.get(0).map_err(engine)?;
        all.extend(events(&data));
    }
    Ok(all)
}

/// Reads the events of one blob.
pub(super) fn all(data: &[u8]) -> impl Iterator<Item = Told> + '_ {
    data.chunks_exact(EVENT).filter_map(|event| {
        let (kind, row) = event.split_first()?;
        let row = i64::from_le_bytes(row.try_into().ok()?);
        if *kind == OF_ROBOTS {
            return Some(Told::Robots(row));
        }
        let kind = ChangeKind::ALL.get(usize::from(*kind)).copied()?;
        Some(Told::Url(kind, UrlId(row)))
    })
}

/// Reads those of URLs.
pub(super) fn events(data: &[u8]) -> impl Iterator<Item = (ChangeKind, UrlId)> + '_ {
    all(data).filter_map(|told| match told {
        Told::Url(kind, id) => Some((kind, id)),
        Told::Robots(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_back_in_the_order_they_happened() {
        let mut log = ChangeLog::default();
        let written: Vec<_> = ChangeKind::ALL
            .into_iter()
            .zip([1, 2, 300, i64::MAX, 5, 6])
            .map(|(k, r)| (k, UrlId(r)))
            .collect();
        for (kind, row) in &written {
            log.push(*kind, *row);
        }
        assert_eq!(events(&log.data).collect::<Vec<_>>(), written);
    }

    #[test]
    fn a_cut_blob_gives_the_whole_events_only() {
        let mut log = ChangeLog::default();
        log.push(ChangeKind::New, UrlId(1));
        log.push(ChangeKind::Removed, UrlId(2));
        assert_eq!(events(&log.data[..EVENT + 4]).count(), 1);
    }
}
