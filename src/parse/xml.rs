//! One tolerant XML cursor over quick-xml, for sitemaps and feeds alike.
//!
//! A bounded window slides over the document; quick-xml finds where the tags in
//! it end. What it leaves open is decided here: which element an end tag
//! closes, where a broken tag ends, what a reference stands for, which
//! namespace a prefix means. Every
//! recovery goes on after the defect and is linear in the document. Depth,
//! attributes and token length are bounded; declared entities are never
//! expanded. What elements mean is left to the [`Visitor`].

mod attributes;
mod bounds;
mod elements;
mod entities;
mod names;
mod scan;
mod stack;

use std::borrow::Cow;
use std::ops::ControlFlow;

use quick_xml::parser::{ElementParser, Parser as _};

use super::issue::{IssueCode, Issues, Place};
use super::text::{Text, WINDOW};
pub(crate) use attributes::{Attributes, unescape};
pub(crate) use names::Ns;
use scan::{Scan, Step};

/// Elements nested deeper are not read.
pub(crate) const MAX_DEPTH: usize = 64;
/// A tag longer than this, in bytes, is dropped.
pub(crate) const MAX_TAG: usize = 256 * 1024;

/// A start tag.
#[derive(Debug, Clone)]
pub(crate) struct Tag<'a> {
    /// Local name in lower case.
    pub(crate) local: &'a str,
    /// Its namespace.
    pub(crate) ns: Ns,
    /// The prefix as written.
    pub(crate) prefix: Option<&'a str>,
    /// Was the namespace declared (and not guessed from the prefix)?
    pub(crate) declared: bool,
    raw_attributes: &'a str,
}

impl<'a> Tag<'a> {
    /// Name and raw value of the attributes.
    pub(crate) fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.raw_attributes)
    }

    /// The value of the attribute that is written `name`, in any letter case.
    pub(crate) fn attr(&self, name: &str) -> Option<Cow<'a, str>> {
        if self.raw_attributes.is_empty() {
            return None;
        }
        self.attributes()
            .find(|(written, _)| written.eq_ignore_ascii_case(name))
            .map(|(_, value)| unescape(value))
    }

    /// The value of the attribute with this local name, whatever its prefix.
    pub(crate) fn local_attr(&self, local: &str) -> Option<Cow<'a, str>> {
        self.attributes()
            .find(|(written, _)| {
                written.rsplit(':').next().is_some_and(|l| l.eq_ignore_ascii_case(local))
            })
            .map(|(_, value)| unescape(value))
    }

    /// Does it declare the sitemap namespace in another spelling than the
    /// protocol's?
    pub(crate) fn misspells_sitemap_namespace(&self) -> bool {
        self.attributes().any(|(name, uri)| {
            let own = match self.prefix {
                Some(prefix) => name.strip_prefix("xmlns:") == Some(prefix),
                None => name == "xmlns",
            };
            own && !names::is_exact_sitemap(uri)
        })
    }
}

/// What a visitor wants of the cursor after a start tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Go on.
    Go,
    /// First close the open element at this depth (and all inside it), then
    /// show the same tag again.
    Close(usize),
    /// Read no further.
    Stop,
}

/// What a visitor may write to: defects, and the place of the current token.
pub(crate) struct Cx<'a> {
    pub(crate) issues: &'a mut Issues,
    pub(crate) place: Place<'a>,
}

impl Cx<'_> {
    /// Counts a defect at the current token.
    pub(crate) fn note(&mut self, code: IssueCode, sample: &str) {
        self.issues.note(code, self.place, sample);
    }
}

/// Is shown the elements and the text of a document, in order.
pub(crate) trait Visitor {
    /// A start tag; the element is at `depth` (the root is at 1).
    fn start(&mut self, tag: &Tag<'_>, depth: usize, cx: &mut Cx<'_>) -> Next;
    /// A piece of text, references replaced, inside the innermost element.
    fn text(&mut self, text: &str, cx: &mut Cx<'_>);
    /// A piece of text that is white space only.
    fn blank(&mut self, text: &str, cx: &mut Cx<'_>) {
        self.text(text, cx);
    }
    /// The element at `depth` is closed; `implied` when no end tag of its own
    /// did it.
    fn end(&mut self, depth: usize, implied: bool, cx: &mut Cx<'_>) -> ControlFlow<()>;
    /// Does this start tag stand behind the document? Asked only where nothing of
    /// the document is open; what is behind it is not shown.
    fn is_behind(&self, _tag: &Tag<'_>) -> bool {
        false
    }
    /// A document type declaration names this root.
    fn doctype(&mut self, root: &str);
    /// The document ends, inside open elements when `truncated`.
    fn finish(&mut self, truncated: bool, cx: &mut Cx<'_>);
}

/// How a document ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Read to its end, with every element closed and no markup dropped.
    pub(crate) complete: bool,
    /// The visitor stopped it.
    pub(crate) stopped: bool,
}

/// Shows a document to a visitor.
pub(crate) fn read<V: Visitor>(
    text: &mut Text<'_>,
    issues: &mut Issues,
    visitor: &mut V,
) -> Outcome {
    let mut scan = Scan::new();
    let mut want = WINDOW;
    loop {
        text.fill(want);
        let held = text.rest().len();
        let last = text.at_end();
        let (used, stop) = match scan.window(text, issues, visitor) {
            Step::More(used) => (used, false),
            Step::Stop(used) => (used, true),
        };
        text.consume(used);
        if stop {
            return Outcome { complete: false, stopped: true };
        }
        if last && used >= held {
            break;
        }
        // Always more than is left, so that a long token makes the window grow.
        want = ((held - used.min(held)) * 2).max(WINDOW);
    }
    let truncated = scan.is_open();
    let mut cx = Cx { issues, place: text.place(0) };
    if truncated {
        cx.note(IssueCode::Truncated, "");
    }
    visitor.finish(truncated, &mut cx);
    Outcome { complete: !truncated && !scan.lost(), stopped: false }
}

/// Bytes of the tag that `text` begins with, past quoted values with a `>` in
/// them; `None` where it does not end in `text`.
fn tag_len(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('<')?;
    ElementParser::Outside.feed(inner.as_bytes()).map(|end| end + "<>".len())
}

#[cfg(test)]
mod tests;
