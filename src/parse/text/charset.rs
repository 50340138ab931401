//! Which encoding a document is in, and decoding it piece by piece.
//!
//! Pure: bytes in, text out. A decoder keeps what it cannot yet decode in the
//! raw buffer, so a character may straddle two reads.

use std::ops::Range;

use encoding_rs::{
    CoderResult, Decoder, Encoding, ISO_2022_JP, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252,
};

/// Bytes from the first that is not ASCII on without which nothing is decided: a few
/// letters of a legacy encoding may look like UTF-8, or like its start.
const EVIDENCE: usize = 4 * 1024;

/// What servers and libraries write where nobody has told them.
const DEFAULTS: [&str; 4] = ["iso-8859-1", "iso8859-1", "latin1", "us-ascii"];
/// How far a declaration is looked for.
const DECLARATION_WITHIN: usize = 1024;

/// Decides the encoding, at the first bytes if they tell, else at the first
/// bytes that are not ASCII.
pub(super) struct Start<'a> {
    content_type: Option<&'a str>,
    declared: Option<&'static Encoding>,
    first: bool,
    open: bool,
}

impl<'a> Start<'a> {
    pub(super) fn new(content_type: Option<&'a str>) -> Self {
        Self { content_type, declared: None, first: true, open: true }
    }

    /// Is the encoding still open, because all so far was ASCII?
    pub(super) fn undecided(&self) -> bool {
        self.open
    }

    /// Looks at the next raw bytes. Also says which of them are to be decoded now:
    /// not a byte order mark, and not what must be looked at with more.
    pub(super) fn decide(&mut self, raw: &[u8], ended: bool) -> (Decode, Range<usize>) {
        let all = 0..raw.len();
        if self.first {
            self.first = false;
            if let Some((decode, mark)) = by_shape(raw) {
                self.open = false;
                return (decode, mark..raw.len());
            }
            self.declared = declaration(raw);
            if self.label().or(self.declared) == Some(ISO_2022_JP) {
                self.open = false;
                return (Decode::labelled(ISO_2022_JP), all);
            }
        }
        if raw.is_ascii() {
            return (Decode::utf8(), all);
        }
        let odd = raw.iter().position(|b| !b.is_ascii()).unwrap_or_default();
        let label = self.label();
        if label.is_some() && !ended && raw.len() - odd < EVIDENCE {
            return (Decode::utf8(), 0..odd);
        }
        self.open = false;
        let decode = match label {
            Some(encoding) if !mostly_utf8(raw, ended) => Decode::labelled(encoding),
            _ => Decode::utf8(),
        };
        (decode, all)
    }
}

impl Start<'_> {
    /// The encoding by what is told of it. The header comes first (RFC 7303 section 3),
    /// but for what servers write by themselves where they know nothing of the document.
    fn label(&self) -> Option<&'static Encoding> {
        let told = |label: Option<&'static Encoding>| label.filter(|e| says_something(e));
        let (http, declared) = (self.content_type.and_then(charset_param), told(self.declared));
        let is_default =
            http.is_some_and(|name| DEFAULTS.iter().any(|d| d.eq_ignore_ascii_case(name)));
        let http = told(http.and_then(label));
        if is_default { declared.or(http) } else { http.or(declared) }
    }
}

/// Labels that tell nothing about bytes that are not valid UTF-8.
fn says_something(encoding: &'static Encoding) -> bool {
    encoding != UTF_8
        && encoding != UTF_16LE
        && encoding != UTF_16BE
        && encoding != encoding_rs::REPLACEMENT
        && encoding != encoding_rs::X_USER_DEFINED
}

/// Byte order marks, and UTF-16 and UTF-32 by their zeros.
fn by_shape(raw: &[u8]) -> Option<(Decode, usize)> {
    let at = |i: usize| raw.get(i).copied().unwrap_or(1);
    Some(match [at(0), at(1), at(2), at(3)] {
        [0xff, 0xfe, 0, 0] => (Decode::Utf32 { big: false }, 4),
        [0, 0, 0xfe, 0xff] => (Decode::Utf32 { big: true }, 4),
        [0xff, 0xfe, ..] => (Decode::labelled(UTF_16LE), 2),
        [0xfe, 0xff, ..] => (Decode::labelled(UTF_16BE), 2),
        [0xef, 0xbb, 0xbf, _] => (Decode::utf8(), 3),
        [a, 0, 0, 0] if a != 0 => (Decode::Utf32 { big: false }, 0),
        [0, 0, 0, d] if d != 0 => (Decode::Utf32 { big: true }, 0),
        [a, 0, c, 0] if a != 0 && c != 0 => (Decode::labelled(UTF_16LE), 0),
        [0, b, 0, d] if b != 0 && d != 0 => (Decode::labelled(UTF_16BE), 0),
        _ => return None,
    })
}

/// The charset parameter of a `Content-Type`.
fn charset_param(content_type: &str) -> Option<&str> {
    content_type.split(';').skip(1).find_map(|param| {
        let (name, value) = param.split_once('=')?;
        let value = value.trim().trim_matches(['"', '\'']);
        name.trim().eq_ignore_ascii_case("charset").then_some(value)
    })
}

/// The encoding that an XML declaration near the start names.
fn declaration(raw: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(raw.get(..DECLARATION_WITHIN).unwrap_or(raw)).into_owned();
    let declaration = head.split_once("<?xml")?.1.split_once('>')?.0;
    let value = declaration.split_once("encoding")?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    label(value.get(1..)?.split(quote).next()?.trim())
}

/// An encoding by its WHATWG label, and a few that the field writes besides.
fn label(name: &str) -> Option<&'static Encoding> {
    Encoding::for_label(name.as_bytes()).or_else(|| {
        let plain: String = name
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect::<String>()
            .to_ascii_lowercase();
        let known = match plain.as_str() {
            "utf8" => "utf-8",
            "eucjp" => "euc-jp",
            "euckr" => "euc-kr",
            "shiftjis" => "shift_jis",
            "tis620" => "tis-620",
            other => match other.strip_prefix("iso8859") {
                Some(number) => LATIN.get(number.parse::<usize>().ok()?)?,
                None => code_page(other)?,
            },
        };
        Encoding::for_label(known.as_bytes())
    })
}

/// A code page by its number, for spellings such as `windows1251` and `cp-932`.
fn code_page(plain: &str) -> Option<&'static str> {
    let number = ["windows", "win", "cp", "ms"].iter().find_map(|name| plain.strip_prefix(name))?;
    Some(match number {
        "874" => "windows-874",
        "932" => "shift_jis",
        "936" => "gbk",
        "949" => "euc-kr",
        "950" => "big5",
        "1250" => "windows-1250",
        "1251" => "windows-1251",
        "1252" => "windows-1252",
        "1253" => "windows-1253",
        "1254" => "windows-1254",
        "1255" => "windows-1255",
        "1256" => "windows-1256",
        "1257" => "windows-1257",
        "1258" => "windows-1258",
        _ => return None,
    })
}

/// ISO 8859 by number, for spellings such as `iso 8859_15`.
const LATIN: [&str; 17] = [
    "",
    "iso-8859-1",
    "iso-8859-2",
    "iso-8859-3",
    "iso-8859-4",
    "iso-8859-5",
    "iso-8859-6",
    "iso-8859-7",
    "iso-8859-8",
    "iso-8859-9",
    "iso-8859-10",
    "iso-8859-11",
    "",
    "iso-8859-13",
    "iso-8859-14",
    "iso-8859-15",
    "iso-8859-16",
];

/// Are these bytes UTF-8, give or take a stray byte? Text in a legacy encoding
/// has more sequences that are wrong in UTF-8 than right by chance.
fn mostly_utf8(raw: &[u8], ended: bool) -> bool {
    const RIGHT_PER_WRONG: usize = 4;
    let (mut right, mut wrong) = (0, 0);
    for chunk in raw.utf8_chunks() {
        right += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        wrong += usize::from(!chunk.invalid().is_empty());
    }
    // A character cut by the end of the buffer is not wrong.
    let cut = !ended && std::str::from_utf8(raw).is_err_and(|e| e.error_len().is_none());
    let wrong = if cut { wrong - 1 } else { wrong };
    wrong == 0 || right >= wrong * RIGHT_PER_WRONG
}

/// Bytes that were wrong in one run of the decoder.
pub(super) struct Wrong {
    /// Where the first of them is in what the run added.
    pub(super) at: usize,
    pub(super) count: u64,
}

/// A decoder and its state.
pub(super) enum Decode {
    /// UTF-8, each stray byte read as windows-1252.
    Utf8 {
        /// Was there a proper sequence of several bytes?
        proper: bool,
        /// Was there a stray byte?
        stray: bool,
    },
    /// UTF-32, which the WHATWG does not know.
    Utf32 {
        /// Most significant byte first?
        big: bool,
    },
    /// Anything that `encoding_rs` decodes.
    Labelled(Box<Decoder>),
}

impl Decode {
    pub(super) fn utf8() -> Self {
        Self::Utf8 { proper: false, stray: false }
    }

    fn labelled(encoding: &'static Encoding) -> Self {
        Self::Labelled(Box::new(encoding.new_decoder_without_bom_handling()))
    }

    /// WHATWG name; UTF-32 goes by its own.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Utf8 { proper: false, stray: true } => WINDOWS_1252.name(),
            Self::Utf8 { .. } => UTF_8.name(),
            Self::Utf32 { big: true } => "UTF-32BE",
            Self::Utf32 { big: false } => "UTF-32LE",
            Self::Labelled(decoder) => decoder.encoding().name(),
        }
    }

    /// Decodes `raw` onto `out` and says how many bytes it used: what is left
    /// needs more of them.
    pub(super) fn run(
        &mut self,
        raw: &[u8],
        out: &mut String,
        last: bool,
    ) -> (usize, Option<Wrong>) {
        match self {
            Self::Utf8 { proper, stray } => run_utf8(raw, out, last, proper, stray),
            Self::Utf32 { big } => run_utf32(raw, out, last, *big),
            Self::Labelled(decoder) => run_labelled(decoder, raw, out, last),
        }
    }
}

fn run_utf8(
    raw: &[u8],
    out: &mut String,
    last: bool,
    proper: &mut bool,
    stray: &mut bool,
) -> (usize, Option<Wrong>) {
    let before = out.len();
    let mut wrong: Option<Wrong> = None;
    let mut used = 0;
    loop {
        let rest = raw.get(used..).unwrap_or_default();
        let error = match std::str::from_utf8(rest) {
            Ok(text) => {
                *proper = *proper || !text.is_ascii();
                out.push_str(text);
                return (raw.len(), wrong);
            }
            Err(error) => error,
        };
        let (valid, bad) = rest.split_at(error.valid_up_to());
        let valid = std::str::from_utf8(valid).unwrap_or_default();
        *proper = *proper || !valid.is_ascii();
        out.push_str(valid);
        used += valid.len();
        if error.error_len().is_none() && !last {
            return (used, wrong);
        }
        let len = error.error_len().unwrap_or(bad.len()).max(1);
        *stray = true;
        let found = wrong.get_or_insert(Wrong { at: out.len() - before, count: 0 });
        found.count += 1;
        let (text, _) = WINDOWS_1252.decode_without_bom_handling(bad.get(..len).unwrap_or(bad));
        out.push_str(&text);
        used += len;
    }
}

fn run_utf32(raw: &[u8], out: &mut String, last: bool, big: bool) -> (usize, Option<Wrong>) {
    let before = out.len();
    let mut wrong: Option<Wrong> = None;
    let mut bad = |at: usize| wrong.get_or_insert(Wrong { at, count: 0 }).count += 1;
    let (words, tail) = raw.as_chunks::<4>();
    for word in words {
        let code = if big { u32::from_be_bytes(*word) } else { u32::from_le_bytes(*word) };
        out.push(char::from_u32(code).unwrap_or_else(|| {
            bad(out.len() - before);
            char::REPLACEMENT_CHARACTER
        }));
    }
    if last && !tail.is_empty() {
        bad(out.len() - before);
    }
    let kept = if last { 0 } else { tail.len() };
    (raw.len() - kept, wrong)
}

fn run_labelled(
    decoder: &mut Decoder,
    raw: &[u8],
    out: &mut String,
    last: bool,
) -> (usize, Option<Wrong>) {
    let before = out.len();
    let mut any = false;
    let mut used = 0;
    loop {
        let rest = raw.get(used..).unwrap_or_default();
        let room = decoder.max_utf8_buffer_length(rest.len()).unwrap_or(rest.len() * 3);
        out.reserve(room.max(16));
        let (result, read, replaced) = decoder.decode_to_string(rest, out, last);
        used += read;
        any = any || replaced;
        if result == CoderResult::InputEmpty {
            break;
        }
    }
    let added = if any { out.get(before..).unwrap_or_default() } else { "" };
    let wrong = added.find(char::REPLACEMENT_CHARACTER).map(|at| Wrong {
        at,
        count: added.chars().filter(|c| *c == char::REPLACEMENT_CHARACTER).count() as u64,
    });
    (raw.len(), wrong)
}
