//! How a source writes lastmods, told by its documents alone.
//!
//! A site that stamps everything with the time of its last build, or with the
//! time of the request, would flood the queue before any fetcher could prove
//! it wrong. Both show in the documents: nearly all entries move at once, to
//! about one value, or to the time of the read. Such moves are counted as
//! stamps, whose own weight begins near nothing and is learned like any other,
//! so that a site that does renew everything at once still gets its due.
//! Others may know the pages of a source that is read for the first time, or to
//! which they were dealt from another one: its dates are looked at like moves,
//! and those apart from the crowd are nobody's stamp.
//!
//! Keeps: a source of 20 entries or more is caught at its first stamp, a
//! smaller one at its third; one read without a stamp, and the source's
//! lastmods count as what they are again. 16 bytes a source.

use jiff::Timestamp;

use super::signal::Signal;

/// A stamp moves at least this share of the entries.
const NEARLY_ALL: f64 = 0.9;
/// Fewer entries than this may move together by chance.
const CROWD: u32 = 20;
/// Lastmods that are about one value lie within so many seconds.
const ABOUT_ONE_S: i64 = 3_600;
/// A lastmod that is the time of the read lies within so many seconds of it.
const ABOUT_NOW_S: i64 = 120;
/// A small source is caught at this many stamps in a row.
const SMALL_STREAK: u8 = 3;
/// What a read leaves of the shares of earlier ones: it remembers about 8.
const FADING: f64 = 0.875;
/// Reads without any newer lastmod after which they are called frozen.
const FROZEN_READS: u16 = 30;

/// What one read of a source says of its lastmods.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// When the document was read.
    pub at: Timestamp,
    /// Entries listed.
    pub entries: u32,
    /// Those with a usable lastmod.
    pub dated: u32,
    /// Those whose lastmod is a date without a time.
    pub date_only: u32,
    /// Those whose lastmod lies more than a day ahead: no lastmod.
    pub future: u32,
    /// Entries that had a lastmod at the read before.
    pub known: u32,
    /// Of these, those whose lastmod went backwards.
    pub regressed: u32,
    /// Of these, the new lastmods of those whose lastmod is newer than at the
    /// read before, as Unix seconds, in any order.
    pub moved: &'a [i64],
    /// Lastmods of entries that had none at the read before, likewise.
    pub came: &'a [i64],
}

/// Seconds of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Span {
    /// The first.
    pub from_s: i64,
    /// The last.
    pub to_s: i64,
}

impl Span {
    /// Is that second one of them?
    pub fn contains(&self, second: i64) -> bool {
        (self.from_s..=self.to_s).contains(&second)
    }
}

/// As what the newer lastmods of one read count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newer {
    /// Those that moved since the read before.
    pub moves: Signal,
    /// Where stamps lie, if the read shows any: what its source had not dated before,
    /// and others had, is one if it lies there.
    pub stamped: Option<Span>,
}

impl Newer {
    const HONEST: Self = Self { moves: Signal::Lastmod, stamped: None };

    /// As what most of them count.
    pub fn mostly(&self) -> Signal {
        if self.stamped.is_some() { Signal::Stamp } else { self.moves }
    }
}

/// How a source writes lastmods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// As one would hope, for all that documents can tell.
    Plain,
    /// Hardly an entry has one.
    Missing,
    /// They lie in the future.
    Future,
    /// Every read finds them at the time of the read.
    AlwaysNow,
    /// All are set to one value whenever the document is generated.
    Stamped,
    /// They go backwards.
    Backwards,
    /// They go back and forth.
    Alternating,
    /// None has moved for many reads.
    Frozen,
    /// They are dates without times: a second edit of a day does not show.
    DateOnly,
}

impl Habit {
    /// The word used in tables, logs and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Missing => "missing",
            Self::Future => "future",
            Self::AlwaysNow => "always-now",
            Self::Stamped => "stamped",
            Self::Backwards => "backwards",
            Self::Alternating => "alternating",
            Self::Frozen => "frozen",
            Self::DateOnly => "date-only",
        }
    }
}

/// What was seen of a source's lastmods over its reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Habits {
    /// Reads with a stamp, in a row; reads that moved nothing do not count.
    streak: u8,
    /// Were those stamps at the time of the read?
    now: bool,
    /// Reads in a row that moved nothing forward.
    still: u16,
    /// Shares of entries, fading over reads, in 255ths: without lastmod,
    /// future, date-only.
    missing: u8,
    future: u8,
    date_only: u8,
    /// Shares of reads that went backwards, and that went forward.
    back: u8,
    forth: u8,
    /// Reads so far.
    reads: u16,
}

/// Bytes of packed habits.
pub const PACKED: usize = 11;

impl Habits {
    /// Takes in one read; answers as what its newer lastmods count.
    pub fn read(&mut self, reading: &Reading<'_>) -> Newer {
        let entries = f64::from(reading.entries.max(1));
        let undated = f64::from(reading.entries.saturating_sub(reading.dated));
        fade(&mut self.missing, undated / entries, self.reads);
        fade(&mut self.future, f64::from(reading.future) / entries, self.reads);
        fade(&mut self.date_only, f64::from(reading.date_only) / entries, self.reads);
        let back = f64::from(u8::from(reading.regressed > 0));
        fade(&mut self.back, back, self.reads);
        fade(&mut self.forth, f64::from(u8::from(!reading.moved.is_empty())), self.reads);
        self.reads = self.reads.saturating_add(1);
        let is_still = reading.moved.is_empty();
        self.still = if is_still { self.still.saturating_add(1) } else { 0 };
        let Some(stamp) = stamp(reading) else {
            if !is_still {
                self.streak = 0;
            }
            return Newer::HONEST;
        };
        self.streak = self.streak.saturating_add(1);
        self.now = stamp.now;
        let caught = stamp.of >= CROWD || self.streak >= SMALL_STREAK;
        if !caught {
            return Newer::HONEST;
        }
        let moves = if is_still { Signal::Lastmod } else { Signal::Stamp };
        Newer { moves, stamped: Some(stamp.span) }
    }

    /// The source was found as it was, without a read; says whether that is news.
    /// What is frozen already can be no more so.
    pub fn rest(&mut self) -> bool {
        let is_news = self.still < FROZEN_READS;
        self.still += u16::from(is_news);
        is_news
    }

    /// What to call it.
    pub fn habit(&self) -> Habit {
        let most = |share: u8| share >= 230;
        if most(self.missing) {
            return if self.future >= 128 { Habit::Future } else { Habit::Missing };
        }
        match (self.back >= 64, self.forth >= 64) {
            (true, true) => return Habit::Alternating,
            (true, false) => return Habit::Backwards,
            _ => {}
        }
        if self.streak >= SMALL_STREAK {
            return if self.now { Habit::AlwaysNow } else { Habit::Stamped };
        }
        if self.still >= FROZEN_READS {
            return Habit::Frozen;
        }
        if most(self.date_only) { Habit::DateOnly } else { Habit::Plain }
    }

    /// The habits as bytes, to be kept with the source.
    pub fn pack(&self) -> [u8; PACKED] {
        let [still_low, still_high] = self.still.to_le_bytes();
        let [reads_low, reads_high] = self.reads.to_le_bytes();
        let shares = [self.missing, self.future, self.date_only, self.back, self.forth];
        let [missing, future, date_only, back, forth] = shares;
        let now = u8::from(self.now);
        [
            self.streak,
            now,
            still_low,
            still_high,
            missing,
            future,
            date_only,
            back,
            forth,
            reads_low,
            reads_high,
        ]
    }

    /// What [`Self::pack`] wrote; `None` when these bytes are none of its.
    pub fn unpack(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PACKED] = bytes.try_into().ok()?;
        let [
            streak,
            now,
            still_low,
            still_high,
            missing,
            future,
            date_only,
            back,
            forth,
            reads @ ..,
        ] = *bytes;
        let still = u16::from_le_bytes([still_low, still_high]);
        let reads = u16::from_le_bytes(reads);
        let now = now != 0;
        Some(Self { streak, now, still, missing, future, date_only, back, forth, reads })
    }
}

/// Moves a share, kept in 255ths, towards what a read shows; the first read
/// sets it.
fn fade(share: &mut u8, shown: f64, reads: u16) {
    let target = 255.0 * shown.clamp(0.0, 1.0);
    let kept = f64::from(*share);
    let next = if reads == 0 { target } else { kept * FADING + target * (1.0 - FADING) };
    // Towards the target, or rounding would stop it on the way.
    let next = if target > kept { next.ceil() } else { next.floor() };
    // Within 0 and 255.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let next = next as u8;
    *share = next;
}

/// Nearly all lastmods of a source, together.
struct Stamp {
    /// Were they the time of the read?
    now: bool,
    /// Entries that they were nearly all of.
    of: u32,
    span: Span,
}

/// Did nearly all entries move at once, to about one value or to the time of the read,
/// or did nearly all, with those that came, do so?
fn stamp(reading: &Reading<'_>) -> Option<Stamp> {
    let at = reading.at.as_second();
    let mut values = reading.moved.to_vec();
    values.sort_unstable();
    let known = crowd(&values, reading.known, at);
    if reading.came.is_empty() || known.as_ref().is_some_and(|stamp| stamp.of >= CROWD) {
        return known;
    }
    values.extend(reading.came);
    values.sort_unstable();
    let came = u32::try_from(reading.came.len()).unwrap_or(u32::MAX);
    crowd(&values, reading.known.saturating_add(came), at).or(known)
}

/// Are nearly all of so many lastmods among these, which ascend, and there together?
fn crowd(values: &[i64], of: u32, at: i64) -> Option<Stamp> {
    // At least one.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let crowd = (f64::from(of.max(1)) * NEARLY_ALL).ceil() as usize;
    if values.len() < crowd {
        return None;
    }
    // Within an hour of all of them, since the last tenth was written with them.
    let stamp_of = |now: bool, together: &[i64]| {
        let (first, last) = (together.first()?, together.last()?);
        let (from_s, to_s) = (last.saturating_sub(ABOUT_ONE_S), first.saturating_add(ABOUT_ONE_S));
        Some(Stamp { now, of, span: Span { from_s, to_s } })
    };
    let first = values.partition_point(|value| *value < at - ABOUT_NOW_S);
    let last = values.partition_point(|value| *value <= at + ABOUT_NOW_S);
    let now = values.get(first..last).unwrap_or_default();
    if now.len() >= crowd {
        return stamp_of(true, now);
    }
    // A single entry is about one value with itself.
    let is_one = |values: &&[i64]| values[values.len() - 1] - values[0] <= ABOUT_ONE_S;
    let mut windows = values.windows(crowd);
    stamp_of(false, windows.find(is_one).filter(|_| crowd >= 2)?)
}

#[cfg(test)]
mod tests;
