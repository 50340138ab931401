//! Pure: how the lastmods of a document compare with those of the read before.
//!
//! What one entry's date says is for the diff; what all of them say together
//! (a source that stamps everything, or never moves) shows here, and what to
//! call it is for `recrawl::habit`.

use jiff::Timestamp;

use super::Rules;
use super::document::{Document, is_followed};
use super::snapshot::Snapshot;
use crate::model::Precision;

/// What one read of a source says of its lastmods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dates {
    /// When the document was read.
    pub at: Timestamp,
    /// Pages listed.
    pub entries: u32,
    /// Those with a usable lastmod.
    pub dated: u32,
    /// Those whose lastmod is a date without a time.
    pub date_only: u32,
    /// Those whose lastmod lay more than a day ahead.
    pub future: u32,
    /// Pages that had a lastmod at the read before.
    pub known: u32,
    /// Of these, those whose lastmod went backwards.
    pub regressed: u32,
    /// Of these, the new lastmods of those whose lastmod is newer, as Unix
    /// seconds, ascending.
    pub moved: Vec<i64>,
    /// Lastmods of pages that had none at the read before, likewise. Once a window has
    /// dates this stays empty: what comes to it is recent, and says nothing of the rest.
    pub came: Vec<i64>,
}

/// Compares the dates of a document with those of the read before.
pub fn dates(before: &Snapshot, document: &Document, rules: &Rules) -> Dates {
    let at = rules.now;
    let is_recent = (rules.window || rules.part)
        && before.entries().iter().any(|was| was.lastmod.is_some() && !is_followed(was.digest));
    let future = u32::try_from(document.future_lastmods).unwrap_or(u32::MAX);
    let mut dates = Dates {
        at,
        entries: 0,
        dated: 0,
        date_only: 0,
        future,
        known: 0,
        regressed: 0,
        moved: Vec::new(),
        came: Vec::new(),
    };
    let mut old = before.entries().iter().peekable();
    for is in document.entries().iter().filter(|entry| !is_followed(entry.digest)) {
        dates.entries += 1;
        let Some(now) = is.lastmod else { continue };
        dates.dated += 1;
        let is_coarse =
            matches!(now.precision, Precision::Year | Precision::Month | Precision::Day);
        dates.date_only += u32::from(is_coarse);
        while old.next_if(|was| was.key < is.key).is_some() {}
        let was = old.peek().filter(|was| was.key == is.key);
        let Some(was) = was.and_then(|was| was.lastmod) else {
            if !is_recent {
                dates.came.push(now.at.as_second());
            }
            continue;
        };
        dates.known += 1;
        dates.regressed += u32::from(now.is_older_than(was));
        if now.is_newer_than(was) {
            dates.moved.push(now.at.as_second());
        }
    }
    // Here, where nobody waits for it: in order they are looked through at once.
    dates.moved.sort_unstable();
    dates.came.sort_unstable();
    dates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::Left;
    use crate::diff::document::Collector;
    use crate::diff::snapshot::{EntryHints, Row, SnapshotEntry};
    use crate::model::{Lastmod, UrlId};
    use crate::parse::Entry;

    const NOW: &str = "2026-11-21T12:00:00Z";

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a timestamp")
    }

    fn document(listed: &[(&str, Option<&str>)]) -> Document {
        let mut collector = Collector::new(1, at(NOW));
        for (loc, lastmod) in listed {
            let precision = Precision::Second;
            let lastmod = lastmod.map(|text| Lastmod { at: at(text), precision });
            collector.push(&Entry { loc, lastmod, ..Entry::default() });
        }
        collector.finish()
    }

    fn snapshot(document: &Document) -> Snapshot {
        let entry = |entry: &crate::diff::DocumentEntry| SnapshotEntry {
            key: entry.key,
            row: Row::Url(UrlId(1)),
            lastmod: entry.lastmod,
            hints: EntryHints::default(),
            digest: 0,
            misses: 0,
            missing_since: None,
        };
        Snapshot::from_unsorted(document.entries().iter().map(entry).collect())
    }

    fn rules(window: bool) -> Rules {
        Rules {
            now: at(NOW),
            complete: true,
            window,
            part: false,
            new_epoch: false,
            removal_polls: 3,
            removal_after_s: 0,
            siblings_read_s: 0,
            shrink_believed: false,
            rolls: 0,
            left: Left::Gone,
            has_children: false,
        }
    }

    #[test]
    fn dates_are_compared_with_those_of_the_read_before() {
        let then = "2026-11-01T00:00:00Z";
        let before =
            document(&[("a", Some(then)), ("b", Some(then)), ("c", Some(then)), ("d", None)]);
        let after = document(&[
            ("a", Some("2026-11-20T00:00:00Z")),
            ("b", Some("2026-10-01T00:00:00Z")),
            ("c", None),
            ("d", Some(then)),
            ("e", Some("2027-01-01T00:00:00Z")),
        ]);
        let dates = dates(&snapshot(&before), &after, &rules(false));
        let counts = (dates.entries, dates.dated, dates.known, dates.regressed, dates.future);
        assert_eq!(counts, (5, 3, 2, 1, 1));
        assert_eq!(dates.moved, [at("2026-11-20T00:00:00Z").as_second()]);
    }

    #[test]
    fn dates_are_counted_of_pages_and_told_in_their_order() {
        let on = |day: usize, at: &str| Lastmod {
            precision: if day.is_multiple_of(2) { Precision::Day } else { Precision::Second },
            at: format!("2026-{at}-{day:02}T00:00:00Z").parse().expect("a timestamp"),
        };
        let locs: Vec<String> = (1..=28).map(|n| format!("http://e/{n}")).collect();
        let listed = |from: usize, month: &str| {
            let base = url::Url::parse("http://e/").expect("a URL");
            let kinds = crate::model::Follow { image: true, ..crate::model::Follow::default() };
            let mut collector = Collector::following(1, at(NOW), kinds, &base);
            for (n, loc) in locs.iter().enumerate().skip(from) {
                let loc_of_image = Some(format!("/image/{n}"));
                let image = crate::model::extension::Image {
                    loc: loc_of_image,
                    ..crate::model::extension::Image::default()
                };
                let extensions = crate::parse::Extensions {
                    images: vec![image],
                    ..crate::parse::Extensions::default()
                };
                collector.push(&Entry {
                    loc,
                    lastmod: Some(on(n + 1, month)),
                    extensions: Some(&extensions),
                    ..Entry::default()
                });
            }
            collector.finish()
        };
        // Half of them were there before.
        let dates = dates(&snapshot(&listed(14, "09")), &listed(0, "10"), &rules(false));
        let counts = (dates.entries, dates.dated, dates.date_only, dates.known, dates.regressed);
        assert_eq!(counts, (28, 28, 14, 14, 0));
        let seconds = |days: std::ops::RangeInclusive<usize>| {
            days.map(|day| on(day, "10").at.as_second()).collect::<Vec<_>>()
        };
        assert_eq!((dates.came, dates.moved), (seconds(1..=14), seconds(15..=28)));
    }

    #[test]
    fn a_first_read_compares_with_nothing() {
        let first = document(&[("a", Some("2026-11-20T00:00:00Z"))]);
        let dates = dates(&Snapshot::new(), &first, &rules(false));
        assert_eq!((dates.entries, dates.known), (1, 0));
        assert!(dates.moved.is_empty());
    }

    #[test]
    fn what_comes_with_a_date_counts_where_it_is_not_recent_by_its_nature() {
        let then = "2026-11-01T00:00:00Z";
        let undated = document(&[("a", None), ("b", None)]);
        let dated = document(&[("a", Some(then)), ("b", None)]);
        let after = document(&[("b", Some(NOW)), ("a", Some(then)), ("c", Some(then))]);
        let (then, now) = (at(then).as_second(), at(NOW).as_second());
        for (before, window, came) in [
            (&undated, false, &[then, then, now][..]),
            (&undated, true, &[then, then, now]),
            (&dated, false, &[then, now]),
            (&dated, true, &[]),
        ] {
            let read = dates(&snapshot(before), &after, &rules(window));
            assert_eq!(read.came, came, "window: {window}");
        }
    }
}
