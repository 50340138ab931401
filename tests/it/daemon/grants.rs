//! Sitemaps on other hosts: who may speak for a site, and for how long.

use crate::support::daemon::{DAY, Daemon, MINUTE, World, index, sitemap};
use crate::support::{Origin, Reply};

fn site(origin: &Origin, extra: &str) -> String {
    format!("[[site]]\nname = \"site\"\nurl = \"{}/\"\nfeeds = []\n{extra}\n", origin.base())
}

/// Entries of a source by what became of them.
async fn fates(daemon: &Daemon, tail: &str) -> String {
    let admitted = daemon.source(tail).await.admitted;
    let mut words: Vec<String> =
        admitted.iter().map(|(fate, urls)| format!("{fate} {urls}")).collect();
    words.sort();
    words.join(", ")
}

#[tokio::test]
async fn a_sitemap_on_another_host_that_robots_txt_names_may_list_the_whole_host() {
    let (ours, theirs) = (Origin::start().await, Origin::start().await);
    let (base, other) = (ours.base(), theirs.base());
    ours.set("/robots.txt", Reply::text(format!("Sitemap: {other}/maps/ours.xml\n")));
    let list = sitemap(
        &base,
        &[("/", ""), ("/deep/page", ""), ("/maps/x", ""), (&format!("{other}/maps/theirs"), "")],
    );
    theirs.set("/maps/ours.xml", Reply::xml(list));
    for scope in ["host", "directory"] {
        let world = World::new(&[&ours, &theirs]);
        let daemon = world.start(&site(&ours, &format!("scope = \"{scope}\""))).await;
        daemon.polled("/maps/ours.xml", 1).await;
        // The host of the sitemap is not the site's: it is counted, and left out.
        assert_eq!(fates(&daemon, "/maps/ours.xml").await, "accepted 3, out-of-scope 1");
        assert!(daemon.knows(&format!("{base}/deep/page")).await, "{scope}");
        assert!(!daemon.knows(&format!("{other}/maps/theirs")).await, "{scope}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_sitemap_on_the_own_host_is_judged_by_its_directory() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("Sitemap: /maps/a.xml\n"));
    origin.set("/maps/a.xml", Reply::xml(sitemap(&base, &[("/maps/x", ""), ("/y", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&site(&origin, "scope = \"directory\"")).await;
    daemon.polled("/maps/a.xml", 1).await;
    assert_eq!(fates(&daemon, "/maps/a.xml").await, "accepted 1, out-of-scope 1");
    daemon.stop().await;
}

#[tokio::test]
async fn a_grant_goes_with_its_line_and_comes_back_with_it() {
    let (ours, theirs) = (Origin::start().await, Origin::start().await);
    let (base, other) = (ours.base(), theirs.base());
    let with = format!("Sitemap: {other}/index.xml\nSitemap: {base}/own.xml\n");
    ours.set("/robots.txt", Reply::text(with.clone()));
    ours.set("/own.xml", Reply::xml(sitemap(&base, &[("/own", "")])));
    theirs.set("/index.xml", Reply::xml(index(&other, &[("/child.xml", "")])));
    theirs.set("/child.xml", Reply::xml(sitemap(&base, &[("/granted", "")])));
    let world = World::new(&[&ours, &theirs]);
    let daemon = world.start(&site(&ours, "")).await;
    daemon.polled("/child.xml", 1).await;
    daemon.settled().await;
    let state = async |tail: &str| daemon.source(tail).await.state;

    // A file that is away for a day takes nothing back.
    ours.set("/robots.txt", Reply::status(404));
    daemon.poll(&format!("{base}/robots.txt")).await;
    assert_eq!(state("/index.xml").await, "active");

    // Nor does a page in its place, nor one that is longer than is read.
    let page = "<!doctype html><title>Just a moment</title><p>Checking: your browser</p>";
    ours.set("/robots.txt", Reply::html(page));
    daemon.poll(&format!("{base}/robots.txt")).await;
    assert_eq!(state("/index.xml").await, "active");
    let long = format!("#{}\nUser-agent: *\nDisallow: /", "x".repeat(511_973));
    ours.set("/robots.txt", Reply::text(format!("{long}archive/\n{with}")));
    daemon.poll(&format!("{base}/robots.txt")).await;
    assert_eq!(state("/index.xml").await, "active");
    // Half a line forbids nothing.
    assert_eq!(daemon.poll("/own.xml").await.http_status, Some(200));

    ours.set("/robots.txt", Reply::text("User-agent: *\nDisallow:\n"));
    daemon.poll(&format!("{base}/robots.txt")).await;
    assert_eq!(state("/index.xml").await, "retired");
    assert_eq!(state("/child.xml").await, "retired");
    // On the own host a sitemap needs no grant.
    assert_eq!(state("/own.xml").await, "active");
    assert!(daemon.url(&format!("{base}/granted")).await.listed, "there is a grace period");

    ours.set("/robots.txt", Reply::text(with));
    daemon.poll(&format!("{base}/robots.txt")).await;
    assert_eq!(state("/index.xml").await, "active");
    assert_eq!(state("/child.xml").await, "active");
    daemon.pass(DAY).await;
    assert!(daemon.url(&format!("{base}/granted")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn a_grant_goes_with_its_line_in_every_encoding_and_where_nothing_is_left() {
    let (ours, theirs) = (Origin::start().await, Origin::start().await);
    let base = ours.base();
    let with = Reply::text(format!("Sitemap: {}/ours.xml\n", theirs.base()));
    ours.set("/robots.txt", with.clone());
    theirs.set("/ours.xml", Reply::xml(sitemap(&base, &[("/granted", "")])));
    let world = World::new(&[&ours, &theirs]);
    let daemon = world.start(&site(&ours, "")).await;
    daemon.polled("/ours.xml", 1).await;
    daemon.settled().await;
    let utf16: Vec<u8> =
        "\u{feff}User-agent: *\nDisallow:\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for without in [&utf16[..], b"\xef\xbb\xbf", b"\xef\xbb\xbf# nothing\n"] {
        ours.set("/robots.txt", with.clone());
        daemon.poll(&format!("{base}/robots.txt")).await;
        assert_eq!(daemon.source("/ours.xml").await.state, "active");
        ours.set("/robots.txt", Reply::bytes("text/plain", without));
        daemon.poll(&format!("{base}/robots.txt")).await;
        assert_eq!(daemon.source("/ours.xml").await.state, "retired", "{without:?}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn link_headers_of_the_home_page_name_sitemaps_and_feeds() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("Sitemap: /one.xml\n"));
    origin.set(
        "/",
        Reply::html("<title>home</title>")
            .header("Link", "</two.xml>; rel=\"sitemap\", </wp-json/>; rel=\"https://api.w.org/\"")
            .header("Link", "<feed.xml>; rel=\"alternate\"; type=\"application/rss+xml\""),
    );
    for path in ["/one.xml", "/two.xml"] {
        origin.set(path, Reply::xml(sitemap(&base, &[(path, "")])));
    }
    let date = "Fri, 20 Nov 2026 10:00:00 GMT";
    origin.set("/feed.xml", Reply::xml(crate::support::daemon::rss(&base, &[("/1", date)])));
    let world = World::new(&[&origin]);
    let text = format!("[[site]]\nname = \"site\"\nurl = \"{base}/\"\n");
    let daemon = world.start(&text).await;
    for path in ["/one.xml", "/two.xml", "/feed.xml"] {
        daemon.polled(path, 1).await;
    }
    daemon.settled().await;
    assert_eq!(daemon.source("/two.xml").await.named_by, "home page");
    assert_eq!(daemon.source("/feed.xml").await.role.as_str(), "feed");
    assert!(daemon.find_source("/wp-json/").await.is_none());
    daemon.stop().await;
}

#[tokio::test]
async fn what_a_site_is_told_in_headers_is_told_to_no_host_that_somebody_else_names() {
    let (home, other, listed) =
        (Origin::start().await, Origin::start().await, Origin::start().await);
    let list = Reply::xml(sitemap(&home.base(), &[("/a", "")]));
    home.set(
        "/robots.txt",
        Reply::text(format!("Sitemap: {}\nSitemap: /own.xml\n", other.url("/s.xml"))),
    );
    home.set("/own.xml", list.clone());
    other.set("/s.xml", list.clone());
    listed.set("/feed.xml", Reply::xml(crate::support::daemon::rss(&home.base(), &[])));
    let world = World::new(&[&home, &other, &listed]);
    let site = format!(
        "[[site]]\nname = \"a\"\nurl = \"{}/\"\nfeeds = [\"{}\"]\n\
         headers = {{ Authorization = \"Bearer hunter2\" }}\n",
        home.base(),
        listed.url("/feed.xml"),
    );
    let daemon = world.start(&site).await;
    daemon.polled("/own.xml", 1).await;
    daemon.polled("/s.xml", 1).await;
    daemon.polled("/feed.xml", 1).await;
    let told = |origin: &Origin, path: &str| {
        let requests = origin.requests(path);
        assert!(!requests.is_empty(), "{path}");
        requests.iter().any(|seen| seen.header("authorization").is_some())
    };
    assert!(told(&home, "/robots.txt") && told(&home, "/own.xml"));
    assert!(!told(&other, "/robots.txt") && !told(&other, "/s.xml"));
    // The configuration itself names this one; its robots.txt it does not.
    assert!(told(&listed, "/feed.xml") && !told(&listed, "/robots.txt"));
    daemon.stop().await;
}

#[tokio::test]
async fn a_foreign_child_may_list_what_its_index_may_unless_it_is_granted_more() {
    let (ours, theirs) = (Origin::start().await, Origin::start().await);
    let (base, other) = (ours.base(), theirs.base());
    let robots = format!("Sitemap: {base}/users/eve/index.xml\n");
    ours.set("/robots.txt", Reply::text(robots.clone()));
    let child = format!("{other}/nested.xml");
    ours.set("/users/eve/index.xml", Reply::xml(index("", &[(&child, "")])));
    theirs.set("/nested.xml", Reply::xml(index(&other, &[("/s.xml", "")])));
    let list = sitemap(&base, &[("/users/eve/x", ""), ("/users/adam/y", ""), ("/", "")]);
    theirs.set("/s.xml", Reply::xml(list));
    let world = World::new(&[&ours, &theirs]);
    let daemon = world.start(&site(&ours, "scope = \"directory\"")).await;
    daemon.polled("/s.xml", 1).await;
    assert_eq!(fates(&daemon, "/s.xml").await, "accepted 1, out-of-scope 2");
    assert!(daemon.knows(&format!("{base}/users/eve/x")).await);
    // What the host itself names may list all of it, though an index was first.
    ours.set("/robots.txt", Reply::text(format!("{robots}Sitemap: {other}/s.xml\n")));
    daemon.poll(&format!("{base}/robots.txt")).await;
    daemon.poll("/s.xml").await;
    assert_eq!(fates(&daemon, "/s.xml").await, "accepted 3");
    // A file that is away for a day takes nothing back, nor does a page in its place, or
    // one that is longer than is read.
    let page = "<!doctype html><title>Just a moment</title><p>Checking: your browser</p>";
    let long = format!("{robots}#{}\nSitemap: {other}/s.xml\n", "x".repeat(512_000));
    for away in [Reply::status(404), Reply::html(page), Reply::text(long)] {
        ours.set("/robots.txt", away);
        daemon.poll(&format!("{base}/robots.txt")).await;
        daemon.poll("/s.xml").await;
        assert_eq!(fates(&daemon, "/s.xml").await, "accepted 3");
    }
    // One that is read, and does not name it any more, does.
    ours.set("/robots.txt", Reply::text(robots));
    daemon.poll(&format!("{base}/robots.txt")).await;
    daemon.poll("/s.xml").await;
    assert_eq!(fates(&daemon, "/s.xml").await, "accepted 1, out-of-scope 2");
    daemon.stop().await;
}

#[tokio::test]
async fn a_sitemap_elsewhere_that_is_named_with_a_fragment_stays_granted() {
    let (origin, elsewhere) = (Origin::start().await, Origin::start().await);
    elsewhere.set("/s.xml", Reply::xml(sitemap(&origin.base(), &[("/a", "")])));
    let robots = format!("Sitemap: {}\n", elsewhere.url("/s.xml#main"));
    origin.set("/robots.txt", Reply::text(robots.clone()));
    let world = World::new(&[&origin, &elsewhere]);
    let daemon = world.start(&site(&origin, "")).await;
    daemon.polled("/s.xml", 1).await;
    for remark in ["", "# a remark\n"] {
        origin.set("/robots.txt", Reply::text(format!("{robots}{remark}")));
        daemon.clock.advance(MINUTE);
        daemon.poll(&format!("{}/robots.txt", origin.base())).await;
        assert_eq!(daemon.source("/s.xml").await.state, "active", "{remark}");
    }
    assert_eq!(daemon.source("/s.xml").await.url, elsewhere.url("/s.xml").as_str());
    daemon.stop().await;
}
