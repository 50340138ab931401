//! How values are written on the wire: times, durations, lists, cursors.
//!
//! One spelling each, in both directions: RFC 3339 in UTC with milliseconds,
//! durations in the config's grammar (`1h 30m`), cursors that a client passes back unread.
//! Request lists are capped while they are read, so that a small body of tiny
//! elements cannot grow into a large one in memory. [`queue`] has the bodies
//! that fetchers send and get, [`views`] and [`sources`] what operators read.

mod block_cursor;
mod include;
pub(crate) mod queue;
pub(crate) mod sources;
pub(crate) mod submissions;
pub(crate) mod views;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, IgnoredAny, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

use super::problem::Problem;
pub(crate) use crate::config::MAX_URL_CHARS;
use crate::config::units::{format_duration, parse_duration, parse_wait};
pub(crate) use block_cursor::BlockCursor;

/// Bytes of a duration text that are looked at; no honest one is longer.
const MAX_SPAN_BYTES: usize = 100;
/// Characters of a URL that webmasters name, as the Sitemaps protocol has it.
pub(crate) const PUBLIC_URL_CHARS: usize = 2_048;
/// Characters of a name, a worker or a request id.
pub(crate) const MAX_NAME_CHARS: usize = 200;
/// Rows of one part of a list.
pub(crate) const MAX_LIMIT: u32 = 1_000;
/// Rows of one part of a list where no `limit` is given.
pub(crate) const DEFAULT_LIMIT: u32 = 100;
/// The crawl where none is given.
pub(crate) const DEFAULT_CRAWL: &str = "default";

/// An instant: written with three digits of milliseconds and `Z`, read from
/// any RFC 3339 text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Timestamp);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "an RFC 3339 time such as \"2026-11-21T08:30:00.000Z\"";
        deserializer.deserialize_str(FromText {
            expected: EXPECTED,
            read: |text: &str| {
                // The end of time, as many write it, is a day beyond what we can tell.
                let end = || {
                    let before = format!("9998{}", text.strip_prefix("9999")?);
                    before.parse::<Timestamp>().ok().map(|_| Timestamp::MAX)
                };
                let time = text.parse().ok().or_else(end);
                time.map(Self).ok_or_else(|| format!("{text:?} is not {EXPECTED}"))
            },
        })
    }
}

/// A duration in the one grammar: `1h 30m`, `500ms`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_duration(whole_millis(self.0)).fmt(f)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration: numbers with units, from days to milliseconds.",
            "examples": ["1h 30m", "500ms", "7d"],
        })
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(FromText {
            expected: "a duration such as \"1h 30m\"",
            read: |text: &str| {
                parse_duration(text).map(Self).map_err(|cause| {
                    let plain = format!("{text:?} is no duration such as \"1h 30m\"");
                    if cause == plain { plain } else { format!("{plain}: {cause}") }
                })
            },
        })
    }
}

impl Span {
    /// Reads one that a page may have named, however large: no more than `most`.
    pub(crate) fn at_most<'de, D: Deserializer<'de>>(
        deserializer: D,
        most: Duration,
    ) -> Result<Self, D::Error> {
        deserializer.deserialize_str(FromText {
            expected: "a duration such as \"1h 30m\"",
            read: |text: &str| parse_wait(text, most).map(Self),
        })
    }
}

/// Reads a value from a JSON string; the error says what was expected.
struct FromText<F> {
    expected: &'static str,
    read: F,
}

impl<T, F: FnOnce(&str) -> Result<T, String>> Visitor<'_> for FromText<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        if text.len() > MAX_SPAN_BYTES {
            return Err(E::invalid_value(Unexpected::Other("a long text"), &self));
        }
        (self.read)(text).map_err(E::custom)
    }
}

/// A list in a request that keeps its first `N` elements and counts the rest.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Capped<T, const N: usize> {
    items: Vec<T>,
    seen: usize,
}

impl<T, const N: usize> Default for Capped<T, N> {
    fn default() -> Self {
        Self { items: Vec::new(), seen: 0 }
    }
}

impl<T, const N: usize> Capped<T, N> {
    /// The elements; over the limit a problem that names the field and the limit.
    pub(crate) fn take(self, field: &str) -> Result<Vec<T>, Problem> {
        if self.seen > N {
            return Err(Problem::limit(format!(
                "{field} has {} elements; at most {} are taken in one call.",
                grouped(self.seen),
                grouped(N)
            )));
        }
        Ok(self.items)
    }
}

impl<T: JsonSchema, const N: usize> JsonSchema for Capped<T, N> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("ListOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({ "type": "array", "items": items, "maxItems": N })
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for Capped<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(CappedVisitor(PhantomData))
    }
}

struct CappedVisitor<T, const N: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for CappedVisitor<T, N> {
    type Value = Capped<T, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut list = Capped::default();
        while list.seen < N {
            let Some(item) = seq.next_element()? else { return Ok(list) };
            list.items.push(item);
            list.seen += 1;
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {
            list.seen += 1;
        }
        Ok(list)
    }
}

/// Where the next part of a list starts; opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor(pub(crate) i64);

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("r{:x}", self.0))
    }
}

impl JsonSchema for Cursor {
    fn schema_name() -> Cow<'static, str> {
        "Cursor".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Where a list goes on: the `next` of the part before, passed back unread.",
        })
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.strip_prefix('r')
            .and_then(|digits| i64::from_str_radix(digits, 16).ok())
            .filter(|row| *row >= 0)
            .map(Self)
            .ok_or_else(|| D::Error::custom("cursor must be a `next` from the same list"))
    }
}

/// The rows asked for; 100 where not said, a problem that names the limit over it.
pub(crate) fn list_limit(limit: Option<u64>) -> Result<u32, Problem> {
    list_limit_or(limit, DEFAULT_LIMIT)
}

/// The same where another number is meant when none is said.
pub(crate) fn list_limit_or(limit: Option<u64>, default: u32) -> Result<u32, Problem> {
    limited(limit, default, "rows come at once. Follow `next` for more.")
}

/// The same of what has no further part.
pub(crate) fn peek_limit(limit: Option<u64>) -> Result<u32, Problem> {
    limited(limit, DEFAULT_LIMIT, "URLs are shown of what comes next.")
}

fn limited(limit: Option<u64>, default: u32, most: &str) -> Result<u32, Problem> {
    let Some(limit) = limit else { return Ok(default) };
    match u32::try_from(limit) {
        Ok(0) => Err(Problem::field("limit is 0; it must be at least 1.")),
        Ok(rows) if rows <= MAX_LIMIT => Ok(rows),
        _ => Err(Problem::limit(format!(
            "limit is {}; at most {} {most}",
            grouped(limit),
            grouped(MAX_LIMIT)
        ))),
    }
}

/// A name given in a request: not empty, at most 200 characters.
pub(crate) fn name(field: &str, text: String) -> Result<String, Problem> {
    if text.is_empty() {
        return Err(Problem::field(format!("{field} is empty.")));
    }
    if text.chars().count() > MAX_NAME_CHARS {
        return Err(Problem::limit(format!("{field} is longer than {MAX_NAME_CHARS} characters.")));
    }
    Ok(text)
}

/// The crawl named in a request, or the default one.
pub(crate) fn crawl(given: Option<String>) -> Result<String, Problem> {
    given.map_or_else(|| Ok(DEFAULT_CRAWL.to_owned()), |text| name("crawl", text))
}

/// An absolute http or https URL without userinfo given in a request; as long
/// as `fetch.max_url_chars` may let one be that is known.
pub(crate) fn web_url(field: &str, text: &str) -> Result<Url, Problem> {
    web_url_within(MAX_URL_CHARS, field, text)
}

/// The same of a document, whatever part of it is named.
pub(crate) fn document_url(field: &str, text: &str) -> Result<Url, Problem> {
    let mut url = web_url(field, text)?;
    url.set_fragment(None);
    Ok(url)
}

/// The same of at most so many characters.
pub(crate) fn web_url_within(max: usize, field: &str, text: &str) -> Result<Url, Problem> {
    if text.chars().count() > max {
        let max = grouped(max);
        return Err(Problem::limit(format!("{field} is longer than {max} characters.")));
    }
    let url = Url::parse(text)
        .map_err(|cause| Problem::field(format!("{field} is no absolute URL: {cause}.")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Problem::field(format!(
            "{field} begins with {}: but only http and https URLs are known.",
            url.scheme()
        )));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Problem::field(format!(
            "{field} holds a user name or a password, which are never sent; leave them out."
        )));
    }
    Ok(url)
}

/// What a duration is shown as: nobody reads microseconds.
fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Cuts a text at so many characters.
pub(crate) fn clip(mut text: String, max_chars: usize) -> String {
    if let Some((at, _)) = text.char_indices().nth(max_chars) {
        text.truncate(at);
    }
    text
}

/// A number as people read it: `10,000`.
pub(crate) fn grouped(number: impl fmt::Display) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests;
