//! `sitemapd discover`: what it finds, how it behaves, what it prints to paste.

use serde_json::Value;
use sitemapd::config::Config;

use super::super::support::{Canary, Origin, Reply};
use super::{outcome, sitemapd_in};

/// A site with an index of two children, a feed, and a page on another host.
fn site() -> Origin {
    let origin = Origin::start_blocking();
    let base = origin.base();
    origin.set(
        "/",
        Reply::html("<head><link rel=alternate type=application/rss+xml href=/feed.rss></head>"),
    );
    origin.set(
        "/robots.txt",
        Reply::text(format!("User-agent: *\nDisallow: /private\nSitemap: {base}/index.xml\n")),
    );
    let index = format!(
        "<sitemapindex><sitemap><loc>{base}/a.xml</loc></sitemap>\
         <sitemap><loc>{base}/private/b.xml</loc></sitemap></sitemapindex>"
    );
    origin.set("/index.xml", Reply::xml(index));
    let urlset = format!(
        "<urlset><url><loc>{base}/1</loc></url><url><loc>{base}/private/2</loc></url>\
         <url><loc>https://elsewhere.example/3</loc></url></urlset>"
    );
    origin.set("/a.xml", Reply::xml(urlset.clone()));
    origin.set("/private/b.xml", Reply::xml(urlset));
    let feed = format!("<rss><channel><item><link>{base}/4</link></item></channel></rss>");
    origin.set("/feed.rss", Reply::xml(feed));
    origin
}

/// Runs it with the least delay, so that the test need not wait.
fn discover(args: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = "[politeness]\nhost_delay = \"0s\"\n";
    std::fs::write(folder.path().join("config.toml"), config).expect("a config");
    outcome(sitemapd_in(folder.path()).arg("discover").args(args))
}

#[test]
fn the_sources_of_a_site_are_found_and_summed_up() {
    let origin = site();
    let (code, out, err) = discover(&[&origin.base(), "--json"]);
    assert_eq!(code, 0, "{err}");
    let value: Value = serde_json::from_str(&out).expect("json");
    let told: Vec<(&str, &str)> = value["sources"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|source| (source["named_by"].as_str(), source["kind"].as_str()))
        .map(|(named_by, kind)| (named_by.unwrap_or("?"), kind.unwrap_or("none")))
        .collect();
    let expected =
        [("robots.txt", "index"), ("index", "urlset"), ("index", "none"), ("home page", "rss")];
    assert_eq!(told, expected, "{out}");
    let urls = &value["urls"];
    assert_eq!(
        (&urls["listed"], &urls["in_scope"], &urls["forbidden"]),
        (&4.into(), &2.into(), &1.into())
    );
    assert_eq!(urls["other_hosts"]["elsewhere.example"], 1);
}

#[test]
fn what_robots_txt_forbids_is_not_asked_for() {
    let origin = site();
    let (code, out, _) = discover(&[&origin.base()]);
    assert_eq!(code, 0, "{out}");
    assert!(origin.requests("/private/b.xml").is_empty());
    assert_eq!(origin.requests("/robots.txt").len(), 1);
    assert!(out.contains("robots.txt of") && out.contains("forbids it"), "{out}");
}

#[test]
fn the_block_to_paste_is_a_configuration() {
    let origin = site();
    let (_, out, _) = discover(&[&origin.base()]);
    let block = &out[out.find("[[site]]").expect("a block")..];
    let config = Config::from_toml_str(block).expect("it is valid");
    let site = config.sites.values().next().expect("a site");
    assert_eq!(site.url, origin.url("/"));
    for line in block.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    // Where no terminal is nothing of a table is cut.
    assert!(out.contains(origin.url("/private/b.xml").as_str()), "{out}");
    assert!(!out[..out.find("[[site]]").expect("a block")].contains('…'), "{out}");
}

#[test]
fn well_known_places_are_tried_when_robots_txt_names_nothing() {
    let origin = site();
    origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow:\n"));
    origin.set("/sitemap.txt", Reply::text(format!("{}\n", origin.url("/5"))));
    let (code, out, _) = discover(&[&origin.base()]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("/sitemap.txt") && out.contains("well-known"), "{out}");
}

#[test]
fn what_robots_txt_names_is_about_the_root_whatever_page_was_typed() {
    let origin = site();
    origin.set("/blog/", Reply::html("<title>blog</title>"));
    origin.set("/robots.txt", Reply::text("Sitemap: a.xml\n"));
    let (code, out, err) = discover(&[origin.url("/blog/").as_str(), "--json"]);
    assert_eq!(code, 0, "{err}");
    let value: Value = serde_json::from_str(&out).expect("json");
    assert_eq!(value["sources"][0]["url"], origin.url("/a.xml").as_str(), "{out}");
}

#[test]
fn a_site_without_sources_fails_and_says_so() {
    let origin = Origin::start_blocking();
    let (code, _, err) = discover(&[&origin.base()]);
    assert_eq!(code, 1);
    assert!(err.contains("no sitemap and no feed"), "{err}");
}

#[test]
fn a_sitemap_line_cannot_send_us_to_another_port_of_this_machine() {
    let origin = site();
    let mut canary = Canary::start();
    let line = format!("Sitemap: http://127.0.0.1:{}/sitemap.xml\n", canary.port());
    origin.set("/robots.txt", Reply::text(line));
    let (_, out, _) = discover(&[&origin.base()]);
    assert_eq!(canary.touched(), 0, "{out}");
}

#[test]
fn link_headers_name_sources_and_a_guess_that_hits_ends_the_guessing() {
    let origin = Origin::start_blocking();
    let base = origin.base();
    let list = format!("<urlset><url><loc>{base}/1</loc></url></urlset>");
    origin.set(
        "/",
        Reply::html("<title>home</title>").header("Link", "</linked.xml>; rel=\"sitemap\""),
    );
    // As WordPress has it.
    origin.set("/sitemap.xml", Reply::redirect(302, format!("{base}/wp-sitemap.xml")));
    origin.set("/wp-sitemap.xml", Reply::xml(list.clone()));
    origin.set("/linked.xml", Reply::xml(list));
    let (code, out, err) = discover(&[&base, "--json"]);
    assert_eq!(code, 0, "{err}");
    let value: Value = serde_json::from_str(&out).expect("json");
    let urls: Vec<_> =
        value["sources"].as_array().expect("a list").iter().map(|s| s["url"].clone()).collect();
    assert_eq!(urls, [format!("{base}/sitemap.xml"), format!("{base}/linked.xml")], "{out}");
    assert_eq!(value["urls"]["in_scope"], 1);
}

#[test]
fn what_a_new_site_would_not_take_is_counted_by_its_reason() {
    let origin = site();
    let base = origin.base();
    let long = format!("{base}/{}", "x".repeat(3_000));
    let longer = format!("{base}/{}", "x".repeat(9_000));
    let with_user = base.replace("http://", "http://u:p@");
    let urls = [long.as_str(), &longer, &format!("{with_user}/x")]
        .map(|url| format!("<url><loc>{url}</loc></url>"))
        .concat();
    origin.set("/a.xml", Reply::xml(format!("<urlset>{urls}</urlset>")));
    origin.set("/robots.txt", Reply::text(format!("Sitemap: {base}/a.xml\n")));
    origin.set("/", Reply::html("<title>home</title>"));
    let folder = tempfile::tempdir().expect("a folder");
    let config = "[politeness]\nhost_delay = \"0s\"\n[fetch]\nmax_url_chars = 8000\n";
    std::fs::write(folder.path().join("config.toml"), config).expect("a config");
    let run = |args: &[&str]| outcome(sitemapd_in(folder.path()).args(args));
    let (code, out, err) = run(&["discover", &base, "--json"]);
    assert_eq!(code, 0, "{err}");
    let value: Value = serde_json::from_str(&out).expect("json");
    assert_eq!(value["urls"]["other_hosts"], serde_json::json!({}), "{out}");
    assert_eq!(value["urls"]["in_scope"], 1, "{out}");
    let told = run(&["discover", &base]).1;
    assert!(told.contains("1 left out: invalid"), "{told}");
    assert!(!told.contains("another host"), "{told}");
    let map = format!("{base}/a.xml");
    let checked = run(&["check", &map, "--json", "--entries"]).1;
    let value: Value = serde_json::from_str(&checked).expect("json");
    let entries = value["entries"].as_array().expect("a list");
    let fitting = entries.iter().find(|entry| entry["loc"] == long.as_str()).expect("it is usable");
    assert_eq!(fitting["in_scope"], true, "{checked}");
}
