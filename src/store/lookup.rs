//! From a keyed hash of (crawl, normalised URL) to the rows that may have it.
//!
//! A log-structured index inside `SQLite`: fresh entries are rows of a small
//! *tail*, mirrored in memory; beyond [`TAIL_LIMIT`] they become a *run*, an
//! immutable sorted sequence cut into chunks of equal hash ranges, with a small
//! filter. When [`FAN_OUT`] runs of one size have gathered they are merged into
//! a larger one, so an entry is rewritten once per power of eight and never
//! because another entry came. A merge goes in steps of any size: at each
//! moment the hashes below a boundary are in the new run and those above it in
//! the old ones, whose merged part is deleted in the same step. So there is no
//! half-built run to throw away after a crash, and no second copy on the disk.
//!
//! Keeps: every row that was inserted for a hash is found, whatever is merged.
//! Leaves to the caller: comparing the text. A candidate may belong to another
//! URL (hashes are kept to 48 bits, so about one lookup in a million among
//! 10^8 rows gets one), or to a row that was deleted since: there is no removal,
//! a row that is gone or has another text is no match. `clear` starts anew.
//!
//! In memory: the tail, and about 1.6 bytes an entry for the filters that have
//! been used, at most [`MAX_RESIDENT`] of them; others are read when needed. Who
//! prepares chunks may have those of runs that are gone by now, for a moment.

mod chunk;
mod filter;
mod merge;
mod run;
mod sieve;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Transaction, params};

use crate::model::UrlId;
use filter::{Bits, PIECE_BYTES};
use run::{END, Run, corrupt};
pub(crate) use sieve::{Sieves, Sifted};

/// Entries of the tail; more become a run.
pub(crate) const TAIL_LIMIT: usize = 4096;
/// So many runs of one level are merged into one of the next.
pub(crate) const FAN_OUT: usize = 8;
/// Most bytes of filters kept in memory: those of some 20 million entries.
pub(crate) const MAX_RESIDENT: usize = 32 << 20;
/// When merging is so far behind that there are this many runs, insertions
/// take part in it, lest every lookup ask them all.
const MAX_RUNS: usize = 64;
/// Hashes are kept to this many bits: 2 bytes less for each entry.
const HASH_BITS: u32 = 48;

/// The index as its one writer sees it.
#[derive(Debug)]
pub(crate) struct Lookup {
    tail: BTreeSet<Entry>,
    runs: Vec<Run>,
    tail_limit: usize,
    /// Bytes of filters in memory.
    resident: Cell<usize>,
    /// What others know of the runs.
    sieves: Arc<Sieves>,
    /// Have runs come or gone since?
    is_ahead: bool,
}

/// One row of one (cut) hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    hash: i64,
    id: i64,
}

/// A (cut) hash that is looked for.
struct Sought {
    hash: i64,
    bits: Bits,
}

impl Sought {
    fn new(hash: u64) -> Self {
        let hash = cut(hash);
        Self { hash, bits: Bits::of(hash) }
    }
}

impl Entry {
    fn new(hash: u64, id: UrlId) -> Self {
        Self { hash: cut(hash), id: id.0 }
    }

    /// Sorts as hash and row do, which are not negative, in one comparison.
    fn in_order(self) -> u128 {
        u128::from(self.hash.cast_unsigned()) << 64 | u128::from(self.id.cast_unsigned())
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.in_order().cmp(&other.in_order())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Lookup {
    /// Reads what runs there are, and the tail; filters are read when first needed.
    pub(crate) fn open(conn: &Connection) -> rusqlite::Result<Self> {
        Self::open_with(conn, TAIL_LIMIT, Arc::default())
    }

    fn open_with(
        conn: &Connection,
        tail_limit: usize,
        sieves: Arc<Sieves>,
    ) -> rusqlite::Result<Self> {
        let mut tail = conn.prepare_cached("SELECT hash, url_id FROM lookup_tail")?;
        let tail = tail
            .query_map([], |row| Ok(Entry { hash: row.get(0)?, id: row.get(1)? }))?
            .collect::<rusqlite::Result<_>>()?;
        let runs = run::read_all(conn)?;
        Ok(Self { tail, runs, tail_limit, resident: Cell::new(0), sieves, is_ahead: true })
    }

    /// Takes the state from the database again. To be called when the
    /// transaction of an insertion or a merge step was rolled back.
    pub(crate) fn reload(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        *self = Self::open_with(conn, self.tail_limit, Arc::clone(&self.sieves))?;
        Ok(())
    }

    /// Appends to `out` the rows that may have this hash, each once.
    pub(crate) fn find(
        &self,
        conn: &Connection,
        hash: u64,
        out: &mut Vec<UrlId>,
    ) -> rusqlite::Result<()> {
        let known = out.len();
        self.find_sorted(conn, &[(hash, 0)], (&Sifted::default(), 0..1), &mut |_, id| {
            if !out.get(known..).unwrap_or_default().contains(&id) {
                out.push(id);
            }
        })
    }

    /// The same for many hashes, which come with numbers and must ascend: one pass
    /// over each run, or over what was sifted of it for these numbers. Calls `out`
    /// with the number of the hash; a row may come more than once if it was inserted
    /// more than once.
    pub(crate) fn find_sorted(
        &self,
        conn: &Connection,
        order: &[(u64, usize)],
        (sifted, numbers): (&Sifted, Range<usize>),
        out: &mut impl FnMut(usize, UrlId),
    ) -> rusqlite::Result<()> {
        debug_assert!(order.is_sorted());
        if !self.tail.is_empty() {
            for &(hash, number) in order {
                for entry in self.tail.range(Entry { hash: cut(hash), id: 0 }..) {
                    if entry.hash != cut(hash) {
                        break;
                    }
                    out(number, UrlId(entry.id));
                }
            }
        }
        let mut sought = Vec::new();
        let mut reader = Reader::new(conn)?;
        for run in &self.runs {
            if let Some(perhaps) = sifted.of(run.id) {
                let mine = perhaps.iter().filter(|(_, number)| numbers.contains(number));
                for &(hash, number) in mine {
                    reader.find_one(run, cut(hash), &mut |id| out(number, id))?;
                }
                continue;
            }
            if sought.is_empty() {
                sought.extend(order.iter().map(|(hash, _)| Sought::new(*hash)));
            }
            for (sought, (_, number)) in sought.iter().zip(order) {
                if run.may_have(conn, sought, Some(&self.resident))? {
                    reader.find_one(run, sought.hash, &mut |id| out(*number, id))?;
                }
            }
        }
        Ok(())
    }

    /// Adds entries, in any order, within the caller's transaction. Entries that
    /// are there already do no harm. Large batches go straight to a run; 5,000
    /// or more at a time are cheapest.
    pub(crate) fn insert(
        &mut self,
        conn: &Connection,
        entries: &[(u64, UrlId)],
    ) -> rusqlite::Result<()> {
        let fresh = entries.iter().map(|&(hash, id)| Entry::new(hash, id));
        if self.tail.len() + entries.len() <= self.tail_limit {
            let mut insert =
                conn.prepare_cached("INSERT OR IGNORE INTO lookup_tail VALUES (?1, ?2)")?;
            for entry in fresh {
                insert.execute(params![entry.hash, entry.id])?;
                self.tail.insert(entry);
            }
            return Ok(());
        }
        let mut all: Vec<Entry> = self.tail.iter().copied().chain(fresh).collect();
        all.sort_unstable();
        all.dedup();
        let mut run = Run::create(conn, self.next_id(), self.level_of(all.len()), all.len())?;
        run.append(conn, &all, END, &self.resident)?;
        run.save(conn)?;
        self.runs.push(run);
        self.is_ahead = true;
        conn.prepare_cached("DELETE FROM lookup_tail")?.execute([])?;
        self.tail.clear();
        if self.runs.len() > MAX_RUNS {
            self.merge(conn, entries.len().saturating_mul(FAN_OUT))?;
        }
        Ok(())
    }

    /// Merges for about `budget` entries' worth of work (50 to 100 ns each);
    /// is there more to do? A caller that inserts without pause keeps up by
    /// merging four to five times as many entries as it inserts.
    pub(crate) fn merge_step(
        &mut self,
        tx: &Transaction<'_>,
        budget: usize,
    ) -> rusqlite::Result<bool> {
        self.merge(tx, budget)?;
        Ok(self.has_merge())
    }

    /// Lets others know of the runs, once they are committed.
    pub(crate) fn publish(&mut self) {
        if std::mem::take(&mut self.is_ahead) {
            self.sieves.replace(self.runs.iter().filter_map(Run::sieve).collect());
        }
    }

    /// What others may ask.
    pub(crate) fn sieves(&self) -> Arc<Sieves> {
        Arc::clone(&self.sieves)
    }

    fn next_id(&self) -> i64 {
        self.runs.iter().map(|run| run.id).max().unwrap_or(0) + 1
    }

    /// Runs of level 0 have fewer than [`FAN_OUT`] tails' entries, each further
    /// level as many times more.
    fn level_of(&self, entries: usize) -> u32 {
        (entries / self.tail_limit.max(1)).max(1).ilog(FAN_OUT)
    }
}

/// Reads chunks for a series of lookups.
struct Reader<'c> {
    chunks: CachedStatement<'c>,
    chunk: Vec<Entry>,
    /// Whose it is: the run, and its number there.
    loaded: Option<(i64, u32)>,
}

impl<'c> Reader<'c> {
    fn new(conn: &'c Connection) -> rusqlite::Result<Self> {
        let chunks = conn.prepare_cached("SELECT data FROM lookup_chunks WHERE id = ?1")?;
        Ok(Self { chunks, chunk: Vec::new(), loaded: None })
    }

    /// Finds what a run has of a hash, if that is its.
    fn find_one(
        &mut self,
        run: &Run,
        hash: i64,
        out: &mut impl FnMut(UrlId),
    ) -> rusqlite::Result<()> {
        if !run.is_of(hash) {
            return Ok(());
        }
        let place = (run.id, run.chunks.part_of(hash));
        if self.loaded != Some(place) {
            self.loaded = None;
            self.load(run, place.1)?;
            self.loaded = Some(place);
        }
        let first = self.chunk.partition_point(|entry| entry.hash < hash);
        let tail = self.chunk.get(first..).unwrap_or_default();
        for entry in tail.iter().take_while(|entry| entry.hash == hash) {
            out(UrlId(entry.id));
        }
        Ok(())
    }

    fn load(&mut self, run: &Run, number: u32) -> rusqlite::Result<()> {
        self.chunk.clear();
        let chunk = &mut self.chunk;
        let read = self.chunks.query_row([run.row_id(number)], |row| {
            chunk::decode(row.get_ref(0)?.as_blob()?, run.chunks.start_of(number), chunk)
                .map_err(corrupt)
        });
        read.optional().map(|_| ())
    }
}

/// What [`Lookup::find`] finds, from the database alone: for connections that
/// only read. Sees one state even while merges go on.
pub(crate) fn find_on_disk(conn: &Connection, hash: u64) -> rusqlite::Result<Vec<UrlId>> {
    // A merge moves entries between tables' rows: all reads need one snapshot.
    let _snapshot = if conn.is_autocommit() { Some(conn.unchecked_transaction()?) } else { None };
    let mut tail = conn.prepare_cached("SELECT url_id FROM lookup_tail WHERE hash = ?1")?;
    let mut found: Vec<UrlId> = tail
        .query_map([cut(hash)], |row| row.get(0).map(UrlId))?
        .collect::<rusqlite::Result<_>>()?;
    let mut reader = Reader::new(conn)?;
    let sought = Sought::new(hash);
    for run in run::read_all(conn)? {
        if run.may_have(conn, &sought, None)? {
            reader.find_one(&run, sought.hash, &mut |id| found.push(id))?;
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The part of a hash that is kept.
fn cut(hash: u64) -> i64 {
    (hash >> (u64::BITS - HASH_BITS)).cast_signed()
}
