//! Which reader a document needs: by its first bytes, then by its root element.

use std::ops::ControlFlow;

use super::feed::FeedReader;
use super::issue::IssueCode;
use super::sitemap::SitemapReader;
use super::xml::{Cx, Next, Tag, Visitor};
use super::{Context, DocumentKind, Hints, Sink, plain, robots};

/// Elements of no known root that are passed over before a document is given up: each
/// warning that PHP prints before one brings five.
const MAX_STRANGERS: usize = 10_000;

/// What the first text of a document looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Empty,
    Xml,
    Json,
    Robots,
    Text,
    Unknown,
}

/// Looks at the first window of a document.
pub(super) fn sniff(window: &str, at_end: bool) -> Shape {
    let text = super::loc::trim(window);
    if text.is_empty() {
        return if at_end { Shape::Empty } else { Shape::Unknown };
    }
    if text.starts_with('{') {
        return Shape::Json;
    }
    if text.starts_with('<') || has_xml_start(text) {
        return Shape::Xml;
    }
    if is_binary(text) {
        return Shape::Unknown;
    }
    let lists = plain::has_url_line(text);
    if robots::has_robots_line(text) && (!lists || robots::has_line_of_its_own(text)) {
        return Shape::Robots;
    }
    if lists { Shape::Text } else { Shape::Unknown }
}

/// Has this a NUL in a line that would mean nothing without it?
fn is_binary(text: &str) -> bool {
    text.contains('\0')
        && text.split(['\n', '\r']).filter(|line| line.contains('\0')).any(|line| {
            let line = line.replace('\0', "");
            let blank = super::loc::trim(&line).is_empty();
            !blank && !plain::has_url_line(&line) && !robots::has_robots_line(&line)
        })
}

/// Does XML begin behind something else, such as a warning of the server?
fn has_xml_start(text: &str) -> bool {
    const STARTS: [&str; 6] = ["?xml", "urlset", "sitemapindex", "rss", "feed", "rdf:RDF"];
    text.split('<').skip(1).any(|after| {
        STARTS.iter().any(|start| {
            after.get(..start.len()).is_some_and(|s| s.eq_ignore_ascii_case(start))
                && after
                    .get(start.len()..)
                    .is_some_and(|r| r.starts_with([' ', '>', '\t', '\n', '\r']))
        })
    })
}

/// Passes an XML document to the reader that its root asks for.
pub(super) enum Router<'a, 's> {
    /// No root was seen yet.
    Open {
        ctx: &'a Context<'a>,
        sink: Option<&'a mut Sink<'s>>,
        html: bool,
        strangers: usize,
    },
    Sitemap(Box<SitemapReader<'a, 's>>),
    Feed(Box<FeedReader<'a, 's>>),
    /// It is HTML, or no document that we read.
    Refused,
}

/// What a document in XML came to.
pub(super) struct Routed {
    pub(super) kind: DocumentKind,
    pub(super) entries: usize,
    pub(super) sitemaps: usize,
    /// Are there entries that were not read?
    pub(super) lacks_entries: bool,
    pub(super) window: bool,
    pub(super) hints: Hints,
}

impl<'a, 's> Router<'a, 's> {
    pub(super) fn new(ctx: &'a Context<'a>, sink: &'a mut Sink<'s>) -> Self {
        Self::Open { ctx, sink: Some(sink), html: false, strangers: 0 }
    }

    /// The result, once the document was read.
    pub(super) fn result(self) -> Option<Routed> {
        match self {
            Self::Sitemap(reader) => Some(Routed {
                kind: reader.kind(),
                entries: reader.entries,
                sitemaps: reader.sitemaps,
                lacks_entries: reader.lacks_entries(),
                window: reader.is_window(),
                hints: Hints::default(),
            }),
            Self::Feed(reader) => Some(Routed {
                kind: reader.kind(),
                entries: reader.entries,
                sitemaps: 0,
                lacks_entries: reader.lacks_entries(),
                window: true,
                hints: reader.hints,
            }),
            Self::Open { .. } | Self::Refused => None,
        }
    }

    /// Looks for a root.
    fn choose(&mut self, tag: &Tag<'_>, depth: usize, cx: &mut Cx<'_>) -> Next {
        let Self::Open { ctx, sink, html, strangers } = self else { return Next::Go };
        let sitemap = SitemapReader::is_root(tag.local, depth);
        let feed = FeedReader::root(tag, depth);
        if !sitemap && feed.is_none() {
            *strangers += 1;
            let page = *html || matches!(tag.local, "html" | "head" | "body");
            if page || *strangers > MAX_STRANGERS {
                *self = Self::Refused;
                return Next::Stop;
            }
            return Next::Go;
        }
        if *strangers > 0 {
            // What is before the root is not behind it.
            cx.issues.forget(IssueCode::TrailingContent);
            cx.note(IssueCode::LeadingWhitespace, tag.local);
        }
        let Some(sink) = sink.take() else { return Next::Stop };
        *self = match feed {
            Some(kind) if !sitemap => {
                Self::Feed(Box::new(FeedReader::new(kind, tag.ns, ctx, sink)))
            }
            _ => Self::Sitemap(Box::new(SitemapReader::new(ctx, sink))),
        };
        self.show(tag, depth, cx)
    }

    fn show(&mut self, tag: &Tag<'_>, depth: usize, cx: &mut Cx<'_>) -> Next {
        match self {
            Self::Sitemap(reader) => reader.start(tag, depth, cx),
            Self::Feed(reader) => reader.start(tag, depth, cx),
            Self::Open { .. } => self.choose(tag, depth, cx),
            Self::Refused => Next::Stop,
        }
    }

    /// Is this the root of a document, and not of a part of one that lacks its root?
    fn is_whole(&self, tag: &Tag<'_>) -> bool {
        match self {
            Self::Sitemap(_) => matches!(tag.local, "urlset" | "sitemapindex"),
            Self::Feed(_) => matches!(tag.local, "rss" | "rdf" | "feed"),
            Self::Open { .. } | Self::Refused => false,
        }
    }
}

impl Visitor for Router<'_, '_> {
    fn start(&mut self, tag: &Tag<'_>, depth: usize, cx: &mut Cx<'_>) -> Next {
        if depth == 1 && self.is_whole(tag) {
            // Two documents were joined.
            cx.note(IssueCode::TrailingContent, tag.local);
        }
        self.show(tag, depth, cx)
    }

    fn text(&mut self, text: &str, cx: &mut Cx<'_>) {
        match self {
            Self::Sitemap(reader) => reader.text(text, cx),
            Self::Feed(reader) => reader.text(text),
            Self::Open { .. } | Self::Refused => {}
        }
    }

    fn blank(&mut self, text: &str, cx: &mut Cx<'_>) {
        match self {
            Self::Sitemap(reader) => reader.blank(text, cx),
            Self::Feed(reader) => reader.blank(text),
            Self::Open { .. } | Self::Refused => {}
        }
    }

    fn end(&mut self, depth: usize, implied: bool, cx: &mut Cx<'_>) -> ControlFlow<()> {
        match self {
            Self::Sitemap(reader) => reader.end(depth, implied, cx),
            Self::Feed(reader) => reader.end(depth, cx),
            Self::Open { .. } | Self::Refused => ControlFlow::Continue(()),
        }
    }

    fn is_behind(&self, tag: &Tag<'_>) -> bool {
        // A part of a second document is none of these, wherever it stands.
        match self {
            Self::Sitemap(_) => !SitemapReader::is_root(tag.local, 1),
            Self::Feed(_) => FeedReader::root(tag, 1).is_none(),
            Self::Open { .. } | Self::Refused => false,
        }
    }

    fn doctype(&mut self, root: &str) {
        if let Self::Open { html, .. } = self {
            *html = root.eq_ignore_ascii_case("html");
        }
    }

    fn finish(&mut self, _truncated: bool, cx: &mut Cx<'_>) {
        match self {
            Self::Sitemap(reader) => reader.finish(cx),
            Self::Feed(reader) => reader.finish(cx),
            Self::Open { .. } | Self::Refused => {}
        }
    }
}
