//! One sorted run: its row, its chunks and its filter.
//!
//! Keeps: the run has the entries whose hash is in `lo..hi` and no claim on
//! others. A run is written from the lowest hash up, and `hi` follows; while it
//! is merged into another one, `lo` follows that one's `hi`.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, ffi, params};

use super::chunk::{self, Corrupt};
use super::filter::{self, Piece};
use super::sieve::Sieve;
use super::{Entry, HASH_BITS, MAX_RESIDENT, PIECE_BYTES, Sought};

/// Above every hash.
pub(super) const END: i64 = 1 << HASH_BITS;
/// Entries that a chunk has on average. Five such chunks fill a page, nearly always;
/// larger ones save little and cost more to read for one hash.
pub(super) const MEAN_CHUNK: usize = 114;

/// All hashes cut into ranges of equal size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Split {
    parts: u32,
}

impl Split {
    /// At least one part.
    pub(super) fn into_parts(parts: u32) -> Self {
        Self { parts: parts.max(1) }
    }

    /// Which part a hash is in; the number of parts for [`END`].
    #[inline]
    pub(super) fn part_of(self, hash: i64) -> u32 {
        let scaled = (hash.cast_unsigned() >> (HASH_BITS - 32)).wrapping_mul(self.parts.into());
        // A hash has 32 bits left, so what is above them is at most `parts`.
        u32::try_from(scaled >> 32).unwrap_or(self.parts)
    }

    /// The lowest hash of a part.
    pub(super) fn start_of(self, part: u32) -> i64 {
        let start = (u64::from(part) << 32).div_ceil(u64::from(self.parts));
        (start << (HASH_BITS - 32)).cast_signed()
    }

    pub(super) fn parts(self) -> u32 {
        self.parts
    }
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: i64,
    pub(super) level: u32,
    /// How many when it was begun; fewer if some were twice.
    pub(super) entries: usize,
    pub(super) chunks: Split,
    blocks: Split,
    pub(super) lo: i64,
    pub(super) hi: i64,
    pub(super) merged_into: Option<i64>,
    /// The pieces of the filter that are in memory.
    filter: Vec<OnceCell<Arc<Piece>>>,
    /// The same for others, once it is whole.
    sieve: OnceCell<Arc<Sieve>>,
}

impl Run {
    /// An empty run with room for so many entries.
    pub(super) fn create(
        conn: &Connection,
        id: i64,
        level: u32,
        entries: usize,
    ) -> rusqlite::Result<Self> {
        let chunks = u32::try_from(entries / MEAN_CHUNK).unwrap_or(u32::MAX);
        let run = Self {
            id,
            level,
            entries,
            chunks: Split::into_parts(chunks),
            blocks: Split::into_parts(filter::blocks_for(entries, level)),
            lo: 0,
            hi: 0,
            merged_into: None,
            filter: Vec::new(),
            sieve: OnceCell::new(),
        };
        conn.prepare_cached("INSERT INTO lookup_runs VALUES (?1, ?2, ?3, ?4, ?5, 0, 0, NULL)")?
            .execute(params![
                id,
                level,
                i64::try_from(entries).unwrap_or(i64::MAX),
                run.chunks.parts,
                run.blocks.parts
            ])?;
        Ok(run.with_room())
    }

    fn with_room(mut self) -> Self {
        let pieces = filter::pieces(self.blocks.parts);
        self.filter.resize_with(pieces as usize, OnceCell::new);
        self
    }

    /// Writes how far it reaches.
    pub(super) fn save(&self, conn: &Connection) -> rusqlite::Result<()> {
        let mut update = conn.prepare_cached(
            "UPDATE lookup_runs SET lo = ?2, hi = ?3, merged_into = ?4 WHERE id = ?1",
        )?;
        update.execute(params![self.id, self.lo, self.hi, self.merged_into])?;
        Ok(())
    }

    pub(super) fn is_whole(&self) -> bool {
        self.hi == END && self.merged_into.is_none()
    }

    /// Row of a chunk or of a filter's piece.
    pub(super) fn row_id(&self, number: u32) -> i64 {
        self.id << 32 | i64::from(number)
    }

    /// Would a hash be in this run, if it is in one that this is merged with?
    pub(super) fn is_of(&self, hash: i64) -> bool {
        self.lo <= hash && hash < self.hi
    }

    /// Its filter, if it is whole and all of that is in memory.
    pub(super) fn sieve(&self) -> Option<Arc<Sieve>> {
        if !self.is_whole() {
            return None;
        }
        if let Some(sieve) = self.sieve.get() {
            return Some(Arc::clone(sieve));
        }
        let pieces = self.filter.iter().map(|place| place.get().map(Arc::clone));
        let sieve = Arc::new(Sieve::new(self.id, self.blocks, pieces.collect::<Option<_>>()?));
        Some(Arc::clone(self.sieve.get_or_init(|| sieve)))
    }

    /// Is the hash perhaps in this run? `resident` counts the bytes of filters
    /// in memory; without it none is kept.
    pub(super) fn may_have(
        &self,
        conn: &Connection,
        &Sought { hash, ref bits }: &Sought,
        resident: Option<&Cell<usize>>,
    ) -> rusqlite::Result<bool> {
        if !self.is_of(hash) {
            return Ok(false);
        }
        let block = self.blocks.part_of(hash);
        let number = filter::piece_of(block);
        let Some(place) = self.filter.get(number as usize) else { return Ok(false) };
        if let Some(piece) = place.get() {
            return Ok(piece.may_have(block, bits));
        }
        let piece = self.read_piece(conn, number)?;
        let may_have = piece.may_have(block, bits);
        if let Some(resident) = resident
            && resident.get() + PIECE_BYTES <= MAX_RESIDENT
        {
            resident.update(|bytes| bytes + piece.bytes());
            // It was empty a moment ago.
            let _ = place.set(Arc::new(piece));
        }
        Ok(may_have)
    }

    /// Appends the entries, sorted and all in `self.hi..end`, and reaches to
    /// `end`, which is the start of a chunk or [`END`]. The row is not saved.
    pub(super) fn append(
        &mut self,
        conn: &Connection,
        entries: &[Entry],
        end: i64,
        resident: &Cell<usize>,
    ) -> rusqlite::Result<()> {
        let mut insert = conn.prepare_cached("INSERT INTO lookup_chunks VALUES (?1, ?2)")?;
        let mut blob = Vec::new();
        let split = self.chunks;
        for chunk in entries.chunk_by(|a, b| split.part_of(a.hash) == split.part_of(b.hash)) {
            let Some(first) = chunk.first() else { continue };
            let number = split.part_of(first.hash);
            chunk::encode(chunk, split.start_of(number), &mut blob);
            insert.execute(params![self.row_id(number), blob])?;
        }
        let blocks = self.blocks;
        let piece_of = |entry: &Entry| filter::piece_of(blocks.part_of(entry.hash));
        for part in entries.chunk_by(|a, b| piece_of(a) == piece_of(b)) {
            let Some(first) = part.first() else { continue };
            let number = piece_of(first);
            // The first piece may have been begun by the step before.
            let begun = self.hi > 0 && number == filter::piece_of(blocks.part_of(self.hi));
            let mut piece = self.forget_piece(number, resident).map(Arc::unwrap_or_clone);
            if begun && piece.is_none() {
                piece = Some(self.read_piece(conn, number)?);
            }
            // Nobody else has one of a run that is not whole.
            let mut piece = piece.unwrap_or_default();
            for entry in part {
                piece.insert(blocks.part_of(entry.hash), entry.hash);
            }
            self.keep_piece(conn, number, piece, resident)?;
        }
        self.hi = end;
        Ok(())
    }

    /// Appends to `out` the entries in `from..to`.
    pub(super) fn read(
        &self,
        conn: &Connection,
        from: i64,
        to: i64,
        out: &mut Vec<Entry>,
    ) -> rusqlite::Result<()> {
        let last = self.chunks.part_of(to - 1);
        let mut select =
            conn.prepare_cached("SELECT id, data FROM lookup_chunks WHERE id BETWEEN ?1 AND ?2")?;
        let mut rows = select.query([self.row_id(self.chunks.part_of(from)), self.row_id(last)])?;
        let first_entry = out.len();
        while let Some(row) = rows.next()? {
            let number = u32::try_from(row.get::<_, i64>(0)? - self.row_id(0)).unwrap_or(0);
            let start = self.chunks.start_of(number);
            chunk::decode(row.get_ref(1)?.as_blob()?, start, out).map_err(corrupt)?;
        }
        // Only the chunks at both ends can have others.
        let own = out.get(first_entry..).unwrap_or_default();
        let before = own.partition_point(|entry| entry.hash < from);
        let within = own.partition_point(|entry| entry.hash < to);
        out.truncate(first_entry + within);
        out.drain(first_entry..first_entry + before);
        Ok(())
    }

    /// Gives up all below `to` and deletes what lies wholly below it. The row is
    /// not saved.
    pub(super) fn give_up(
        &mut self,
        conn: &Connection,
        to: i64,
        resident: &Cell<usize>,
    ) -> rusqlite::Result<()> {
        self.sieve.take();
        let chunks = self.chunks.part_of(self.lo)..self.chunks.part_of(to);
        conn.prepare_cached("DELETE FROM lookup_chunks WHERE id >= ?1 AND id < ?2")?
            .execute([self.row_id(chunks.start), self.row_id(chunks.end)])?;
        let first = filter::piece_of(self.blocks.part_of(self.lo));
        let end = match to {
            END => filter::pieces(self.blocks.parts),
            _ => filter::piece_of(self.blocks.part_of(to)),
        };
        conn.prepare_cached("DELETE FROM lookup_filters WHERE id >= ?1 AND id < ?2")?
            .execute([self.row_id(first), self.row_id(end)])?;
        for number in first..end {
            // Others may still have it.
            drop(self.forget_piece(number, resident));
        }
        self.lo = to;
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn resident_bytes(&self) -> usize {
        self.filter.iter().filter_map(OnceCell::get).map(|piece| piece.bytes()).sum()
    }

    fn read_piece(&self, conn: &Connection, number: u32) -> rusqlite::Result<Piece> {
        conn.prepare_cached("SELECT bits FROM lookup_filters WHERE id = ?1")?
            .query_row([self.row_id(number)], |row| {
                Piece::decode(row.get_ref(0)?.as_blob()?).map_err(corrupt)
            })
            .optional()
            // No entry, no row.
            .map(Option::unwrap_or_default)
    }

    fn keep_piece(
        &self,
        conn: &Connection,
        number: u32,
        piece: Piece,
        resident: &Cell<usize>,
    ) -> rusqlite::Result<()> {
        conn.prepare_cached("REPLACE INTO lookup_filters VALUES (?1, ?2)")?
            .execute(params![self.row_id(number), piece.encode()])?;
        if resident.get() + PIECE_BYTES <= MAX_RESIDENT
            && let Some(place) = self.filter.get(number as usize)
        {
            resident.update(|bytes| bytes + piece.bytes());
            // It was taken out before it was changed.
            let _ = place.set(Arc::new(piece));
        }
        Ok(())
    }

    fn forget_piece(&mut self, number: u32, resident: &Cell<usize>) -> Option<Arc<Piece>> {
        let piece = self.filter.get_mut(number as usize)?.take()?;
        resident.update(|bytes| bytes.saturating_sub(piece.bytes()));
        Some(piece)
    }
}

/// All runs, oldest first.
pub(super) fn read_all(conn: &Connection) -> rusqlite::Result<Vec<Run>> {
    let mut select = conn.prepare_cached(
        "SELECT id, level, entries, chunks, blocks, lo, hi, merged_into FROM lookup_runs ORDER BY id",
    )?;
    let runs = select.query_map([], |row| {
        let run = Run {
            id: row.get(0)?,
            level: row.get(1)?,
            entries: usize::try_from(row.get::<_, i64>(2)?).unwrap_or(0),
            chunks: Split::into_parts(row.get(3)?),
            blocks: Split::into_parts(row.get(4)?),
            lo: row.get(5)?,
            hi: row.get(6)?,
            merged_into: row.get(7)?,
            filter: Vec::new(),
            sieve: OnceCell::new(),
        };
        Ok(run.with_room())
    })?;
    runs.collect()
}

/// As of a damaged page: what meets it in writing must not go on.
pub(super) fn corrupt(error: Corrupt) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), Some(error.to_string()))
}
