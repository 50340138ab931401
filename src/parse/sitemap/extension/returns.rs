//! Do pages that name each other as alternates name each other back?
//!
//! Each page with hreflang links should list all versions, itself included,
//! and each version listed in the same document should list it in return.
//! Pages outside the document are not judged. Memory is bounded: a page is a
//! hash, and two filters of 64 bits, over the pages that named it before it was
//! listed and over what it names itself. So a link that is not returned may be
//! missed (in 1 of 100 pages of three languages, in 1 of 10 of ten), and none is
//! made up. URLs are compared as written, but for what no parser keeps apart: the letter case
//! of scheme, host and escapes, characters that must be escaped, an empty path.

use std::collections::HashMap;
use std::fmt::Write as _;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::model::extension::Alternate;
use crate::parse::issue::IssueCode;
use crate::parse::xml::Cx;

/// Pages remembered of one document: more than it may list by the protocol.
const MAX_PAGES: usize = 57_344;

/// What is remembered of a page.
#[derive(Debug, Clone, Copy, Default)]
struct Page {
    /// A filter over the pages that named it before it was listed; 0 while none did.
    namers: u64,
    /// A filter over what it names, itself included; 0 while it is not listed.
    names: u64,
}

/// The pages of one document as far as they name alternates, or are named.
#[derive(Debug, Default)]
pub(super) struct Returns {
    pages: HashMap<u64, Page>,
    /// Keys of what the entry at hand names, sorted.
    named: Vec<u64>,
    codes: Vec<u64>,
}

impl Returns {
    /// Takes the entry of a page; notes what it lacks.
    pub(super) fn page(&mut self, page: &str, alternates: &[Alternate], cx: &mut Cx<'_>) {
        if alternates.is_empty() && self.pages.is_empty() {
            return;
        }
        self.read(alternates, page, cx);
        let own = key(page);
        let names = self.named.iter().fold(bits(own), |all, key| all | bits(*key));
        let room = self.pages.len() < MAX_PAGES;
        let known = self.pages.get(&own).copied();
        // What is in one filter and not in the other is not named for certain.
        let by = known.map_or(0, |page| page.namers);
        let mut returned = by & !names == 0;
        for named in self.named.iter().copied().filter(|named| *named != own) {
            match self.pages.get_mut(&named) {
                Some(other) if other.names != 0 => returned &= bits(own) & !other.names == 0,
                Some(other) => other.namers |= bits(own),
                None if room => {
                    self.pages.insert(named, Page { namers: bits(own), names: 0 });
                }
                None => {}
            }
        }
        if known.is_some() || room {
            self.pages.insert(own, Page { namers: by, names });
        }
        if !self.named.is_empty() && !self.names(own) {
            cx.note(IssueCode::HreflangNoSelf, page);
        }
        if !returned {
            cx.note(IssueCode::HreflangNoReturn, page);
        }
    }

    fn names(&self, key: u64) -> bool {
        self.named.binary_search(&key).is_ok()
    }

    /// Reads the links of an entry; notes a language that comes twice.
    fn read(&mut self, alternates: &[Alternate], page: &str, cx: &mut Cx<'_>) {
        self.named.clear();
        self.codes.clear();
        for link in alternates {
            let Some(code) = &link.hreflang else { continue };
            self.named.push(key(&link.href));
            let shouted = code.bytes().any(|byte| byte.is_ascii_uppercase());
            let lower = shouted.then(|| code.to_ascii_lowercase());
            self.codes.push(xxh3_64(lower.as_ref().unwrap_or(code).as_bytes()));
        }
        self.named.sort_unstable();
        self.codes.sort_unstable();
        if self.codes.is_sorted_by(|a, b| a < b) {
            return;
        }
        cx.note(IssueCode::DuplicateTag, page);
    }
}

/// A hash of a URL that is one for all spellings of it; never 0.
fn key(url: &str) -> u64 {
    let host = url.find("//").map_or(0, |at| at + 2);
    let path = url.get(host..).and_then(|rest| rest.find(['/', '?', '#']));
    let (start, rest) = url.split_at(path.map_or(url.len(), |at| host + at));
    let mut hash = Xxh3::new();
    if start.bytes().any(|byte| byte.is_ascii_uppercase()) {
        hash.update(start.to_ascii_lowercase().as_bytes());
    } else {
        hash.update(start.as_bytes());
    }
    if !rest.starts_with('/') {
        hash.update(b"/");
    }
    if rest.is_ascii() && !rest.contains('%') {
        hash.update(rest.as_bytes());
    } else {
        hash.update(escaped(rest).as_bytes());
    }
    hash.digest().max(1)
}

/// Writes escapes in upper case, and characters beyond ASCII as escapes.
fn escaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len() * 3);
    let mut digits = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escape = || bytes.get(at + 1..at + 3)?.iter().all(u8::is_ascii_hexdigit).then_some(2);
        if !byte.is_ascii() {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        } else if digits > 0 {
            digits -= 1;
            out.push(char::from(byte.to_ascii_uppercase()));
        } else {
            if *byte == b'%' {
                digits = escape().unwrap_or(0);
            }
            out.push(char::from(*byte));
        }
    }
    out
}

/// The two bits of the filter that stand for a key.
fn bits(key: u64) -> u64 {
    1 << (key & 63) | 1 << (key >> 6 & 63)
}
