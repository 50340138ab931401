//! Every step of the comparison as a table, and its laws.

use proptest::prelude::*;

use super::document::{Collector, loc_key};
use super::snapshot::{EntryHints, Rejection};
use super::*;
use crate::model::extension::Image;
use crate::model::{ChangeFreq, Follow, Precision, Priority, UrlId, UrlKind};
use crate::parse::{Entry, Extensions};

const SEED: u64 = 7;
const DAY: i64 = 86_400;

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().expect("a timestamp")
}

fn rules() -> Rules {
    Rules {
        now: now(),
        complete: true,
        window: false,
        part: false,
        new_epoch: false,
        removal_polls: 3,
        removal_after_s: DAY,
        siblings_read_s: i64::MAX,
        shrink_believed: false,
        rolls: 0,
        left: Left::Gone,
        has_children: false,
    }
}

fn date(text: &str) -> Option<Lastmod> {
    (!text.is_empty()).then(|| crate::date::lastmod(text).expect("a date"))
}

/// A document of entries: loc, date, digest.
fn document(entries: &[(&str, &str, u64)]) -> Document {
    let mut collector = Collector::new(SEED, now());
    for (loc, lastmod, digest) in entries {
        collector.push(&Entry { loc, lastmod: date(lastmod), digest: *digest, ..Entry::default() });
    }
    collector.finish()
}

#[test]
fn a_date_to_come_leaves_the_one_beside_it() {
    let mut collector = Collector::new(SEED, now());
    let (published, updated) = (date("2023-11-21"), date("2099-01-01"));
    collector.push(&Entry { loc: "http://e/a", published, updated, ..Entry::default() });
    let document = collector.finish();
    assert_eq!(document.entries()[0].lastmod, published);
    assert_eq!(document.future_lastmods, 1);
}

/// The snapshot that a document leaves behind, every entry with a row.
fn snapshot_of(document: &Document) -> Snapshot {
    let diff = diff(&Snapshot::new(), document, &rules());
    with_rows(diff)
}

fn with_rows(diff: Diff) -> Snapshot {
    let mut next = diff.next;
    for entry in &mut next {
        if entry.row == Row::Rejected(Rejection::Invalid) {
            entry.row = Row::Url(UrlId(i64::from_ne_bytes(entry.key.to_ne_bytes()) >> 8));
        }
    }
    Snapshot::from_unsorted(next)
}

/// What became of one entry, in a word.
fn word(before: (&str, u64), after: (&str, u64), rules: &Rules) -> &'static str {
    let was = snapshot_of(&document(&[("http://e/a", before.0, before.1)]));
    let is = document(&[("http://e/a", after.0, after.1)]);
    match diff(&was, &is, rules).steps.as_slice() {
        [] => "unchanged",
        [Step::Admit { previous: None, .. }] => "new",
        [Step::Admit { previous: Some(_), .. }] => "judged anew",
        [Step::Changed { .. }] => "changed",
        [Step::Touched { .. }] => "touched",
        [Step::Regressed { .. }] => "regressed",
        [Step::Hints { .. }] => "hints",
        [Step::Missing { .. }] => "missing",
        [Step::Drop { .. }] => "dropped",
        more => panic!("{more:?}"),
    }
}

#[test]
fn a_listed_entry_becomes_one_step_at_most() {
    let cases = [
        (("2026-11-01", 0), ("2026-11-01", 0), "unchanged"),
        (("", 0), ("", 0), "unchanged"),
        (("2026-11-01", 0), ("2026-11-02", 0), "changed"),
        (("2025", 0), ("2026", 0), "changed"),
        (("2026", 0), ("2027", 0), "unchanged"),
        (("2025", 0), ("2026-11-02", 0), "changed"),
        (("2026-10", 0), ("2026-11-02T10:00:00Z", 0), "changed"),
        // The coarser of the two decides; the finer one is taken over.
        (("2026-11-01", 0), ("2026-11-01T23:00:00Z", 0), "hints"),
        (("2026-11", 0), ("2026-11-20", 0), "hints"),
        (("2026-11-01", 0), ("2026-11-01T00:00:00Z", 0), "hints"),
        (("2026-11-01T10:00Z", 0), ("2026-11-01T10:00:59Z", 0), "hints"),
        (("2026-11-01T10:00:00Z", 0), ("2026-11-01T11:00:00+01:00", 0), "unchanged"),
        (("2026-11-01T10:00:00.2Z", 0), ("2026-11-01T10:00:00.7Z", 0), "unchanged"),
        (("2026-11-02", 0), ("2026-11-01", 0), "regressed"),
        // A date that appears, or goes, is no change by itself.
        (("", 0), ("2026-11-01", 0), "hints"),
        (("2026-11-01", 0), ("", 0), "unchanged"),
        // Nor is one from the future a date.
        (("2026-11-01", 0), ("2026-11-30", 0), "unchanged"),
        (("2026-11-20", 0), ("2026-11-22T11:00:00Z", 0), "changed"),
        (("2026-11-20", 0), ("2026-11-22T13:00:00Z", 0), "unchanged"),
        (("2026-11-01", 5), ("2026-11-01", 6), "touched"),
        (("2026-11-01", 0), ("2026-11-01", 6), "touched"),
        (("2026-11-01", 5), ("2026-11-02", 6), "changed"),
        (("2026-11-02", 5), ("2026-11-01", 6), "regressed"),
    ];
    for (before, after, expected) in cases {
        assert_eq!(word(before, after, &rules()), expected, "{before:?} {after:?}");
    }
}

#[test]
fn a_date_that_went_and_comes_back_unmoved_is_no_change() {
    let dated = document(&[("http://e/a", "2026-11-01", 0)]);
    let bare = document(&[("http://e/a", "", 0)]);
    let once = with_rows(diff(&snapshot_of(&dated), &bare, &rules()));
    assert!(diff(&once, &dated, &rules()).steps.is_empty());
    let newer = document(&[("http://e/a", "2026-11-02", 0)]);
    assert!(matches!(diff(&once, &newer, &rules()).steps[..], [Step::Changed { .. }]));
}

#[test]
fn a_newcomer_is_a_page_that_its_source_did_not_list() {
    let dated: [(&str, &str, u64); 2] =
        [("http://e/b", "2026-11-10", 0), ("http://e/c", "2026-11-11", 0)];
    let before = snapshot_of(&document(&dated));
    let with = |more: &[(&str, &str, u64)], window: bool| {
        let listed: Vec<_> = dated.iter().chain(more).copied().collect();
        let rules = Rules { window, ..rules() };
        with_rows(diff(&before, &document(&listed), &rules)).into_entries()
    };
    for (more, whole, window) in [
        (&[][..], 0, 0),
        (&[("http://e/d", "2026-11-12", 0), ("http://e/e", "2026-11-13", 0)][..], 2, 2),
        // A window gives back what had left it.
        (&[("http://e/a", "2026-11-09", 0)][..], 1, 0),
        (&[("http://e/a", "2026-11-10", 0)][..], 1, 1),
    ] {
        assert_eq!(before.newcomers(&with(more, false), false), whole, "{more:?}");
        assert_eq!(before.newcomers(&with(more, true), true), window, "{more:?}");
    }
    // Without dates the order in which rows were made tells.
    let id = |entry: &SnapshotEntry| match entry.row {
        Row::Url(UrlId(id)) => Some(id),
        Row::Rejected(_) => None,
    };
    let last = before.entries().iter().filter_map(id).max().expect("it has rows");
    for (row, newcomers) in [(last + 1, 1), (last - 1, 0)] {
        let mut next = with(&[("http://e/e", "", 0)], true);
        let new = next.iter_mut().find(|entry| !before.contains(entry.key)).expect("it is new");
        new.row = Row::Url(UrlId(row));
        assert_eq!((before.newcomers(&next, true), before.newcomers(&next, false)), (newcomers, 1));
    }
    // Another spelling of a page, what is refused, what is followed.
    let mut next = with(&[("http://e/d", "2026-11-12", 0)], false);
    let at = next.iter().position(|entry| !before.contains(entry.key)).expect("it is new");
    let known = before.entries()[0].row;
    for row in [known, Row::Rejected(Rejection::Excluded)] {
        next[at].row = row;
        assert_eq!(before.newcomers(&next, false), 0, "{row:?}");
    }
    next[at] = SnapshotEntry { row: Row::Url(UrlId(7)), digest: u32::MAX, ..next[at] };
    assert_eq!(before.newcomers(&next, false), 0);
}

#[test]
fn priority_and_changefreq_are_hints() {
    let was = snapshot_of(&document(&[("http://e/a", "", 0)]));
    for (priority, changefreq) in [(Priority::from_f64(0.9), None), (None, Some(ChangeFreq::Daily))]
    {
        let mut collector = Collector::new(SEED, now());
        collector.push(&Entry { loc: "http://e/a", priority, changefreq, ..Entry::default() });
        let diff = diff(&was, &collector.finish(), &rules());
        assert!(matches!(diff.steps[..], [Step::Hints { .. }]), "{:?}", diff.steps);
        assert_eq!(diff.next[0].hints, EntryHints { changefreq, priority });
    }
}

#[test]
fn another_epoch_judges_every_entry_anew() {
    let rules = Rules { new_epoch: true, ..rules() };
    assert_eq!(word(("2026-11-01", 0), ("2026-11-01", 0), &rules), "judged anew");
}

#[test]
fn only_what_the_quota_refused_is_judged_again_without_that() {
    for refused in Rejection::ALL {
        let list = document(&[("http://e/a", "2026-11-01", 0)]);
        let mut entries = snapshot_of(&list).into_entries();
        entries[0].row = Row::Rejected(refused);
        let was = Snapshot::from_unsorted(entries);
        let steps = diff(&was, &list, &rules()).steps;
        assert_eq!(steps.is_empty(), refused != Rejection::Quota, "{refused:?}");
        // Whatever moves in what is no row moves nothing.
        let newer = document(&[("http://e/a", "2026-11-02", 9)]);
        let steps = diff(&was, &newer, &rules()).steps;
        assert_eq!(steps.is_empty(), refused != Rejection::Quota, "{refused:?}");
    }
}

#[test]
fn what_was_refused_does_not_pile_up_where_no_document_is_read_to_its_end() {
    let rules = Rules { complete: false, ..rules() };
    let mut was = Snapshot::new();
    for read in 0..20 {
        let locs: Vec<_> = (0..10).map(|n| format!("http://e/{read}/{n}")).collect();
        let entries: Vec<_> = locs.iter().map(|loc| (loc.as_str(), "", 0)).collect();
        let mut next = diff(&was, &document(&entries), &rules).next;
        // New ones stand as refused until the store takes them: it takes one.
        next.iter_mut().find(|entry| entry.key == loc_key(SEED, &locs[0])).expect("an entry").row =
            Row::Url(UrlId(read));
        was = Snapshot::from_unsorted(next);
    }
    assert_eq!(was.entries().len(), 19 + 10);
}

#[test]
fn of_two_entries_with_one_spelling_the_newest_date_counts() {
    for entries in [
        [("http://e/a", "2026-11-01", 0), ("http://e/a", "2026-11-03", 0)],
        [("http://e/a", "2026-11-03", 0), ("http://e/a", "2026-11-01", 0)],
        [("http://e/a", "", 0), ("http://e/a", "2026-11-03", 0)],
    ] {
        let document = document(&entries);
        assert_eq!(document.entries().len(), 1);
        assert_eq!(document.duplicates, 1);
        assert_eq!(document.entries()[0].lastmod, date("2026-11-03"));
    }
}

#[test]
fn the_first_of_several_duplicates_is_the_one_that_is_shown() {
    let locs: Vec<_> = (0..20).map(|n| format!("http://e/{n}")).collect();
    for first in 0..20 {
        let again = (0..20).map(|n| &locs[(first + n) % 20]);
        let listed: Vec<_> = locs.iter().chain(again).map(|loc| (loc.as_str(), "", 0)).collect();
        let found = document(&listed);
        assert_eq!(found.duplicates, 20);
        assert_eq!(found.first_duplicate, Some(loc_key(SEED, &locs[first])));
    }
}

/// Twenty entries, the oldest first.
fn twenty() -> Vec<(String, String)> {
    (1..=20).map(|n| (format!("http://e/{n}"), format!("2026-10-{n:02}"))).collect()
}

fn list(entries: &[(String, String)]) -> Document {
    let entries: Vec<_> = entries.iter().map(|(loc, at)| (loc.as_str(), at.as_str(), 0)).collect();
    document(&entries)
}

#[test]
fn an_absence_counts_only_in_a_complete_read_of_a_full_source() {
    let was = snapshot_of(&list(&twenty()));
    let is = list(&twenty()[..19]);
    let full = diff(&was, &is, &rules());
    assert_eq!((full.missing, full.next.len()), (1, 20));
    assert!(matches!(full.steps[..], [Step::Missing { .. }]));
    let cut = diff(&was, &is, &Rules { complete: false, ..rules() });
    assert_eq!((cut.missing, cut.steps.len(), cut.next.len()), (0, 0, 20));
    assert_eq!(cut.next, was.entries());
    assert_eq!((full.shrunk, cut.shrunk), (Some(false), None));
    let window = diff(&was, &is, &Rules { window: true, ..rules() });
    assert_eq!((window.missing, window.steps.len(), window.next.len()), (0, 0, 19));
    // Of a window that is never read to its end, what left it would pile up.
    let cut = Rules { window: true, complete: false, ..rules() };
    let cut_window = diff(&was, &is, &cut);
    assert_eq!((cut_window.steps.len(), cut_window.next.len()), (0, 19));
    // A document that is suddenly empty is no document.
    let empty = diff(&was, &Document::default(), &cut);
    assert_eq!((empty.steps.len(), empty.next.len()), (0, 20));
}

#[test]
fn entries_of_which_a_read_does_not_tell_are_carried_on() {
    let was = snapshot_of(&list(&twenty()));
    for (listed, complete, window, carried) in [
        (20, true, false, false),
        (20, false, false, false),
        (19, true, false, false),
        (19, false, false, true),
        (19, false, true, false),
        (0, false, true, true),
    ] {
        let rules = Rules { complete, window, new_epoch: true, ..rules() };
        let diff = diff(&was, &list(&twenty()[..listed]), &rules);
        assert_eq!(diff.carried, carried, "{listed} {complete} {window}");
    }
}

#[test]
fn a_document_that_is_suddenly_empty_says_nothing() {
    let was = snapshot_of(&list(&twenty()));
    let diff = diff(&was, &Document::default(), &rules());
    assert_eq!((diff.missing, diff.steps.len(), diff.next.len()), (0, 0, 20));
    assert_eq!(diff.shrunk, None);
}

#[test]
fn a_url_is_dropped_when_it_was_missing_often_and_long_enough() {
    // Hours of the reads without it; hour of the last read of its siblings.
    let cases: [(&[i64], Option<i64>, bool); 7] = [
        (&[0, 12, 24], None, true),
        (&[0, 24], None, false),
        (&[0, 1, 2, 3, 23], None, false),
        (&[0, 1, 2, 3, 24], None, true),
        (&[0, 12, 24], Some(-1), false),
        (&[0, 12, 24], Some(0), false),
        (&[0, 12, 24], Some(1), true),
    ];
    let is = list(&twenty()[1..]);
    for (hours, siblings, dropped) in cases {
        let at = |hour: i64| now().as_second() + hour * 3_600;
        let mut was = snapshot_of(&list(&twenty()));
        let mut last = Vec::new();
        for hour in hours {
            let rules = Rules {
                now: Timestamp::from_second(at(*hour)).expect("a timestamp"),
                siblings_read_s: siblings.map_or(i64::MAX, at),
                ..rules()
            };
            let diff = diff(&was, &is, &rules);
            last.clone_from(&diff.steps);
            was = with_rows(diff);
        }
        let is_dropped = matches!(last[..], [Step::Drop { .. }]);
        assert_eq!(is_dropped, dropped, "{hours:?} {siblings:?}");
        assert_eq!(was.len(), if dropped { 19 } else { 20 }, "{hours:?}");
    }
}

#[test]
fn siblings_are_waited_for_from_the_read_before_the_one_that_may_decide() {
    // Hours of the reads without it; hour of the last read of its siblings; whether further
    // reads decide; the hour after which siblings have to be read for that.
    type Case = (&'static [i64], Option<i64>, bool, Option<i64>);
    let cases: [Case; 9] = [
        (&[0], Some(-1), true, None),
        (&[0, 12], Some(-1), true, Some(0)),
        (&[0, 12], Some(0), true, Some(0)),
        (&[0, 12], Some(1), true, None),
        (&[0, 12], None, true, None),
        (&[0, 1, 2, 3, 11], Some(-1), true, Some(0)),
        (&[0, 12, 24], Some(-1), true, Some(0)),
        // Then it is not for want of reads of its own.
        (&[0, 12, 24, 48], Some(-1), false, Some(0)),
        (&[0, 24, 48], Some(-1), false, Some(0)),
    ];
    let is = list(&twenty()[1..]);
    // Where time does not count, reads do.
    let at_once = Rules { removal_after_s: 0, ..rules() };
    assert!(diff(&snapshot_of(&list(&twenty())), &is, &at_once).undecided);
    for (hours, siblings, undecided, since) in cases {
        let at = |hour: i64| now().as_second() + hour * 3_600;
        let mut was = snapshot_of(&list(&twenty()));
        let mut told = (false, None);
        for hour in hours {
            let rules = Rules {
                now: Timestamp::from_second(at(*hour)).expect("a timestamp"),
                siblings_read_s: siblings.map_or(i64::MAX, at),
                ..rules()
            };
            let diff = diff(&was, &is, &rules);
            told = (diff.undecided, diff.held_up_since);
            was = with_rows(diff);
        }
        assert_eq!(told, (undecided, since.map(at)), "{hours:?} {siblings:?}");
    }
}

#[test]
fn an_entry_that_is_listed_again_starts_anew() {
    let was = snapshot_of(&list(&twenty()));
    let missing = with_rows(diff(&was, &list(&twenty()[1..]), &rules()));
    let back = diff(&missing, &list(&twenty()), &rules());
    assert!(back.steps.is_empty());
    assert_eq!(back.next, was.entries());
}

#[test]
fn removals_are_held_when_more_than_half_goes_at_once() {
    let was = snapshot_of(&list(&twenty()));
    for (left, held) in [(11, false), (10, false), (9, true), (1, true)] {
        let diff = diff(&was, &list(&twenty()[20 - left..]), &rules());
        assert_eq!((diff.shrunk, diff.held), (Some(held), held), "{left}");
        let counted = diff.next.iter().filter(|entry| entry.misses > 0).count();
        assert_eq!(counted, if held { 0 } else { 20 - left }, "{left}");
        assert_eq!(diff.missing, 20 - left as u64, "{left}");
    }
    let believed = Rules { shrink_believed: true, ..rules() };
    let diff = diff(&was, &list(&twenty()[15..]), &believed);
    // It is known for as long as it lasts, so that it stays believed.
    assert_eq!((diff.shrunk, diff.held), (Some(true), false));
}

#[test]
fn refused_pages_do_not_hide_a_shrink_once_they_are_known() {
    let elsewhere: Vec<_> =
        twenty().into_iter().map(|(loc, at)| (loc.replace("//e/", "//localhost/"), at)).collect();
    let locs: Vec<_> = elsewhere.iter().map(|(loc, _)| loc.as_str()).collect();
    for (why, is_held) in [(Rejection::OutOfScope, true), (Rejection::Quota, false)] {
        let mut was = snapshot_of(&list(&twenty()));
        for read in 0..5 {
            let at = now().as_second() + read * DAY;
            let rules = Rules { now: Timestamp::from_second(at).expect("a timestamp"), ..rules() };
            // An answer that nothing has changed counts as one more read.
            let is = if read == 3 { Document::of_snapshot(&was) } else { list(&elsewhere) };
            let diff = diff(&was, &is, &rules);
            let is_held = is_held && read > 0;
            assert_eq!((diff.shrunk, diff.held), (Some(is_held), is_held), "{why:?} {read}");
            let dropped = diff.steps.iter().filter(|step| matches!(step, Step::Drop { .. }));
            assert_eq!(
                dropped.count(),
                if why == Rejection::Quota && read == 2 { 20 } else { 0 },
                "{read}"
            );
            was = refusing(with_rows(diff), &locs, why);
        }
    }
    // Under other rules, whatever was refused may be a page.
    let mut both = twenty();
    both.extend(elsewhere.clone());
    let was = refusing(snapshot_of(&list(&both)), &locs, Rejection::OutOfScope);
    for (new_epoch, shrunk) in [(false, Some(true)), (true, None)] {
        let rules = Rules { new_epoch, ..rules() };
        let diff = diff(&was, &list(&elsewhere), &rules);
        assert_eq!((diff.shrunk, diff.held), (shrunk, true), "and no miss is counted");
    }
}

#[test]
fn fewer_than_ten_entries_may_all_but_go() {
    for (entries, shrunk) in [(9, false), (10, true)] {
        let listed = &twenty()[..entries];
        let diff = diff(&snapshot_of(&list(listed)), &list(&listed[..1]), &rules());
        assert_eq!(diff.shrunk, Some(shrunk), "{entries}");
    }
}

#[test]
fn absences_tell_nothing_where_they_do_not_count_or_have_left_a_window() {
    let all = twenty();
    let was = snapshot_of(&list(&all[..10]));
    let window = Rules { window: true, ..rules() };
    let cut = Rules { complete: false, ..rules() };
    let learning = Rules { rolls: ROLLS_OF_A_WINDOW - 1, ..rules() };
    for (rules, tells) in [(rules(), true), (window, false), (cut, false), (learning, false)] {
        assert_eq!(diff(&was, &list(&all[1..11]), &rules).tells_absence, tells, "{rules:?}");
    }
}

#[test]
fn what_is_held_waits_for_no_read_and_no_sibling() {
    let mut was = snapshot_of(&list(&twenty()));
    for read in 0..4 {
        let at = now().as_second() + read * DAY;
        let now = Timestamp::from_second(at).expect("a timestamp");
        let rules = Rules { now, removal_polls: 1, siblings_read_s: i64::MIN, ..rules() };
        let diff = diff(&was, &list(&twenty()[..1]), &rules);
        assert_eq!((diff.held, diff.undecided, diff.held_up_since), (true, false, None), "{read}");
        was = with_rows(diff);
    }
}

#[test]
fn a_read_leaves_nothing_to_write_only_if_no_entry_is_other_than_it_was() {
    let was = snapshot_of(&list(&twenty()));
    assert!(diff(&was, &list(&twenty()), &rules()).is_empty(&was));
    let mut newer = twenty();
    newer[0].1 = "2026-11-01".to_owned();
    assert!(!diff(&was, &list(&newer), &rules()).is_empty(&was));
    // A second miss is no step, but it counts.
    let is = list(&twenty()[1..]);
    let once = with_rows(diff(&was, &is, &rules()));
    let twice = diff(&once, &is, &rules());
    assert!(twice.steps.is_empty() && !twice.is_empty(&once));
}

#[test]
fn a_source_rolls_when_only_the_oldest_leave_and_new_ones_come() {
    let all = twenty();
    let was = snapshot_of(&list(&all[..10]));
    let cases: [(&[usize], Option<bool>); 6] = [
        (&[2, 3, 4, 5, 6, 7, 8, 9, 10, 11], Some(true)),
        // The oldest left, and nothing came.
        (&[2, 3, 4, 5, 6, 7, 8, 9], Some(false)),
        // A younger one left.
        (&[0, 1, 2, 3, 4, 6, 7, 8, 9, 10], Some(false)),
        // Most of what stays is younger than what left, but not all.
        (&[0, 1, 3, 4, 5, 6, 7, 8, 9, 10], Some(false)),
        // None left.
        (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], None),
        (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], None),
    ];
    for (kept, rolled) in cases {
        let mut is: Vec<_> = kept.iter().map(|n| all[*n].clone()).collect();
        assert_eq!(diff(&was, &list(&is), &rules()).rolled, rolled, "{kept:?}");
        // What was refused before, and still is, did not come.
        for why in Rejection::ALL {
            let stranger = ("http://stranger/".to_owned(), "2026-10-01".to_owned());
            let with = [&all[..10], std::slice::from_ref(&stranger)].concat();
            let was = refusing(snapshot_of(&list(&with)), &[&stranger.0], why);
            is.push(stranger);
            assert_eq!(diff(&was, &list(&is), &rules()).rolled, rolled, "{kept:?} {why:?}");
            is.pop();
        }
    }
}

#[test]
fn a_source_with_an_undated_entry_never_rolls() {
    for undated in [0, 5] {
        let mut all = twenty();
        all[undated].1 = String::new();
        let diff = diff(&snapshot_of(&list(&all[..10])), &list(&all[1..11]), &rules());
        assert_eq!(diff.rolled, Some(false), "{undated}");
    }
}

#[test]
fn half_of_the_dates_that_stay_are_younger_than_the_last_that_left_and_none_is_older() {
    for (kept, are_younger) in [
        (&[][..], false),
        (&[7, 8][..], true),
        (&[7, 7, 8], false),
        (&[8, 8], true),
        (&[6, 8, 8], false),
    ] {
        let kept: Vec<_> = kept.iter().copied().map(Some).collect();
        assert_eq!(are_after(&kept, Some(7)), are_younger, "{kept:?}");
    }
}

/// The snapshot where these were refused.
fn refusing(snapshot: Snapshot, locs: &[&str], why: Rejection) -> Snapshot {
    let mut entries = snapshot.into_entries();
    for entry in &mut entries {
        if locs.iter().any(|loc| loc_key(SEED, loc) == entry.key) {
            entry.row = Row::Rejected(why);
        }
    }
    Snapshot::from_unsorted(entries)
}

#[test]
fn dates_that_show_no_order_show_no_window() {
    // Entries of one date; whether each build stamps all of them with its day.
    for (of_one_date, is_stamped, rolled) in [
        (1, false, true),
        (5, false, true),
        (10, false, true),
        (14, false, false),
        (20, false, false),
        (20, true, false),
    ] {
        let build = |nth: usize| -> Vec<_> {
            let dated = |n: usize| {
                let day = if is_stamped { nth } else { n / of_one_date } + 1;
                (format!("http://e/{n}"), format!("2026-10-{day:02}"))
            };
            (nth..nth + 20).map(dated).collect()
        };
        let mut was = snapshot_of(&list(&build(0)));
        for nth in 1..=ROLLS_OF_A_WINDOW {
            let rules = Rules { rolls: nth - 1, ..rules() };
            let diff = diff(&was, &list(&build(nth as usize)), &rules);
            assert_eq!(diff.rolled, Some(rolled), "{of_one_date} {is_stamped} {nth}");
            assert_eq!(diff.learned, rolled && nth == ROLLS_OF_A_WINDOW);
            was = with_rows(diff);
        }
    }
}

#[test]
fn a_list_that_loses_its_oldest_to_a_sibling_is_no_window_and_one_of_unknown_fate_not_yet() {
    let all = twenty();
    let before = snapshot_of(&list(&all[..10]));
    let next = list(&all[1..11]);
    assert_eq!(leavers(&before, &next).len(), 1);
    for (left, rolled, learned) in
        [(Left::Gone, true, true), (Left::Unknown, true, false), (Left::Moved, false, false)]
    {
        let rules = Rules { rolls: ROLLS_OF_A_WINDOW - 1, left, ..rules() };
        let diff = diff(&before, &next, &rules);
        assert_eq!((diff.rolled, diff.learned), (Some(rolled), learned), "{left:?}");
        // Missing it is in any case, unless it is known to be a window.
        assert_eq!(diff.missing, u64::from(!learned), "{left:?}");
    }
}

#[test]
fn entries_that_are_held_leave_once_and_not_at_every_read() {
    let mut was = snapshot_of(&list(&twenty()));
    for (read, rolled) in (0..).zip([Some(true), None, None]) {
        let mut left = twenty()[16..].to_vec();
        left.extend((0..=read).map(|n| (format!("http://e/new/{n}"), "2026-11-01".to_owned())));
        let diff = diff(&was, &list(&left), &Rules { rolls: read, ..rules() });
        assert_eq!((diff.held, diff.rolled, diff.learned), (true, rolled, false), "{read}");
        was = with_rows(diff);
    }
}

#[test]
fn the_read_that_shows_a_window_removes_nothing() {
    let all = twenty();
    let mut was = snapshot_of(&list(&all[..10]));
    for rolls in 0..ROLLS_OF_A_WINDOW {
        let first = rolls as usize + 1;
        let at = now().as_second() + i64::from(rolls) * DAY;
        let rules =
            Rules { now: Timestamp::from_second(at).expect("a timestamp"), rolls, ..rules() };
        let diff = diff(&was, &list(&all[first..first + 10]), &rules);
        assert_eq!(diff.rolled, Some(true));
        assert_eq!(diff.learned, rolls + 1 == ROLLS_OF_A_WINDOW);
        assert!(!diff.steps.iter().any(|step| matches!(step, Step::Drop { .. })));
        was = with_rows(diff);
    }
    // And from then on it is one: what left is forgotten, not missing.
    assert_eq!(was.len(), 10);
}

#[test]
fn steps_come_in_the_order_of_the_document_and_removals_last() {
    let old = document(&[("http://e/z", "", 0)]);
    let mut entries = snapshot_of(&old).into_entries();
    entries[0].misses = 9;
    entries[0].missing_since = Some(0);
    let was = Snapshot::from_unsorted(entries);
    let is = list(&twenty());
    let diff = diff(&was, &is, &rules());
    let admitted: Vec<_> = diff
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Admit { entry, .. } => is.loc(&is.entries()[*entry as usize]).map(str::to_owned),
            _ => None,
        })
        .collect();
    assert_eq!(admitted, twenty().into_iter().map(|(loc, _)| loc).collect::<Vec<_>>());
    assert!(matches!(diff.steps.last(), Some(Step::Drop { .. })));
}

prop_compose! {
    fn any_entry()(
        path in 0_u8..40,
        second in proptest::option::of(1_500_000_000_i64..1_790_000_000),
        nanosecond in 0_i32..1_000_000_000,
        precision in 0_usize..6,
        digest in prop_oneof![Just(0_u64), any::<u64>()],
        priority in proptest::option::of(0_u16..=1000),
    ) -> (String, Option<Lastmod>, u64, Option<Priority>) {
        let lastmod = second.map(|second| Lastmod {
            at: Timestamp::new(second, nanosecond).expect("a timestamp"),
            precision: Precision::ALL[precision],
        });
        (format!("http://e/{path}"), lastmod, digest, priority.and_then(Priority::from_thousandths))
    }
}

fn any_document() -> impl Strategy<Value = Document> {
    proptest::collection::vec(any_entry(), 0..40).prop_map(|entries| {
        let mut collector = Collector::new(SEED, now());
        for (loc, lastmod, digest, priority) in &entries {
            collector.push(&Entry {
                loc,
                lastmod: *lastmod,
                digest: *digest,
                priority: *priority,
                ..Entry::default()
            });
        }
        collector.finish()
    })
}

fn any_rules() -> impl Strategy<Value = Rules> {
    (any::<bool>(), any::<bool>(), any::<bool>(), 0_u32..4).prop_map(
        |(complete, window, believed, rolls)| Rules {
            complete,
            window,
            shrink_believed: believed,
            rolls,
            ..rules()
        },
    )
}

proptest! {
    #[test]
    fn a_document_compared_with_itself_is_no_difference(list in any_document(), rules in any_rules()) {
        let was = snapshot_of(&list);
        let diff = diff(&was, &list, &rules);
        prop_assert!(diff.is_empty(&was), "{:?}", diff.steps);
        prop_assert_eq!(diff.unchanged, list.entries().len() as u64);
    }

    #[test]
    fn what_was_applied_is_no_difference_the_next_time(
        first in any_document(),
        second in any_document(),
        rules in any_rules(),
    ) {
        let was = snapshot_of(&first);
        let once = with_rows(diff(&was, &second, &rules));
        let again = diff(&once, &second, &rules);
        // What is missing is counted once more; nothing else is left to say.
        let said: Vec<_> =
            again.steps.iter().filter(|step| !matches!(step, Step::Drop { .. })).collect();
        prop_assert!(said.is_empty(), "{said:?}");
        prop_assert_eq!(again.unchanged, second.entries().len() as u64);
    }

    #[test]
    fn every_listed_entry_is_in_the_next_snapshot_and_no_other_but_the_missing(
        first in any_document(),
        second in any_document(),
        rules in any_rules(),
    ) {
        let was = snapshot_of(&first);
        let diff = diff(&was, &second, &rules);
        prop_assert!(diff.next.is_sorted_by(|a, b| a.key < b.key));
        for entry in &diff.next {
            let known = was.entries().iter().any(|old| old.key == entry.key);
            prop_assert!(second.contains(entry.key) || known);
        }
        let listed = diff.next.iter().filter(|entry| second.contains(entry.key)).count();
        prop_assert_eq!(listed, second.entries().len());
    }
}

/// A document of pages with an image each, whose images are followed.
fn followed(entries: &[(&str, &str)]) -> Document {
    let base = url::Url::parse("http://e/s.xml").expect("a URL");
    let kinds = Follow { image: true, ..Follow::default() };
    let mut collector = Collector::following(SEED, now(), kinds, &base);
    for (loc, image) in entries {
        let image = Image { loc: Some((*image).to_owned()), ..Image::default() };
        let extensions = Extensions { images: vec![image], ..Extensions::default() };
        let extensions = Some(&extensions).filter(|all| all.images[0].loc.as_deref() != Some(""));
        collector.push(&Entry { loc, extensions, ..Entry::default() });
    }
    collector.finish()
}

#[test]
fn what_is_followed_is_an_entry_of_its_kind_once_and_a_page_stays_one() {
    let document = followed(&[
        ("http://e/a", "/i.png"),
        ("http://e/b", "http://e/i.png"),
        ("http://e/c", "http://e/a"),
    ]);
    let mut listed: Vec<_> =
        document.entries().iter().map(|entry| (document.loc(entry).unwrap(), entry.kind)).collect();
    listed.sort_unstable();
    let page = UrlKind::Page;
    let pages = [("http://e/a", page), ("http://e/b", page), ("http://e/c", page)];
    assert_eq!(listed, [&pages[..], &[("http://e/i.png", UrlKind::Image)]].concat());
    assert_eq!((document.pages, document.duplicates, document.followed_cut), (3, 0, 0));
    // Read again, from the snapshot too, nothing has changed.
    let was = snapshot_of(&document);
    let elsewhere = super::leavers(&was, &followed(&[("http://e/a", ""), ("http://e/b", "")]));
    assert_eq!(elsewhere.len(), 1, "only pages are looked for elsewhere");
    assert!(diff(&was, &document, &rules()).is_empty(&was));
    assert_eq!(Document::of_snapshot(&was).pages, 3);
}

#[test]
fn an_absolute_address_is_followed_as_it_is_spelled() {
    // The page is spelled so as well, and is one.
    for scheme in ["http", "https", "HTTPS"] {
        let page = format!("{scheme}://E/a b");
        let document = followed(&[(&page, &page)]);
        assert_eq!((document.entries().len(), document.pages), (1, 1), "{page}");
    }
}

#[test]
fn of_what_entries_name_only_the_kinds_that_are_asked_for_are_followed() {
    let base = url::Url::parse("http://e/s.xml").expect("a URL");
    let link = crate::model::extension::Alternate {
        href: "/alternate".to_owned(),
        ..crate::model::extension::Alternate::default()
    };
    let video = crate::model::extension::Video {
        content_loc: Some("/video".to_owned()),
        player_loc: Some("/player".to_owned()),
        ..crate::model::extension::Video::default()
    };
    let images = ["/image", &format!("/{}", "x".repeat(9_000))]
        .map(|loc| Image { loc: Some(loc.to_owned()), ..Image::default() });
    let extensions = Extensions {
        images: images.to_vec(),
        videos: vec![video],
        alternates: vec![link],
        ..Extensions::default()
    };
    let none = Follow::default();
    for (kinds, followed) in [
        (none, &[][..]),
        (Follow { image: true, ..none }, &["http://e/image"]),
        (Follow { video: true, ..none }, &["http://e/video", "http://e/player"]),
        (Follow { alternate: true, ..none }, &["http://e/alternate"]),
    ] {
        let mut taken = Vec::new();
        super::document::each_followed(kinds, &base, &extensions, &mut |_, url| {
            taken.push(url.to_owned());
        });
        assert_eq!(taken, followed, "{kinds:?}");
    }
}

#[test]
fn an_image_that_becomes_a_page_is_judged_anew() {
    let was = snapshot_of(&followed(&[("http://e/a", "http://e/i")]));
    let is = followed(&[("http://e/a", "http://e/i"), ("http://e/i", "")]);
    let steps = diff(&was, &is, &rules()).steps;
    assert!(matches!(steps.as_slice(), [Step::Admit { previous: Some(_), .. }]), "{steps:?}");
}

#[test]
fn images_that_go_do_not_hold_removals_and_make_no_window() {
    let paths: Vec<_> = (0..20).map(|n| (format!("http://e/{n}"), n)).collect();
    let images: Vec<_> = (0..60).map(|n| format!("/i{n}")).collect();
    let with = paths.iter().flat_map(|(page, n)| {
        images[n * 3..n * 3 + 3].iter().map(move |image| (page.as_str(), image.as_str()))
    });
    let was = snapshot_of(&followed(&with.collect::<Vec<_>>()));
    let without: Vec<_> = paths.iter().map(|(page, _)| (page.as_str(), "")).collect();
    let found = diff(&was, &followed(&without), &rules());
    assert_eq!(
        (found.shrunk, found.held, found.rolled, found.missing),
        (Some(false), false, None, 60)
    );
}

#[test]
fn an_entry_is_restated_when_its_text_may_differ_from_what_is_kept() {
    let restated = |was: Option<u64>, is: u64, rules: &Rules| {
        let one = |digest| document(&[("http://e/a", "", digest)]);
        let was = was.map(|digest| snapshot_of(&one(digest))).unwrap_or_default();
        !diff(&was, &one(is), rules).restated.is_empty()
    };
    let (full, window) = (rules(), Rules { window: true, ..rules() });
    let epoch = Rules { new_epoch: true, ..rules() };
    for (was, is, rules, expected) in [
        (None, 0, &full, false),
        (None, 5, &full, true),
        (None, 0, &window, true),
        (Some(5), 5, &full, false),
        (Some(5), 6, &full, true),
        (Some(5), 0, &full, true),
        (Some(0), 0, &epoch, false),
        (Some(5), 5, &epoch, true),
        (Some(5), 0, &epoch, true),
    ] {
        assert_eq!(restated(was, is, rules), expected, "{was:?} {is}");
    }
}

#[test]
fn texts_are_kept_of_what_is_new_while_all_of_them_have_room() {
    let listed = |count: usize, before: &Snapshot| {
        let mut collector = Collector::new(SEED, now()).knowing(before);
        for n in 0..count {
            let loc = format!("http://a.example/{n}/{}", "x".repeat(5_000));
            collector.push(&Entry { loc: &loc, ..Entry::default() });
        }
        collector.finish()
    };
    let kept = |document: &Document| {
        document.entries().iter().filter(|entry| document.loc(entry).is_some()).count()
    };
    let few = listed(1_000, &Snapshot::new());
    assert_eq!(kept(&few), 1_000);
    let many = listed(2_000, &Snapshot::new());
    assert_eq!((kept(&many), many.entries().len()), (0, 2_000));
    // What is known needs no text, so there is room for what is not.
    let known = Snapshot::from_unsorted(diff(&Snapshot::new(), &many, &rules()).next);
    assert_eq!(kept(&listed(2_500, &known)), 500);
    // Of two documents in one both keep theirs, while they have room together.
    for (first, second, expected) in [(300, 600, 600), (700, 1_000, 0)] {
        let older = listed(second, &Snapshot::new());
        let newer = {
            let mut collector = Collector::new(SEED, now());
            for n in 0..first {
                let loc = format!("http://b.example/{n}/{}", "x".repeat(5_000));
                collector.push(&Entry { loc: &loc, ..Entry::default() });
            }
            collector.finish()
        };
        let both = newer.with(older);
        assert_eq!(kept(&both), first + expected, "{first} {second}");
        for entry in both.entries() {
            assert!(both.loc(entry).is_none_or(|loc| loc_key(SEED, loc) == entry.key));
        }
    }
    // And either may have lost its texts.
    for (first, second) in [(few, many), (listed(2_000, &Snapshot::new()), listed(1, &known))] {
        let both = first.with(second);
        for entry in both.entries() {
            let own = both.loc(entry).is_none_or(|loc| loc_key(SEED, loc) == entry.key);
            assert!(own, "no text is another entry's");
        }
    }
}

#[test]
fn a_document_says_more_than_dates_if_any_page_of_it_does() {
    let one = |extensions: Option<&Extensions>| {
        let mut collector = Collector::new(SEED, now());
        collector.push(&Entry { loc: "http://a.example/", extensions, ..Entry::default() });
        collector.finish()
    };
    let said = Extensions { images: vec![Image::default()], ..Extensions::default() };
    assert!(one(None).with(one(Some(&said))).has_extensions);
    assert!(!one(None).with(one(None)).has_extensions);
}
