//! Pure: when a source that answers with redirects is asked at its new place.
//!
//! A permanent redirect is a claim of whoever answers today, and some are
//! mistakes. It is believed when it has led to a document in several polls over
//! a week, and at once where it only changes http to https. Even then the
//! source keeps its own URL: its new place is what is asked, until that fails.

use std::time::Duration;

use jiff::Timestamp;
use url::Url;

use crate::recrawl::later;
use crate::store::Moved;

/// Polls that must have ended at the same place.
const POLLS: u32 = 3;
/// Time over which they must have.
const OVER: Duration = Duration::from_secs(7 * 86_400);

/// What is known of a move after a poll that brought a document from `found_at`
/// by way of `hops` (each with its status).
pub(super) fn after_document(
    known: Option<&Moved>,
    source: &Url,
    hops: &[(Url, u16)],
    found_at: &Url,
    now: Timestamp,
) -> Option<Moved> {
    if hops.is_empty() {
        // Asked at the new place, it answered there; asked at the old one, it
        // has come back.
        return known.filter(|moved| moved.to == *found_at).cloned();
    }
    if found_at == source || hops.iter().any(|(_, status)| !matches!(status, 301 | 308)) {
        return None;
    }
    let before = known.filter(|moved| moved.to == *found_at);
    Some(Moved {
        to: found_at.clone(),
        polls: before.map_or(1, |moved| moved.polls.saturating_add(1)),
        since: before.map_or(now, |moved| moved.since),
    })
}

/// What is known of a home page that was found at `landed`, by whatever redirects,
/// while its site is held to live at `held`: whether it is to be held to have moved there.
/// URLs of a site that moves are other pages, so one answer of a server amid its
/// maintenance is not believed either.
pub(super) fn after_home(
    known: Option<&Moved>,
    held: &Url,
    landed: &Url,
    now: Timestamp,
) -> Option<Moved> {
    if landed.origin() == held.origin() {
        return None;
    }
    let mut to = landed.clone();
    to.set_path("/");
    to.set_query(None);
    to.set_fragment(None);
    let before = known.filter(|moved| moved.to == to);
    let polls = before.map_or(1, |moved| moved.polls.saturating_add(1));
    Some(Moved { to, polls, since: before.map_or(now, |moved| moved.since) })
}

/// Has it been so for long enough to be believed?
pub(super) fn has_lasted(moved: &Moved, now: Timestamp) -> bool {
    moved.polls >= POLLS && later(moved.since, OVER) <= now
}

/// Where the source is asked: at its new place once that is proven.
pub(super) fn place(known: Option<&Moved>, source: &Url, now: Timestamp) -> Url {
    match known {
        Some(moved) if is_proven(moved, source, now) => moved.to.clone(),
        _ => source.clone(),
    }
}

fn is_proven(moved: &Moved, source: &Url, now: Timestamp) -> bool {
    is_upgrade(source, &moved.to) || has_lasted(moved, now)
}

/// The same place by https?
fn is_upgrade(from: &Url, to: &Url) -> bool {
    let rest = |url: &Url| (url.path().to_owned(), url.query().map(str::to_owned));
    from.scheme() == "http"
        && to.scheme() == "https"
        && from.host() == to.host()
        && from.port().is_none()
        && to.port().is_none()
        && rest(from) == rest(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    fn day(n: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + n * 86_400).expect("a time")
    }

    const OLD: &str = "http://a.example/feed";

    /// Polls on these days, each ending at `to` by a redirect of `status`.
    fn seen(days: &[i64], to: &str, status: u16) -> Option<Moved> {
        days.iter().fold(None, |known, n| {
            let hops = [(url(OLD), status)];
            after_document(known.as_ref(), &url(OLD), &hops, &url(to), day(*n))
        })
    }

    #[test]
    fn a_permanent_move_is_believed_after_three_polls_over_a_week() {
        let to = "https://b.example/feed.xml";
        for (days, status, asked_at) in [
            (&[0][..], 301, OLD),
            (&[0, 1, 2], 308, OLD),
            (&[0, 9], 301, OLD),
            (&[0, 1, 7], 301, to),
            (&[0, 3, 8], 308, to),
            (&[0, 3, 8, 9], 302, OLD),
            (&[0, 3, 8, 9], 307, OLD),
        ] {
            let moved = seen(days, to, status);
            let now = day(*days.last().expect("a day"));
            let at = place(moved.as_ref(), &url(OLD), now);
            assert_eq!(at.as_str(), asked_at, "{days:?} {status}");
        }
    }

    #[test]
    fn the_same_place_by_https_is_believed_at_once() {
        for (to, asked_at) in [
            ("https://a.example/feed", "https://a.example/feed"),
            ("https://a.example/feed?x", OLD),
            ("https://a.example:8443/feed", OLD),
            ("https://www.a.example/feed", OLD),
        ] {
            let moved = seen(&[0], to, 301);
            assert_eq!(place(moved.as_ref(), &url(OLD), day(0)).as_str(), asked_at, "{to}");
        }
    }

    #[test]
    fn a_home_page_has_moved_when_it_is_found_elsewhere_for_a_week() {
        let held = url("https://www.a.example/");
        let (bare, plain) = ("https://a.example/start?x#y", "http://www.a.example/");
        for (landed, lasts) in [
            (&[(0, bare), (1, bare), (7, bare)][..], true),
            (&[(0, bare), (9, bare)], false),
            (&[(0, bare), (1, bare), (2, bare)], false),
            (&[(0, bare), (1, held.as_str()), (7, bare), (8, bare)], false),
            (&[(0, bare), (1, plain), (7, bare), (8, bare)], false),
            (&[(0, held.as_str()), (7, held.as_str()), (9, held.as_str())], false),
        ] {
            let moved = landed.iter().fold(None, |known: Option<Moved>, (n, landed)| {
                after_home(known.as_ref(), &held, &url(landed), day(*n))
            });
            let now = day(landed.last().expect("a poll").0);
            assert_eq!(moved.as_ref().is_some_and(|it| has_lasted(it, now)), lasts, "{landed:?}");
            assert!(moved.is_none_or(|it| it.to.path() == "/" && it.to.query().is_none()));
        }
    }

    #[test]
    fn another_target_or_a_temporary_hop_begins_anew() {
        let known = seen(&[0, 3, 8], "https://b.example/feed", 301);
        let hops = [(url(OLD), 301), (url("https://b.example/feed"), 302)];
        let to = url("https://c.example/feed");
        assert_eq!(after_document(known.as_ref(), &url(OLD), &hops, &to, day(9)), None);
        let other = after_document(known.as_ref(), &url(OLD), &hops[..1], &to, day(9));
        assert_eq!(other.map(|moved| moved.polls), Some(1));
    }

    #[test]
    fn a_source_that_answers_at_its_own_place_again_has_come_back() {
        let known = seen(&[0, 3, 8], "https://b.example/feed", 301);
        assert_eq!(after_document(known.as_ref(), &url(OLD), &[], &url(OLD), day(9)), None);
        let there = url("https://b.example/feed");
        assert_eq!(after_document(known.as_ref(), &url(OLD), &[], &there, day(9)), known);
    }
}
