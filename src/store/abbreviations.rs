//! The path of a URL in about half its bytes.
//!
//! In a file of ours a path is kept abbreviated: a byte of visible ASCII is
//! itself, any other stands for a word of two to eight characters. Which word
//! that is, the character before it decides as well (`words.txt`: a line for
//! each kind of character, its words in the order of their codes). That is
//! dictionary compression as by FSST (Boncz, Neumann, Leis: "FSST: Fast Random
//! Access String Compression", VLDB 2020), with a table that is fixed and with
//! one character of context. The words were chosen by what they save in paths of
//! published sitemaps, feeds and manuals, and in such as the common publishing
//! systems make of titles in several languages, with common names of sections.
//!
//! Keeps: a path comes back as it was. `words.txt` never changes, since files
//! are written with it; each file has it as a table too, by which `url_view`
//! spells paths out for people.
//!
//! Leaves to others: a server's rows, which have the text itself.

use std::borrow::Cow;
use std::sync::LazyLock;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use super::sql::Connection;

/// A line for each kind of character that words stand behind: first that
/// character (`^` the beginning of the text, `0` a digit, `A` a capital letter, `~`
/// what has no line), then the words.
const WORDS: &str = include_str!("abbreviations/words.txt");

/// Longest word in bytes: as many as a number of 64 bits has.
const LONGEST: usize = 8;

/// First byte that is itself, and the last.
const PLAIN: std::ops::RangeInclusive<u8> = b'!'..=b'~';

/// The words, as both directions need them.
static TABLES: LazyLock<Tables> = LazyLock::new(Tables::new);

struct Tables {
    /// Kind of each character.
    kinds: [u8; 256],
    /// By kind and code.
    words: Vec<[Word; 256]>,
    /// By kind and two characters: what stands for just these.
    pairs: Vec<[[u8; VISIBLE]; VISIBLE]>,
    /// By kind and three characters, hashed: the first of the longer words that begin so.
    heads: Vec<u16>,
    /// Those of one hash follow each other; the first of all is none.
    longer: Vec<Longer>,
}

/// Characters from a space on, which is none of a path, to the last one.
const VISIBLE: usize = 0x7f - 0x20;
/// Of a pair that nothing stands for: no code is a character.
const NONE: u8 = 0x20 + 1;
/// A few times as many as there are words, so that most places that begin none are told
/// by a look here. Of 16 bits they fit the nearest cache.
const HEADS: usize = 1 << 14;

/// What a code stands for.
#[derive(Debug, Clone, Copy, Default)]
struct Word {
    text: [u8; LONGEST],
    /// No word at all has none.
    len: u8,
    /// Kind of its last character.
    last: u8,
}

/// A word of three characters or more, as it is looked for.
#[derive(Debug, Clone, Copy, Default)]
struct Longer {
    /// Its bytes, the first one lowest.
    text: u64,
    len: u8,
    code: u8,
    /// What it may stand behind.
    kind: u8,
    /// Has the next one the same hash?
    more: bool,
}

impl Longer {
    fn new(kind: u8, code: u8, word: &[u8]) -> Option<Self> {
        let text = word.iter().rev().fold(0, |text, byte| text << 8 | u64::from(*byte));
        Some(Self { text, len: u8::try_from(word.len()).ok()?, code, kind, more: false })
    }

    /// Does a text begin with it, the lowest byte of which is its first?
    fn begins(&self, kind: u8, ahead: u64) -> bool {
        let behind = u64::BITS.saturating_sub(8 * u32::from(self.len));
        kind == self.kind && ahead.checked_shl(behind) == self.text.checked_shl(behind)
    }

    /// Where those are to be looked for that stand behind a kind and begin as a text does.
    fn head(kind: u8, ahead: u64) -> usize {
        let [first, second, third, ..] = ahead.to_le_bytes();
        let key = u32::from_le_bytes([first, second, third, kind]);
        // By the golden ratio; the high bits are the good ones.
        (key.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HEADS.ilog2())) as usize
    }
}

/// From a place in a text: bytes that the rest of it takes, and the one that
/// stands for its first characters, so many.
#[derive(Debug, Clone, Copy)]
struct Step {
    cost: u32,
    len: u8,
    code: u8,
}

/// The kind of a text's beginning: the first line.
const BEGINNING: u8 = 0;

impl Tables {
    fn new() -> Self {
        let lines: Vec<&str> = WORDS.lines().collect();
        let kind = |name: u8| {
            let at = lines.iter().position(|line| line.as_bytes().first() == Some(&name));
            at.and_then(|at| u8::try_from(at).ok())
        };
        let other = kind(b'~').unwrap_or(BEGINNING);
        let kinds = std::array::from_fn(|byte| match u8::try_from(byte).unwrap_or(0) {
            b'0'..=b'9' => kind(b'0').unwrap_or(other),
            b'A'..=b'Z' => kind(b'A').unwrap_or(other),
            b'^' | b'~' => other,
            byte => kind(byte).unwrap_or(other),
        });
        let mut tables = Self {
            kinds,
            words: lines.iter().map(|line| words_of(line, &kinds)).collect(),
            pairs: vec![[[NONE; VISIBLE]; VISIBLE]; lines.len()],
            heads: vec![0; HEADS],
            longer: vec![Longer::default()],
        };
        let mut longer = Vec::new();
        for (kind, line) in (0..).zip(&lines) {
            for (code, word) in listed(line) {
                if let [first, second] = *word.as_bytes() {
                    tables.pair(kind, first, second).into_iter().for_each(|pair| *pair = code);
                } else {
                    longer.extend(Longer::new(kind, code, word.as_bytes()));
                }
            }
        }
        longer.sort_by_key(|word| Longer::head(word.kind, word.text));
        tables.link(&longer);
        tables
    }

    fn pair(&mut self, kind: u8, first: u8, second: u8) -> Option<&mut u8> {
        let of_first = self.pairs.get_mut(usize::from(kind))?.get_mut(visible(first))?;
        of_first.get_mut(visible(second))
    }

    /// Takes words in the order of their heads.
    fn link(&mut self, words: &[Longer]) {
        let head = |word: &Longer| Longer::head(word.kind, word.text);
        for alike in words.chunk_by(|a, b| head(a) == head(b)) {
            let place = alike.first().and_then(|word| self.heads.get_mut(head(word)));
            if let (Some(place), Ok(at)) = (place, u16::try_from(self.longer.len())) {
                *place = at;
            }
            self.longer.extend(alike.iter().map(|word| Longer { more: true, ..*word }));
            self.longer.iter_mut().rev().take(1).for_each(|last| last.more = false);
        }
    }

    fn kind(&self, character: u8) -> u8 {
        self.kinds.get(usize::from(character)).copied().unwrap_or(BEGINNING)
    }

    /// What stands for the first two characters of a text, the lowest byte of which is
    /// its first, if anything does.
    fn code_of_two(&self, kind: u8, ahead: u64) -> u8 {
        let [first, second, ..] = ahead.to_le_bytes();
        let of_kind = self.pairs.get(usize::from(kind));
        let of_first = of_kind.and_then(|rows| rows.get(visible(first)));
        of_first.and_then(|row| row.get(visible(second))).copied().unwrap_or(NONE)
    }

    /// Hands on each longer word that may stand behind a kind and begins a text.
    fn each_longer(&self, kind: u8, ahead: u64, mut take: impl FnMut(&Longer)) {
        let head = self.heads.get(Longer::head(kind, ahead));
        let mut at = head.map_or(0, |at| usize::from(*at));
        while at != 0
            && let Some(word) = self.longer.get(at)
        {
            if word.begins(kind, ahead) {
                take(word);
            }
            at = if word.more { at + 1 } else { 0 };
        }
    }
}

/// The number of a character of a path; of other bytes none.
fn visible(byte: u8) -> usize {
    usize::from(byte.wrapping_sub(0x20))
}

/// Bytes that are no characters of a path, in order.
fn codes() -> impl Iterator<Item = u8> {
    (0..=u8::MAX).filter(|byte| !PLAIN.contains(byte))
}

/// The words of a line.
fn listed(line: &str) -> impl Iterator<Item = (u8, &str)> {
    codes().zip(line.split(' ').skip(1))
}

fn words_of(line: &str, kinds: &[u8; 256]) -> [Word; 256] {
    let mut words = [Word::default(); 256];
    for (code, word) in listed(line) {
        let Some(slot) = words.get_mut(usize::from(code)) else { continue };
        for (to, from) in slot.text.iter_mut().zip(word.bytes()) {
            *to = from;
            slot.len += 1;
            slot.last = kinds.get(usize::from(from)).copied().unwrap_or_default();
        }
    }
    words
}

/// Abbreviates one path after the other.
#[derive(Debug, Default)]
struct Abbreviator {
    /// By place, the last one first.
    steps: Vec<Step>,
}

impl Abbreviator {
    /// Writes a path in as few bytes as the words allow. Says whether it did, which
    /// it does not where that is not shorter, or where the path has other
    /// characters than those of one.
    fn write(&mut self, path: &str, short: &mut Vec<u8>) -> bool {
        let text = path.as_bytes();
        if !text.iter().fold(true, |all, byte| all & PLAIN.contains(byte)) {
            return false;
        }
        let tables = &*TABLES;
        let steps = &mut self.steps;
        steps.clear();
        // From the end: by then it is known what the rest costs. Which words may
        // stand at a place does not depend on the steps that lead there.
        let mut ahead = 0;
        // What is left behind one character, and behind two.
        let (mut one, mut two) = (0, 0);
        let mut rest = text;
        while let Some((&byte, before)) = rest.split_last() {
            rest = before;
            ahead = ahead << 8 | u64::from(byte);
            let kind = before.last().map_or(BEGINNING, |byte| tables.kind(*byte));
            let mut best = Step { cost: one, len: 1, code: byte };
            let code = tables.code_of_two(kind, ahead);
            if code != NONE && two < best.cost {
                best = Step { cost: two, len: 2, code };
            }
            tables.each_longer(kind, ahead, |word| {
                let past = steps.len().checked_sub(usize::from(word.len));
                let cost = past.and_then(|past| steps.get(past)).map_or(0, |step| step.cost);
                if cost < best.cost {
                    best = Step { cost, len: word.len, code: word.code };
                }
            });
            best.cost += 1;
            (one, two) = (best.cost, one);
            steps.push(best);
        }
        let cost = steps.last().map_or(0, |step| step.cost) as usize;
        if cost >= text.len() {
            return false;
        }
        let mut left = steps.as_slice();
        while let Some(step) = left.last() {
            short.push(step.code);
            left = left.get(..left.len().saturating_sub(usize::from(step.len))).unwrap_or_default();
        }
        true
    }
}

/// The path that was abbreviated; nothing where a byte has no word.
fn expand(short: &[u8], room: String) -> Option<String> {
    let tables = &*TABLES;
    let mut text = room.into_bytes();
    text.clear();
    text.reserve(short.len() * 3);
    let mut kind = BEGINNING;
    for &byte in short {
        if PLAIN.contains(&byte) {
            text.push(byte);
            kind = tables.kind(byte);
            continue;
        }
        let word = tables.words.get(usize::from(kind))?.get(usize::from(byte))?;
        text.extend_from_slice(word.text.get(..usize::from(word.len))?);
        kind = word.last;
        if word.len == 0 {
            return None;
        }
    }
    String::from_utf8(text).ok()
}

/// A path on its way into a row.
#[derive(Debug)]
pub(super) enum Kept<'p> {
    Text(&'p str),
    Short(Cow<'p, [u8]>),
}

impl<'p> Kept<'p> {
    /// For the rows of that engine.
    pub(super) fn by(conn: &Connection, path: &'p str) -> Self {
        let mut short = Vec::new();
        if conn.embedded().is_some() && Abbreviator::default().write(path, &mut short) {
            return Self::Short(short.into());
        }
        Self::Text(path)
    }
}

impl ToSql for Kept<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Text(path) => ToSqlOutput::from(*path),
            Self::Short(short) => ToSqlOutput::from(&**short),
        })
    }
}

/// Paths of a whole chunk, abbreviated by whoever brings it, so that the writer need
/// not.
#[derive(Debug, Default)]
pub(super) struct Shortened {
    abbreviator: Abbreviator,
    /// One behind the other, and where each ends. One that is text has no bytes.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Shortened {
    pub(super) fn push(&mut self, path: &str) {
        self.abbreviator.write(path, &mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// That path, the number of which says how many were pushed before it; none were
    /// where it is for a server.
    pub(super) fn kept<'p>(&'p self, number: usize, path: &'p str) -> Kept<'p> {
        let start = number.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        let range = start.zip(self.ends.get(number).copied());
        let short = range.and_then(|(start, end)| self.bytes.get(start..end)).unwrap_or_default();
        if short.is_empty() { Kept::Text(path) } else { Kept::Short(short.into()) }
    }
}

/// A path as it was, out of a row.
#[derive(Debug)]
pub(super) struct PathText(pub(super) String);

impl FromSql for PathText {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::in_room(value, String::new())
    }
}

impl PathText {
    /// The same in memory that another text had.
    pub(super) fn in_room(value: ValueRef<'_>, mut room: String) -> FromSqlResult<Self> {
        let text = match value {
            ValueRef::Blob(short) => expand(short, room).ok_or_else(|| {
                FromSqlError::Other("a path that was abbreviated by other words".into())
            })?,
            text => {
                room.clear();
                room.push_str(text.as_str()?);
                room
            }
        };
        Ok(Self(text))
    }
}

/// Writes the words into a new file, for its view.
pub(super) fn write_words(conn: &rusqlite::Connection) -> rusqlite::Result<()> {
    let mut insert =
        conn.prepare("INSERT INTO abbreviations (after, code, word) VALUES (?1, ?2, ?3)")?;
    for line in WORDS.lines() {
        let after = line.get(..1).unwrap_or_default();
        for (code, word) in listed(line) {
            insert.execute(rusqlite::params![after, [code].as_slice(), word])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
