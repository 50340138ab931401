//! The protocol's words and ours: crawls, metadata, dates, and what a report
//! says in its metadata. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::proto::url_item::Item;
use super::proto::{KnownUrlItem, StringList, UrlInfo, UrlItem};
use crate::model::Outcome;
use crate::store::frontier::{Known, Listed, Metadata, Put, Served};

/// The protocol's name of the crawl that is meant where none is named.
const DEFAULT: &str = "DEFAULT";
/// Ours.
const OUR_DEFAULT: &str = "default";
/// Most characters of a signature that are kept.
const MAX_SIGNATURE: usize = 128;
/// Most characters of what went wrong.
const MAX_ERROR: usize = 500;

/// Our name of a crawl.
pub(super) fn our_crawl(id: &str) -> String {
    if matches!(id, "" | DEFAULT) { OUR_DEFAULT.to_owned() } else { id.to_owned() }
}

/// The protocol's name of a crawl.
pub(super) fn crawl_id(name: &str) -> String {
    if name == OUR_DEFAULT { DEFAULT.to_owned() } else { name.to_owned() }
}

/// A key, where one is named.
pub(super) fn key_of(key: String) -> Option<String> {
    Some(key).filter(|key| !key.is_empty())
}

/// What comes back in the acknowledgement of an item.
pub(super) fn ack_id(item: &UrlItem) -> String {
    if !item.id.is_empty() {
        return item.id.clone();
    }
    info_of(item).map_or_else(String::new, |info| info.url.clone())
}

fn info_of(item: &UrlItem) -> Option<&UrlInfo> {
    match item.item.as_ref()? {
        Item::Discovered(discovered) => discovered.info.as_ref(),
        Item::Known(known) => known.info.as_ref(),
    }
}

/// An item as the store takes it; `None` where it says nothing.
pub(super) fn put_of(item: UrlItem) -> Option<Put> {
    let created = second(item.creation_date);
    match item.item? {
        Item::Discovered(discovered) => Some(Put { created, ..discovered_of(discovered.info?) }),
        Item::Known(known) => {
            let put = discovered_of(known.info?);
            let known = known_of(&put.metadata, second(known.refetchable_from_date));
            Some(Put { created, known: Some(known), ..put })
        }
    }
}

/// A URL that was found.
pub(super) fn discovered_of(info: UrlInfo) -> Put {
    let values = |(name, list): (String, StringList)| (name, list.values);
    Put {
        crawl: our_crawl(&info.crawl_id),
        key: key_of(info.key),
        url: info.url,
        metadata: info.metadata.into_iter().map(values).collect(),
        created: None,
        known: None,
    }
}

/// An instant by its Unix second, or the end of time; 0 is none.
fn second(second: u64) -> Option<Timestamp> {
    let second = i64::try_from(second).unwrap_or(i64::MAX);
    (second > 0).then(|| Timestamp::from_second(second).unwrap_or(Timestamp::MAX))
}

/// What a client's metadata says of a fetch, by the names that `StormCrawler`
/// gives: status, signature and its last change, pause, target of a redirect, error.
fn known_of(metadata: &Metadata, again: Option<Timestamp>) -> Known {
    let value = |name: &str| metadata.get(name)?.first().map(String::as_str);
    let status = value("fetch.statusCode").and_then(|text| text.trim().parse().ok());
    let status = status.filter(|status| (100..=999).contains(status));
    let error = value("fetch.exception").or_else(|| value("error.cause"));
    let signature = value("signature").filter(|text| !text.is_empty());
    Known {
        again,
        status,
        outcome: outcome_of(status, error.is_some()),
        signature: signature.map(|text| cut(text, MAX_SIGNATURE)),
        changed: value("signatureChangeDate").and_then(|text| text.trim().parse().ok()),
        retry_after: value("protocol.retry-after")
            .and_then(|text| text.trim().parse().ok())
            .map(Duration::from_secs),
        final_url: value("_redirTo").map(str::to_owned),
        error: error.map(|text| cut(text, MAX_ERROR)),
    }
}

/// What was seen, as far as a status says it.
fn outcome_of(status: Option<u16>, has_error: bool) -> Option<Outcome> {
    match status {
        Some(304) => Some(Outcome::Unchanged),
        Some(301..=303 | 307 | 308) => Some(Outcome::Redirected),
        Some(404 | 410) => Some(Outcome::Gone),
        Some(401 | 403 | 451) => Some(Outcome::Blocked),
        Some(400..) => Some(Outcome::Failed),
        None if has_error => Some(Outcome::Failed),
        Some(_) | None => None,
    }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

fn wire(metadata: Metadata) -> std::collections::HashMap<String, StringList> {
    metadata.into_iter().map(|(name, values)| (name, StringList { values })).collect()
}

/// A URL to fetch, as the protocol says it.
pub(super) fn info_to_fetch(served: Served) -> UrlInfo {
    UrlInfo {
        url: served.url,
        key: served.key,
        metadata: wire(served.metadata),
        crawl_id: crawl_id(&served.crawl),
    }
}

/// A URL as it is known, as the protocol says it: taken in again, it is what it
/// was.
pub(super) fn item_of(listed: Listed, crawl: &str) -> UrlItem {
    let unsigned = |at: Timestamp| u64::try_from(at.as_second()).unwrap_or(0);
    let info = UrlInfo {
        url: listed.url,
        key: listed.key,
        metadata: wire(listed.metadata),
        crawl_id: crawl_id(crawl),
    };
    // 0 would say that it is never due again.
    let refetchable_from_date = listed.due.map_or(0, |due| unsigned(due).max(1));
    let known = KnownUrlItem { info: Some(info), refetchable_from_date };
    UrlItem {
        item: Some(Item::Known(known)),
        id: String::new(),
        creation_date: unsigned(listed.created),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(said: &[(&str, &str)]) -> Metadata {
        said.iter().map(|(name, value)| ((*name).to_owned(), vec![(*value).to_owned()])).collect()
    }

    #[test]
    fn the_default_crawl_has_a_name_in_each_language() {
        for (theirs, ours) in [("", "default"), ("DEFAULT", "default"), ("news", "news")] {
            assert_eq!(our_crawl(theirs), ours);
        }
        assert_eq!((crawl_id("default"), crawl_id("news")), ("DEFAULT".into(), "news".into()));
    }

    #[test]
    fn a_report_says_what_was_seen_in_the_names_of_its_metadata() {
        use Outcome::{Blocked, Failed, Gone, Redirected, Unchanged};
        for (status, outcome) in [
            ("200", None),
            ("304", Some(Unchanged)),
            ("301", Some(Redirected)),
            ("404", Some(Gone)),
            (" 410 ", Some(Gone)),
            ("403", Some(Blocked)),
            ("429", Some(Failed)),
            ("503", Some(Failed)),
            ("99", None),
            ("many", None),
            ("-1", None),
            ("99999999999", None),
        ] {
            let known = known_of(&metadata(&[("fetch.statusCode", status)]), None);
            assert_eq!(known.outcome, outcome, "{status}");
        }
        let thrown = known_of(&metadata(&[("fetch.exception", "timeout")]), None);
        assert_eq!((thrown.outcome, thrown.error.as_deref()), (Some(Failed), Some("timeout")));
        let long = "é".repeat(1_000);
        let known = known_of(
            &metadata(&[
                ("signature", &long),
                ("signatureChangeDate", "2026-11-01T00:00:00.5Z"),
                ("protocol.retry-after", "120"),
                ("_redirTo", "https://example.org/"),
            ]),
            None,
        );
        assert_eq!(known.signature.map(|text| text.chars().count()), Some(MAX_SIGNATURE));
        assert_eq!(known.changed.map(Timestamp::as_second), Some(1_793_491_200));
        assert_eq!(known.retry_after, Some(Duration::from_secs(120)));
        assert_eq!(known.final_url.as_deref(), Some("https://example.org/"));
    }

    #[test]
    fn dates_that_no_clock_will_show_are_never_or_the_end_of_time() {
        assert_eq!(second(0), None);
        assert_eq!(second(u64::MAX), Some(Timestamp::MAX));
        assert_eq!(second(1 << 62), Some(Timestamp::MAX));
        assert_eq!(second(1).map(Timestamp::as_second), Some(1));
    }
}
