//! The plain types that every stage shares.
//!
//! No behaviour beyond what the types themselves mean: nothing here touches
//! the network, the clock, the store or an async runtime. The words are those
//! of `docs/ARCHITECTURE.md`: a *site* registers *sources*, one fetch of a
//! source is a *document*, a document lists *entries* and has *issues*, an
//! entry names a *url*, and a change of a url is a *change*.

pub mod extension;

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Row number of a site in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct SiteId(pub i64);

/// Row number of a source in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct SourceId(pub i64);

/// Row number of a URL in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct UrlId(pub i64);

/// Row number of a host (scheme, host and port) in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct HostId(pub i64);

/// Row number of a crawl (a namespace of URLs and its queue) in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
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

/// How much of a date its writer gave. Ordered from coarse to fine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    /// `2026`
    Year,
    /// `2026-11`
    Month,
    /// `2026-11-21`
    Day,
    /// `2026-11-21T08:30Z`
    Minute,
    /// `2026-11-21T08:30:05Z`
    Second,
    /// `2026-11-21T08:30:05.25Z`
    Fraction,
}

impl Precision {
    /// Every precision, in the order of the codes stored for them.
    pub const ALL: [Self; 6] =
        [Self::Year, Self::Month, Self::Day, Self::Minute, Self::Second, Self::Fraction];
}

/// A date as a publisher wrote it: an instant and how precisely it was given.
///
/// A coarse date stands for the first instant (UTC) of what it names, so
/// `2026` is `2026-01-01T00:00:00Z` with [`Precision::Year`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lastmod {
    /// First instant that the date stands for.
    pub at: Timestamp,
    /// How much of it was written.
    pub precision: Precision,
}

impl Lastmod {
    /// Is this date strictly newer than `other`, at the coarser precision of
    /// the two? So `2026-11-21` and `2026-11-21T08:30Z` are the same date.
    pub fn is_newer_than(self, other: Self) -> bool {
        let coarser = self.precision.min(other.precision);
        truncate(self.at, coarser) > truncate(other.at, coarser)
    }

    /// Is this date strictly older than `other`, at the coarser precision?
    pub fn is_older_than(self, other: Self) -> bool {
        other.is_newer_than(self)
    }
}

/// Cuts an instant down to the start (UTC) of the year, month, day, … it is in.
fn truncate(at: Timestamp, precision: Precision) -> i64 {
    const DAY: i64 = 86_400;
    let second = at.as_second();
    match precision {
        Precision::Second | Precision::Fraction => second,
        Precision::Minute => second.div_euclid(60) * 60,
        Precision::Day => second.div_euclid(DAY) * DAY,
        Precision::Month | Precision::Year => {
            let date = at.to_zoned(TimeZone::UTC).date();
            let month = if precision == Precision::Month { i64::from(date.month()) } else { 0 };
            // Not an instant any more, but it orders the same way.
            i64::from(date.year()) * 12 + month
        }
    }
}

impl fmt::Display for Lastmod {
    /// Writes the date at the precision it was given: `2026`, `2026-11`,
    /// `2026-11-21`, or RFC 3339 in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = self.at.to_zoned(TimeZone::UTC).date();
        match self.precision {
            Precision::Year => write!(f, "{:04}", date.year()),
            Precision::Month => write!(f, "{:04}-{:02}", date.year(), date.month()),
            Precision::Day => write!(f, "{:04}-{:02}-{:02}", date.year(), date.month(), date.day()),
            Precision::Minute | Precision::Second | Precision::Fraction => self.at.fmt(f),
        }
    }
}

impl serde::Serialize for Lastmod {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Lastmod {
    /// Reads what [`fmt::Display`] writes, and no other spelling. Of an instant
    /// it is not known any more how precisely it was given: to the second.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let (rest, precision) = match text.len() {
            4 => ("-01-01T00:00:00Z", Precision::Year),
            7 => ("-01T00:00:00Z", Precision::Month),
            10 => ("T00:00:00Z", Precision::Day),
            _ => ("", Precision::Second),
        };
        let at = format!("{text}{rest}").parse().map_err(serde::de::Error::custom)?;
        Ok(Self { at, precision })
    }
}

/// `<changefreq>` of the Sitemaps protocol: a hint, not a command.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum ChangeFreq {
    /// Changes each time it is accessed.
    Always,
    /// Every hour.
    Hourly,
    /// Every day.
    Daily,
    /// Every week.
    Weekly,
    /// Every month.
    Monthly,
    /// Every year.
    Yearly,
    /// Archived; it is still looked at again, but rarely.
    Never,
}

impl ChangeFreq {
    /// Every value, in the order of the codes stored for them.
    pub const ALL: [Self; 7] = [
        Self::Always,
        Self::Hourly,
        Self::Daily,
        Self::Weekly,
        Self::Monthly,
        Self::Yearly,
        Self::Never,
    ];

    /// The word of the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Yearly => "yearly",
            Self::Never => "never",
        }
    }
}

impl FromStr for ChangeFreq {
    type Err = ();

    /// Reads the word of the protocol, in any letter case.
    fn from_str(word: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|f| f.as_str().eq_ignore_ascii_case(word)).ok_or(())
    }
}

/// `<priority>` of the Sitemaps protocol, kept in thousandths: 0 to 1000.
/// Relative within one site only; 500 where none is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Priority(u16);

impl Priority {
    /// What the protocol takes where none is given: 0.5.
    pub const DEFAULT: Self = Self(500);

    /// From a number; `None` outside 0.0 to 1.0 and for NaN.
    pub fn from_f64(value: f64) -> Option<Self> {
        // In range, so the cast can neither cut nor wrap.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        (0.0..=1.0).contains(&value).then(|| Self((value * 1000.0).round() as u16))
    }

    /// From thousandths; `None` over 1000.
    pub fn from_thousandths(value: u16) -> Option<Self> {
        (value <= 1000).then_some(Self(value))
    }

    /// In thousandths.
    pub fn thousandths(self) -> u16 {
        self.0
    }

    /// As the number of the protocol.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl serde::Serialize for Priority {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
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

#[cfg(test)]
mod tests {
    use super::*;

    fn lastmod(at: &str, precision: Precision) -> Lastmod {
        Lastmod { at: at.parse().expect("a timestamp"), precision }
    }

    #[test]
    fn a_date_and_a_time_of_the_same_day_are_the_same_lastmod() {
        let day = lastmod("2026-11-21T00:00:00Z", Precision::Day);
        let time = lastmod("2026-11-21T08:30:00Z", Precision::Second);
        assert!(!time.is_newer_than(day));
        assert!(!day.is_newer_than(time));
    }

    #[test]
    fn a_later_year_is_newer_at_every_precision() {
        for precision in Precision::ALL {
            let old = lastmod("2025-12-31T23:59:59Z", precision);
            let new = lastmod("2026-01-01T00:00:00Z", precision);
            assert!(new.is_newer_than(old), "{precision:?}");
            assert!(!old.is_newer_than(new), "{precision:?}");
        }
    }

    #[test]
    fn a_lastmod_is_written_at_the_precision_it_was_given() {
        let at = "2026-11-01T00:00:00Z";
        assert_eq!(lastmod(at, Precision::Year).to_string(), "2026");
        assert_eq!(lastmod(at, Precision::Month).to_string(), "2026-11");
        assert_eq!(lastmod(at, Precision::Day).to_string(), "2026-11-01");
        assert_eq!(lastmod(at, Precision::Minute).to_string(), "2026-11-01T00:00:00Z");
    }

    #[test]
    fn a_priority_outside_the_protocol_is_none() {
        for value in [-0.1, 1.01, f64::NAN, f64::INFINITY] {
            assert_eq!(Priority::from_f64(value), None, "{value}");
        }
        assert_eq!(Priority::from_f64(0.8).map(Priority::thousandths), Some(800));
    }
}
