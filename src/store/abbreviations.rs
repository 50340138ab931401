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
    /// By kind and first character: which of the next tables; the first is empty.
    firsts: Vec<[u16; 256]>,
    /// By second character: the first of the words that begin so.
    seconds: Vec<[u16; 256]>,
    /// Words that begin alike are linked; the first is none.
    starts: Vec<Start>,
}

/// What a code stands for.
#[derive(Debug, Clone, Copy, Default)]
struct Word {
    text: [u8; LONGEST],
    /// No word at all has none.
    len: u8,
    /// Kind of its last character.
    last: u8,
}

/// A word, as it is looked for.
#[derive(Debug, Clone, Copy, Default)]
struct Start {
    /// Its bytes, the first one lowest, and which bits of a text these take.
    text: u64,
    mask: u64,
    len: u8,
    code: u8,
    /// Another one that begins alike, or 0.
    next: u16,
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
            firsts: vec![[0; 256]; lines.len()],
            seconds: vec![[0; 256]],
            starts: vec![Start::default()],
        };
        for (kind, line) in lines.iter().enumerate() {
            for (code, word) in listed(line) {
                tables.link(kind, code, word.as_bytes());
            }
        }
        tables
    }

    /// Makes a word one that is found by its first two characters.
    fn link(&mut self, kind: usize, code: u8, word: &[u8]) -> Option<()> {
        let &[first, second, ..] = word else { return None };
        let row = self.firsts.get_mut(kind)?.get_mut(usize::from(first))?;
        if *row == 0 {
            *row = u16::try_from(self.seconds.len()).ok()?;
            self.seconds.push([0; 256]);
        }
        let head = self.seconds.get_mut(usize::from(*row))?.get_mut(usize::from(second))?;
        let len = u8::try_from(word.len()).ok()?;
        let mask = u64::MAX.checked_shr(u64::BITS - 8 * u32::from(len))?;
        let text = word.iter().rev().fold(0, |text, byte| text << 8 | u64::from(*byte));
        self.starts.push(Start { text, mask, len, code, next: *head });
        *head = u16::try_from(self.starts.len() - 1).ok()?;
        Some(())
    }

    fn kind(&self, character: Option<u8>) -> usize {
        let kind = character.and_then(|byte| self.kinds.get(usize::from(byte)));
        usize::from(kind.copied().unwrap_or(BEGINNING))
    }

    /// The first word, or none, of those that may stand behind a character and
    /// begin as a text does, the lowest byte of which is its first.
    fn first(&self, before: Option<u8>, ahead: u64) -> Option<&Start> {
        let [first, second, ..] = ahead.to_le_bytes();
        let row = self.firsts.get(self.kind(before))?.get(usize::from(first))?;
        self.start(*self.seconds.get(usize::from(*row))?.get(usize::from(second))?)
    }

    fn start(&self, at: u16) -> Option<&Start> {
        if at == 0 { None } else { self.starts.get(usize::from(at)) }
    }
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
        if !text.iter().all(|byte| PLAIN.contains(byte)) {
            return false;
        }
        let tables = &*TABLES;
        let steps = &mut self.steps;
        steps.clear();
        // From the end: by then it is known what the rest costs. Which words may
        // stand at a place does not depend on the steps that lead there.
        let mut ahead = 0;
        let before = text.iter().rev().skip(1).copied().map(Some).chain([None]);
        for (&byte, before) in text.iter().rev().zip(before) {
            ahead = ahead << 8 | u64::from(byte);
            let cost = |len: u8| {
                let past = steps.len().checked_sub(usize::from(len));
                past.and_then(|past| steps.get(past)).map_or(0, |step| step.cost) + 1
            };
            let mut best = Step { cost: cost(1), len: 1, code: byte };
            let mut start = tables.first(before, ahead);
            while let Some(word) = start {
                if ahead & word.mask == word.text && cost(word.len) < best.cost {
                    best = Step { cost: cost(word.len), len: word.len, code: word.code };
                }
                start = tables.start(word.next);
            }
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
    let mut kind = usize::from(BEGINNING);
    for &byte in short {
        if PLAIN.contains(&byte) {
            text.push(byte);
            kind = tables.kind(Some(byte));
            continue;
        }
        let word = tables.words.get(kind)?.get(usize::from(byte))?;
        text.extend_from_slice(word.text.get(..usize::from(word.len))?);
        kind = usize::from(word.last);
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
