//! How the sources of a site are found, and who is said to have named them.

use crate::support::daemon::{DAY, Daemon, HOUR, World, index, rss, sitemap};
use crate::support::{Origin, Reply};

fn auto(origin: &Origin, name: &str, extra: &str) -> String {
    format!("[[site]]\nname = \"{name}\"\nurl = \"{}/\"\n{extra}\n", origin.base())
}

/// Sources that are polled: path and who named them, sorted, robots.txt and
/// home page left out.
async fn named(daemon: &Daemon) -> Vec<String> {
    daemon.settled().await;
    let mut named: Vec<_> = daemon
        .sources()
        .await
        .into_iter()
        .filter(|source| {
            source.state == "active" && !matches!(source.role.as_str(), "robots" | "home")
        })
        .map(|source| format!("{} by {}", source.url.rsplit('/').next().unwrap(), source.named_by))
        .collect();
    named.sort();
    named
}

#[tokio::test]
async fn robots_txt_names_sitemaps_also_relative_ones_and_on_other_hosts() {
    let origin = Origin::start().await;
    let other = Origin::start().await;
    let base = origin.base();
    origin.set(
        "/robots.txt",
        Reply::text(format!(
            "Sitemap: {base}/one.xml\r\nUser-agent: *\nDisallow: /x\nsitemap:/two.xml\nSITEMAP: {}/three.xml\n\
             Sitemap: ftp://example.org/four.xml\nSitemap: {base}/one.xml\n",
            other.base()
        )),
    );
    for path in ["/one.xml", "/two.xml"] {
        origin.set(path, Reply::xml(sitemap(&base, &[(path, "")])));
    }
    other.set("/three.xml", Reply::xml(sitemap(&base, &[("/three", "")])));
    let world = World::new(&[&origin, &other]);
    let daemon = world.start(&auto(&origin, "site", "")).await;
    daemon.polled("/three.xml", 1).await;
    daemon.polled("/two.xml", 1).await;
    daemon.polled("/one.xml", 1).await;
    assert_eq!(
        named(&daemon).await,
        ["one.xml by robots.txt", "three.xml by robots.txt", "two.xml by robots.txt"]
    );
    // No guessing where robots.txt has told.
    assert!(origin.requests("/sitemap.xml").is_empty());
    // The other host was asked for its own rules first.
    let paths: Vec<_> = other.all_requests().into_iter().map(|seen| seen.path).collect();
    assert_eq!(paths, ["/robots.txt", "/three.xml"]);
    assert!(daemon.knows(&format!("{base}/three")).await);
    daemon.stop().await;
}

#[tokio::test]
async fn a_sitemap_line_without_a_scheme_names_its_host() {
    let origin = Origin::start().await;
    let port = origin.port();
    let base = format!("http://www.example.test:{port}");
    origin.set(
        "/robots.txt",
        Reply::text(format!(
            "User-agent: *\nSitemap: www.example.test:{port}/one.xml\n\
             Sitemap: www.cdn.example/two.xml\nSitemap: example.test/three.xml\n"
        )),
    );
    origin.set("/one.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
    let world = World::with_names(&[&origin]);
    let daemon = world.start(&format!("[[site]]\nname = \"site\"\nurl = \"{base}/\"\n")).await;
    daemon.polled("/one.xml", 1).await;
    assert!(daemon.knows(&format!("{base}/a")).await);
    let sources = daemon.sources().await.into_iter();
    let mut urls: Vec<String> = sources
        .filter(|source| source.role.as_str() == "sitemap")
        .map(|source| source.url)
        .collect();
    urls.sort();
    let one = format!("{base}/one.xml");
    assert_eq!(urls, ["http://example.test/three.xml", "http://www.cdn.example/two.xml", &one]);
    daemon.stop().await;
}

#[tokio::test]
async fn who_forbids_everything_for_an_hour_is_found_all_the_same() {
    let origin = Origin::start().await;
    let base = origin.base();
    let places = [
        "/sitemap.xml",
        "/sitemap_index.xml",
        "/wp-sitemap.xml",
        "/sitemap.xml.gz",
        "/sitemap.txt",
    ];
    for path in places.into_iter().chain(["/", "/robots.txt"]) {
        origin.set(path, Reply::status(403));
    }
    let world = World::new(&[&origin]);
    let daemon = world.start(&auto(&origin, "site", "")).await;
    daemon.polled("/sitemap.xml", 1).await;
    daemon.settled().await;
    for path in places.into_iter().chain(["/", "/robots.txt"]) {
        origin.set(path, Reply::status(404));
    }
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
    for _ in 0..8 {
        daemon.pass(DAY / 4).await;
    }
    assert!(daemon.knows(&format!("{base}/a")).await);
    daemon.stop().await;
}

#[tokio::test]
async fn well_known_places_are_tried_in_turn_until_one_is_there() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap_index.xml", Reply::html("<html>not here</html>"));
    origin.set("/wp-sitemap.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&auto(&origin, "site", "")).await;
    daemon.polled("/wp-sitemap.xml", 1).await;
    assert_eq!(named(&daemon).await, ["wp-sitemap.xml by well-known"]);
    assert_eq!(origin.requests("/sitemap.xml").len(), 1);
    assert!(origin.requests("/sitemap.txt").is_empty());
    let missed = daemon.source("/sitemap.xml").await;
    assert_eq!(missed.state, "retired");
    // The round is not gone every day.
    daemon.pass(2 * DAY).await;
    assert_eq!(origin.requests("/sitemap.xml").len(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_well_known_place_that_was_empty_is_looked_at_once_somebody_names_it() {
    for by_config in [false, true] {
        let origin = Origin::start().await;
        let base = origin.base();
        origin.set("/robots.txt", Reply::text("User-agent: *\n"));
        let world = World::new(&[&origin]);
        let daemon = world.start(&auto(&origin, "site", "")).await;
        daemon.settled().await;
        assert_eq!(named(&daemon).await, [""; 0]);
        assert_eq!(origin.requests("/sitemap_index.xml").len(), 1);
        origin.set("/sitemap_index.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
        let by = if by_config {
            let list = format!("sitemaps = [\"{base}/sitemap_index.xml\"]");
            daemon.reload(&auto(&origin, "site", &list)).await;
            "config"
        } else {
            origin.set("/robots.txt", Reply::text(format!("Sitemap: {base}/sitemap_index.xml\n")));
            daemon.pass(DAY + HOUR).await;
            "robots.txt"
        };
        daemon
            .wait("the sitemap", async || daemon.knows(&format!("{base}/a")).await.then_some(()))
            .await;
        assert_eq!(named(&daemon).await, [format!("sitemap_index.xml by {by}")]);
        daemon.stop().await;
    }
}

#[tokio::test]
async fn the_home_page_names_its_feeds() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set(
        "/",
        Reply::html(
            "<html><head><link rel=\"alternate\" type=\"application/rss+xml\" href=\"feed.xml\">\
             <link rel=alternate type='application/atom+xml' href='/atom.xml'>\
             <link rel=\"alternate\" hreflang=\"de\" href=\"/de\"></head><body></body></html>",
        ),
    );
    let date = "Fri, 20 Nov 2026 10:00:00 GMT";
    origin.set("/feed.xml", Reply::xml(rss(&base, &[("/1", date)])));
    origin.set("/atom.xml", Reply::xml(rss(&base, &[("/1", date)])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&auto(&origin, "site", "")).await;
    daemon.polled("/feed.xml", 1).await;
    daemon.polled("/atom.xml", 1).await;
    assert_eq!(named(&daemon).await, ["atom.xml by home page", "feed.xml by home page"]);
    daemon.stop().await;
}

#[tokio::test]
async fn what_the_config_lists_is_all_there_is() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("Sitemap: /other.xml\n"));
    origin.set("/", Reply::html("<link rel=alternate type='application/rss+xml' href='/feed'>"));
    origin.set("/mine.xml", Reply::xml(index(&base, &[("/child.xml", "")])));
    origin.set("/child.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&super::listed(&origin, &["/mine.xml"], &[], "")).await;
    daemon.polled("/child.xml", 1).await;
    assert_eq!(named(&daemon).await, ["child.xml by index", "mine.xml by config"]);
    for path in ["/other.xml", "/feed", "/sitemap.xml"] {
        assert!(origin.requests(path).is_empty(), "{path}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_second_site_on_a_host_hears_of_its_sitemaps_too() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("Sitemap: /map.xml\n"));
    origin.set("/map.xml", Reply::xml(sitemap(&base, &[("/a", "")])));
    let world = World::new(&[&origin]);
    let one = auto(&origin, "one", "");
    let daemon = world.start(&one).await;
    daemon.polled("/map.xml", 1).await;
    daemon.settled().await;
    let both = one + &auto(&origin, "two", "crawl = \"other\"");
    daemon.reload(&both).await;
    daemon
        .wait("the sitemap of the second site", async || {
            let sources = daemon.sources().await;
            let of_two = |s: &&sitemapd::store::views::SourceView| {
                s.site.as_deref() == Some("two")
                    && s.url.ends_with("/map.xml")
                    && s.last_poll_at.is_some()
            };
            sources.iter().find(of_two).map(|_| ())
        })
        .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_site_whose_home_redirects_to_www_yields_its_urls_in_that_form() {
    let origin = Origin::start().await;
    let port = origin.port();
    let (bare, www) =
        (format!("http://example.test:{port}"), format!("http://www.example.test:{port}"));
    let list = sitemap(&www, &[("/a", ""), (&format!("{bare}/b"), ""), (&format!("{bare}/a"), "")]);
    origin.route({
        let (www, list) = (www.clone(), list.clone());
        move |seen| {
            let is_www = seen.header("host")?.starts_with("www.");
            match (seen.path.as_str(), is_www) {
                ("/robots.txt", true) => Some(Reply::text("Sitemap: /map.xml\n")),
                ("/map.xml", true) => Some(Reply::xml(list.clone())),
                ("/", true) => Some(Reply::html("<title>home</title>")),
                (path, false) => Some(Reply::redirect(301, format!("{www}{path}"))),
                _ => None,
            }
        }
    });
    let world = World::with_names(&[&origin]);
    let site = format!("[[site]]\nname = \"site\"\nurl = \"{bare}/\"\n");
    let daemon = world.start(&site).await;
    daemon
        .wait("both URLs", async || {
            let site = daemon.store.site("site".to_owned()).await.unwrap();
            (site.urls == 2).then_some(())
        })
        .await;
    daemon.settled().await;
    let site = daemon.store.site("site".to_owned()).await.unwrap();
    assert_eq!((site.urls, site.origin.as_str()), (2, www.as_str()));
    for path in ["/a", "/b"] {
        assert!(daemon.url(&format!("{www}{path}")).await.listed, "{path}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_home_that_redirects_to_its_twin_for_once_moves_no_url_and_for_good_all_of_them() {
    let origin = Origin::start().await;
    let port = origin.port();
    let (bare, www) =
        (format!("http://example.test:{port}"), format!("http://www.example.test:{port}"));
    origin.set("/map.xml", Reply::xml(sitemap(&bare, &[("/a", ""), ("/b", "")])));
    // Of the bare form only: the other one answers, or nothing would.
    let to_www = |is_on: bool| {
        let www = www.clone();
        origin.route(move |seen| {
            let moves = is_on && !seen.header("host")?.starts_with("www.");
            let home = || Reply::html("<title>home</title>");
            let answer = if moves { Reply::redirect(302, format!("{www}/")) } else { home() };
            (seen.path == "/").then_some(answer)
        });
    };
    to_www(false);
    let world = World::with_names(&[&origin]);
    let site = format!(
        "[[site]]\nname = \"site\"\nurl = \"{bare}/\"\nsitemaps = [\"{bare}/map.xml\"]\nfeeds = []\n"
    );
    let daemon = world.start(&site).await;
    daemon.polled("/map.xml", 1).await;
    daemon.settled().await;
    let lives_at = async || daemon.store.site("site".to_owned()).await.unwrap().origin;
    to_www(true);
    daemon.poll("/").await;
    daemon.poll("/map.xml").await;
    assert_eq!(lives_at().await, bare);
    to_www(false);
    daemon.pass(4 * DAY).await;
    daemon.poll("/").await;
    to_www(true);
    for day in [0, 4] {
        assert_eq!(lives_at().await, bare, "day {day}");
        daemon.poll("/").await;
        daemon.pass(4 * DAY).await;
    }
    assert_eq!(lives_at().await, www);
    let poll = daemon.poll("/map.xml").await;
    assert_eq!((poll.counts.new, poll.counts.removed), (2, 2));
    daemon.stop().await;
}
