//! What is kept of a URL beside its place: how its last lease ended, what
//! fetchers reported, what looks taught. One packed blob in `feedback`.
//!
//! Keeps: a record that is read and written again without a change is the same
//! bytes. It is written whole, by whoever has read it in the same job. Bytes
//! that are no record read as one that says nothing.

use jiff::Timestamp;

use super::ending::End;
use super::rows::{decode, lastmod, lastmod_columns};
use crate::model::{Lastmod, Outcome, UrlId};
use crate::queue::Token;
use crate::recrawl::model::PACKED;

/// Which parts follow, a bit each, in the order in which they follow.
mod part {
    pub(super) const ENDED: u16 = 1;
    pub(super) const FETCHED: u16 = 1 << 1;
    pub(super) const LOOKS: u16 = 1 << 2;
    pub(super) const STATUS: u16 = 1 << 3;
    /// The content hash as text.
    pub(super) const HASH: u16 = 1 << 4;
    /// The content hash, lower-case hexadecimal digits, as the bytes they say.
    pub(super) const HEX: u16 = 1 << 5;
    pub(super) const HASH_KIND: u16 = 1 << 6;
    pub(super) const NOINDEX: u16 = 1 << 7;
    pub(super) const FOLDED: u16 = 1 << 8;
    pub(super) const CANONICAL: u16 = 1 << 9;
    pub(super) const ERROR: u16 = 1 << 10;
    pub(super) const GONE: u16 = 1 << 11;
    pub(super) const HELD: u16 = 1 << 12;
    pub(super) const PREVIOUS: u16 = 1 << 13;
}

/// How the last lease of a URL ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// The first 32 bits of its token: enough to know a call that is made
    /// again, since such a call changes nothing.
    tag: u32,
    pub(super) how: End,
    /// Unix milliseconds.
    pub(super) at: i64,
}

impl Ended {
    pub(super) fn new(secret: [u8; 16], how: End, at: i64) -> Self {
        Self { tag: tag(secret), how, at }
    }

    /// Was that lease this token's?
    pub(super) fn was_of(&self, token: Token) -> bool {
        self.tag == tag(token.secret)
    }
}

fn tag([a, b, c, d, ..]: [u8; 16]) -> u32 {
    u32::from_le_bytes([a, b, c, d])
}

/// What fetchers reported of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fetched {
    /// Unix milliseconds.
    pub(super) at: i64,
    pub(super) outcome: Outcome,
    pub(super) status: Option<u16>,
    /// Reports in all, and those of a change.
    pub(super) fetches: u64,
    pub(super) changes: u64,
    /// The page asks not to be indexed.
    pub(super) noindex: bool,
    /// Of the last report that had one.
    pub(super) content_hash: Option<String>,
    pub(super) rare: Option<Box<Rare>>,
}

/// What most reports say nothing of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rare {
    pub(super) hash_kind: Option<String>,
    /// The row that it redirects to.
    pub(super) folded_into: Option<UrlId>,
    /// What the page names as its canonical URL.
    pub(super) canonical: Option<String>,
    pub(super) error: Option<String>,
}

/// What is kept of a URL beside its place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) ended: Option<Ended>,
    pub(super) fetched: Option<Fetched>,
    /// What looks taught of it, packed.
    pub(super) looks: Option<[u8; PACKED]>,
    /// Reports in a row that it is gone.
    pub(super) gone: u32,
    /// Since when it is held out of the queue, Unix milliseconds.
    pub(super) held_since: Option<i64>,
    /// The lastmod before the last one.
    pub(super) previous: Option<Lastmod>,
}

impl Record {
    pub(super) fn content_hash(&self) -> Option<&str> {
        self.fetched.as_ref()?.content_hash.as_deref()
    }

    pub(super) fn hash_kind(&self) -> Option<&str> {
        self.rare()?.hash_kind.as_deref()
    }

    pub(super) fn rare(&self) -> Option<&Rare> {
        self.fetched.as_ref()?.rare.as_deref()
    }

    /// The bytes for the table, about 45 of a URL that was fetched and looked at.
    pub(super) fn pack(&self) -> Vec<u8> {
        let mut packed = Vec::with_capacity(64);
        packed.extend([0; 2]);
        let mut parts = 0;
        if let Some(Ended { tag, how, at }) = self.ended {
            parts |= part::ENDED;
            packed.extend(tag.to_le_bytes());
            packed.push(how as u8);
            put_signed(&mut packed, at);
        }
        if let Some(fetched) = &self.fetched {
            parts |= part::FETCHED;
            // As a rule a report ends the lease and is of this moment.
            put_signed(&mut packed, fetched.at - self.ended.map_or(0, |ended| ended.at));
            packed.push(fetched.outcome as u8);
            put(&mut packed, fetched.fetches);
            put(&mut packed, fetched.changes);
        }
        if let Some(looks) = &self.looks {
            parts |= part::LOOKS;
            packed.extend(looks);
        }
        if let Some(fetched) = &self.fetched {
            parts |= fetched.pack(&mut packed);
        }
        if self.gone > 0 {
            parts |= part::GONE;
            put(&mut packed, u64::from(self.gone));
        }
        if let Some(since) = self.held_since {
            parts |= part::HELD;
            put_signed(&mut packed, since);
        }
        if let (Some(second), Some(precision)) = lastmod_columns(self.previous) {
            parts |= part::PREVIOUS;
            put_signed(&mut packed, second);
            put_signed(&mut packed, precision);
        }
        for (byte, bits) in packed.iter_mut().zip(parts.to_le_bytes()) {
            *byte = bits;
        }
        packed
    }

    /// The record that these bytes are; one that says nothing if they are none.
    pub(super) fn unpack(packed: &[u8]) -> Self {
        Self::read(packed).unwrap_or_default()
    }

    fn read(packed: &[u8]) -> Option<Self> {
        let mut rest = Rest(packed);
        let parts = u16::from_le_bytes(rest.array()?);
        let has = |part: u16| parts & part != 0;
        let mut record = Self::default();
        if has(part::ENDED) {
            let tag = u32::from_le_bytes(rest.array()?);
            let how = End::ALL.get(usize::from(rest.byte()?)).copied()?;
            record.ended = Some(Ended { tag, how, at: rest.signed()? });
        }
        if has(part::FETCHED) {
            let before = record.ended.map_or(0, |ended| ended.at);
            record.fetched = Some(Fetched {
                at: rest.signed()?.wrapping_add(before),
                outcome: decode(&Outcome::ALL, i64::from(rest.byte()?))?,
                fetches: rest.number()?,
                changes: rest.number()?,
                status: None,
                noindex: has(part::NOINDEX),
                content_hash: None,
                rare: None,
            });
        }
        if has(part::LOOKS) {
            record.looks = Some(rest.array()?);
        }
        if let Some(fetched) = &mut record.fetched {
            fetched.read(parts, &mut rest)?;
        }
        if has(part::GONE) {
            record.gone = u32::try_from(rest.number()?).ok()?;
        }
        if has(part::HELD) {
            record.held_since = Some(rest.signed()?);
        }
        if has(part::PREVIOUS) {
            record.previous = lastmod(Some(rest.signed()?), Some(rest.signed()?));
        }
        Some(record)
    }
}

impl Fetched {
    /// A first report: of nothing but this.
    pub(super) fn first(at: i64, outcome: Outcome) -> Self {
        Self {
            at,
            outcome,
            status: None,
            fetches: 0,
            changes: 0,
            noindex: false,
            content_hash: None,
            rare: None,
        }
    }

    /// Sets what most reports say nothing of.
    pub(super) fn set_rare(&mut self, rare: Rare) {
        self.rare = (rare != Rare::default()).then(|| Box::new(rare));
    }

    fn pack(&self, packed: &mut Vec<u8>) -> u16 {
        let mut parts = if self.noindex { part::NOINDEX } else { 0 };
        if let Some(status) = self.status {
            parts |= part::STATUS;
            put(packed, u64::from(status));
        }
        if let Some(hash) = &self.content_hash {
            let bytes = from_hex(hash);
            parts |= if bytes.is_some() { part::HEX } else { part::HASH };
            put_bytes(packed, bytes.as_deref().unwrap_or(hash.as_bytes()));
        }
        let Some(rare) = &self.rare else { return parts };
        let mut text = |text: &Option<String>, part: u16| {
            if let Some(text) = text {
                parts |= part;
                put_bytes(packed, text.as_bytes());
            }
        };
        text(&rare.hash_kind, part::HASH_KIND);
        text(&rare.canonical, part::CANONICAL);
        text(&rare.error, part::ERROR);
        if let Some(target) = rare.folded_into {
            parts |= part::FOLDED;
            put(packed, target.0.unsigned_abs());
        }
        parts
    }

    fn read(&mut self, parts: u16, rest: &mut Rest<'_>) -> Option<()> {
        let has = |part: u16| parts & part != 0;
        if has(part::STATUS) {
            self.status = Some(u16::try_from(rest.number()?).ok()?);
        }
        if has(part::HEX) {
            self.content_hash = Some(to_hex(rest.bytes()?));
        } else if has(part::HASH) {
            self.content_hash = Some(rest.text()?);
        }
        let rare = Rare {
            hash_kind: if has(part::HASH_KIND) { Some(rest.text()?) } else { None },
            canonical: if has(part::CANONICAL) { Some(rest.text()?) } else { None },
            error: if has(part::ERROR) { Some(rest.text()?) } else { None },
            folded_into: if has(part::FOLDED) {
                Some(UrlId(i64::try_from(rest.number()?).ok()?))
            } else {
                None
            },
        };
        self.set_rare(rare);
        Some(())
    }

    /// When that was.
    pub(super) fn time(&self) -> Timestamp {
        super::timestamp(self.at)
    }
}

/// The bytes that an even number of lower-case hexadecimal digits says.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Seven bits a byte, the lowest first (LEB128).
#[allow(clippy::cast_possible_truncation)] // seven bits of it are meant
fn put(packed: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        packed.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    // Below 128 by now.
    #[allow(clippy::cast_possible_truncation)]
    packed.push(number as u8);
}

/// The same of numbers with a sign, which becomes the lowest bit.
fn put_signed(packed: &mut Vec<u8>, number: i64) {
    put(packed, (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned());
}

fn put_bytes(packed: &mut Vec<u8>, bytes: &[u8]) {
    put(packed, bytes.len() as u64);
    packed.extend(bytes);
}

/// What is left to read.
struct Rest<'p>(&'p [u8]);

impl<'p> Rest<'p> {
    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    fn bytes(&mut self) -> Option<&'p [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (first, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(first)
    }

    fn text(&mut self) -> Option<String> {
        std::str::from_utf8(self.bytes()?).ok().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use proptest::option::of;
    use proptest::prelude::*;

    use super::*;
    use crate::model::Precision;

    fn hash() -> impl Strategy<Value = String> {
        prop_oneof!["[0-9a-f]{16}", "[0-9a-f]{64}", "[0-9a-f]{7}", "[0-9A-F]{8}", "\\PC{0,40}"]
    }

    prop_compose! {
        fn rare()(
            hash_kind in of("[a-z0-9]{1,12}"),
            folded in of(1..i64::MAX),
            canonical in of("https://[a-z]{1,9}/\\PC{0,20}"),
            error in of("\\PC{0,60}"),
        ) -> Rare {
            Rare { hash_kind, folded_into: folded.map(UrlId), canonical, error }
        }
    }

    prop_compose! {
        fn fetched()(
            at in 0..4_000_000_000_000_i64,
            outcome in proptest::sample::select(Outcome::ALL.to_vec()),
            status in of(100..600_u16),
            fetches in any::<u64>(),
            changes in 0..1_000_u64,
            noindex in any::<bool>(),
            content_hash in of(hash()),
            rare in rare(),
        ) -> Fetched {
            let mut fetched =
                Fetched { status, fetches, changes, noindex, content_hash, ..Fetched::first(at, outcome) };
            fetched.set_rare(rare);
            fetched
        }
    }

    prop_compose! {
        fn record()(
            ended in of((any::<[u8; 16]>(), 0..End::ALL.len(), 0..4_000_000_000_000_i64)),
            fetched in of(fetched()),
            looks in of(any::<[u8; PACKED]>()),
            gone in 0..5_u32,
            held_since in of(0..4_000_000_000_000_i64),
            previous in of((-2_000_000_000..4_000_000_000_i64, 0..Precision::ALL.len())),
        ) -> Record {
            Record {
                ended: ended.map(|(secret, how, at)| Ended::new(secret, End::ALL[how], at)),
                fetched,
                looks,
                gone,
                held_since,
                previous: previous.and_then(|(s, p)| lastmod(Some(s), i64::try_from(p).ok())),
            }
        }
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(record in record()) {
            prop_assert_eq!(Record::unpack(&record.pack()), record);
        }

        #[test]
        fn bytes_cut_short_or_made_up_are_read_without_harm(
            record in record(), cut in any::<prop::sample::Index>(), noise in any::<Vec<u8>>(),
        ) {
            let packed = record.pack();
            let _ = Record::unpack(&packed[..cut.index(packed.len())]);
            let _ = Record::unpack(&noise);
        }
    }

    #[test]
    fn a_url_that_was_fetched_and_looked_at_takes_about_45_bytes() {
        let (at, ended) = (1_795_000_000_000, 1_795_000_000_120);
        let fetched = Fetched {
            status: Some(200),
            fetches: 90,
            changes: 12,
            content_hash: Some("0123456789abcdef".to_owned()),
            ..Fetched::first(at, Outcome::Changed)
        };
        let record = Record {
            ended: Some(Ended::new([7; 16], End::Settled, ended)),
            fetched: Some(fetched),
            looks: Some([1; PACKED]),
            ..Record::default()
        };
        assert_eq!(record.pack().len(), 45);
        assert_eq!(Record::default().pack().len(), 2);
    }
}
