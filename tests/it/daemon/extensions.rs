//! Images, videos, news and alternates: kept, given, moved, merged, let go.

use std::sync::Arc;

use serde_json::{Value, json};
use sitemapd::fetch::api::ApiClient;
use sitemapd::metrics::Metrics;
use sitemapd::model::Reason;
use sitemapd::model::extension::Marks;
use sitemapd::queue::Settlement;
use sitemapd::store::views::SourceFilter;
use sitemapd::store::{Effect, Said, Store};

use super::{extended, listed, one_sitemap};
use crate::support::daemon::{DAY, Daemon, HOUR, World};
use crate::support::queue_daemon::report;
use crate::support::{Origin, Reply};

fn image(base: &str, name: &str, caption: &str) -> String {
    format!(
        "<image:image><image:loc>{base}/{name}</image:loc>\
         <image:caption>{caption}</image:caption></image:image>"
    )
}

fn video(base: &str, title: &str) -> String {
    format!(
        "<video:video><video:thumbnail_loc>{base}/t.jpg</video:thumbnail_loc>\
         <video:title>{title}</video:title><video:description>d</video:description>\
         <video:content_loc>{base}/v.mp4</video:content_loc>\
         <video:duration>600</video:duration></video:video>"
    )
}

fn link(base: &str, code: &str, path: &str) -> String {
    format!("<xhtml:link rel=\"alternate\" hreflang=\"{code}\" href=\"{base}{path}\"/>")
}

/// What `POST /v1/lease` gives for a body.
pub(super) async fn leased(daemon: &Daemon, body: Value) -> Vec<Value> {
    let client = ApiClient::new(&format!("http://{}", daemon.api), None).unwrap();
    let answer: Value = client.post("/v1/lease", &body).await.unwrap();
    answer["urls"].as_array().unwrap().clone()
}

/// What `GET /v1/url` tells of a URL.
async fn told(daemon: &Daemon, url: &str) -> Value {
    let client = ApiClient::new(&format!("http://{}", daemon.api), None).unwrap();
    client.get("/v1/url", &[("url", url)]).await.unwrap()
}

/// Settles everything that may be leased now; nobody compared.
pub(super) async fn settle_all(daemon: &Daemon) -> usize {
    let leased = daemon.lease().await;
    let results: Vec<Settlement> = leased
        .iter()
        .map(|leased| report(leased.token, sitemapd::model::Outcome::Unknown))
        .collect();
    daemon.store.settle(results).await.unwrap();
    leased.len()
}

/// Rows of the table, as (path, JSON).
fn kept(world: &World) -> Vec<(String, String)> {
    let rows = world.look().rows(
        "SELECT u.url, e.data FROM extensions e LEFT JOIN url_view u ON u.id = e.url_id
         ORDER BY u.url, e.source_id",
    );
    let column = |text: &mut Option<String>| text.take().expect("it is not null");
    let path = |url: String| url.rfind('/').map(|at| url[at..].to_owned()).expect("a path");
    rows.into_iter().map(|mut row| (path(column(&mut row[0])), column(&mut row[1]))).collect()
}

#[tokio::test]
async fn what_a_sitemap_says_is_kept_and_given_with_a_lease_that_asks_for_it() {
    let origin = Origin::start().await;
    let base = origin.base();
    let entries = [
        (
            "/a",
            image(&base, "a.png", "A &amp; O")
                + &link(&base, "en", "/a")
                + &link(&base, "de", "/b"),
        ),
        ("/b", video(&base, "B") + &link(&base, "en", "/a") + &link(&base, "de", "/b")),
        ("/c", String::new()),
    ];
    origin.set("/sitemap.xml", Reply::xml(extended(&base, &entries)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let source = daemon.source("/sitemap.xml").await;
    assert_eq!(source.issues, []);
    let plain = leased(&daemon, json!({"max": 1})).await;
    assert!(plain[0].get("images").is_none() && plain[0]["kind"] == "page", "{plain:?}");
    let urls = leased(&daemon, json!({"include": ["videos", "alternates"]})).await;
    assert_eq!(urls.len(), 2);
    assert!(urls.iter().all(|url| url.get("images").is_none()), "{urls:?}");
    let b = urls.iter().find(|url| url["url"].as_str().unwrap().ends_with("/b")).unwrap();
    assert_eq!(
        b["videos"],
        json!([{"thumbnail_loc": format!("{base}/t.jpg"), "title": "B", "description": "d",
                "content_loc": format!("{base}/v.mp4"), "duration": 600}])
    );
    assert_eq!(b["alternates"][0], json!({"hreflang": "en", "href": format!("{base}/a")}));
    let c = urls.iter().find(|url| url["url"].as_str().unwrap().ends_with("/c")).unwrap();
    assert_eq!((&c["videos"], &c["alternates"]), (&json!([]), &json!([])));
    let a = told(&daemon, &format!("{base}/a")).await;
    assert_eq!(a["images"], json!([{"loc": format!("{base}/a.png"), "caption": "A & O"}]));
    assert_eq!((&a["videos"], &a["news"], &a["kind"]), (&json!([]), &json!([]), &json!("page")));
    daemon.stop().await;
}

#[tokio::test]
async fn a_moved_caption_is_kept_and_touches_its_page_only() {
    let origin = Origin::start().await;
    let base = origin.base();
    let with = |caption: &str, extra: &str| {
        let entries = [
            ("/a", image(&base, "a.png", caption)),
            ("/b", image(&base, "b.png", "same")),
            ("/c", extra.to_owned()),
        ];
        Reply::xml(extended(&base, &entries))
    };
    origin.set("/sitemap.xml", with("old", &image(&base, "c.png", "goes")));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    assert_eq!(settle_all(&daemon).await, 3);
    daemon.pass(HOUR).await;
    assert_eq!(kept(&world).len(), 3);
    origin.set("/sitemap.xml", with("new", ""));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(daemon.changes(&poll).await, ["touched /a", "touched /c"]);
    let a = daemon.url(&format!("{base}/a")).await;
    assert_eq!(a.extensions.images[0].caption.as_deref(), Some("new"));
    assert_eq!(a.reason, Reason::Changed);
    // One that says nothing any more has no row.
    assert!(daemon.url(&format!("{base}/c")).await.extensions.is_empty());
    let paths: Vec<_> = kept(&world).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["/a", "/b"]);
    assert_eq!(daemon.lease().await.len(), 2);
    // A document without any of it takes the rest away.
    origin.set(
        "/sitemap.xml",
        Reply::xml(extended(&base, &[("/a", String::new()), ("/b", String::new())])),
    );
    daemon.poll("/sitemap.xml").await;
    assert_eq!(kept(&world), []);
    daemon.stop().await;
}

#[tokio::test]
async fn a_first_date_beside_a_first_image_is_kept_and_the_next_one_is_a_change() {
    let origin = Origin::start().await;
    let base = origin.base();
    let page = |date: &str, image: String| {
        let date =
            if date.is_empty() { image } else { format!("<lastmod>{date}</lastmod>{image}") };
        Reply::xml(extended(&base, &[("/a", date)]))
    };
    origin.set("/sitemap.xml", page("", String::new()));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    for (date, told) in [("2026-11-01", "touched /a"), ("2026-11-20", "changed /a")] {
        origin.set("/sitemap.xml", page(date, image(&base, "1.png", "own")));
        let poll = daemon.poll("/sitemap.xml").await;
        assert_eq!(daemon.changes(&poll).await, [told]);
        let lastmod = daemon.url(&format!("{base}/a")).await.lastmod;
        assert_eq!(lastmod.map(|lastmod| lastmod.to_string()).as_deref(), Some(date));
    }
    daemon.stop().await;
}

#[tokio::test]
async fn what_two_sitemaps_say_is_given_together_and_goes_with_each() {
    let origin = Origin::start().await;
    let base = origin.base();
    let one = extended(&base, &[("/a", image(&base, "1.png", "own")), ("/x", String::new())]);
    let both = image(&base, "1.png", "other") + &image(&base, "2.png", "more");
    let two = extended(&base, &[("/a", both), ("/y", String::new())]);
    let first_only = extended(&base, &[("/x", String::new())]);
    origin.set("/one.xml", Reply::xml(one));
    let world = World::new(&[&origin]);
    let sites = listed(&origin, &["/one.xml", "/two.xml"], &[], "");
    let daemon = world.start(&sites).await;
    daemon.polled("/one.xml", 1).await;
    daemon.settled().await;
    origin.set("/two.xml", Reply::xml(two));
    daemon.poll("/two.xml").await;
    let captions = async || {
        let images = daemon.url(&format!("{base}/a")).await.extensions.images;
        images.into_iter().map(|image| image.caption.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(captions().await, ["own", "more"]);
    origin.set("/one.xml", Reply::xml(first_only));
    for _ in 0..3 {
        daemon.poll("/one.xml").await;
        daemon.poll("/two.xml").await;
        daemon.pass(DAY).await;
    }
    assert!(daemon.url(&format!("{base}/a")).await.listed);
    assert_eq!(captions().await, ["other", "more"]);
    assert_eq!(kept(&world).len(), 1);
    // With the site all of it goes.
    daemon.reload("[[site]]\nname = \"other\"\nurl = \"http://127.0.0.1:9/\"\nsitemaps = []\nfeeds = []\n").await;
    daemon.store.forget_site("site".to_owned()).await.unwrap();
    assert_eq!(kept(&world), []);
    daemon.stop().await;
}

fn article(title: &str) -> String {
    format!(
        "<news:news><news:publication><news:name>N</news:name><news:language>en</news:language>\
         </news:publication><news:publication_date>2026-11-01</news:publication_date>\
         <news:title>{title}</news:title></news:news>"
    )
}

#[tokio::test]
async fn an_article_that_left_its_window_keeps_what_was_said_until_it_is_listed_otherwise() {
    let origin = Origin::start().await;
    let base = origin.base();
    let with = |entries: &[(&str, String)]| Reply::xml(extended(&base, entries));
    origin.set("/sitemap.xml", with(&[("/1", article("one")), ("/2", article("two"))]));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    origin.set("/sitemap.xml", with(&[("/2", article("two")), ("/3", article("three"))]));
    daemon.poll("/sitemap.xml").await;
    assert_eq!(kept(&world).len(), 3);
    let title = async |path: &str| {
        let said = daemon.url(&format!("{base}{path}")).await.extensions;
        said.news.first().and_then(|news| news.title.clone())
    };
    assert_eq!(title("/1").await.as_deref(), Some("one"));
    origin.set(
        "/sitemap.xml",
        with(&[("/1", String::new()), ("/2", article("two")), ("/3", article("three"))]),
    );
    daemon.poll("/sitemap.xml").await;
    assert_eq!(title("/1").await, None);
    assert_eq!(kept(&world).len(), 2);
    daemon.stop().await;
}

#[tokio::test]
async fn a_crash_between_rows_and_texts_or_amid_the_texts_is_made_good() {
    let origin = Origin::start().await;
    let base = origin.base();
    let world = World::new(&[&origin]);
    let site = one_sitemap(&origin);
    let with = |caption: &str| {
        let entries: Vec<_> = ["/a", "/b", "/c"]
            .map(|path| (path, image(&base, "i.png", &format!("{path} {caption}"))))
            .into();
        Reply::xml(extended(&base, &entries))
    };
    origin.set("/sitemap.xml", with("old"));
    let daemon = world.start(&site).await;
    daemon.polled("/sitemap.xml", 1).await;
    let ids = [
        daemon.url(&format!("{base}/a")).await.id,
        daemon.url(&format!("{base}/b")).await.id,
        daemon.url(&format!("{base}/c")).await.id,
    ];
    daemon.stop().await;
    // The rows were touched and one text was taken over, then it died.
    let config = world.config(&site);
    let store = Store::open(&config, world.clock.clone(), Arc::new(Metrics::new())).unwrap();
    let sources =
        store.sources(SourceFilter { limit: 9, ..SourceFilter::default() }).await.unwrap();
    let source = sources.items.iter().find(|source| source.url.ends_with("/sitemap.xml")).unwrap();
    let belongs = store.poll_target(source.id).await.unwrap().origin(false).unwrap();
    let mut effects: Vec<_> = ids
        .iter()
        .map(|url| Effect::Touched {
            url: *url,
            lastmod: None,
            hints: sitemapd::diff::snapshot::EntryHints::default(),
        })
        .collect();
    let data = format!("{{\"images\":[{{\"loc\":\"{base}/i.png\",\"caption\":\"/a new\"}}]}}");
    let said = Some(Said { data, marks: Marks::default() });
    effects.push(Effect::Extensions { url: ids[0], said });
    store.apply(belongs, effects).await.unwrap();
    store.close();
    drop(store);
    origin.set("/sitemap.xml", with("new"));
    let daemon = world.start(&site).await;
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(daemon.changes(&poll).await, ["touched /a", "touched /b", "touched /c"]);
    let texts: Vec<_> = kept(&world);
    assert_eq!(texts.len(), 3);
    for (path, data) in texts {
        assert!(data.contains(&format!("{path} new")), "{path}: {data}");
    }
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(daemon.changes(&poll).await, [""; 0]);
    daemon.stop().await;
}

#[tokio::test]
async fn thousands_of_entries_with_texts_are_taken_over_whole_and_in_parts() {
    let origin = Origin::start().await;
    let base = origin.base();
    let paths: Vec<_> = (0..2_600).map(|n| format!("/{n}")).collect();
    let caption = "w ".repeat(400);
    let entries: Vec<_> = paths
        .iter()
        .map(|path| (path.as_str(), image(&base, "i.png", &format!("{caption}{path}"))))
        .collect();
    origin.set("/sitemap.xml", Reply::xml(extended(&base, &entries)).gzip());
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let kept = kept(&world);
    assert_eq!(kept.len(), 2_600);
    for (path, data) in kept {
        assert!(data.ends_with(&format!("w {path}\"}}]}}")), "{path}: {data}");
    }
    daemon.stop().await;
}
