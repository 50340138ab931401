//! What a sitemap says of a page beside its URL and dates: images, videos,
//! news, and the page in other languages.
//!
//! Names are those of the protocols, as local names in snake case; what was
//! not said is left out of the JSON. The bounds on lengths and counts are the
//! reader's; nothing here is larger than what it kept. Read from text that is
//! not trusted: an unknown field is passed over, a missing one is absent.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

use super::{Lastmod, Precision};

/// News ranks as fresh for this long (Google: articles of the last two days).
const FRESH: SignedDuration = SignedDuration::from_hours(48);
/// A publication further ahead than this is a mistake, as with lastmods.
const AHEAD: SignedDuration = SignedDuration::from_hours(24);
/// Elements of one kind kept when several sources speak of one page: the
/// reader's own limit for one of them.
const MAX_MERGED: usize = 1_000;

/// All that is said of one page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Extensions {
    /// `image:image` elements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// `video:video` elements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub videos: Vec<Video>,
    /// `news:news` elements; a page has one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<News>,
    /// `xhtml:link rel=alternate` elements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternates: Vec<Alternate>,
}

/// One `image:image` (<https://developers.google.com/search/docs/crawling-indexing/sitemaps/image-sitemaps>).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Image {
    /// Where it is, as listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loc: Option<String>,
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its caption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caption: Option<String>,
    /// Where it was taken, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub geo_location: Option<String>,
    /// URL of its licence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
}

/// One `video:video` (<https://developers.google.com/search/docs/crawling-indexing/sitemaps/video-sitemaps>).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Video {
    /// A picture of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thumbnail_loc: Option<String>,
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_loc: Option<String>,
    /// A player for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub player_loc: Option<String>,
    /// `allow_embed` of the player.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_embed: Option<bool>,
    /// `autoplay` of the player: parameters that start it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoplay: Option<String>,
    /// Seconds, 1 to 28,800.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<u32>,
    /// After this it is not there any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_date: Option<Lastmod>,
    /// 0.0 to 5.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rating: Option<f64>,
    /// How often it was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view_count: Option<u64>,
    /// When it was first published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publication_date: Option<Lastmod>,
    /// Is it fit for everybody?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family_friendly: Option<bool>,
    /// Countries where it may, or may not, be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restriction: Option<Restriction>,
    /// Platforms where it may, or may not, be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// What it costs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prices: Vec<Price>,
    /// Is it for subscribers only?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires_subscription: Option<bool>,
    /// Who uploaded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uploader: Option<Uploader>,
    /// Is it a live stream?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<bool>,
    /// What it is about; at most 32.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// A broad subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// A gallery that it is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gallery_loc: Option<String>,
    /// Title of that gallery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gallery_title: Option<String>,
    /// The television show that it is an episode of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tvshow: Option<TvShow>,
}

/// Does a list say where a video may be shown, or where it may not?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Relationship {
    /// There and nowhere else.
    Allow,
    /// Anywhere but there.
    Deny,
}

/// `video:restriction`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Restriction {
    /// What the list means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relationship: Option<Relationship>,
    /// ISO 3166-1 codes, upper case.
    pub countries: Vec<String>,
}

/// `video:platform`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Platform {
    /// What the list means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relationship: Option<Relationship>,
    /// `web`, `mobile`, `tv`.
    pub platforms: Vec<String>,
}

/// One `video:price`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Price {
    /// How much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<f64>,
    /// ISO 4217 code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// `rent` or `own`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// `hd` or `sd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution: Option<String>,
}

/// `video:uploader`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Uploader {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// URL of a page about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info: Option<String>,
}

/// `video:tvshow`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct TvShow {
    /// Title of the show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub show_title: Option<String>,
    /// `full`, `preview`, `clip`, `interview`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video_type: Option<String>,
    /// Title of the episode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub episode_title: Option<String>,
    /// Season, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub season_number: Option<u32>,
    /// Episode, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub episode_number: Option<u32>,
    /// When it was first shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub premier_date: Option<Lastmod>,
}

/// One `news:news` (<https://developers.google.com/search/docs/crawling-indexing/sitemaps/news-sitemaps>).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct News {
    /// Where it was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publication: Option<Publication>,
    /// When it was first published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publication_date: Option<Lastmod>,
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// `Subscription` or `Registration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    /// `PressRelease`, `Satire`, `Blog`, `OpEd`, `Opinion`, `UserGenerated`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub genres: Vec<String>,
    /// What it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// Companies it is about, as `NASDAQ:AMAT`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stock_tickers: Vec<String>,
}

/// `news:publication`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Publication {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its language: ISO 639, or `zh-cn`, `zh-tw`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
}

/// One `xhtml:link rel=alternate` (<https://developers.google.com/search/docs/specialty/international/localized-versions>).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Alternate {
    /// Language, script and region of it, as listed; or `x-default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hreflang: Option<String>,
    /// Where it is, as listed.
    pub href: String,
    /// For which screens it is, as a media query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media: Option<String>,
}

/// What the fields of a page mean for its place in the queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Marks {
    /// What its videos say of their end.
    pub expiry: Expiry,
    /// News: ranks as fresh until this Unix second.
    pub fresh_until_s: Option<i64>,
}

/// What the videos of a page say of their end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Expiry {
    /// It has none.
    #[default]
    NoVideo,
    /// One at least has no end.
    Never,
    /// From this Unix second on none of them is there any more.
    At(i64),
}

impl Expiry {
    /// What two sources say together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::NoVideo, said) | (said, Self::NoVideo) => said,
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::At(a), Self::At(b)) => Self::At(a.max(b)),
        }
    }

    /// The second from which none of them is there any more, if one is known.
    pub fn second(self) -> Option<i64> {
        match self {
            Self::At(second) => Some(second),
            Self::NoVideo | Self::Never => None,
        }
    }
}

impl Marks {
    /// What two sources say together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            expiry: self.expiry.and(other.expiry),
            fresh_until_s: self.fresh_until_s.max(other.fresh_until_s),
        }
    }
}

impl Extensions {
    /// Is nothing said?
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
            && self.videos.is_empty()
            && self.news.is_empty()
            && self.alternates.is_empty()
    }

    /// What it means for the queue, as read at `now`.
    pub fn marks(&self, now: Timestamp) -> Marks {
        let ends = self.videos.iter().map(|video| match video.expiration_date {
            Some(date) => Expiry::At(end_of(date).as_second()),
            None => Expiry::Never,
        });
        let published = self.news.iter().filter_map(|news| news.publication_date);
        let fresh = published
            .filter(|date| date.at.duration_since(now) <= AHEAD)
            // From the future: from now on, at the most.
            .map(|date| date.at.min(now).as_second().saturating_add(FRESH.as_secs()))
            .filter(|until| *until > now.as_second())
            .max();
        Marks { expiry: ends.fold(Expiry::NoVideo, Expiry::and), fresh_until_s: fresh }
    }

    /// Adds what another source says of the same page: the own words count,
    /// of the other those that speak of something else.
    pub fn merge(&mut self, other: Self) {
        add(&mut self.images, other.images, |image| hash_of(&image.loc));
        add(&mut self.videos, other.videos, |video| {
            hash_of(&(&video.content_loc, &video.player_loc, &video.thumbnail_loc))
        });
        add(&mut self.news, other.news, |_| 0);
        add(&mut self.alternates, other.alternates, |link| {
            hash_of(&(&link.hreflang, &link.href, &link.media))
        });
    }
}

fn add<T>(to: &mut Vec<T>, from: Vec<T>, identity: impl Fn(&T) -> u64) {
    let own: HashSet<u64> = to.iter().map(&identity).collect();
    let room = MAX_MERGED.saturating_sub(to.len());
    to.extend(from.into_iter().filter(|item| !own.contains(&identity(item))).take(room));
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The first instant (UTC) after what a date names: `2026-11-21` lasts to the
/// end of that day.
fn end_of(date: Lastmod) -> Timestamp {
    let span = match date.precision {
        Precision::Year => 1.year(),
        Precision::Month => 1.month(),
        Precision::Day => 1.day(),
        Precision::Minute | Precision::Second | Precision::Fraction => return date.at,
    };
    let zoned = date.at.to_zoned(jiff::tz::TimeZone::UTC);
    zoned.checked_add(span).map_or(Timestamp::MAX, |end| end.timestamp())
}

#[cfg(test)]
mod tests;
