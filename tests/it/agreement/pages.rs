//! What the generated documents are about: pages with dates of every form.

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};
use proptest::prelude::*;
use sitemapd::model::{Lastmod, Precision};

use crate::support::laws::Dice;

/// A page that a document lists.
#[derive(Debug, Clone)]
pub(super) struct Page {
    /// Below the root of the site: path and query.
    pub(super) path: String,
    pub(super) title: String,
    pub(super) published: Option<Timestamp>,
    pub(super) updated: Option<Timestamp>,
}

/// Where the pages are.
pub(super) const SITE: &str = "https://example.com/";

impl Page {
    pub(super) fn url(&self) -> String {
        format!("{SITE}{}", self.path)
    }
}

/// Pages whose URLs and titles have in them what must be escaped.
pub(super) fn pages() -> impl Strategy<Value = Vec<Page>> {
    let query = "(\\?[a-z]{1,3}=[a-z0-9éß日'\"%2F]{0,6}(&[a-z]{1,3}=[a-z0-9;+]{0,4}){0,2})?";
    let path = format!("[a-z][a-z0-9_~é-]{{0,8}}(/[a-z0-9.]{{1,5}}){{0,2}}{query}");
    let title = "[A-Z][A-Za-z&<>é\"' \\]]{0,11}";
    let date = || prop::option::of(1_000_000_000_i64..2_000_000_000);
    let second = |at: Option<i64>| at.map(|s| Timestamp::from_second(s).expect("in range"));
    let path = proptest::string::string_regex(&path).expect("a pattern");
    let page = (path, title, date(), date()).prop_map(move |(path, title, published, updated)| {
        Page { path, title, published: second(published), updated: second(updated) }
    });
    prop::collection::vec(page, 0..6)
}

/// RFC 3339 in some zone.
pub(super) fn rfc3339(at: Timestamp, dice: &mut Dice) -> String {
    let minutes = dice.pick(&[0, 60, -300, 330, 765]);
    if minutes == 0 {
        return at.to_string();
    }
    let offset = Offset::from_seconds(minutes * 60).expect("an offset");
    at.to_zoned(TimeZone::fixed(offset)).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

/// RFC 822 with a year of four digits, in some zone.
pub(super) fn rfc822(at: Timestamp, dice: &mut Dice) -> String {
    let form = dice.pick(&["%a, %d %b %Y %H:%M:%S %z", "%d %b %Y %H:%M:%S %z"]);
    let minutes = dice.pick(&[0, 60, -300, 330]);
    let offset = Offset::from_seconds(minutes * 60).expect("an offset");
    let text = at.to_zoned(TimeZone::fixed(offset)).strftime(form).to_string();
    let named = dice.pick(&["GMT", "UT", "+0000"]);
    if minutes == 0 { text.replace("+0000", named) } else { text }
}

/// One of the six forms of the W3C note, and what it says.
pub(super) fn w3c(at: Timestamp, dice: &mut Dice) -> (String, Lastmod) {
    let utc = at.to_zoned(TimeZone::UTC).datetime();
    let (form, precision) = dice.pick(&[
        ("%Y", Precision::Year),
        ("%Y-%m", Precision::Month),
        ("%Y-%m-%d", Precision::Day),
        ("%Y-%m-%dT%H:%MZ", Precision::Minute),
        ("%Y-%m-%dT%H:%M:%SZ", Precision::Second),
        ("%Y-%m-%dT%H:%M:%S.250Z", Precision::Fraction),
    ]);
    let midnight = utc.date().at(0, 0, 0, 0);
    let first = match precision {
        Precision::Year => midnight.first_of_year(),
        Precision::Month => midnight.first_of_month(),
        Precision::Day => midnight,
        Precision::Minute => utc.with().second(0).build().expect("a time"),
        Precision::Second => utc,
        Precision::Fraction => utc.with().millisecond(250).build().expect("a time"),
    };
    let at = first.to_zoned(TimeZone::UTC).expect("in range").timestamp();
    (utc.strftime(form).to_string(), Lastmod { at, precision })
}
