//! The snapshot as bytes: a checksummed header, then one column per field.
//!
//! ```text
//! version u8 · checksum u64 (xxh3 of version, and of all that follows) · count varint · columns
//! column    width u8 · base zigzag varint · unit varint · packed (value - base) / unit
//! keys      of 56 bits: first u64, then per 128 keys: width u8 · packed gaps to the key before, less 1
//! ```
//!
//! A column whose values are all equal has width 0 and costs three bytes. The
//! unit is the greatest common divisor of what is left after taking the base
//! off, so dates without a time take days, not seconds. Optional fields have a
//! column that says for which entries they are there and one with their values.

use jiff::Timestamp;
use xxhash_rust::xxh3::Xxh3Default;

use super::{CorruptSnapshot, EntryHints, KEY_BITS, Rejection, Row, SnapshotEntry};
use crate::bitpack::{Packed, pack, width_of};
use crate::model::{Lastmod, Precision, UrlId};

const VERSION: u8 = 2;
/// The same with keys of all 64 bits of the hash, which may be there still.
const WIDE: u8 = 1;
const HEADER: usize = 1 + 8;
const KEYS_PER_BLOCK: usize = 128;
/// Keys are hashes, so their gaps are wide anyhow; that they take at least a
/// byte each means that a count over the length of the blob is a lie.
const MIN_KEY_WIDTH: u32 = 8;
/// Sites use few combinations of changefreq and priority; more than this many
/// are written out instead of numbered.
const MAX_HINTS: usize = 256;

pub(super) fn encode(entries: &[SnapshotEntry]) -> Vec<u8> {
    let mut out = vec![VERSION; HEADER];
    put_varint(entries.len() as u64, &mut out);
    put_keys(entries, &mut out);

    put_column(entries.iter().map(|entry| row_code(entry.row)), &mut out);
    put_column(entries.iter().filter_map(|entry| url_id(entry.row)), &mut out);
    put_column(entries.iter().map(|entry| precision_code(entry.lastmod)), &mut out);
    put_column(entries.iter().filter_map(|entry| Some(entry.lastmod?.at.as_second())), &mut out);
    put_hints(entries, &mut out);
    put_column(entries.iter().map(|entry| i64::from(entry.digest)), &mut out);
    put_column(entries.iter().map(|entry| i64::from(entry.misses)), &mut out);
    put_column(entries.iter().map(|entry| i64::from(entry.missing_since.is_some())), &mut out);
    put_column(entries.iter().filter_map(|entry| entry.missing_since), &mut out);

    let checksum = checksum(out.first().copied(), out.get(HEADER..));
    if let Some(place) = out.get_mut(1..HEADER) {
        place.copy_from_slice(&checksum.to_le_bytes());
    }
    out
}

pub(super) fn decode(bytes: &[u8]) -> Result<Vec<SnapshotEntry>, CorruptSnapshot> {
    let (&[version, ref claimed @ ..], body) =
        bytes.split_first_chunk::<HEADER>().ok_or(CorruptSnapshot("no header"))?;
    if checksum(Some(version), Some(body)) != u64::from_le_bytes(*claimed) {
        return Err(CorruptSnapshot("the checksum differs"));
    }
    if !matches!(version, VERSION | WIDE) {
        return Err(CorruptSnapshot("unknown version"));
    }
    let mut cursor = Cursor { rest: body };
    let count = usize::try_from(cursor.varint()?).unwrap_or(usize::MAX);
    if count > body.len() {
        return Err(CorruptSnapshot("more entries than bytes"));
    }
    let mut keys = cursor.keys(count)?;
    if version == WIDE {
        for key in &mut keys {
            *key >>= u64::BITS - KEY_BITS;
        }
    }
    if keys.last().is_some_and(|last| last >> KEY_BITS > 0) {
        return Err(CorruptSnapshot("keys out of range"));
    }
    let columns = Columns::read(&mut cursor, count)?;
    if !cursor.rest.is_empty() {
        return Err(CorruptSnapshot("bytes after the end"));
    }
    let mut entries = columns.into_entries(&keys)?;
    // Of keys that were not alike before.
    entries.dedup_by_key(|entry| entry.key);
    Ok(entries)
}

fn checksum(version: Option<u8>, body: Option<&[u8]>) -> u64 {
    let mut hasher = Xxh3Default::new();
    hasher.update(version.as_slice());
    hasher.update(body.unwrap_or_default());
    hasher.digest()
}

/// All columns but the keys, still packed.
struct Columns<'a> {
    rows: Column<'a>,
    url_ids: Column<'a>,
    precisions: Column<'a>,
    seconds: Column<'a>,
    hints: Vec<EntryHints>,
    hint_numbers: Column<'a>,
    digests: Column<'a>,
    misses: Column<'a>,
    missing: Column<'a>,
    missing_since: Column<'a>,
}

impl<'a> Columns<'a> {
    fn read(cursor: &mut Cursor<'a>, count: usize) -> Result<Self, CorruptSnapshot> {
        let rows = cursor.column(count)?;
        let url_ids = cursor.column(rows.count_where(|code| code == 0))?;
        let precisions = cursor.column(count)?;
        let seconds = cursor.column(precisions.count_where(|code| code != 0))?;
        let hints = cursor.hints()?;
        let hint_numbers = cursor.column(count)?;
        let digests = cursor.column(count)?;
        let misses = cursor.column(count)?;
        let missing = cursor.column(count)?;
        let missing_since = cursor.column(missing.count_where(|code| code != 0))?;
        Ok(Self {
            rows,
            url_ids,
            precisions,
            seconds,
            hints,
            hint_numbers,
            digests,
            misses,
            missing,
            missing_since,
        })
    }

    fn into_entries(self, keys: &[u64]) -> Result<Vec<SnapshotEntry>, CorruptSnapshot> {
        const BAD: CorruptSnapshot = CorruptSnapshot("a value out of range");
        let mut entries = Vec::with_capacity(keys.len());
        let (mut url_ids, mut seconds, mut missing) = (0, 0, 0);
        for (index, &key) in keys.iter().enumerate() {
            let row = match self.rows.get(index) {
                0 => Row::Url(UrlId(self.url_ids.get(post_increment(&mut url_ids)))),
                code => Row::Rejected(Rejection::from_code(code).ok_or(BAD)?),
            };
            let lastmod = match self.precisions.get(index) {
                0 => None,
                code => Some(Lastmod {
                    at: Timestamp::from_second(self.seconds.get(post_increment(&mut seconds)))
                        .map_err(|_| BAD)?,
                    precision: precision(code).ok_or(BAD)?,
                }),
            };
            let missing_since = match self.missing.get(index) {
                0 => None,
                1 => Some(self.missing_since.get(post_increment(&mut missing))),
                _ => return Err(BAD),
            };
            entries.push(SnapshotEntry {
                key,
                row,
                lastmod,
                hints: self.hints(self.hint_numbers.get(index)).ok_or(BAD)?,
                digest: u32::try_from(self.digests.get(index)).map_err(|_| BAD)?,
                misses: u8::try_from(self.misses.get(index)).map_err(|_| BAD)?,
                missing_since,
            });
        }
        Ok(entries)
    }

    /// Numbered when there is a list, written out when there is none.
    fn hints(&self, number: i64) -> Option<EntryHints> {
        if self.hints.is_empty() {
            return EntryHints::from_bits(u16::try_from(number).ok()?);
        }
        self.hints.get(usize::try_from(number).ok()?).copied()
    }
}

#[derive(Clone, Copy)]
struct Column<'a> {
    base: i64,
    unit: i64,
    packed: Packed<'a>,
    count: usize,
}

impl Column<'_> {
    #[inline]
    fn get(&self, index: usize) -> i64 {
        self.base.wrapping_add(self.unit.wrapping_mul(self.packed.get(index).cast_signed()))
    }

    fn count_where(&self, wanted: impl Fn(i64) -> bool) -> usize {
        (0..self.count).filter(|&index| wanted(self.get(index))).count()
    }
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], CorruptSnapshot> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(CorruptSnapshot("cut off"))?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn packed(&mut self, count: usize, width: u8) -> Result<Packed<'a>, CorruptSnapshot> {
        let (packed, rest) = Packed::split(self.rest, count, u32::from(width))
            .ok_or(CorruptSnapshot("a column is cut off"))?;
        self.rest = rest;
        Ok(packed)
    }

    fn varint(&mut self) -> Result<u64, CorruptSnapshot> {
        let mut value = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let [byte] = self.take()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(CorruptSnapshot("a number without end"))
    }

    fn keys(&mut self, count: usize) -> Result<Vec<u64>, CorruptSnapshot> {
        // `count` is at most the length of the blob, so this is bounded by it.
        let mut keys = Vec::with_capacity(count);
        if count == 0 {
            return Ok(keys);
        }
        let mut key = u64::from_le_bytes(self.take()?);
        keys.push(key);
        while keys.len() < count {
            let [width] = self.take()?;
            if u32::from(width) < MIN_KEY_WIDTH {
                return Err(CorruptSnapshot("keys too narrow"));
            }
            let gaps = self.packed(KEYS_PER_BLOCK.min(count - keys.len()), width)?;
            for gap in gaps.iter() {
                key = key
                    .checked_add(gap)
                    .and_then(|key| key.checked_add(1))
                    .ok_or(CorruptSnapshot("keys out of range"))?;
                keys.push(key);
            }
        }
        Ok(keys)
    }

    fn column(&mut self, count: usize) -> Result<Column<'a>, CorruptSnapshot> {
        let [width] = self.take()?;
        let base = unzigzag(self.varint()?);
        let unit = self.varint()?.cast_signed();
        Ok(Column { base, unit, packed: self.packed(count, width)?, count })
    }

    fn hints(&mut self) -> Result<Vec<EntryHints>, CorruptSnapshot> {
        let count = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        if count > MAX_HINTS {
            return Err(CorruptSnapshot("too many hints"));
        }
        (0..count)
            .map(|_| {
                let bits = u16::from_le_bytes(self.take()?);
                EntryHints::from_bits(bits).ok_or(CorruptSnapshot("unknown hints"))
            })
            .collect()
    }
}

fn put_keys(entries: &[SnapshotEntry], out: &mut Vec<u8>) {
    let Some((first, others)) = entries.split_first() else { return };
    out.extend_from_slice(&first.key.to_le_bytes());
    let mut before = first.key;
    let mut gaps = Vec::with_capacity(KEYS_PER_BLOCK);
    for block in others.chunks(KEYS_PER_BLOCK) {
        gaps.clear();
        for entry in block {
            // Keys ascend strictly, so a gap is at least 1.
            gaps.push(entry.key.wrapping_sub(before).wrapping_sub(1));
            before = entry.key;
        }
        let width = width_of(gaps.iter().copied().max().unwrap_or(0)).max(MIN_KEY_WIDTH);
        put_width(width, out);
        pack(gaps.iter().copied(), width, out);
    }
}

fn put_column(values: impl Iterator<Item = i64> + Clone, out: &mut Vec<u8>) {
    let base = values.clone().min().unwrap_or(0);
    let offsets = values.map(|value| value.wrapping_sub(base).cast_unsigned());
    let (max, unit) = offsets.clone().fold((0, 0), |(max, unit), offset| {
        (offset.max(max), if unit == 1 { 1 } else { divisor(unit, offset) })
    });
    let unit = unit.max(1);
    let width = width_of(max / unit);
    put_width(width, out);
    put_varint(zigzag(base), out);
    put_varint(unit, out);
    if unit == 1 {
        pack(offsets, width, out);
    } else {
        pack(offsets.map(|offset| offset / unit), width, out);
    }
}

/// The distinct hints and the number of each entry's; no list when they are
/// too many, then the hints themselves.
fn put_hints(entries: &[SnapshotEntry], out: &mut Vec<u8>) {
    let mut distinct: Vec<u16> = Vec::new();
    let mut last = None;
    for entry in entries {
        let bits = entry.hints.to_bits();
        if last == Some(bits) {
            continue;
        }
        last = Some(bits);
        if let Err(place) = distinct.binary_search(&bits) {
            distinct.insert(place, bits);
        }
        if distinct.len() > MAX_HINTS {
            put_varint(0, out);
            put_column(entries.iter().map(|entry| i64::from(entry.hints.to_bits())), out);
            return;
        }
    }
    put_varint(distinct.len() as u64, out);
    for bits in &distinct {
        out.extend_from_slice(&bits.to_le_bytes());
    }
    let numbers = entries.iter().map(|entry| {
        // Each is in the list, and a list of 256 is numbered within an i64.
        let place = distinct.partition_point(|&bits| bits < entry.hints.to_bits());
        i64::try_from(place).unwrap_or(0)
    });
    put_column(numbers, out);
}

fn put_width(width: u32, out: &mut Vec<u8>) {
    // A width is at most 64.
    out.push(u8::try_from(width).unwrap_or(64));
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Greatest common divisor; that of 0 and `n` is `n`.
fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn row_code(row: Row) -> i64 {
    match row {
        Row::Url(_) => 0,
        Row::Rejected(reason) => i64::from(reason as u8),
    }
}

fn url_id(row: Row) -> Option<i64> {
    match row {
        Row::Url(id) => Some(id.0),
        Row::Rejected(_) => None,
    }
}

/// 0 for no lastmod at all.
fn precision_code(lastmod: Option<Lastmod>) -> i64 {
    lastmod.map_or(0, |lastmod| lastmod.precision as i64 + 1)
}

fn precision(code: i64) -> Option<Precision> {
    Precision::ALL.get(usize::try_from(code.checked_sub(1)?).ok()?).copied()
}

fn post_increment(counter: &mut usize) -> usize {
    let before = *counter;
    *counter += 1;
    before
}
