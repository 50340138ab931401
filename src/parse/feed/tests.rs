//! What feeds say besides their items: deletions, polling, paging.

use std::ops::ControlFlow;

use url::Url;

use crate::parse::{Context, Item, Limits, Report, parse};

/// What a document says was deleted, and its report.
fn deleted(document: &str) -> (Vec<String>, Report) {
    let base = Url::parse("https://example.com/dir/feed.xml").expect("a URL");
    let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
    let mut out = Vec::new();
    let report = parse(&mut document.as_bytes(), &ctx, &mut |item| {
        if let Item::Deleted(page) = item {
            let when = page.when.map_or_else(|| "?".to_owned(), |when| when.to_string());
            out.push(format!("{} {when}", page.loc));
        }
        ControlFlow::Continue(())
    });
    (out, report)
}

fn atom(body: &str) -> Vec<String> {
    deleted(&format!(
        "<feed xmlns='http://www.w3.org/2005/Atom' xmlns:at='http://purl.org/atompub/tombstones/1.0'>\
         {body}</feed>"
    ))
    .0
}

#[test]
fn a_tombstone_means_its_link_the_entry_of_its_id_or_its_id() {
    let old =
        "<entry><id>tag:e,1</id><link href='/one'/><updated>2026-01-01T00:00:00Z</updated></entry>";
    let when = "when='2026-11-20T00:00:00Z'";
    let table: [(String, &[&str]); 11] = [
        (
            format!("<at:deleted-entry ref='https://e.com/a' {when}/>"),
            &["https://e.com/a 2026-11-20T00:00:00Z"],
        ),
        (
            format!("{old}<at:deleted-entry ref='tag:e,1' {when}/>"),
            &["https://example.com/one 2026-11-20T00:00:00Z"],
        ),
        (
            format!("<at:deleted-entry ref='tag:e,1' {when}/>{old}"),
            &["https://example.com/one 2026-11-20T00:00:00Z"],
        ),
        (
            format!(
                "<at:deleted-entry ref='tag:e,2' {when}><at:by><name>x</name></at:by>\
                 <link rel='self' href='/no'/><link href='/two'/><link href='/no'/></at:deleted-entry>"
            ),
            &["https://example.com/two 2026-11-20T00:00:00Z"],
        ),
        (
            format!(
                "<at:deleted-entry ref='tag:e,2' {when}><source><link href='/no'/></source></at:deleted-entry>"
            ),
            &[],
        ),
        (format!("<at:deleted-entry ref='tag:e,unknown' {when}/>"), &[]),
        (
            format!("<at:deleted-entry ref='https://e.com/a&#10;&#1;b' {when}/>"),
            &["https://e.com/ab 2026-11-20T00:00:00Z"],
        ),
        (format!("<at:deleted-entry ref='https://e.com/&#xD800;' {when}/>"), &[]),
        (
            format!("<entry><link href='/x'/><at:deleted-entry ref='https://e.com/a' {when}>{old}"),
            &["https://e.com/a 2026-11-20T00:00:00Z"],
        ),
        ("<at:deleted-entry ref='https://e.com/a'/>".to_owned(), &["https://e.com/a ?"]),
        (format!("<at:deleted-entry ref='javascript:x' {when}/><at:deleted-entry {when}/>"), &[]),
    ];
    for (body, want) in table {
        assert_eq!(atom(&body), want, "{body}");
    }
}

#[test]
fn the_link_of_a_tombstone_is_its_own_and_none_that_is_too_long() {
    let when = "when='2026-11-20T00:00:00Z'";
    let far = format!("/{}", "x".repeat(2_048));
    let known =
        "<entry><id>https://e.com/a</id><link href='/one'/><updated>2026-01-01</updated></entry>";
    let linked = format!("<at:deleted-entry ref='https://e.com/a' {when}><link href='{far}'/>");
    assert!(atom(&format!("{known}{linked}<link href='/b'/></at:deleted-entry>")).is_empty());
    assert!(atom(&format!("<at:deleted-entry ref='https://e.com{far}' {when}/>")).is_empty());
    let cut = "<feed xmlns='http://www.w3.org/2005/Atom' xmlns:at='http://purl.org/atompub/tombstones/1.0'>\
         <at:deleted-entry ref='x' when='2026-11-20'><link href='/b'/>";
    assert_eq!(deleted(cut).0, ["https://example.com/b 2026-11-20T00:00:00Z"]);
}

#[test]
fn tombstones_are_kept_up_to_a_number_and_so_many_bytes() {
    let long = "x".repeat(1_000);
    for (path, many) in [("", 10_000), (long.as_str(), 2_000)] {
        let stone =
            |n| format!("<at:deleted-entry ref='https://e.com/{n:05}{path}' when='2026-11-20'/>");
        let stones: String = (0..10_001).map(stone).collect();
        let last =
            "<at:deleted-entry ref='x' when='2026-11-20'><link href='/b'/></at:deleted-entry>";
        let (gone, report) =
            deleted(&format!("<feed xmlns='http://www.w3.org/2005/Atom'>{stones}{last}</feed>"));
        assert!(gone.len() >= many && gone.len() <= 10_000, "{}", gone.len());
        let bytes: usize = gone.iter().map(String::len).sum();
        assert!(bytes < 3_000_000, "{bytes}");
        assert!(report.issues.iter().any(|issue| issue.code.as_str() == "too-many-urls"));
    }
}

#[test]
fn a_base_that_is_too_long_is_none() {
    let read = |bases: [&str; 2]| {
        let [outer, inner] = bases;
        deleted(&format!(
            "<feed xmlns='http://www.w3.org/2005/Atom' xml:base='{outer}'>\
             <deleted-entry ref='x' when='2026-11-20' xml:base='{inner}'><link href='b'/></deleted-entry></feed>"
        ))
    };
    let has = |report: &Report| report.issues.iter().any(|i| i.code.as_str() == "url-too-long");
    let (long, half) = (format!("{}/", "x".repeat(2_048)), format!("{}/", "x".repeat(1_500)));
    for (bases, want) in [
        ([half.as_str(), "c/"], format!("https://example.com/dir/{half}c/b")),
        ([half.as_str(), half.as_str()], format!("https://example.com/dir/{half}b")),
        ([long.as_str(), "c/"], "https://example.com/dir/c/b".to_owned()),
        (["https://e.com/", long.as_str()], "https://e.com/b".to_owned()),
    ] {
        let (gone, report) = read(bases);
        assert_eq!(gone, [format!("{want} 2026-11-20T00:00:00Z")]);
        assert_eq!(has(&report), bases != [half.as_str(), "c/"]);
    }
}

#[test]
fn an_entry_that_was_updated_since_has_come_back() {
    let entry = |date: &str| format!("<entry><id>https://e.com/a</id>{date}</entry>");
    let stone = "<at:deleted-entry ref='https://e.com/a' when='2026-11-20T00:00:00Z'/>";
    for (date, is_gone) in [
        ("<updated>2026-11-19T00:00:00Z</updated>", true),
        ("<published>2026-11-19T00:00:00Z</published>", true),
        ("<updated>2026-11-21T00:00:00Z</updated>", false),
        ("", false),
    ] {
        for body in [format!("{}{stone}", entry(date)), format!("{stone}{}", entry(date))] {
            assert_eq!(!atom(&body).is_empty(), is_gone, "{body}");
        }
    }
}

#[test]
fn a_tombstone_without_what_it_needs_is_reported() {
    let (gone, report) = deleted(
        "<feed xmlns='http://www.w3.org/2005/Atom'><at:deleted-entry ref='https://e.com/a' when='soon'/>\
         <at:deleted-entry/></feed>",
    );
    assert_eq!(gone, ["https://e.com/a ?"]);
    let codes: Vec<&str> = report.issues.iter().map(|issue| issue.code.as_str()).collect();
    for code in ["invalid-date", "missing-attribute"] {
        assert!(codes.contains(&code), "{codes:?}");
    }
    assert!(!codes.contains(&"empty-sitemap"), "{codes:?}");
}

#[test]
fn hints_to_pollers_are_read() {
    let rss = "<rss version='2.0' xmlns:atom='http://www.w3.org/2005/Atom' \
        xmlns:sy='http://purl.org/rss/1.0/modules/syndication/'><channel>\
        <atom:link rel='self' href='/feed.xml'/><atom:link rel='hub' href='https://hub.example/'/>\
        <atom:link rel='next' href='?page=2'/><ttl>90</ttl><sy:updatePeriod>weekly</sy:updatePeriod>\
        <skipHours><hour>0</hour><hour>24</hour><hour>7</hour></skipHours>\
        <skipDays><day>Sunday</day><day>mon</day></skipDays>\
        <item><link>/a</link></item></channel></rss>";
    let hints = deleted(rss).1.hints;
    assert_eq!(hints.min_interval_secs, Some(5_400));
    assert_eq!((hints.skip_hours, hints.skip_days), (1 | 1 << 7, 1 | 1 << 6));
    assert_eq!(hints.hubs, ["https://hub.example/"]);
    assert_eq!(hints.self_url.as_deref(), Some("https://example.com/feed.xml"));
    assert_eq!(hints.next_page.as_deref(), Some("https://example.com/dir/feed.xml?page=2"));
}

#[test]
fn a_hint_with_a_url_that_is_too_long_is_none() {
    let (fits, long) = ("x".repeat(2_000), "x".repeat(2_048));
    for (path, is_kept) in [(fits, true), (long, false)] {
        let of = |rel: &str| format!("<link rel='{rel}' href='/{path}'/>");
        let links = ["self", "hub", "next", "prev-archive"].map(of).concat();
        let atom = format!("<feed xmlns='http://www.w3.org/2005/Atom'>{links}</feed>");
        let json = format!(
            "{{\"version\": \"1\", \"feed_url\": \"/{path}\", \"next_url\": \"/{path}\",\
             \"hubs\": [{{\"url\": \"/{path}\"}}], \"items\": []}}"
        );
        for (document, count) in [(atom, 4), (json, 3)] {
            let report = deleted(&document).1;
            let hints = &report.hints;
            assert_eq!(hints.hubs.len(), usize::from(is_kept), "{document}");
            assert_eq!(hints.self_url.is_some(), is_kept, "{document}");
            assert_eq!(hints.next_page.is_some(), is_kept, "{document}");
            let long = report.issues.iter().find(|issue| issue.code.as_str() == "url-too-long");
            assert_eq!(long.map(|issue| issue.count), (!is_kept).then_some(count), "{document}");
        }
        let base = Url::parse("https://example.com/feed.xml").expect("a URL");
        let mut hints = crate::parse::Hints::default();
        let header = format!("</{path}>; rel=\"hub self next\"");
        crate::parse::html::complete_hints(&[header], &base, &mut hints);
        assert_eq!(hints.hubs.len(), usize::from(is_kept));
        assert_eq!((hints.self_url.is_some(), hints.next_page.is_some()), (is_kept, is_kept));
    }
}

#[test]
fn of_a_name_of_json_that_comes_again_the_last_counts() {
    let json = "{\"version\": \"1\", \"feed_url\": \"/a\", \"feed_url\": \"/b\", \"items\": []}";
    assert_eq!(deleted(json).1.hints.self_url.as_deref(), Some("https://example.com/b"));
}

#[test]
fn a_link_may_have_several_relations() {
    let link = "<link rel='self http://www.iana.org/assignments/relation/HUB' href='/x'/>";
    let feed = format!("<feed xmlns='http://www.w3.org/2005/Atom'>{link}</feed>");
    let hints = deleted(&feed).1.hints;
    assert_eq!(hints.hubs, ["https://example.com/x"]);
    assert_eq!(hints.self_url.as_deref(), Some("https://example.com/x"));
}

#[test]
fn hints_are_read_in_the_namespace_of_the_feed() {
    let said =
        "<ttl>90</ttl><skipHours><hour>7</hour></skipHours><skipDays><day>mon</day></skipDays>";
    let ns = "xmlns='http://backend.userland.com/rss2'";
    for (root, channel) in [(ns, ""), ("", ns)] {
        let hints =
            deleted(&format!("<rss {root}><channel {channel}>{said}</channel></rss>")).1.hints;
        let found = (hints.min_interval_secs, hints.skip_hours, hints.skip_days);
        assert_eq!(found, (Some(5_400), 1 << 7, 1), "{root}{channel}");
    }
}

#[test]
fn an_interval_of_the_syndication_module_is_its_period_over_its_frequency() {
    let sy = |period: &str, frequency: &str| {
        let ns = "xmlns:sy='http://purl.org/rss/1.0/modules/syndication/'";
        deleted(&format!("<rss version='2.0' {ns}><channel>{period}{frequency}</channel></rss>"))
            .1
            .hints
            .min_interval_secs
    };
    let period = |word: &str| format!("<sy:updatePeriod> {word}\n</sy:updatePeriod>");
    let frequency = |n: &str| format!("<sy:updateFrequency>{n}</sy:updateFrequency>");
    for (p, f, want) in [
        (period("hourly"), frequency("2"), Some(1_800)),
        (period("Daily"), String::new(), Some(86_400)),
        (String::new(), frequency("4"), Some(21_600)),
        (period("yearly"), frequency("4000000000"), Some(1)),
        (period("sometimes"), String::new(), None),
        (period("daily"), frequency("0"), Some(86_400)),
        (String::new(), String::new(), None),
    ] {
        assert_eq!(sy(&p, &f), want, "{p}{f}");
    }
}

#[test]
fn an_archive_goes_before_the_next_page_whatever_their_order() {
    let next = "<link rel='next' href='/2'/>";
    let archive = "<link rel='http://www.iana.org/assignments/relation/prev-archive' href='/old'/>";
    for (links, want) in [
        (format!("{next}{archive}"), "https://example.com/old"),
        (format!("{archive}{next}"), "https://example.com/old"),
        (next.to_owned(), "https://example.com/2"),
    ] {
        let feed = format!("<feed xmlns='http://www.w3.org/2005/Atom'>{links}</feed>");
        assert_eq!(deleted(&feed).1.hints.next_page.as_deref(), Some(want), "{links}");
    }
}

#[test]
fn relative_links_of_atom_are_no_defect_where_there_is_a_base_and_those_of_rss_are() {
    use crate::parse::{IssueCode, NO_BASE};
    let issues = |base: &str, document: &str| {
        let base = Url::parse(base).expect("a URL");
        let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
        let report = parse(&mut document.as_bytes(), &ctx, &mut |_| ControlFlow::Continue(()));
        report.issues.into_iter().map(|issue| (issue.code, issue.count)).collect::<Vec<_>>()
    };
    let entry = |link: &str| {
        format!(
            "<feed xmlns='http://www.w3.org/2005/Atom'><title>t</title>\
             <entry><title>a</title><link href='{link}'/><updated>2026-11-20T00:00:00Z</updated></entry></feed>"
        )
    };
    let item = "<rss version='2.0'><channel><title>t</title><item><title>a</title>\
                <link>/a</link></item></channel></rss>";
    let at = "https://example.com/feed.xml";
    let relative = vec![(IssueCode::RelativeUrl, 1)];
    assert_eq!(issues(at, &entry("/a?b")), []);
    assert_eq!(issues(at, &entry("www.example.com/a")), relative, "the scheme was forgotten");
    assert_eq!(issues(NO_BASE, &entry("/a")), relative, "nothing to resolve it against");
    assert_eq!(issues(at, item), relative);
}

#[test]
fn an_entry_of_atom_0_3_that_says_only_when_it_was_made_has_that_date() {
    let dated = |dates: &str| {
        let document = format!(
            "<feed version='0.3' xmlns='http://purl.org/atom/ns#'><entry><link rel='alternate' \
             href='https://e.com/a'/><author><created>2001-01-01</created></author>{dates}</entry></feed>"
        );
        let base = Url::parse("https://example.com/feed.xml").expect("a URL");
        let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
        let mut out = Vec::new();
        parse(&mut document.as_bytes(), &ctx, &mut |item| {
            if let Item::Entry(entry) = item {
                out.push([entry.published, entry.updated].map(|d| d.map(|d| d.at.to_string())));
            }
            ControlFlow::Continue(())
        });
        out.pop().expect("an entry").map(|date| date.map(|date| date[..10].to_owned()))
    };
    let day = |text: &str| Some(text.to_owned());
    assert_eq!(dated("<created>2004-01-01</created>"), [day("2004-01-01"), None]);
    assert_eq!(
        dated(
            "<created>2004-01-01</created><issued>2004-01-02</issued><modified>2004-01-03</modified>"
        ),
        [day("2004-01-02"), day("2004-01-03")]
    );
    assert_eq!(dated(""), [None, None]);
}

#[test]
fn an_element_of_another_vocabulary_ends_a_link_or_date_without_an_end_tag() {
    let item = |inner: &str| {
        let document = format!(
            "<rss version='2.0' xmlns:dc='http://purl.org/dc/elements/1.1/' \
             xmlns:feedburner='http://rssnamespace.org/feedburner/ext/1.0' \
             xmlns:itunes='http://www.itunes.com/dtds/podcast-1.0.dtd'><channel>\
             <item>{inner}</item></channel></rss>"
        );
        let base = Url::parse("https://example.com/feed.xml").expect("a URL");
        let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
        let mut out = Vec::new();
        let report = parse(&mut document.as_bytes(), &ctx, &mut |item| {
            if let Item::Entry(entry) = item {
                let date = entry.published.map_or_else(String::new, |at| at.at.to_string());
                out.push(format!("{} {}", entry.loc, date.get(..10).unwrap_or_default()));
            }
            ControlFlow::Continue(())
        });
        let codes: Vec<_> = report.issues.iter().map(|issue| issue.code.as_str()).collect();
        assert_eq!(codes, ["mismatched-tag"], "{inner}");
        out.join(", ")
    };
    let table = [
        "<link>https://e.com/a\n<dc:date>2026-11-20</dc:date>",
        "<link>https://e.com/a\n<itunes:author>Somebody</itunes:author><pubDate>2026-11-20</pubDate>",
        "<pubDate>2026-11-20 <feedburner:origLink>https://e.com/a</feedburner:origLink>\
         <link>https://e.com/b</link>",
        "<title>A page <dc:date>2026-11-20</dc:date><link>https://e.com/a</link>",
        "<description>A <b>page</b> <feedburner:origLink>https://e.com/a</feedburner:origLink>\
         <pubDate>2026-11-20</pubDate>",
        // Nor does one that says something hide what follows.
        "<itunes:author>Somebody<link>https://e.com/a</link><pubDate>2026-11-20</pubDate>",
        "<itunes:author>A <b>person</b> <dc:date>2026-11-20</dc:date><guid>https://e.com/a</guid>",
    ];
    for inner in table {
        assert_eq!(item(inner), "https://e.com/a 2026-11-20", "{inner}");
    }
}
