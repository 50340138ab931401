//! What the rest of the program says of what happened: typed, and each word
//! one of a fixed set, so that no label comes from outside.

use std::time::Duration;

use crate::store::views::Counts;

/// The text formats of a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, for those who ask for it.
    OpenMetrics,
    /// The older one of Prometheus (0.0.4), for all others.
    Plain,
}

/// A part of the way of a URL from its publisher through the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the time that its publisher gives to when a poll saw it.
    PublishedToSeen,
    /// From when it was seen, and so due, to its first lease.
    SeenToLeased,
    /// From a lease to its settlement.
    LeasedToSettled,
}

/// What became of a push of a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It was read, as a poll would be.
    Read,
    /// It brought the next poll forward.
    Hint,
    /// Its signature was wrong or missing, or it came too early: ignored.
    Ignored,
    /// It came to a callback that is none, or none any more.
    Unknown,
}

/// A part of the way of what a hub pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushPart {
    /// From the time that its publisher gives to when the push came.
    PublishedToPushed,
    /// From then to the commit that queued it.
    PushedToQueued,
}

/// The figures of one poll.
#[derive(Debug, Clone, Copy)]
pub struct PollFigures {
    /// The word of [`crate::store::views::PollView::result`].
    pub result: &'static str,
    /// From the first byte sent to the commit.
    pub took: Duration,
    /// Bytes of the body over the wire.
    pub wire_bytes: u64,
    /// Bytes of the body after decoding.
    pub body_bytes: u64,
    /// Entries read.
    pub entries: u64,
    /// What became of the URLs.
    pub counts: Counts,
}

/// Work that was not done because it was not needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// A 304: no body.
    NotModified,
    /// The body's hash was the old one: no parse.
    EqualHash,
    /// The index said that the child had not changed: no request.
    SkippedChild,
}

/// What became of something on its way to a broker or from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Egressed {
    /// A URL was sent, maybe not for the first time.
    Published,
    /// The broker keeps it.
    Acknowledged,
    /// It was not kept, or the daemon stopped first: the lease was given back.
    Released,
    /// A result was settled, whether its lease still stood or not.
    Result,
    /// A message was no result.
    Poison,
}

impl Egressed {
    /// The label.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Acknowledged => "acknowledged",
            Self::Released => "released",
            Self::Result => "result",
            Self::Poison => "poison",
        }
    }
}

/// A call that answers a result per token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenCall {
    /// `POST /v1/settle`
    Settle,
    /// `POST /v1/extend`
    Extend,
    /// `POST /v1/release`
    Release,
}

impl Format {
    /// The media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

impl Pushed {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Hint => "hint",
            Self::Ignored => "ignored",
            Self::Unknown => "unknown",
        }
    }
}

impl PushPart {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::PublishedToPushed => "published-to-pushed",
            Self::PushedToQueued => "pushed-to-queued",
        }
    }
}

impl Saved {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NotModified => "not-modified",
            Self::EqualHash => "equal-hash",
            Self::SkippedChild => "skipped-child",
        }
    }
}

impl TokenCall {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Settle => "settle",
            Self::Extend => "extend",
            Self::Release => "release",
        }
    }
}
