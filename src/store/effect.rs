//! What a read asks of the store: effects, the chunk they come in, the answer.
//!
//! Each says what a source lists, not what becomes of the row: that is for
//! `apply`, which does nothing where the row says so already.

use super::extensions::Said;
use super::hosts::partition;
use super::prepared::Paths;
use super::views::Counts;
use crate::diff::snapshot::{EntryHints, Row};
use crate::model::{CrawlId, Lastmod, SiteId, SourceId, UrlId, UrlKind};
use crate::recrawl::habit::{Newer, Span};
use crate::recrawl::signal::Signal;
use crate::url::Admitted;

/// Effects in one chunk at most while leases are made: a chunk holds the writer
/// for some ten milliseconds, and leases get in between two of them. More than the
/// tail of the lookup takes, so that what is admitted goes straight to a run.
pub const CHUNK: usize = 5_000;
/// Effects that a read hands on at once. Where nobody leases they are one chunk,
/// which costs the writer less: rows of one host stand together, and the lookup has
/// a run instead of two.
pub const BATCH: usize = 2 * CHUNK;

/// What a chunk belongs to.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct Origin {
    /// The source that was read.
    pub source: SourceId,
    /// Its site.
    pub site: SiteId,
    /// The site's crawl.
    pub crawl: CrawlId,
    /// Is the source a window?
    pub window: bool,
    /// Number of the read.
    pub generation: i64,
    /// What newer lastmods are as signals, by the source's habit.
    pub moves: Signal,
    /// Where those lie that are stamps whatever the others are.
    pub stamped: Option<Span>,
    /// Whoever reads the source has its partition in this epoch: what is told
    /// after it has moved on changes nothing. Always 0 in a file.
    pub tenure: i64,
}

impl Origin {
    /// The same with what its newer lastmods are.
    #[must_use]
    pub fn with(self, newer: Newer) -> Self {
        Self { moves: newer.moves, stamped: newer.stamped, ..self }
    }

    /// What a newer lastmod is as a signal.
    pub(super) fn signal_of(&self, lastmod: Lastmod) -> Signal {
        let is_stamp = self.stamped.is_some_and(|span| span.contains(lastmod.at.as_second()));
        if is_stamp { Signal::Stamp } else { self.moves }
    }
}

impl Effect {
    /// The URL, where it may be a new one.
    pub(super) fn admitted(&self) -> Option<&Admitted> {
        if let Self::Admit { url, .. } = self { Some(url) } else { None }
    }

    /// The partition of its URL, on a server.
    pub(super) fn partition(&self) -> i64 {
        match self {
            Self::Admit { url, .. } => partition(&url.authority),
            Self::Changed { url, .. }
            | Self::Touched { url, .. }
            | Self::Regressed { url, .. }
            | Self::Hints { url, .. }
            | Self::Missing { url }
            | Self::Drop { url }
            | Self::Unwant { url }
            | Self::Extensions { url, .. } => url.0 & 255,
        }
    }
}

/// One difference, ready to be applied.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub enum Effect {
    /// The source lists a URL that it did not list before.
    Admit {
        /// Where the row goes in the next snapshot.
        slot: u32,
        /// Its identity.
        url: Admitted,
        /// As listed, where that differs.
        raw: Option<String>,
        /// As listed.
        #[serde(with = "crate::model::exact::option")]
        lastmod: Option<Lastmod>,
        /// As listed.
        hints: EntryHints,
        /// What it is listed as.
        kind: UrlKind,
    },
    /// Its lastmod is newer than what this source said before.
    Changed {
        /// The row.
        url: UrlId,
        /// As listed now.
        #[serde(with = "crate::model::exact")]
        lastmod: Lastmod,
        /// As listed now.
        hints: EntryHints,
    },
    /// Its content digest moved.
    Touched {
        /// The row.
        url: UrlId,
        /// As listed now, and no newer than before: it may be the first one.
        #[serde(with = "crate::model::exact::option")]
        lastmod: Option<Lastmod>,
        /// As listed now.
        hints: EntryHints,
    },
    /// Its lastmod went backwards.
    Regressed {
        /// The row.
        url: UrlId,
        /// As listed now.
        hints: EntryHints,
    },
    /// Priority, changefreq or the presence of a date differ.
    Hints {
        /// The row.
        url: UrlId,
        /// As listed now.
        #[serde(with = "crate::model::exact::option")]
        lastmod: Option<Lastmod>,
        /// As listed now.
        hints: EntryHints,
    },
    /// Missing for the first time.
    Missing {
        /// The row.
        url: UrlId,
    },
    /// This source holds it no longer.
    Drop {
        /// The row.
        url: UrlId,
    },
    /// The site's rules do not want it any more, though it is listed.
    Unwant {
        /// The row.
        url: UrlId,
    },
    /// What the source says of its images, videos, news and alternates.
    Extensions {
        /// The row.
        url: UrlId,
        /// `None`: nothing any more.
        said: Option<Said>,
    },
}

impl Effect {
    /// The row that is looked at to apply it, where that is known beforehand.
    pub(super) fn row_of_interest(&self) -> Option<UrlId> {
        match self {
            Self::Admit { .. } | Self::Missing { .. } => None,
            Self::Changed { url, .. }
            | Self::Touched { url, .. }
            | Self::Regressed { url, .. }
            | Self::Hints { url, .. }
            | Self::Drop { url }
            | Self::Unwant { url }
            | Self::Extensions { url, .. } => Some(*url),
        }
    }

    /// The URL that its source holds no longer.
    pub(super) fn dropped(&self) -> Option<UrlId> {
        match self {
            Self::Drop { url } | Self::Unwant { url } => Some(*url),
            _ => None,
        }
    }
}

/// What became of effects.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct Applied {
    /// Rows for the slots of [`Effect::Admit`].
    pub rows: Vec<(u32, Row)>,
    /// Effects by what they turned out to be.
    pub counts: Counts,
}

impl Applied {
    pub(super) fn add(&mut self, more: Self) {
        self.rows.extend(more.rows);
        self.counts.add(&more.counts);
    }
}

/// Effects of one read that are yet to be applied, in their order.
pub(super) struct Unapplied {
    pub(super) effects: std::vec::IntoIter<Effect>,
    /// Those of all admissions, what is applied included.
    pub(super) paths: Paths,
    /// Admissions that are applied.
    pub(super) admitted: usize,
}

impl Unapplied {
    pub(super) fn new(effects: Vec<Effect>, paths: Paths) -> Self {
        Self { effects: effects.into_iter(), paths, admitted: 0 }
    }
}
