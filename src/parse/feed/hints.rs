//! What a feed says about polling and paging: `ttl`, `skipHours`, `skipDays`,
//! `sy:*`, hub and self links, RFC 5005 pages.

use url::Url;

use crate::parse::issue::IssueCode;
use crate::parse::xml::{Cx, Ns, Tag};
use crate::parse::{Hints, loc};

/// Hubs kept of one document.
const MAX_HUBS: usize = 8;
/// Bytes of a URL that a document gives for itself, a hub or another page of it. A longer
/// one is hardly one (Sitemaps protocol: 2,048), and it is kept and asked for.
const MAX_URL: usize = 2_048;

/// An element of the feed (not of an item) that is a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hint {
    Ttl,
    Hour,
    Day,
    Period,
    Frequency,
}

impl Hint {
    /// The hint that a tag begins. `core` says that it is of the feed's own vocabulary.
    pub(super) fn of(tag: &Tag<'_>, core: bool) -> Option<Self> {
        Some(match (tag.local, tag.ns) {
            ("ttl", _) if core => Self::Ttl,
            ("hour", _) if core => Self::Hour,
            ("day", _) if core => Self::Day,
            ("updateperiod", Ns::Syndication) => Self::Period,
            ("updatefrequency", Ns::Syndication) => Self::Frequency,
            _ => return None,
        })
    }
}

/// The syndication module says its interval in two elements.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    ttl: Option<u32>,
    period: Option<u32>,
    frequency: Option<u32>,
}

impl Schedule {
    /// Takes a hint over.
    pub(super) fn set(&mut self, hint: Hint, value: &str, hints: &mut Hints, cx: &mut Cx<'_>) {
        let good = match hint {
            Hint::Ttl => {
                self.ttl = value
                    .parse::<u32>()
                    .ok()
                    .and_then(|minutes| minutes.checked_mul(60))
                    .filter(|s| *s > 0);
                self.ttl.is_some() || value == "0"
            }
            Hint::Hour => match value.parse::<u32>() {
                // Some write 24 for midnight.
                Ok(hour) if hour <= 24 => {
                    hints.skip_hours |= 1 << (hour % 24);
                    true
                }
                _ => false,
            },
            Hint::Day => match weekday(value) {
                Some(day) => {
                    hints.skip_days |= 1 << day;
                    true
                }
                None => false,
            },
            Hint::Period => {
                self.period = period(value);
                self.period.is_some()
            }
            Hint::Frequency => {
                self.frequency = value.parse().ok().filter(|n| *n > 0);
                self.frequency.is_some()
            }
        };
        if !good && !value.is_empty() {
            cx.note(IssueCode::InvalidTagValue, value);
        }
    }

    /// The document ends: works out the interval.
    pub(super) fn finish(&self, hints: &mut Hints) {
        let module = self.period.or(self.frequency.map(|_| 86_400));
        let module = module.map(|seconds| (seconds / self.frequency.unwrap_or(1)).max(1));
        hints.min_interval_secs = self.ttl.or(module);
    }
}

/// A link of the feed itself.
pub(super) fn link(tag: &Tag<'_>, base: &Url, hints: &mut Hints, cx: &mut Cx<'_>) {
    let (Some(rel), Some(href)) = (tag.attr("rel"), tag.attr("href")) else { return };
    match of_document(&href, base) {
        Ok(Some(url)) => {
            // One relation, or several as in HTML, each by its name or its URI.
            let names = rel.split_whitespace().filter_map(|rel| rel.rsplit('/').next());
            names.for_each(|name| relation(name, &url, hints));
        }
        Ok(None) => {}
        Err(code) => cx.note(code, &href),
    }
}

/// A link of a document itself as an absolute URL of the web. `Err` where it is too long.
pub(crate) fn of_document(href: &str, base: &Url) -> Result<Option<String>, IssueCode> {
    match absolute(href, base) {
        Some(url) if url.len() > MAX_URL => Err(IssueCode::UrlTooLong),
        url => Ok(url),
    }
}

/// Takes over what a link of this relation says, if its URL is not too long.
pub(crate) fn relation(rel: &str, url: &str, hints: &mut Hints) {
    if url.len() > MAX_URL {
        return;
    }
    let is = |word: &str| rel.eq_ignore_ascii_case(word);
    let text = || url.to_owned();
    if is("hub") {
        if hints.hubs.len() < MAX_HUBS && !hints.hubs.iter().any(|hub| hub == url) {
            hints.hubs.push(text());
        }
    } else if is("self") {
        hints.self_url.get_or_insert_with(text);
    } else if is("prev-archive") {
        hints.next_page = Some(text());
    } else if is("next") {
        hints.next_page.get_or_insert_with(text);
    }
}

/// A link as an absolute URL of the web.
pub(crate) fn absolute(href: &str, base: &Url) -> Option<String> {
    let url = base.join(loc::trim(href)).ok()?;
    (loc::is_web(url.as_str()) && !href.trim().is_empty()).then(|| url.into())
}

fn period(word: &str) -> Option<u32> {
    Some(match word.to_ascii_lowercase().as_str() {
        "hourly" => 3_600,
        "daily" => 86_400,
        "weekly" => 7 * 86_400,
        "monthly" => 30 * 86_400,
        "yearly" => 365 * 86_400,
        _ => return None,
    })
}

fn weekday(word: &str) -> Option<u8> {
    const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let lower = word.to_ascii_lowercase();
    DAYS.iter().position(|day| lower.starts_with(day)).and_then(|i| u8::try_from(i).ok())
}
