//! The plain types that every stage shares.
//!
//! No behaviour beyond what the types themselves mean: nothing here touches
//! the network, the clock, the store or an async runtime. The words are those
//! of `docs/ARCHITECTURE.md`: a *site* registers *sources*, one fetch of a
//! source is a *document*, a document lists *entries* and has *issues*, an
//! entry names a *url*, and a change of a url is a *change*.

mod agent;
pub mod extension;
mod hints;
pub mod span;

use std::fmt;

pub(crate) use agent::product_token;
pub(crate) use hints::exact;
pub use hints::{ChangeFreq, Lastmod, Precision, Priority};

/// Row number of a site in the store.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct SiteId(pub i64);

/// Row number of a source in the store.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct SourceId(pub i64);

/// Row number of a URL in the store.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct UrlId(pub i64);

/// Row number of a host (scheme, host and port) in the store.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct HostId(pub i64);

/// Row number of a crawl (a namespace of URLs and its queue) in the store.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct CrawlId(pub i64);

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for UrlId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a source is asked for, fixed when it is registered.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The robots.txt of one authority (scheme, host and port).
    Robots,
    /// The home page of a site: tells its canonical twin and its feeds.
    Home,
    /// A sitemap, a sitemap index or a text sitemap.
    Sitemap,
    /// A syndication feed.
    Feed,
}

impl Role {
    /// Every role, in the order of the codes stored for them.
    pub const ALL: [Self; 4] = [Self::Robots, Self::Home, Self::Sitemap, Self::Feed];

    /// The word used in tables, logs and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Robots => "robots",
            Self::Home => "home",
            Self::Sitemap => "sitemap",
            Self::Feed => "feed",
        }
    }
}

/// What a document turned out to be, by its bytes and never by its label.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum DocumentKind {
    /// `<urlset>`.
    Urlset,
    /// `<sitemapindex>`.
    Index,
    /// Both `<url>` and `<sitemap>` entries in one file.
    Mixed,
    /// One URL a line.
    Text,
    /// RSS 0.91 to 2.x.
    Rss,
    /// Atom 0.3 or 1.0.
    Atom,
    /// RSS 0.90 or 1.0 (RDF).
    Rdf,
    /// JSON Feed 1.x.
    JsonFeed,
    /// robots.txt.
    Robots,
    /// Anything else, HTML above all.
    Unsupported,
}

impl DocumentKind {
    /// The word used in tables, logs and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Urlset => "urlset",
            Self::Index => "index",
            Self::Mixed => "mixed",
            Self::Text => "text",
            Self::Rss => "rss",
            Self::Atom => "atom",
            Self::Rdf => "rdf",
            Self::JsonFeed => "json-feed",
            Self::Robots => "robots",
            Self::Unsupported => "unsupported",
        }
    }

    /// Reads the word that [`Self::as_str`] writes.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "urlset" => Self::Urlset,
            "index" => Self::Index,
            "mixed" => Self::Mixed,
            "text" => Self::Text,
            "rss" => Self::Rss,
            "atom" => Self::Atom,
            "rdf" => Self::Rdf,
            "json-feed" => Self::JsonFeed,
            "robots" => Self::Robots,
            "unsupported" => Self::Unsupported,
            _ => return None,
        })
    }

    /// Is this a syndication feed, which shows a window and never the whole?
    pub fn is_feed(self) -> bool {
        matches!(self, Self::Rss | Self::Atom | Self::Rdf | Self::JsonFeed)
    }
}

/// What happened to a URL in the eyes of one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// Listed by this source for the first time.
    New,
    /// Its lastmod is strictly newer at the coarser precision.
    Changed,
    /// No newer lastmod, but the content digest of the entry moved.
    Touched,
    /// Its lastmod went backwards: recorded, without effect.
    Regressed,
    /// Not in this complete read of a full source.
    Missing,
    /// No full source has listed it for long enough.
    Removed,
}

impl ChangeKind {
    /// Every kind, in the order of the codes stored for them.
    pub const ALL: [Self; 6] =
        [Self::New, Self::Changed, Self::Touched, Self::Regressed, Self::Missing, Self::Removed];

    /// The word used in tables, logs and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Changed => "changed",
            Self::Touched => "touched",
            Self::Regressed => "regressed",
            Self::Missing => "missing",
            Self::Removed => "removed",
        }
    }
}

/// Why a URL is due.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Seen for the first time.
    New,
    /// A believed change was seen.
    Changed,
    /// Its recrawl interval is over.
    Recrawl,
    /// Someone asked for it.
    Submitted,
    /// No source lists it any more: is it gone?
    Removed,
}

impl Reason {
    /// Every reason, in the order of the codes stored for them.
    pub const ALL: [Self; 5] =
        [Self::New, Self::Changed, Self::Recrawl, Self::Submitted, Self::Removed];

    /// The word used in tables, logs and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Changed => "changed",
            Self::Recrawl => "recrawl",
            Self::Submitted => "submitted",
            Self::Removed => "removed",
        }
    }
}

/// What a listed URL is. What any source lists as a page is a page, whatever
/// others name it; the order is that of precedence.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum UrlKind {
    /// Listed as an entry of its own.
    #[default]
    Page,
    /// The `loc` of an image, where the site says `follow`.
    Image,
    /// The `content_loc` or `player_loc` of a video, where the site says `follow`.
    Video,
    /// The page in another language, where the site says `follow`.
    Alternate,
}

impl UrlKind {
    /// Every kind, in the order of the codes stored for them.
    pub const ALL: [Self; 4] = [Self::Page, Self::Image, Self::Video, Self::Alternate];

    /// The word used in tables, logs, JSON and the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Image => "image",
            Self::Video => "video",
            Self::Alternate => "alternate",
        }
    }
}

/// `site.follow`: which URLs that entries name are entries of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Follow {
    /// The `loc` of images.
    pub image: bool,
    /// The `content_loc` and `player_loc` of videos.
    pub video: bool,
    /// The `href` of alternates.
    pub alternate: bool,
}

impl Follow {
    /// The words for what is followed.
    pub fn words(self) -> Vec<String> {
        [
            (self.image, UrlKind::Image),
            (self.video, UrlKind::Video),
            (self.alternate, UrlKind::Alternate),
        ]
        .into_iter()
        .filter(|(followed, _)| *followed)
        .map(|(_, kind)| kind.as_str().to_owned())
        .collect()
    }

    /// Is anything followed?
    pub fn any(self) -> bool {
        self.image || self.video || self.alternate
    }
}

/// What a fetcher saw.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The page is not what it was.
    Changed,
    /// The page is what it was (a 304, or an equal content hash).
    Unchanged,
    /// 404 or 410. A second one parks the URL.
    Gone,
    /// It answered with a redirect to `final_url`.
    Redirected,
    /// The fetcher was not let in (robots.txt, 401, 403, 451).
    Blocked,
    /// It did not work this time (5xx, timeout, DNS, …).
    Failed,
    /// Fetched, but nobody compared.
    Unknown,
}

impl Outcome {
    /// Every outcome, in the order of the codes stored for them.
    pub const ALL: [Self; 7] = [
        Self::Changed,
        Self::Unchanged,
        Self::Gone,
        Self::Redirected,
        Self::Blocked,
        Self::Failed,
        Self::Unknown,
    ];

    /// The word used in tables, logs and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Gone => "gone",
            Self::Redirected => "redirected",
            Self::Blocked => "blocked",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}
