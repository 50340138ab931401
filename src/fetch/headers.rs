//! What the headers of an answer say, and the headers that we send.
//!
//! Pure. Garbage in a header is no error: the value counts as absent. Validators
//! are kept byte for byte: each byte is one char of the string (as in Latin-1),
//! so that an origin gets back exactly what it sent.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::tz::TimeZone;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, DATE, ETAG,
    EXPIRES, FROM, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    LAST_MODIFIED, LINK, RETRY_AFTER, TRANSFER_ENCODING, USER_AGENT,
};

use super::Validators;

/// What we can read, the formats of the protocol first.
const OUR_ACCEPT: HeaderValue = HeaderValue::from_static(
    "application/xml, text/xml, application/rss+xml, application/atom+xml, \
     application/feed+json, application/json;q=0.9, text/plain;q=0.8, */*;q=0.1",
);

/// What `body` can undo.
const OUR_ENCODINGS: HeaderValue = HeaderValue::from_static("gzip, br, zstd, deflate");

/// Longest `Retry-After` believed: a day, as the large crawlers do. More is cut.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Longest freshness believed: a week. More is ignored, since a year is what
/// servers say of every static file.
pub const MAX_FRESHNESS: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Bytes of a validator kept; a longer one is not kept at all.
const MAX_VALIDATOR: usize = 1_024;

/// Bytes of a `Content-Type` or `Content-Encoding` kept.
const MAX_SHORT_VALUE: usize = 256;

/// `Link` headers kept, and bytes of each.
const MAX_LINKS: usize = 64;
const MAX_LINK: usize = 4_096;

/// Headers that a site may not set: ours to say, or the connection's.
const OURS: [&str; 20] = [
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "content-length",
    "content-type",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "range",
    "accept-encoding",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "if-range",
    "max-forwards",
];

/// Sent with every request.
pub(super) fn defaults(user_agent: HeaderValue, contact: Option<HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, user_agent);
    headers.insert(ACCEPT, OUR_ACCEPT);
    headers.insert(ACCEPT_ENCODING, OUR_ENCODINGS);
    if let Some(contact) = contact {
        headers.insert(FROM, contact);
    }
    headers
}

/// A header that a site's config wants to be sent. The value is marked as
/// secret and is not in the error text.
pub fn site_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "a site's header has a name that HTTP does not allow".to_owned())?;
    if OURS.contains(&parsed.as_str()) {
        return Err(format!("header {parsed} may not be set for a site"));
    }
    let mut secret = HeaderValue::from_str(value)
        .map_err(|_| format!("header {parsed} of the site has a value that HTTP does not allow"))?;
    secret.set_sensitive(true);
    Ok((parsed, secret))
}

/// Adds the conditions of a conditional GET, both verbatim (RFC 9110 section
/// 13.1). Says whether there are any.
pub(super) fn add_conditions(headers: &mut HeaderMap, validators: &Validators) -> bool {
    let pairs = [
        (IF_NONE_MATCH, validators.etag.as_deref()),
        (IF_MODIFIED_SINCE, validators.last_modified.as_deref()),
    ];
    let mut any = false;
    for (name, kept) in pairs {
        if let Some(value) = kept.and_then(to_bytes).and_then(|b| HeaderValue::from_bytes(&b).ok())
        {
            headers.insert(name, value);
            any = true;
        }
    }
    any
}

/// The only transfer coding that is undone is "chunked", and hyper does it; a
/// body in another one would be taken for a document.
pub(super) fn check_transfer(headers: &HeaderMap) -> Result<(), String> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if codings.all(|coding| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")) {
        return Ok(());
    }
    Err("a Transfer-Encoding other than chunked".to_owned())
}

/// The validators of an answer.
pub(super) fn validators(headers: &HeaderMap) -> Validators {
    Validators {
        etag: value(headers, &ETAG, MAX_VALIDATOR),
        last_modified: value(headers, &LAST_MODIFIED, MAX_VALIDATOR),
    }
}

/// `Content-Type`, if it is of a sane length.
pub(super) fn content_type(headers: &HeaderMap) -> Option<String> {
    value(headers, &CONTENT_TYPE, MAX_SHORT_VALUE)
}

/// `Content-Encoding` in the order applied, lower-case, without `identity`.
/// Longer lists than anybody undoes are cut; they stay too long.
pub(super) fn content_encoding(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|coding| coding.trim().to_ascii_lowercase())
        .filter(|coding| !coding.is_empty() && coding != "identity")
        .take(8)
        .map(|mut coding| {
            coding.truncate(MAX_SHORT_VALUE);
            coding
        })
        .collect()
}

/// `Link` headers, verbatim; over-long ones and those past the limit are left out.
pub(super) fn links(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(LINK)
        .iter()
        .map(HeaderValue::as_bytes)
        .filter(|link| link.len() <= MAX_LINK)
        .take(MAX_LINKS)
        .map(from_bytes)
        .collect()
}

/// `Retry-After` as a delay (RFC 9110 section 10.2.3), at most
/// [`MAX_RETRY_AFTER`]. A date counts from the answer's own `Date`, since only
/// these two come from one clock; else from `now`, if the caller has a clock.
pub(super) fn retry_after(headers: &HeaderMap, now: Option<Timestamp>) -> Option<Duration> {
    let raw = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Some(delay) = delta_seconds(raw) {
        return Some(delay.min(MAX_RETRY_AFTER));
    }
    let until = http_date(raw)?;
    let from = date_of(headers, &DATE).or(now)?;
    Some(between(from, until).min(MAX_RETRY_AFTER))
}

/// How long the answer is fresh (RFC 9111 section 4.2.1, as a private cache):
/// `max-age` less `Age`, else `Expires` less `Date`. Nothing above
/// [`MAX_FRESHNESS`] is believed.
pub(super) fn max_age(headers: &HeaderMap, now: Option<Timestamp>) -> Option<Duration> {
    let control = || {
        headers
            .get_all(CACHE_CONTROL)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|directive| directive.trim().to_ascii_lowercase())
    };
    if control().any(|directive| matches!(directive.as_str(), "no-cache" | "no-store")) {
        return Some(Duration::ZERO);
    }
    let said = control()
        .find_map(|directive| delta_seconds(directive.strip_prefix("max-age=")?.trim_matches('"')));
    let fresh = if let Some(max_age) = said {
        if max_age > MAX_FRESHNESS {
            return None;
        }
        let age = headers.get(AGE).and_then(|age| delta_seconds(age.to_str().ok()?.trim()));
        max_age.saturating_sub(age.unwrap_or_default())
    } else {
        let raw = headers.get(EXPIRES)?.to_str().ok()?;
        // "0" and other non-dates mean already expired (RFC 9111 section 5.3).
        match http_date(raw) {
            None => Duration::ZERO,
            Some(expires) => between(date_of(headers, &DATE).or(now)?, expires),
        }
    };
    (fresh <= MAX_FRESHNESS).then_some(fresh)
}

/// An HTTP date in any of its three forms (RFC 9110 section 5.6.7).
fn http_date(raw: &str) -> Option<Timestamp> {
    let text = raw.trim();
    if text.len() > 64 {
        return None;
    }
    let imf = DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text).ok();
    let civil = |format: &str, from: &str| DateTime::strptime(format, from).ok();
    imf.or_else(|| {
        // The weekday says nothing that the date does not, and is often wrong.
        let without_weekday = text.split_once(' ').map(|(_, rest)| rest.trim())?;
        let date_time = civil("%d-%b-%y %H:%M:%S GMT", without_weekday)
            .or_else(|| civil("%b %e %H:%M:%S %Y", without_weekday))?;
        Some(date_time.to_zoned(TimeZone::UTC).ok()?.timestamp())
    })
}

fn date_of(headers: &HeaderMap, name: &HeaderName) -> Option<Timestamp> {
    http_date(headers.get(name)?.to_str().ok()?)
}

/// The time from one moment to a later one; nothing if it is not later.
fn between(from: Timestamp, until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(from)).unwrap_or(Duration::ZERO)
}

/// A number of seconds in digits only; too many digits mean very long.
fn delta_seconds(raw: &str) -> Option<Duration> {
    if raw.is_empty() || !raw.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(Duration::from_secs(raw.parse().unwrap_or(u64::from(u32::MAX))))
}

fn value(headers: &HeaderMap, name: &HeaderName, max: usize) -> Option<String> {
    let raw = headers.get(name)?.as_bytes();
    (!raw.is_empty() && raw.len() <= max).then(|| from_bytes(raw))
}

fn from_bytes(raw: &[u8]) -> String {
    raw.iter().copied().map(char::from).collect()
}

fn to_bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(c).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|&(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
            })
            .collect()
    }

    #[allow(clippy::unnecessary_wraps, reason = "the tables compare options")]
    fn seconds(n: u64) -> Option<Duration> {
        Some(Duration::from_secs(n))
    }

    #[test]
    fn the_three_forms_of_an_http_date_are_one_moment() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            let moment = http_date(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(moment.as_second(), 784_111_777, "{text}");
        }
        for text in ["", "0", "-1", "never", "Sun, 06 Nov 1994", "99999999999999999999"] {
            assert_eq!(http_date(text), None, "{text}");
        }
    }

    #[test]
    fn retry_after_is_a_delay_of_at_most_a_day() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (said, want) in [
            ("0", seconds(0)),
            ("120", seconds(120)),
            (" 120 ", seconds(120)),
            ("99999999", Some(MAX_RETRY_AFTER)),
            ("99999999999999999999999999", Some(MAX_RETRY_AFTER)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", seconds(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", seconds(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", seconds(0)),
            ("Sat, 06 Nov 2094 08:00:00 GMT", Some(MAX_RETRY_AFTER)),
            ("-5", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            let answer = headers(&[("retry-after", said), ("date", date)]);
            assert_eq!(retry_after(&answer, None), want, "{said:?}");
        }
    }

    #[test]
    fn a_retry_after_date_without_a_date_header_counts_from_our_clock() {
        let answer = headers(&[("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT")]);
        assert_eq!(retry_after(&answer, None), None);
        let now = http_date("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(retry_after(&answer, now), seconds(60));
    }

    #[test]
    fn freshness_is_max_age_before_expires_and_absurd_values_are_ignored() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let expires = ("expires", "Sun, 06 Nov 1994 09:49:37 GMT");
        for (pairs, want) in [
            (vec![("cache-control", "max-age=600")], seconds(600)),
            (vec![("cache-control", "public, Max-Age=\"600\", s-maxage=5")], seconds(600)),
            (vec![("cache-control", "max-age=600"), ("age", "100")], seconds(500)),
            (vec![("cache-control", "max-age=600"), ("age", "700")], seconds(0)),
            (vec![("cache-control", "max-age=600"), date, expires], seconds(600)),
            (vec![("cache-control", "no-cache, max-age=600")], seconds(0)),
            (vec![("cache-control", "no-store"), date, expires], seconds(0)),
            (vec![("cache-control", "max-age=31536000")], None),
            (vec![("cache-control", "max-age=31536000"), date, expires], None),
            (vec![("cache-control", "max-age=99999999999999999999")], None),
            (vec![("cache-control", "max-age=-1")], None),
            (vec![("cache-control", "public"), date, expires], seconds(3600)),
            (vec![date, expires], seconds(3600)),
            (vec![expires], None),
            (vec![date, ("expires", "0")], seconds(0)),
            (vec![date, ("expires", "Sun, 06 Nov 1994 07:49:37 GMT")], seconds(0)),
            (vec![date, ("expires", "Sat, 06 Nov 2094 07:49:37 GMT")], None),
            (vec![], None),
        ] {
            assert_eq!(max_age(&headers(&pairs), None), want, "{pairs:?}");
        }
    }

    #[test]
    fn validators_go_back_byte_for_byte() {
        for raw in ["W/\"a\"", "\"a\", \"b\"", "unquoted", "\"\u{e9}\"", "\"a-gzip\""] {
            let answer = headers(&[("etag", raw), ("last-modified", "yesterday")]);
            let kept = validators(&answer);
            let mut sent = HeaderMap::new();
            assert!(add_conditions(&mut sent, &kept));
            assert_eq!(sent[IF_NONE_MATCH].as_bytes(), raw.as_bytes(), "{raw}");
            assert_eq!(sent[IF_MODIFIED_SINCE].as_bytes(), b"yesterday");
        }
    }

    #[test]
    fn an_empty_or_huge_validator_is_none() {
        let huge = "x".repeat(MAX_VALIDATOR + 1);
        let answer = headers(&[("etag", ""), ("last-modified", &huge)]);
        assert_eq!(validators(&answer), Validators::default());
        assert!(!add_conditions(&mut HeaderMap::new(), &Validators::default()));
    }

    #[test]
    fn content_encodings_are_listed_as_applied() {
        let mut answer = headers(&[("content-encoding", " GZip , identity,, br")]);
        answer.append(CONTENT_ENCODING, HeaderValue::from_static("zstd"));
        assert_eq!(content_encoding(&answer), ["gzip", "br", "zstd"]);
        let chain = "gzip,".repeat(1_000);
        assert_eq!(content_encoding(&headers(&[("content-encoding", &chain)])).len(), 8);
    }

    #[test]
    fn a_site_may_set_its_own_headers_but_not_ours() {
        assert!(site_header("Authorization", "Bearer x").unwrap().1.is_sensitive());
        for (name, value) in [
            ("Host", "other.example"),
            ("Range", "bytes=0-9"),
            ("If-None-Match", "*"),
            ("Accept-Encoding", "xz"),
            ("bad name", "x"),
            ("X-Secret", "hunter2\r\nHost: other"),
        ] {
            let refused = site_header(name, value).unwrap_err();
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }
}
