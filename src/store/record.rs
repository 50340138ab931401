//! What is kept of a URL beside its place: how its last lease ended, what
//! fetchers reported, what looks taught. One packed blob in `feedback`.
//!
//! Keeps: a record that is read and written again without a change is the same
//! bytes. It is written whole, by whoever has read it in the same job. Bytes
//! that are no record read as one that says nothing.

use jiff::Timestamp;

use super::ending::{End, ceil_seconds};
use super::rows::{decode, lastmod, lastmod_columns};
use crate::model::{Lastmod, Outcome, SourceId, UrlId};
use crate::queue::Token;
use crate::recrawl::model::{FIRST_LOOK, PACKED, UrlState};
use crate::recrawl::{BLOCKED_AGAIN, later};

/// The status that most reports have.
const OK: u16 = 200;

/// In place of the code of [`End::Settled`] where the lease ended in the second of
/// its report, as most do: how long after it is left out.
const AT_ONCE: u16 = 3;
const _: () = assert!(End::ALL.len() == AT_ONCE as usize);

/// In the word of the times, beside the outcome, of which there are seven: the
/// counts of reports and of changes are both less than 16, and share a byte.
const FEW: u16 = 1 << 5;
const _: () = assert!(Outcome::ALL.len() << 2 <= FEW as usize);

/// Which parts follow, a bit each. Seven bits of these take a byte, so those
/// that most records have come first.
mod part {
    pub(super) const ENDED: u64 = 1;
    pub(super) const FETCHED: u64 = 1 << 1;
    pub(super) const LOOKS: u64 = 1 << 2;
    /// The status is 200.
    pub(super) const OK: u64 = 1 << 3;
    /// The content hash, lower-case hexadecimal digits, as the bytes they say.
    pub(super) const HEX: u64 = 1 << 4;
    /// More was learned than that there was a look.
    pub(super) const COMPARED: u64 = 1 << 5;
    /// A change was among that.
    pub(super) const CHANGED: u64 = 1 << 6;
    /// Another status.
    pub(super) const STATUS: u64 = 1 << 7;
    /// The content hash as text.
    pub(super) const HASH: u64 = 1 << 8;
    /// Signals since the last look.
    pub(super) const SIGNALS: u64 = 1 << 9;
    /// The last look was not the last report.
    pub(super) const SEEN: u64 = 1 << 10;
    pub(super) const GONE: u64 = 1 << 11;
    pub(super) const HELD: u64 = 1 << 12;
    pub(super) const PREVIOUS: u64 = 1 << 13;
    pub(super) const HASH_KIND: u64 = 1 << 14;
    pub(super) const NOINDEX: u64 = 1 << 15;
    pub(super) const FOLDED: u64 = 1 << 16;
    pub(super) const CANONICAL: u64 = 1 << 17;
    pub(super) const ERROR: u64 = 1 << 18;
    pub(super) const FLOOR: u64 = 1 << 19;
    pub(super) const GIVER: u64 = 1 << 20;
}

/// How the last lease of a URL ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// The first 24 bits of its token: enough to know a call that is made
    /// again, since such a call changes nothing.
    tag: [u8; 3],
    pub(super) how: End,
    at_s: i64,
}

impl Ended {
    /// Of the lease with that token, at a time in Unix milliseconds.
    pub(super) fn new(secret: [u8; 16], how: End, at: i64) -> Self {
        Self { tag: tag(secret), how, at_s: at.div_euclid(1000) }
    }

    /// When, in Unix milliseconds, to the second before.
    pub(super) fn at(&self) -> i64 {
        self.at_s * 1000
    }

    /// Was that lease this token's?
    pub(super) fn was_of(&self, token: Token) -> bool {
        self.tag == tag(token.secret)
    }
}

fn tag([a, b, c, ..]: [u8; 16]) -> [u8; 3] {
    [a, b, c]
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

impl Fetched {
    /// Has somebody seen the page, or that there is none?
    pub(super) fn is_look(&self) -> bool {
        !matches!(self.outcome, Outcome::Failed | Outcome::Blocked)
    }
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
    /// The source that gave the signals since the last look, where that is not its first
    /// one. Always a single one: a look could not tell which of two was right.
    pub(super) giver: Option<SourceId>,
    /// Reports in a row that it is gone.
    pub(super) gone: u32,
    /// Since when it is held out of the queue, Unix milliseconds.
    pub(super) held_since: Option<i64>,
    /// The lastmod before the last one.
    pub(super) previous: Option<Lastmod>,
    /// Who had it last wants it no sooner, or its server does, Unix seconds.
    pub(super) not_before_s: Option<i64>,
}

impl Record {
    /// Keeps what looks have taught by now. Without signals there is nobody who gave them.
    pub(super) fn keep_looks(&mut self, learned: Option<UrlState>) {
        self.looks = learned.map(|learned| learned.pack());
        self.giver = self.giver.filter(|_| self.looks.as_ref().is_some_and(UrlState::is_signalled));
    }

    /// What a fetcher asked for, or did not get, puts the next fetch off until then.
    pub(super) fn floor_s(&self) -> Option<i64> {
        let fetched = self.fetched.as_ref();
        let blocked = fetched.filter(|fetched| fetched.outcome == Outcome::Blocked);
        let let_in = blocked.map(|fetched| later(fetched.time(), BLOCKED_AGAIN).as_millisecond());
        self.not_before_s.max(let_in.map(ceil_seconds))
    }

    /// Did its last lease end without a look at it?
    pub(super) fn came_to_nothing(&self) -> bool {
        let failed = |fetched: &Fetched| fetched.outcome == Outcome::Failed;
        self.ended.as_ref().is_some_and(|ended| ended.how != End::Settled)
            || self.fetched.as_ref().is_some_and(failed)
    }

    pub(super) fn content_hash(&self) -> Option<&str> {
        self.fetched.as_ref()?.content_hash.as_deref()
    }

    pub(super) fn hash_kind(&self) -> Option<&str> {
        self.rare()?.hash_kind.as_deref()
    }

    pub(super) fn rare(&self) -> Option<&Rare> {
        self.fetched.as_ref()?.rare.as_deref()
    }

    /// The bytes for the table: about 20 of a URL that was fetched once, up to
    /// ten more from its second look on.
    pub(super) fn pack(&self) -> Vec<u8> {
        self.pack_in(&mut Vec::new()).to_vec()
    }

    /// The same, in room that was used before: as many are packed as leases end.
    pub(super) fn pack_in<'r>(&self, room: &'r mut Vec<u8>) -> &'r [u8] {
        let mut packed = Packed::new(room);
        self.pack_times(&mut packed);
        if let Some(looks) = &self.looks {
            self.pack_looks(looks, &mut packed);
        }
        if let Some(fetched) = &self.fetched {
            fetched.pack(&mut packed);
        }
        if self.gone > 0 {
            packed.put(part::GONE, u64::from(self.gone));
        }
        if let Some(since) = self.held_since {
            packed.put_signed(part::HELD, since);
        }
        if let (Some(second), Some(precision)) = lastmod_columns(self.previous) {
            packed.put_signed(part::PREVIOUS, second);
            packed.put_signed(part::PREVIOUS, precision);
        }
        if let Some(floor) = self.not_before_s {
            packed.put_signed(part::FLOOR, floor);
        }
        if let Some(giver) = self.giver {
            packed.put(part::GIVER, giver.0.unsigned_abs());
        }
        packed.whole()
    }

    /// How the last lease ended and when the last report was made, which as a rule
    /// is one moment: the time of the report, and, where they are not one, how long
    /// after it the lease ended.
    fn pack_times(&self, packed: &mut Packed) {
        let (second, ms) = match (&self.fetched, self.ended) {
            (None, None) => return,
            (Some(fetched), _) => (fetched.at.div_euclid(1000), fetched.at.rem_euclid(1000)),
            (None, Some(ended)) => (ended.at_s, 0),
        };
        let is_one = self.fetched.is_some()
            && self.ended.is_some_and(|ended| ended.how == End::Settled && ended.at_s == second);
        let how = if is_one { AT_ONCE } else { self.ended.map_or(0, |ended| ended.how as u16) };
        let outcome = self.fetched.as_ref().map_or(0, |fetched| fetched.outcome as u16);
        let counts = self.fetched.as_ref().and_then(Fetched::few);
        let few = if counts.is_some() { FEW } else { 0 };
        let ms = u16::try_from(ms).unwrap_or(0);
        packed.extend(0, &(ms << 6 | few | outcome << 2 | how).to_le_bytes());
        packed.extend(0, &short_second(second).to_le_bytes());
        if let Some(ended) = self.ended {
            packed.extend(part::ENDED, &ended.tag);
            if self.fetched.is_some() && !is_one {
                packed.put_signed(part::ENDED, ended.at_s.saturating_sub(second));
            }
        }
        if let Some(counts) = counts {
            packed.extend(part::FETCHED, &[counts]);
        } else if let Some(fetched) = &self.fetched {
            packed.put(part::FETCHED, fetched.fetches);
            packed.put(part::FETCHED, fetched.changes);
        }
    }

    /// Of what looks taught only what says something.
    fn pack_looks(&self, looks: &[u8; PACKED], packed: &mut Packed) {
        let (seen, rest) = looks.split_at(4);
        let (changed, rest) = rest.split_at(4);
        let (compared, signals) = rest.split_at(FIRST_LOOK.len());
        packed.parts |= part::LOOKS;
        let reported = self.fetched.as_ref().map(|fetched| fetched.second().to_le_bytes());
        if reported.as_ref().is_none_or(|reported| reported != seen) {
            packed.extend(part::SEEN, seen);
        }
        if compared != FIRST_LOOK {
            packed.extend(part::COMPARED, compared);
        }
        if changed != [0; 4] {
            packed.extend(part::CHANGED, changed);
        }
        if signals != [0; 2] {
            packed.extend(part::SIGNALS, signals);
        }
    }

    /// The record that these bytes are; one that says nothing if they are none.
    pub(super) fn unpack(packed: &[u8]) -> Self {
        Self::read(packed).unwrap_or_default()
    }

    fn read(packed: &[u8]) -> Option<Self> {
        let mut rest = Rest(packed);
        let parts = rest.number()?;
        let has = |part: u64| parts & part != 0;
        let mut record = Self::default();
        record.read_times(parts, &mut rest)?;
        if has(part::LOOKS) {
            record.looks = Some(record.read_looks(parts, &mut rest)?);
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
        if has(part::FLOOR) {
            record.not_before_s = Some(rest.signed()?);
        }
        if has(part::GIVER) {
            record.giver = Some(SourceId(i64::try_from(rest.number()?).ok()?));
        }
        Some(record)
    }

    fn read_times(&mut self, parts: u64, rest: &mut Rest<'_>) -> Option<()> {
        let (is_ended, is_fetched) = (parts & part::ENDED != 0, parts & part::FETCHED != 0);
        if !is_ended && !is_fetched {
            return Some(());
        }
        let word = u16::from_le_bytes(rest.array()?);
        let second = i64::from(u32::from_le_bytes(rest.array()?));
        if is_ended {
            let is_one = word & 3 == AT_ONCE;
            let how = End::ALL.get(usize::from(word & 3)).copied().unwrap_or(End::Settled);
            let tag = rest.array()?;
            let after = if is_fetched && !is_one { rest.signed()? } else { 0 };
            self.ended = Some(Ended { tag, how, at_s: second.checked_add(after)? });
        }
        if is_fetched {
            let (fetches, changes) = if word & FEW == 0 {
                (rest.number()?, rest.number()?)
            } else {
                let counts = u64::from(rest.byte()?);
                (counts & 15, counts >> 4)
            };
            self.fetched = Some(Fetched {
                at: second * 1000 + i64::from(word >> 6),
                outcome: decode(&Outcome::ALL, i64::from(word >> 2 & 7))?,
                fetches,
                changes,
                status: (parts & part::OK != 0).then_some(OK),
                noindex: parts & part::NOINDEX != 0,
                content_hash: None,
                rare: None,
            });
        }
        Some(())
    }

    fn read_looks(&self, parts: u64, rest: &mut Rest<'_>) -> Option<[u8; PACKED]> {
        let has = |part: u64| parts & part != 0;
        let seen = if has(part::SEEN) {
            rest.array()?
        } else {
            self.fetched.as_ref()?.second().to_le_bytes()
        };
        let compared = if has(part::COMPARED) { rest.array()? } else { FIRST_LOOK };
        let changed: [u8; 4] = if has(part::CHANGED) { rest.array()? } else { [0; 4] };
        let signals: [u8; 2] = if has(part::SIGNALS) { rest.array()? } else { [0; 2] };
        let mut looks = [0; PACKED];
        let all = seen.into_iter().chain(changed).chain(compared).chain(signals);
        looks.iter_mut().zip(all).for_each(|(place, byte)| *place = byte);
        Some(looks)
    }
}

/// A record as it is written: which parts it has, and these.
struct Packed<'r> {
    parts: u64,
    /// Those parts, behind room for [`Self::PARTS`].
    bytes: &'r mut Vec<u8>,
}

impl<'r> Packed<'r> {
    /// Bytes that say which parts there are, at most.
    const PARTS: usize = 3;

    fn new(room: &'r mut Vec<u8>) -> Self {
        room.clear();
        room.extend([0; Self::PARTS]);
        Self { parts: 0, bytes: room }
    }

    fn extend(&mut self, part: u64, bytes: &[u8]) {
        self.parts |= part;
        self.bytes.extend(bytes);
    }

    fn put(&mut self, part: u64, number: u64) {
        self.parts |= part;
        put(self.bytes, number);
    }

    /// Of numbers with a sign, which becomes the lowest bit.
    fn put_signed(&mut self, part: u64, number: i64) {
        self.put(part, (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned());
    }

    fn put_bytes(&mut self, part: u64, bytes: impl ExactSizeIterator<Item = u8>) {
        self.put(part, bytes.len() as u64);
        self.bytes.extend(bytes);
    }

    fn whole(self) -> &'r [u8] {
        let end = self.bytes.len();
        put(self.bytes, self.parts);
        let start = Self::PARTS.saturating_sub(self.bytes.len() - end);
        self.bytes.copy_within(end.., start);
        self.bytes.truncate(end);
        self.bytes.get(start..).unwrap_or_default()
    }
}

const _: () = assert!(part::GIVER < 1 << (7 * Packed::PARTS));

/// Seconds from 1970 to 2106; what is before or after is their first or last.
fn short_second(second: i64) -> u32 {
    u32::try_from(second.max(0)).unwrap_or(u32::MAX)
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

    /// Drops what the last report said of the page beside its content: another fetch
    /// was made since, of which only that is known.
    pub(super) fn forget_page(&mut self) {
        (self.status, self.noindex) = (None, false);
        let rare = self.rare.take().map_or_else(Rare::default, |rare| *rare);
        self.set_rare(Rare { canonical: None, error: None, ..rare });
    }

    /// Sets what most reports say nothing of.
    pub(super) fn set_rare(&mut self, rare: Rare) {
        self.rare = (rare != Rare::default()).then(|| Box::new(rare));
    }

    /// Reports and changes in a byte, where they fit.
    fn few(&self) -> Option<u8> {
        let fits = |count| u8::try_from(count).ok().filter(|count| *count < 16);
        Some(fits(self.changes)? << 4 | fits(self.fetches)?)
    }

    /// The second of [`Self::at`], as it is written.
    fn second(&self) -> u32 {
        short_second(self.at.div_euclid(1000))
    }

    fn pack(&self, packed: &mut Packed) {
        if self.noindex {
            packed.parts |= part::NOINDEX;
        }
        match self.status {
            Some(OK) => packed.parts |= part::OK,
            Some(status) => packed.put(part::STATUS, u64::from(status)),
            None => {}
        }
        if let Some(hash) = &self.content_hash {
            match from_hex(hash) {
                Some(bytes) => packed.put_bytes(part::HEX, bytes),
                None => packed.put_bytes(part::HASH, hash.bytes()),
            }
        }
        let Some(rare) = &self.rare else { return };
        let texts = [
            (part::HASH_KIND, &rare.hash_kind),
            (part::CANONICAL, &rare.canonical),
            (part::ERROR, &rare.error),
        ];
        for (part, text) in texts {
            if let Some(text) = text {
                packed.put_bytes(part, text.bytes());
            }
        }
        if let Some(target) = rare.folded_into {
            packed.put(part::FOLDED, target.0.unsigned_abs());
        }
    }

    fn read(&mut self, parts: u64, rest: &mut Rest<'_>) -> Option<()> {
        let has = |part: u64| parts & part != 0;
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
fn from_hex(text: &str) -> Option<impl ExactSizeIterator<Item = u8>> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digit = |byte: u8| if byte < b'a' { byte - b'0' } else { byte - b'a' + 10 };
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    let is_all = odd.is_empty() && pairs.as_flattened().iter().all(is_digit);
    is_all.then(|| pairs.iter().map(move |[high, low]| digit(*high) << 4 | digit(*low)))
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
mod tests;
