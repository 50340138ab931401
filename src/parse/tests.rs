//! Rules of every format, by small documents.

use super::*;

/// What a sitemap or feed lists: URL, dates and the rest on one line each.
fn listed(document: &str) -> (Vec<String>, Report) {
    listed_of(document.as_bytes())
}

fn listed_of(mut document: &[u8]) -> (Vec<String>, Report) {
    let base = url::Url::parse("https://example.com/dir/doc.xml").expect("a url");
    let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
    let mut out = Vec::new();
    let report = parse(&mut document, &ctx, &mut |item| {
        out.push(match item {
            Item::Entry(e) => {
                let dates = [e.lastmod, e.published, e.updated].into_iter().flatten();
                let dates: Vec<String> = dates.map(|d| d.to_string()).collect();
                let hints =
                    (e.changefreq.map(ChangeFreq::as_str), e.priority.map(Priority::as_f64));
                format!("{} {} {:?}", e.loc, dates.join(","), hints).replace(" (None, None)", "")
            }
            Item::Sitemap(s) => format!("sitemap {}", s.loc),
            Item::Deleted(d) => format!("deleted {} {:?}", d.loc, d.when.map(|w| w.to_string())),
        });
        ControlFlow::Continue(())
    });
    (out, report)
}

fn urlset(body: &str) -> Vec<String> {
    let image = "http://www.google.com/schemas/sitemap-image/1.1";
    let ns = "http://www.sitemaps.org/schemas/sitemap/0.9";
    listed(&format!("<urlset xmlns='{ns}' xmlns:image='{image}'>{body}</urlset>")).0
}

fn rss(item: &str) -> Vec<String> {
    let atom =
        "xmlns:atom='http://www.w3.org/2005/Atom' xmlns:dc='http://purl.org/dc/elements/1.1/'";
    listed(&format!(
        "<rss version='2.0' {atom}><channel><link>https://example.com/</link>{item}</channel></rss>"
    ))
    .0
}

fn atom(entry: &str) -> Vec<String> {
    listed(&format!("<feed xmlns='http://www.w3.org/2005/Atom'><entry>{entry}</entry></feed>")).0
}

#[test]
fn sitemap_entries_are_read_by_the_rules() {
    let table: &[(&str, &[&str])] = &[
        (
            "<url><priority>0,8</priority><changefreq> Daily </changefreq><lastmod>2026-11</lastmod><loc> https://e.com/a </loc></url>",
            &["https://e.com/a 2026-11 (Some(\"daily\"), Some(0.8))"],
        ),
        (
            "<url><loc><![CDATA[ https://e.com/?a=1&b=2 ]]></loc></url>",
            &["https://e.com/?a=1&b=2 "],
        ),
        (
            "<url><loc>https://e.com/?a=1&amp;b=&#x32;&eacute;</loc></url>",
            &["https://e.com/?a=1&b=2é "],
        ),
        (
            "<url><loc>https://e.com/a</loc><image:image><image:loc>https://e.com/i.png</image:loc></image:image></url>",
            &["https://e.com/a "],
        ),
        ("<url><image:image><image:loc>https://e.com/i.png</image:loc></image:image></url>", &[]),
        (
            "<url><image><loc>https://e.com/i.png</loc></image><loc>https://e.com/a</loc></url>",
            &["https://e.com/a "],
        ),
        (
            "<url><x><url>https://e.com/x</url></x><loc>https://e.com/a</loc></url>",
            &["https://e.com/a "],
        ),
        (
            "<url><loc>https://e.com/a</loc><url><loc>https://e.com/b</loc></url>",
            &["https://e.com/a ", "https://e.com/b "],
        ),
        ("<url><loc>https://e.com/a<lastmod>2026</lastmod></url>", &["https://e.com/a 2026"]),
        (
            "<url><loc>https://e.com/a</url><url><loc>https://e.com/b</loc></url>",
            &["https://e.com/a ", "https://e.com/b "],
        ),
        (
            "<url><loc>https://e.com/a</loc><lastmod>2026</lastmod><loc>https://e.com/b</loc></url>",
            &["https://e.com/a 2026", "https://e.com/b "],
        ),
        ("<url><loc><a href='x'>https://e.com/a</a></loc></url>", &["https://e.com/a "]),
        ("<url>https://e.com/bare</url>", &["https://e.com/bare "]),
        (
            "<url><lastmod>2026</lastmod></url><url><loc>https://e.com/b</loc></url>",
            &["https://e.com/b "],
        ),
        ("<URL><Loc>https://e.com/a</Loc></URL>", &["https://e.com/a "]),
        ("<url><loc>https://e.com/a<b.html</loc></url>", &["https://e.com/a<b.html "]),
        ("<url><loc>\"https://e.com/a\"</loc></url>", &["https://e.com/a "]),
        ("<url><loc>&x;/a</loc></url>", &[]),
        ("<url><loc>https://e.com/?a=1&AMP;b=2</loc></url>", &["https://e.com/?a=1&b=2 "]),
        ("<url><loc>&lt;![CDATA[https://e.com/a]]&gt;</loc></url>", &["https://e.com/a "]),
        ("<url><loc>\nhttps://e.com/a\nhttps://e.com/b\n</loc></url>", &["https://e.com/a "]),
        ("<sitemap><loc>https://e.com/s.xml</loc></sitemap>", &["sitemap https://e.com/s.xml"]),
        ("<url><loc>ftp://e.com/a</loc></url>", &[]),
        (
            "<url><loc>https://e.com/a</loc><lastmod/><priority> </priority><lastmod>2026</lastmod><priority>0.5</priority>\
             <lastmod>2025</lastmod></url>",
            &["https://e.com/a 2026 (None, Some(0.5))"],
        ),
        (
            "<url><loc>https://e.com/a</loc><image:image><image:loc>https://e.com/i.png</image:loc><lastmod>2026</lastmod></url>",
            &["https://e.com/a 2026"],
        ),
        (
            "<url><image:image><loc>https://e.com/i.png</loc></image:image><loc>https://e.com/a</loc></url>",
            &["https://e.com/a "],
        ),
        (
            "<url><loc>https://e.com/a</loc><foo><url>https://e.com/x</url><lastmod>2020</lastmod></foo><lastmod>2026</lastmod></url>",
            &["https://e.com/a 2026"],
        ),
        (
            "<url><loc>https://e.com/a</loc><img xmlns='urn:x'><loc>https://e.com/x</loc></img></url>",
            &["https://e.com/a "],
        ),
        (
            "<url><loc>https://e.com/a</loc><meta><loc>https://e.com/x</loc></meta><hr><lastmod>2026</lastmod></url>",
            &["https://e.com/a 2026"],
        ),
    ];
    for (body, want) in table {
        assert_eq!(urlset(body), *want, "{body}");
    }
}

#[test]
fn the_link_of_an_rss_item_is_chosen_by_the_rules() {
    let table: &[(&str, &[&str])] = &[
        ("<item><link>/a</link></item>", &["https://example.com/a "]),
        ("<item><link/><guid>https://e.com/g</guid></item>", &["https://e.com/g "]),
        ("<item><guid ispermalink='FALSE'>https://e.com/g</guid></item>", &[]),
        (
            "<item><guid isPermaLink='false'>https://example.com/?p=1</guid></item>",
            &["https://example.com/?p=1 "],
        ),
        ("<item><guid>tag:e.com,2026:1</guid></item>", &[]),
        (
            "<item><atom:link rel='self' href='https://e.com/s'/><atom:link href='https://e.com/a'/></item>",
            &["https://e.com/a "],
        ),
        (
            "<item><image><link>https://e.com/i</link></image><link>https://e.com/a</link></item>",
            &["https://e.com/a "],
        ),
        (
            "<item><link>https://e.com/a</link><item><link>https://e.com/b</link></item>",
            &["https://e.com/a ", "https://e.com/b "],
        ),
        (
            "<item><title>x<br>y & z</title><link>https://e.com/a</link></item>",
            &["https://e.com/a "],
        ),
        ("<item><title>x<link>https://e.com/a</link></item>", &["https://e.com/a "]),
        (
            "<item><link>https://e.com/a</link><dc:date>2020-01-01</dc:date><pubDate>Sat, 21 Nov 2026 08:00:00 GMT</pubDate></item>",
            &["https://e.com/a 2026-11-21T08:00:00Z"],
        ),
        (
            "<item><link>https://e.com/a</link><pubDate>2026-11-01</pubDate><updated>2026-11-21</updated></item>",
            &["https://e.com/a 2026-11-01,2026-11-21"],
        ),
        (
            "<item><source><updated>2026-11-02</updated></source><published>2026-11-01</published><link>https://e.com/a</link></item>",
            &["https://e.com/a 2026-11-01"],
        ),
        ("<item xml:base='https://b.com/x/'><link>a</link></item>", &["https://b.com/x/a "]),
        (
            "<item><enclosure url='https://e.com/a.mp3'><link>https://e.com/a</link></item><item><link>/b</link></item>",
            &["https://e.com/a ", "https://example.com/b "],
        ),
        (
            "<item><media:thumbnail url='https://e.com/t'><media:content url='https://e.com/c'>             <link>https://e.com/a</link><dc:date>2026-11-21</dc:date></item>",
            &["https://e.com/a 2026-11-21"],
        ),
        (
            "<item><media:group><media:content url='https://e.com/c'/><link>https://e.com/x</link></media:group>             <link>https://e.com/a</link></item>",
            &["https://e.com/a "],
        ),
        (
            "<item><atom:source><atom:link href='https://e.com/x'/><atom:id>https://e.com/x</atom:id></atom:source>             <link>https://e.com/a</link></item>",
            &["https://e.com/a "],
        ),
        (
            "<item><meta><link>https://e.com/x</link></meta><br><link>https://e.com/a</link></item>",
            &["https://e.com/a "],
        ),
        // In RSS an item in another is the next one: an end tag was forgotten.
        (
            "<item><link>https://e.com/a</link><x:group xmlns:x='urn:x'><x:y/>\
             <item><link>https://e.com/b</link></item><item><link>https://e.com/c</link></item>",
            &["https://e.com/a ", "https://e.com/b ", "https://e.com/c "],
        ),
        // Without its end tags an item costs itself only.
        (
            "<item><link>https://e.com/a</link><dc:creator>x<item><link>https://e.com/b</link></item>\
             <item><link>https://e.com/c</link></item>",
            &["https://e.com/a ", "https://e.com/b ", "https://e.com/c "],
        ),
        (
            "<item><link>https://e.com/a</link><enclosure url='x'><item><link>https://e.com/b</link></item>",
            &["https://e.com/a ", "https://e.com/b "],
        ),
        (
            "<item><link>https://e.com/a</link><description>x<item><link>https://e.com/b</link></item>",
            &["https://e.com/a ", "https://e.com/b "],
        ),
        ("<item><description>x<link>https://e.com/a</link></item>", &["https://e.com/a "]),
        (
            "<item><description>x<link rel='stylesheet' href='/s'>y</description><link>https://e.com/a</link></item>",
            &["https://e.com/a "],
        ),
    ];
    for (item, want) in table {
        assert_eq!(rss(item), *want, "{item}");
    }
}

#[test]
fn an_entry_without_a_root_around_it_is_read_in_its_own_namespace() {
    for start in ["<s:url>", "<s:url xmlns:s='urn:x'>", "<url xmlns='urn:x'>"] {
        let p = if start.starts_with("<s:") { "s:" } else { "" };
        let loc = |url: &str| format!("<{p}loc>{url}</{p}loc></{p}url>");
        let (found, report) = listed(&format!(
            "{start}{}{start}{}</{p}urlset>",
            loc("https://e.com/a"),
            loc("https://e.com/b")
        ));
        assert_eq!(found, ["https://e.com/a ", "https://e.com/b "], "{start} {report:?}");
    }
}

#[test]
fn a_feed_has_the_namespace_of_its_channel_besides_that_of_its_root() {
    let item = "<item><link>https://e.com/a</link></item>";
    let rss2 = "'http://backend.userland.com/rss2'";
    let rdf = "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'";
    let foreign = "<x:item xmlns:x='urn:x'><x:link>https://e.com/x</x:link></x:item>";
    for document in [
        format!("<rss><channel xmlns={rss2}>{foreign}{item}{foreign}</channel></rss>"),
        format!(
            "<rss xmlns:r={rss2}><r:channel>{foreign}<r:item><r:link>https://e.com/a</r:link></r:item>\
             </r:channel></rss>"
        ),
        format!("<channel xmlns={rss2}>{foreign}{item}</channel>"),
        format!("{rdf} xmlns='http://purl.org/rss/2.0/'>{item}{foreign}</rdf:RDF>"),
        format!(
            "{rdf}><channel xmlns='urn:y'/>{foreign}<item xmlns='urn:y'><link>https://e.com/a</link></item></rdf:RDF>"
        ),
    ] {
        assert_eq!(listed(&document).0, ["https://e.com/a "], "{document}");
    }
}

#[test]
fn the_link_of_an_atom_entry_is_chosen_by_the_rules() {
    let table: &[(&str, &[&str])] = &[
        (
            "<link rel='self' href='/s'/><link rel='ALTERNATE' href='/a'/>",
            &["https://example.com/a "],
        ),
        (
            "<link type='application/pdf' href='/p'/><link type='text/html' href='/a'/>",
            &["https://example.com/a "],
        ),
        (
            "<link rel='http://www.iana.org/assignments/relation/alternate' href='/a'/>",
            &["https://example.com/a "],
        ),
        (
            "<link rel='nofollow alternate' href='/a'/><id>https://e.com/id</id>",
            &["https://example.com/a "],
        ),
        ("<link rel='enclosure' href='/e'/><id>https://e.com/id</id>", &["https://e.com/id "]),
        ("<id>urn:x</id>", &[]),
        ("<link>https://e.com/text</link>", &["https://e.com/text "]),
        (
            "<source><link href='/source'/><updated>2020-01-01</updated></source><link href='/a'/>",
            &["https://example.com/a "],
        ),
        (
            "<link href='/a'/><published>2026-11-20</published><updated>2026-11-21</updated>",
            &["https://example.com/a 2026-11-20,2026-11-21"],
        ),
        (
            "<link rel='self' href='/feeds/1'><link rel='alternate' href='/1'><updated>2026-11-21</updated></entry>             <entry><link rel='self' href='/feeds/2'><link rel='alternate' href='/2'><updated>2026-11-20</updated>",
            &["https://example.com/1 2026-11-21", "https://example.com/2 2026-11-20"],
        ),
        (
            "<link href='/a'><id>urn:x</id><updated>2026-11-21</updated>",
            &["https://example.com/a 2026-11-21"],
        ),
        ("<category term='a'><link href='/a'/>", &["https://example.com/a "]),
        (
            "<author><link href='/author'/><updated>2020-01-01</updated></author><link href='/a'/>",
            &["https://example.com/a "],
        ),
        (
            "<activity:object><id>https://e.com/o</id><link href='/o'/><published>2020-01-01</published></activity:object>             <link href='/a'/>",
            &["https://example.com/a "],
        ),
        (
            "<link rel='related' href='/r'><m:inline xmlns:m='urn:m'>x<entry><link href='/x'/></entry></m:inline></link>\
             <link href='/a'/>",
            &["https://example.com/a "],
        ),
        (
            "<content type='xml'><link href='/x'/></content><link href='/a'/>",
            &["https://example.com/a "],
        ),
        (
            "<content type='application/atom+xml'><entry><link href='/x'/></entry></content>\
             <link href='/a'/><updated>2026-11-21</updated>",
            &["https://example.com/a 2026-11-21"],
        ),
        (
            "<link href='/a'/><content type='application/atom+xml'><feed><entry><link href='/x'/></entry>\
             </feed></content><updated>2026-11-21</updated>",
            &["https://example.com/a 2026-11-21"],
        ),
        (
            "<link href='/a'/><content type='html'>x<entry><link href='/b'/></entry>",
            &["https://example.com/a ", "https://example.com/b "],
        ),
        (
            "<link href='/a'/><author><name>x<entry><link href='/b'/></entry><entry><link href='/c'/></entry>",
            &["https://example.com/a ", "https://example.com/b ", "https://example.com/c "],
        ),
        ("<summary>x<link rel='self' href='/s'/><link href='/a'/>", &["https://example.com/a "]),
    ];
    for (entry, want) in table {
        assert_eq!(atom(entry), *want, "{entry}");
    }
}

#[test]
fn what_an_entry_holds_is_told_alike_wherever_a_window_ends() {
    let entry = "<link href='/a'/><content type='application/atom+xml'>";
    let inner = "<entry><link href='/x'/></entry></content>";
    let blanks = " \n".repeat(150);
    for before in [10, WINDOW - 600, WINDOW - 450, WINDOW - 330, WINDOW - 200, WINDOW] {
        let comment = format!("<!--{}-->", "x".repeat(before));
        let found = atom(&format!("{comment}{entry}{blanks}{inner}"));
        assert_eq!(found, ["https://example.com/a "], "{before}");
    }
}

#[test]
fn hints_for_the_poller_are_taken_from_the_feed_and_not_from_its_items() {
    let (_, report) = listed(
        "<rss version='2.0' xmlns:atom='http://www.w3.org/2005/Atom'><channel><ttl>90</ttl>\
         <skipHours><hour>0</hour><hour>24</hour><hour>5</hour></skipHours><skipDays><day>Sunday</day></skipDays>\
         <atom:link rel='hub' href='https://hub.example/'/><atom:link rel='self' href='/feed'/>\
         <atom:link rel='next' href='/feed?page=2'/>\
         <item><link>https://e.com/a</link><atom:link rel='hub' href='https://evil.example/'/></item></channel></rss>",
    );
    let hints = Hints {
        min_interval_secs: Some(5_400),
        skip_hours: 1 | 1 << 5,
        skip_days: 1 << 6,
        hubs: vec!["https://hub.example/".to_owned()],
        self_url: Some("https://example.com/feed".to_owned()),
        next_page: Some("https://example.com/feed?page=2".to_owned()),
    };
    assert_eq!(report.hints, hints);
    assert!(report.window && report.complete);
}

#[test]
fn hubs_of_a_json_feed_that_speak_another_protocol_are_none_of_ours() {
    let (_, report) = listed(
        r#"{"version":"https://jsonfeed.org/version/1.1","title":"t","hubs":[
            {"type":"rssCloud","url":"https://cloud.example/"},{"url":"https://any.example/"},
            {"type":"WebSub","url":"https://hub.example/"}],"items":[{"id":"1","url":"https://e.com/1"}]}"#,
    );
    assert_eq!(report.hints.hubs, ["https://any.example/", "https://hub.example/"]);
}

#[test]
fn a_defect_costs_the_same_in_a_large_document_as_in_a_small_one() {
    for forgotten in ["<!-- x ->", "<!-- x >", "<?x y>", "<?xml-stylesheet href='/s.xsl'>"] {
        for many in [30, 30_000] {
            let pages = "<url><loc>https://e.com/b</loc></url>".repeat(many);
            let first = "<url><loc>https://e.com/a</loc></url>";
            let (found, report) = listed(&format!("<urlset>{first}{forgotten}{pages}</urlset>"));
            assert_eq!((found.len(), report.complete), (1 + many, true), "{forgotten}");
        }
    }
    let (found, _) = listed(
        "<?xml version='1.0'?><?xml-stylesheet type='text/xsl' href='/s.xsl'>\
         <urlset><url><loc>https://e.com/a</loc></url></urlset>",
    );
    assert_eq!(found, ["https://e.com/a "]);
}

#[test]
fn a_cut_feed_gives_its_whole_items_and_no_half_url() {
    let document =
        "<rss><channel><item><link>https://e.com/a</link></item><item><link>https://e.com/b";
    let (found, report) = listed(document);
    assert_eq!(found, ["https://e.com/a "]);
    assert!(!report.complete);
}

#[test]
fn what_hides_entries_is_never_complete() {
    let entry = |n: u32| format!("<url><loc>https://e.com/{n}</loc></url>");
    let (two, three) = (entry(2), entry(3));
    for (body, complete) in [
        (format!("<url><loc>https://e.com/1</loc><note>{two}{three}"), false),
        (format!("<url><loc>https://e.com/1</loc><x:y>{two}{three}"), false),
        (format!("<url><loc>https://e.com/1</loc><note>{two}</note></url>{three}"), true),
        (format!("<url><loc>https://e.com/1</loc><note>n</url>{two}{three}"), true),
        (format!("{}<!-- two {two}{three}", entry(1)), false),
        (format!("{}<!-- two --> {two}{three}", entry(1)), true),
        (format!("{}<?php {two}{three}", entry(1)), false),
        (format!("<loc>https://e.com/1</loc>{two}{three}"), false),
        (format!("{}<loc>https://e.com/2</loc></url>{three}", entry(1)), false),
        (format!("<x:y><loc>https://e.com/1</loc></x:y>{two}{three}"), true),
    ] {
        let (found, report) = listed(&format!("<urlset>{body}</urlset>"));
        assert_eq!(report.complete, complete, "{body} {found:?}");
        let is_told = report.issues.iter().any(|issue| issue.code == IssueCode::ParsingError);
        assert!(is_told != complete, "{body} {:?}", report.issues);
    }
}

#[test]
fn what_php_prints_before_a_sitemap_costs_nothing_of_it() {
    let warning =
        "<br />\n<b>Warning</b>: Undefined variable in <b>/a.php</b> on line <b>12</b><br />\n";
    let sitemap = "<urlset><url><loc>https://e.com/1</loc></url></urlset>";
    assert_eq!(listed(&(warning.repeat(200) + sitemap)).0, ["https://e.com/1 "]);
}

#[test]
fn markup_behind_the_root_is_not_missed() {
    let sitemap = "<urlset><url><loc>https://e.com/a</loc></url></urlset>";
    let feed = "<rss><channel><item><link>https://e.com/a</link></item></channel></rss>";
    for document in [sitemap, feed] {
        for (behind, entries, complete) in [
            ("\n<p>Generated in 0.1 s", 1, true),
            ("<html><head><link rel='next' href='/n'><body><a href='x'>", 1, true),
            ("<p><b></p><div>", 1, true),
            ("<urlset>", 1, false),
            ("<urlset><url><loc>https://e.com/b</loc></url></urlset>", 2, true),
            ("<p>x</p><urlset><url><loc>https://e.com/b</loc>", 2, false),
            ("<p><urlset><url><loc>https://e.com/b</loc></url>", 2, false),
            ("<p><urlset><url><loc>https://e.com/b</loc></url></urlset>", 2, true),
            ("<url><loc>https://e.com/b</loc>", 2, false),
        ] {
            // Of another kind than the first, a second document is not read.
            let behind = if document == sitemap {
                behind.to_owned()
            } else {
                behind.replace("urlset", "rss").replace("url>", "item>").replace("loc>", "link>")
            };
            let (found, report) = listed(&format!("{document}{behind}"));
            assert_eq!((found.len(), report.complete), (entries, complete), "{behind}");
            let has = |code| report.issues.iter().any(|issue| issue.code == code);
            assert_eq!(has(IssueCode::Truncated), !complete, "{behind}");
            let more = ["<p>", "<html>", "<urlset>", "<rss>"];
            let more = more.iter().any(|tag| behind.trim().starts_with(tag));
            assert_eq!(has(IssueCode::TrailingContent), more, "{behind}");
            assert_eq!(report.hints.next_page, None, "{behind}");
        }
    }
    assert!(!listed("<p><urlset><url><loc>https://e.com/a</loc></url></urlset>").1.complete);
}

#[test]
fn two_urls_in_a_line_of_text_are_two() {
    let (found, report) =
        listed("https://e.com/8 https://e.com/9\nhttps://e.com/5 2024-01-01\nhttps://e.com/a b\n");
    let want = ["https://e.com/8 ", "https://e.com/9 ", "https://e.com/5 ", "https://e.com/a b "];
    assert_eq!(found, want);
    let counts: Vec<_> = report.issues.iter().map(|issue| (issue.code, issue.count)).collect();
    assert_eq!(counts, [(IssueCode::TrailingContent, 2)]);
    assert!(report.complete);
}

#[test]
fn marks_that_show_nothing_around_a_url_are_no_part_of_it() {
    for (begins, ends) in
        [("\u{202a}", "\u{202c}"), ("\u{2066}", "\u{2069}"), ("\u{ad}", "\u{200f}")]
    {
        let url = format!("{begins}https://e.com/a{ends}");
        let (found, report) = listed(&format!("{url}\n{url}\n"));
        assert_eq!(found, ["https://e.com/a ", "https://e.com/a "]);
        assert!(report.issues.is_empty(), "{:?}", report.issues);
        assert_eq!(urlset(&format!("<url><loc>{url}</loc></url>")), ["https://e.com/a "]);
        assert_eq!(listed(&format!("Sitemap: {url}\n")).0, ["sitemap https://e.com/a"]);
        assert_eq!(listed(&format!("{begins}Sitemap: /a\n")).0, ["sitemap https://example.com/a"]);
    }
}

#[test]
fn a_nul_costs_a_list_of_urls_nothing_but_itself() {
    let (found, report) = listed("https://e.com/a\0\nhttps://e.com/b\0c\n\0\0\n");
    assert_eq!(found, ["https://e.com/a ", "https://e.com/bc "]);
    assert!(report.complete);
    let codes: Vec<IssueCode> = report.issues.iter().map(|issue| issue.code).collect();
    assert_eq!(codes, [IssueCode::IllegalCharacter]);
    let (found, report) = listed("\u{1}\0x\nhttps://e.com/a\nx\0y\n");
    assert_eq!((found.len(), report.kind), (0, DocumentKind::Unsupported));
}

#[test]
fn a_quoted_column_of_a_list_ends_at_its_quote() {
    let (found, report) = listed("\"https://e.com/a\",\"2020-01-01\"\n'https://e.com/b'\n");
    assert_eq!(found, ["https://e.com/a ", "https://e.com/b "]);
    let codes: Vec<IssueCode> = report.issues.iter().map(|issue| issue.code).collect();
    assert_eq!(codes, [IssueCode::TrailingContent]);
}

#[test]
fn what_a_host_has_as_its_robots_txt_is_read_as_one() {
    let at = |url: &str, document: &str| {
        let base = url::Url::parse(url).expect("a url");
        let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
        let mut sitemaps = Vec::new();
        let report = parse(&mut document.as_bytes(), &ctx, &mut |item| {
            if let Item::Sitemap(sitemap) = item {
                sitemaps.push(sitemap.loc.to_owned());
            }
            ControlFlow::Continue(())
        });
        (report.kind, sitemaps)
    };
    let rules = "User-agent: *\nDisallow: /\nSitemap: https://e.com/s.xml\n";
    let comments = "# x\n".repeat(20_000);
    for document in [
        format!("<!-- x -->\n{rules}"),
        format!("<pre>\n{rules}</pre>"),
        format!("x\0y\n{rules}"),
        format!("{comments}{rules}"),
    ] {
        let (kind, sitemaps) = at("https://e.com/robots.txt", &document);
        assert_eq!((kind, sitemaps.len()), (DocumentKind::Robots, 1), "{document:.40}");
    }
    for document in ["# x\n", "", "\n"] {
        assert_eq!(at("https://e.com/robots.txt", document).0, DocumentKind::Robots);
        assert_eq!(at("https://e.com/s.txt", document).0, DocumentKind::Unsupported);
    }
    let page = "<html><body>no such page</body></html>";
    assert_eq!(at("https://e.com/robots.txt", page).0, DocumentKind::Unsupported);
    let sitemap = "<urlset><url><loc>https://e.com/a</loc></url></urlset>";
    assert_eq!(at("https://e.com/robots.txt", sitemap).0, DocumentKind::Urlset);
    for (line, many) in [
        ("Sitemap: https://e.com/s.xml https://e.com/t.xml", 2),
        ("Sitemap: https://e.com/s.xml our pages", 1),
        ("Sitemap: https://e.com/s.xml<br>", 1),
        ("Sitemap: https://e.com/s.xml\nSitemap:https//e.com/t.xml\nSitemap:://e.com/u.xml", 1),
    ] {
        let (kind, sitemaps) = at("https://e.com/any", line);
        assert_eq!((kind, sitemaps.len()), (DocumentKind::Robots, many), "{line}");
        assert_eq!(sitemaps.first().map(String::as_str), Some("https://e.com/s.xml"));
    }
}

#[test]
fn a_sitemap_line_makes_no_robots_txt_of_a_list_of_urls() {
    use DocumentKind::{Robots, Text};
    let urls = "https://e.com/a\nhttps://e.com/b\n";
    for (lines, kind) in [
        ("# ours\nSitemap: https://e.com/s.txt\n", Text),
        ("Sitemap:https://e.com/s.txt\nSitemap https://e.com/t.txt\n", Text),
        ("Sitemap: /s.txt\n\n", Text),
        ("Crawl-delay: 5\nSitemap: https://e.com/s.txt\n", Text),
        ("User-agent: *\nSitemap: https://e.com/s.txt\n", Robots),
        ("Disallow: /x\n", Robots),
        ("Allow:\n", Robots),
        ("Sitemap:\n", Robots),
    ] {
        for document in [format!("{lines}{urls}"), format!("{urls}{lines}{urls}")] {
            let (found, report) = listed(&document);
            assert_eq!(report.kind, kind, "{document}");
            let pages = document.matches(".com/a\n").count() * 2;
            let want = if kind == Text { pages } else { 0 };
            assert_eq!(found.iter().filter(|loc| !loc.starts_with("sitemap ")).count(), want);
            let codes: Vec<IssueCode> = report.issues.iter().map(|issue| issue.code).collect();
            assert!(kind == Robots || codes == [IssueCode::InvalidUrl], "{document} {codes:?}");
        }
    }
    assert_eq!(listed("Sitemap: https://e.com/s.txt\n").1.kind, Robots);
}

/// The digest of the last entry of a document.
fn digest_of(document: &str) -> u64 {
    let base = url::Url::parse("https://e.com/").expect("a url");
    let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
    let mut digest = 0;
    parse(&mut document.as_bytes(), &ctx, &mut |item| {
        if let Item::Entry(entry) = item {
            digest = entry.digest;
        }
        ControlFlow::Continue(())
    });
    digest
}

#[test]
fn a_digest_does_not_move_with_the_viewers_of_a_video() {
    let digest = |fields: &str| {
        let document = format!(
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
             xmlns:video='http://www.google.com/schemas/sitemap-video/1.1'>\
             <url><loc>https://e.com/a</loc><video:video>{fields}</video:video></url></urlset>"
        );
        digest_of(&document)
    };
    let video = |title: &str, views: u32, rating: &str| {
        digest(&format!(
            "<video:title>{title}</video:title><video:view_count>{views}</video:view_count>\
             <video:rating>{rating}</video:rating>"
        ))
    };
    assert_ne!(video("A", 1, "4.5"), 0);
    assert_eq!(video("A", 1, "4.5"), video("A", 1_000, "4.6"));
    assert_ne!(video("A", 1, "4.5"), video("B", 1, "4.5"));
}

#[test]
fn a_digest_moves_with_the_texts_of_an_entry_and_with_nothing_else() {
    let digest = |title: &str, lastmod: &str| {
        let document = format!(
            "<urlset xmlns:news='http://www.google.com/schemas/sitemap-news/0.9'><url><loc>https://e.com/a</loc>\
             <lastmod>{lastmod}</lastmod><news:news><news:title>{title}</news:title></news:news></url></urlset>"
        );
        digest_of(&document)
    };
    assert_eq!(digest("A", "2026-11-20"), digest("A", "2026-11-21"));
    assert_ne!(digest("A", "2026-11-20"), digest("B", "2026-11-20"));
    assert_ne!(digest("A", "2026-11-20"), 0);
}

#[test]
fn a_sink_that_breaks_stops_the_reading() {
    let base = url::Url::parse("https://e.com/").expect("a url");
    let ctx = Context { base: &base, content_type: None, limits: Limits::default() };
    for document in [
        "<urlset><url><loc>https://e.com/a</loc></url><url><loc>https://e.com/b</loc></url></urlset>",
        "https://e.com/a\nhttps://e.com/b\n",
        "Sitemap: /a\nSitemap: /b\n",
    ] {
        let mut seen = 0;
        let report = parse(&mut document.as_bytes(), &ctx, &mut |_| {
            seen += 1;
            ControlFlow::Break(())
        });
        assert_eq!(seen, 1);
        assert!(!report.complete);
    }
}

#[test]
fn a_sitemap_that_is_not_utf8_is_read_and_told_so() {
    use IssueCode::NotUtf8;
    let declared = "<?xml version='1.0' encoding='windows-1251'?>";
    let entry = "<url><loc>https://e.com/Привет</loc></url>";
    let sitemap = format!("{declared}<urlset>{entry}</urlset>");
    let feed = format!(
        "{declared}<rss><channel><item><link>https://e.com/Привет</link></item></channel></rss>"
    );
    let utf16: Vec<u8> = "https://e.com/a\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let legacy = |text: &str| encoding_rs::WINDOWS_1251.encode(text).0.into_owned();
    for (bytes, expected) in [
        (legacy(&sitemap), true),
        (utf16, true),
        (sitemap.clone().into_bytes(), false),
        (legacy(&feed), false),
    ] {
        let report = listed_of(&bytes).1;
        assert_eq!(report.entries_total, 1);
        assert_eq!(report.issues.iter().any(|issue| issue.code == NotUtf8), expected);
    }
}
