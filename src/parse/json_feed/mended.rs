//! The bytes of a JSON document with what no reader of JSON takes mended.
//!
//! Half of a surrogate pair (a text cut by somebody who counts in UTF-16), a
//! control character that was not escaped and a comma behind the last value cost one
//! character, not all that comes behind; of an escape that JSON has not (`\'`) only
//! the backslash goes. Places are those of what was read, not of what is given.

use std::io::{self, Read};

use super::place::{Progress, Spot};
use crate::parse::issue::{IssueCode, Issues};

/// Bytes read at a time.
const BLOCK: usize = 8 * 1024;
/// Bytes of two escapes, `\ud83d\ude00`.
const PAIR: usize = 12;
/// Bytes behind a comma in which the end of its list or object is looked for.
const AHEAD: usize = 1024;

/// What was mended of a document.
#[derive(Debug, Default)]
pub(super) struct Defects {
    /// Characters that no text may have.
    characters: Defect,
    /// Commas and escapes that are none of JSON.
    syntax: Defect,
}

/// How often a defect occurs, and the first place and text of it.
#[derive(Debug, Default)]
struct Defect {
    count: u64,
    first: Spot,
    sample: String,
}

impl Defects {
    /// Enters them, if there are any.
    pub(super) fn report(&self, issues: &mut Issues) {
        let all = [
            (IssueCode::IllegalCharacter, &self.characters),
            (IssueCode::ParsingError, &self.syntax),
        ];
        for (code, defect) in all.into_iter().filter(|(_, defect)| defect.count > 0) {
            let Spot { line, offset } = defect.first;
            issues.push(code, defect.count, line, offset, &defect.sample);
        }
    }
}

impl Defect {
    fn note(&mut self, spot: Spot, sample: &str) {
        if self.count == 0 {
            self.first = spot;
            sample.clone_into(&mut self.sample);
        }
        self.count += 1;
    }
}

/// A reader that counts what is taken of it, and mends it. serde takes its bytes
/// one by one, so it gives one at a time.
pub(super) struct Mended<'d, R> {
    inner: R,
    progress: Progress,
    defects: &'d mut Defects,
    held: Vec<u8>,
    /// What of `held` was given.
    given: usize,
    at_end: bool,
    in_string: bool,
    /// Bytes to give as they are: the rest of an escape that was looked at.
    settled: usize,
}

impl<'d, R: Read> Mended<'d, R> {
    pub(super) fn new(inner: R, progress: Progress, defects: &'d mut Defects) -> Self {
        Self {
            inner,
            progress,
            defects,
            held: Vec::with_capacity(BLOCK + PAIR),
            given: 0,
            at_end: false,
            in_string: false,
            settled: 0,
        }
    }

    /// Holds so many bytes that were not given yet, or all that there are.
    fn hold(&mut self, want: usize) -> io::Result<()> {
        while self.held.len() - self.given < want && !self.at_end {
            self.held.drain(..self.given);
            self.given = 0;
            let old = self.held.len();
            self.held.resize(old + BLOCK, 0);
            let read = self.inner.read(self.held.get_mut(old..).unwrap_or_default());
            self.held.truncate(old + read.as_ref().map_or(0, |read| *read));
            self.at_end = read? == 0;
        }
        Ok(())
    }

    /// The escape at hand: how many bytes of it need no further look, none if it is no
    /// escape.
    fn escape(&mut self) -> io::Result<usize> {
        self.hold(PAIR)?;
        let ahead = self.held.get_mut(self.given..).unwrap_or_default();
        let is_none = match ahead.get(1) {
            Some(b'u') => ahead.len() >= PAIR / 2 && unit(ahead, 0).is_none(),
            Some(escaped) => !br#""\/bfnrt"#.contains(escaped),
            None => false,
        };
        if is_none {
            return Ok(0);
        }
        Ok(match (unit(ahead, 0), unit(ahead, PAIR / 2)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => PAIR,
            (Some(0xd800..=0xdfff), _) => {
                let (escape, _) = ahead.split_at_mut(PAIR / 2);
                let sample = String::from_utf8_lossy(escape).into_owned();
                escape.copy_from_slice(b"\\ufffd");
                self.defects.characters.note(self.progress.spot(), &sample);
                PAIR / 2
            }
            _ => 2,
        })
    }

    /// Looks at an escape, if one is at hand: as [`Self::escape`]. The backslash of one
    /// that is none is passed over: what stands behind it is meant.
    fn settle_escape(&mut self) -> io::Result<usize> {
        let is_escape = self.in_string && self.settled == 0;
        if !is_escape || self.held.get(self.given) != Some(&b'\\') {
            return Ok(0);
        }
        let bytes = self.escape()?;
        if bytes == 0 {
            self.defects.syntax.note(self.progress.spot(), "\\");
            self.given += 1;
            self.progress.take(b'\\');
        }
        Ok(bytes)
    }

    /// Does the list or object of the comma at hand end behind it?
    fn is_last_comma(&mut self) -> io::Result<bool> {
        self.hold(AHEAD)?;
        let ahead = self.held.get(self.given + 1..).unwrap_or_default();
        let next = ahead.iter().take(AHEAD).find(|b| !b.is_ascii_whitespace());
        Ok(matches!(next, Some(b'}' | b']')))
    }
}

impl<R: Read> Read for Mended<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(slot) = buf.first_mut() else { return Ok(0) };
        self.hold(1)?;
        let escape = self.settle_escape()?;
        let Some(byte) = self.held.get(self.given).copied() else { return Ok(0) };
        *slot = byte;
        if self.settled > 0 {
            self.settled -= 1;
        } else if byte == b'"' {
            self.in_string = !self.in_string;
        } else if escape > 0 {
            self.settled = escape - 1;
        } else if self.in_string && byte < b' ' {
            self.defects.characters.note(self.progress.spot(), "");
            *slot = b' ';
        } else if !self.in_string && byte == b',' && self.is_last_comma()? {
            self.defects.syntax.note(self.progress.spot(), ",");
            *slot = b' ';
        }
        self.given += 1;
        self.progress.take(byte);
        Ok(1)
    }
}

/// The code unit of the escape that stands at `at`, if one does.
fn unit(text: &[u8], at: usize) -> Option<u32> {
    let digits = text.get(at..at + PAIR / 2)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |all, byte| Some(all * 16 + char::from(*byte).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its text in pieces of so many bytes.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let len = self.0.len().min(self.1).min(buf.len());
            let (piece, rest) = self.0.split_at(len);
            buf[..len].copy_from_slice(piece);
            self.0 = rest;
            Ok(len)
        }
    }

    #[test]
    fn what_json_does_not_allow_is_mended_where_it_is_known_what_was_meant() {
        let table = [
            (r#""it\'s \é \n""#, r#""it's é \n""#, 2),
            (r#""\u00zz \u1""#, r#""u00zz \u1""#, 1),
            ("\"a\\\nb\"", "\"a b\"", 2),
            (r#"{"a":[1,2,],"b":"x,]", }"#, r#"{"a":[1,2 ],"b":"x,]"  }"#, 2),
            ("[1, \n\t]", "[1  \n\t]", 1),
            ("[1,,2]", "[1,,2]", 0),
            (r#""cut \ud83d""#, r#""cut \ufffd""#, 1),
            (r#""\uDE00 cut""#, r#""\ufffd cut""#, 1),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#, 1),
            (r#""\ud83d\u0041""#, r#""\ufffd\u0041""#, 1),
            (r#""\ud83d\n""#, r#""\ufffd\n""#, 1),
            (r#""\ud83d"#, r#""\ufffd"#, 1),
            (r#""\uD83D\uDE00 é \u00e9""#, r#""\uD83D\uDE00 é \u00e9""#, 0),
            (r#""\\ud83d" \ud83d"#, r#""\\ud83d" \ud83d"#, 0),
            (r#""\\\ud83d\"\ud83d""#, r#""\\\ufffd\"\ufffd""#, 2),
            (r#""\ud8"#, r#""\ud8"#, 0),
            ("\"a\tb\nc\\\"\r\"\t\n", "\"a b c\\\" \"\t\n", 3),
        ];
        for (text, want, count) in table {
            for piece in [1, 2, 3, 5, 7, 100] {
                let (mut defects, mut out) = (Defects::default(), String::new());
                let progress = Progress::new(1, 0);
                let pieces = Pieces(text.as_bytes(), piece);
                let mut mended = Mended::new(pieces, progress.clone(), &mut defects);
                mended.read_to_string(&mut out).expect("text");
                let found = defects.characters.count + defects.syntax.count;
                assert_eq!((out.as_str(), found), (want, count), "{text} by {piece}");
                let lines = text.matches('\n').count() as u64 + 1;
                let end = Spot { line: lines, offset: text.len() as u64 };
                assert_eq!(progress.spot(), end, "{text}");
            }
        }
    }
}
