//! `sitemapd check`: the report, the object, the exit codes.

use serde_json::{Value, json};

use super::super::support::pack::gzip;
use super::super::support::{Canary, Origin, Reply, incompressible};
use super::{outcome, sitemapd, sitemapd_in};

const SITEMAP: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
        xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
<url><loc>https://www.example.org/a?x=1&amp;y=2</loc><lastmod>2026-11</lastmod>
<changefreq>daily</changefreq><priority>0.8</priority>
<image:image><image:loc>https://www.example.org/i.png</image:loc></image:image></url>
<url><loc>/b</loc><lastmod>2026-13-45</lastmod></url>
<url><loc>https://EXAMPLE.com</loc><lastmod>2026-11-21T09:30:00+01:00</lastmod></url>
<url><loc>ftp://example.org/no</loc></url>
</urlset>
"#;

fn json_of(args: &[&str], stdin: impl Into<Vec<u8>>) -> (i32, Value) {
    let mut command = sitemapd();
    command.args(["check", "-", "--json"]).args(args).write_stdin(stdin);
    let (code, out, err) = outcome(&mut command);
    (code, serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out} {err}")))
}

#[test]
fn the_object_has_exactly_these_names_and_values() {
    let (code, value) =
        json_of(&["--url", "https://example.org/sitemap.xml", "--entries"], SITEMAP);
    assert_eq!(code, 0);
    let none = json!([]);
    let entry = |loc: &str, in_scope: bool, lastmod: Value| {
        json!({
            "loc": loc, "in_scope": in_scope, "lastmod": lastmod, "updated": null,
            "published": null, "changefreq": null, "priority": null, "images": none,
            "videos": none, "news": none, "alternates": none,
        })
    };
    let mut first = entry("https://www.example.org/a?x=1&y=2", true, json!("2026-11"));
    first["changefreq"] = json!("daily");
    first["priority"] = json!(0.8);
    first["images"] = json!([{ "loc": "https://www.example.org/i.png" }]);
    let mut value = value;
    let issues = value["issues"].take();
    assert_eq!(
        value,
        json!({
            "kind": "urlset", "encoding": "UTF-8", "compression": null,
            "bytes": SITEMAP.len(), "entries_total": 3, "sitemaps_total": 0,
            "complete": true, "issues": null, "sitemaps": [],
            "entries": [
                first,
                entry("https://example.org/b", true, json!(null)),
                entry("https://example.com/", false, json!("2026-11-21T08:30:00Z")),
            ],
        })
    );
    let codes: Vec<&str> =
        issues.as_array().expect("a list").iter().filter_map(|i| i["code"].as_str()).collect();
    for code in ["invalid-date", "invalid-url"] {
        assert!(codes.contains(&code), "{codes:?}");
    }
    for issue in issues.as_array().expect("a list") {
        let mut names: Vec<&str> =
            issue.as_object().expect("an object").keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["code", "count", "line", "offset", "sample", "severity"]);
    }
}

#[test]
fn entries_are_listed_only_when_asked_for_and_counted_always() {
    let (_, value) = json_of(&[], SITEMAP);
    assert!(value.get("entries").is_none() && value.get("sitemaps").is_none());
    // The relative URL has nothing to be resolved against here.
    assert_eq!(value["entries_total"], 2);
}

#[test]
fn a_packed_document_is_unpacked_and_says_so() {
    let (code, value) = json_of(&[], gzip(SITEMAP.as_bytes()));
    assert_eq!((code, &value["compression"]), (0, &json!("gzip")));
    assert_eq!(value["bytes"], SITEMAP.len());
    let mut broken = gzip(SITEMAP.as_bytes());
    broken.truncate(broken.len() - 30);
    let (code, value) = json_of(&[], broken);
    assert_eq!((code, &value["complete"]), (0, &json!(false)), "{value}");
    assert!(value["entries_total"].as_u64() > Some(0), "{value}");
}

#[test]
fn a_packed_document_that_breaks_before_its_first_url_exits_1_with_a_report() {
    let path = incompressible(1_900);
    let whole = format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n\
         <url><loc>https://example.org/{path}</loc></url></urlset>"
    );
    let mut broken = gzip(whole.as_bytes());
    assert_eq!(json_of(&[], broken.clone()).1["entries_total"], 1);
    broken.truncate(broken.len() / 2);
    let (code, value) = json_of(&[], broken);
    assert_eq!((code, &value["kind"]), (1, &json!("urlset")), "{value}");
    assert_eq!((&value["entries_total"], &value["complete"]), (&json!(0), &json!(false)));
}

#[test]
fn what_is_no_sitemap_exits_1_with_a_report_all_the_same() {
    let (code, value) = json_of(&[], "<!doctype html><html><body>404</body></html>");
    assert_eq!((code, &value["kind"]), (1, &json!("unsupported")));
    let (code, value) = json_of(&[], "");
    assert_eq!((code, &value["entries_total"]), (1, &json!(0)));
    let (code, out, err) =
        outcome(sitemapd().args(["check", "-"]).write_stdin("<!doctype html><html></html>"));
    assert_eq!((code, err.as_str()), (1, ""));
    assert!(out.contains("Unsupported format"), "{out}");
}

#[test]
fn a_robots_txt_fills_the_sitemaps() {
    let robots =
        "User-agent: *\nDisallow: /x\nSitemap: /one.xml\nSitemap: https://example.org/two.xml\n";
    let (code, value) = json_of(&["--entries", "--url", "https://example.org/robots.txt"], robots);
    assert_eq!((code, &value["kind"], &value["sitemaps_total"]), (0, &json!("robots"), &json!(2)));
    assert_eq!(
        value["sitemaps"],
        json!([
            { "loc": "https://example.org/one.xml", "lastmod": null },
            { "loc": "https://example.org/two.xml", "lastmod": null },
        ])
    );
}

#[test]
fn a_person_is_told_what_is_wrong_where_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("sitemap.xml"), SITEMAP).expect("a file");
    let (code, out, err) = outcome(sitemapd_in(folder.path()).args(["check", "sitemap.xml"]));
    assert_eq!((code, err.as_str()), (0, ""));
    for told in ["sitemap.xml: a sitemap", "2 URLs", "Invalid date (line 7)", "2026-13-45"] {
        assert!(out.contains(told), "{told}: {out}");
    }
    for line in out.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

/// What a document does not show by itself, and the line it is first in.
#[test]
fn every_code_that_needs_more_than_the_document_has_a_fixture_too() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/beside");
    let table = [
        ("future-date", "future-date.xml", "www.", 1, 4),
        ("duplicate-url", "duplicate-url.xml", "www.", 2, 5),
        ("url-not-allowed", "url-not-allowed.xml", "www.", 1, 4),
        ("missing-www", "missing-www.xml", "www.", 1, 4),
        ("includes-www", "includes-www.xml", "", 1, 4),
        ("compression-error", "compression-error.xml.gz", "www.", 1, 0),
        ("file-too-large", "file-too-large.xml", "www.", 1, 0),
    ];
    let limit = tempfile::tempdir().expect("a folder");
    let config = "[fetch]\nmax_body_bytes = \"4KiB\"\n";
    std::fs::write(limit.path().join("sitemapd.toml"), config).expect("a file");
    for (code, file, www, count, line) in table {
        let mut command = sitemapd_in(limit.path());
        if code == "file-too-large" {
            command.args(["--config", "sitemapd.toml"]);
        }
        let url = format!("https://{www}example.com/sitemap.xml");
        command.args(["check", "--json", "--url", &url]).arg(folder.join(file));
        let (exit, out, err) = outcome(&mut command);
        assert_eq!(exit, 0, "{err}");
        let value: Value = serde_json::from_str(&out).expect("json");
        let issues = value["issues"].as_array().expect("a list");
        assert_eq!(issues.len(), 1, "{code}: {issues:?}");
        let issue = &issues[0];
        assert_eq!((&issue["code"], &issue["count"]), (&json!(code), &json!(count)));
        if line > 0 {
            assert_eq!(issue["line"], json!(line), "{issue}");
        }
        let is_cut = ["compression-error", "file-too-large"].contains(&code);
        assert_eq!(value["complete"], json!(!is_cut), "{code}");
    }
}

#[test]
fn a_report_shows_the_line_of_a_defect_and_the_worst_first() {
    let (_, out, _) = outcome(
        sitemapd()
            .args(["check", "-", "--url", "https://example.org/sitemap.xml"])
            .write_stdin(SITEMAP),
    );
    for told in [
        "stdin: a sitemap, with 3 errors and 2 warnings",
        "  error    Invalid URL (line 9)",
        "           9 | <url><loc>ftp://example.org/no</loc></url>",
        "2 of 3 URLs have one, the newest 2026-11-21T08:30:00Z",
        "1 of 3 URLs is left out: out of scope",
    ] {
        assert!(out.contains(told), "{told}: {out}");
    }
    let (error, warning) = (out.find("  error "), out.find("  warning "));
    assert!(error.is_some() && error < warning, "{out}");
}

#[test]
fn a_feed_tells_what_it_asks_of_pollers_and_what_was_deleted() {
    let feed = "<feed xmlns=\"http://www.w3.org/2005/Atom\" xmlns:at=\"http://purl.org/atompub/tombstones/1.0\">\
        <link rel=\"hub\" href=\"https://hub.example/\"/><link rel=\"prev-archive\" href=\"/old\"/>\
        <entry><link href=\"https://other.example/a\"/><updated>2026-01-01T00:00:00Z</updated></entry>\
        <at:deleted-entry ref=\"https://example.org/b\" when=\"2026-01-02T00:00:00Z\"/></feed>";
    let (code, out, _) = outcome(
        sitemapd().args(["check", "-", "--url", "https://example.org/feed"]).write_stdin(feed),
    );
    assert_eq!(code, 0);
    for told in [
        "stdin: an Atom feed, without issues",
        "hub       https://hub.example/",
        "older     https://example.org/old",
        "deleted   1 URL, which it says is gone",
        "1 URL, the latest only",
    ] {
        assert!(out.contains(told), "{told}: {out}");
    }
}

#[test]
fn text_of_a_stranger_cannot_drive_the_terminal() {
    let list = "https://example.org/\u{202e}\u{9b}31m\nhttps://example.org/ok\nnot \x1b[2J a url\n";
    let (_, out, _) = outcome(sitemapd().args(["check", "-"]).write_stdin(list));
    assert!(!out.chars().any(|c| c.is_control() && c != '\n'), "{out:?}");
    assert!(!out.contains('\u{202e}'), "{out:?}");
}

#[test]
fn a_file_that_is_not_there_exits_1_and_is_named() {
    let (code, _, err) = outcome(sitemapd().args(["check", "/no/such/file.xml"]));
    assert_eq!(code, 1);
    assert!(err.contains("/no/such/file.xml"), "{err}");
}

#[test]
fn a_loopback_url_is_fetched_when_it_was_typed() {
    let origin = Origin::start_blocking();
    origin.set("/sitemap.xml", Reply::xml(SITEMAP).gzip());
    let url = origin.url("/sitemap.xml");
    let (code, out, err) = outcome(sitemapd().args(["check", "--json", url.as_str()]));
    assert_eq!(code, 0, "{err}");
    let value: Value = serde_json::from_str(&out).expect("json");
    assert_eq!((&value["entries_total"], &value["compression"]), (&json!(3), &json!("gzip")));
}

#[test]
fn a_redirect_away_from_the_typed_port_is_refused() {
    let origin = Origin::start_blocking();
    let mut canary = Canary::start();
    let away = format!("http://127.0.0.1:{}/", canary.port());
    origin.set("/sitemap.xml", Reply::redirect(302, away));
    let url = origin.url("/sitemap.xml");
    let (code, _, err) = outcome(sitemapd().args(["check", url.as_str()]));
    assert_eq!((code, canary.touched()), (1, 0));
    assert!(err.contains("not a public address"), "{err}");
}

#[test]
fn a_typed_url_is_read_as_a_poll_of_its_site_reads_it() {
    let (origin, other) = (Origin::start_blocking(), Origin::start_blocking());
    let base = origin.base();
    let locs = format!("<url><loc>{base}/products/1</loc></url><url><loc>{base}/about</loc></url>");
    let sitemap =
        format!("<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">{locs}</urlset>");
    origin.set("/sitemap.xml", Reply::xml(sitemap.clone()));
    origin.set("/moved.xml", Reply::redirect(302, other.url("/sitemap.xml")));
    other.set("/sitemap.xml", Reply::xml(sitemap));
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[fetch]\nallow = [\"127.0.0.1:{}\"]\n[[site]]\nname = \"a\"\nurl = \"{base}/\"\n\
         include = [\"*/products/*\"]\nheaders = {{ Authorization = \"Bearer s3cret\" }}\n",
        other.port()
    );
    std::fs::write(folder.path().join("config.toml"), config).expect("a file");
    for path in ["/sitemap.xml", "/moved.xml"] {
        let url = origin.url(path);
        let args = ["check", "--config", "config.toml", "--json", "--entries", url.as_str()];
        let (code, out, err) = outcome(sitemapd_in(folder.path()).args(args));
        assert_eq!(code, 0, "{err}");
        let value: Value = serde_json::from_str(&out).expect("json");
        let scopes: Vec<_> =
            value["entries"].as_array().expect("a list").iter().map(|e| &e["in_scope"]).collect();
        assert_eq!(scopes, [&json!(true), &json!(false)], "{path}");
        assert_eq!(origin.requests(path)[0].header("authorization"), Some("Bearer s3cret"));
    }
    assert_eq!(other.requests("/sitemap.xml")[0].header("authorization"), None);
}

#[test]
fn a_private_address_is_refused_even_when_it_was_typed() {
    let (code, _, err) = outcome(sitemapd().args(["check", "http://10.0.0.1/sitemap.xml"]));
    assert_eq!(code, 1);
    assert!(err.contains("10.0.0.1") && err.contains("fetch.allow"), "{err}");
}

#[test]
fn a_date_to_come_is_said_to_count_as_none() {
    let sitemap = |year| {
        format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"><url>\
             <loc>https://example.org/</loc><lastmod>{year}-01-01</lastmod></url></urlset>"
        )
    };
    for (year, to_come) in [(2020, false), (9998, true)] {
        let (code, out, err) = outcome(sitemapd().args(["check", "-"]).write_stdin(sitemap(year)));
        assert_eq!(code, 0, "{err}");
        assert_eq!(out.contains("counts as none: it is to come"), to_come, "{out}");
    }
}
