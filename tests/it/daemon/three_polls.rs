//! What one sitemap lists, poll after poll: exactly the right changes.

use sitemapd::model::Reason;

use super::{listed, one_sitemap};
use crate::support::daemon::{DAY, HOUR, World, counts, missed_again, sitemap};
use crate::support::{Origin, Reply};

#[tokio::test]
async fn three_polls_give_exactly_the_changes_of_three_documents() {
    let origin = Origin::start().await;
    let base = origin.base();
    let first = [
        ("/same", "2026-11-01"),
        ("/edited", "2026-11-01T10:00:00Z"),
        ("/back", "2026-11-10"),
        ("/bare", ""),
        ("/leaves", "2026-11-01"),
    ];
    let second = [
        ("/same", "2026-11-01T23:00:00Z"),
        ("/edited", "2026-11-02T10:00:00Z"),
        ("/back", "2026-11-05"),
        ("/bare", "2026-11-20"),
        ("/fresh", "2026-11-20"),
    ];
    let third = [
        ("/same", "2026-11-01T23:00:00Z"),
        ("/edited", "2026-11-02T10:00:00Z"),
        ("/back", "2026-11-10"),
        ("/bare", "2026-11-20"),
        ("/fresh", "2026-11-21"),
    ];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &first)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    let poll = daemon.polled("/sitemap.xml", 1).await;
    assert_eq!(poll.counts, counts([5, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(
        daemon.changes(&poll).await,
        ["new /back", "new /bare", "new /edited", "new /leaves", "new /same"]
    );
    daemon.pass(HOUR).await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &second)));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(poll.counts, counts([1, 1, 0, 1, 2, 1, 0, 0]));
    assert_eq!(
        daemon.changes(&poll).await,
        ["changed /edited", "missing /leaves", "new /fresh", "regressed /back"]
    );
    daemon.pass(HOUR).await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &third)));
    let poll = daemon.poll("/sitemap.xml").await;
    // That /back returns to the date it had is no news to the row.
    assert_eq!(poll.counts, missed_again([0, 1, 0, 0, 4, 1, 0, 0]));
    assert_eq!(daemon.changes(&poll).await, ["changed /fresh"]);
    let edited = daemon.url(&format!("{base}/edited")).await;
    assert_eq!(edited.lastmod.unwrap().to_string(), "2026-11-02T10:00:00Z");
    assert_eq!(edited.previous_lastmod.unwrap().to_string(), "2026-11-01T10:00:00Z");
    daemon.stop().await;
}

#[tokio::test]
async fn an_entry_whose_title_moves_is_touched_and_due_again() {
    let origin = Origin::start().await;
    let base = origin.base();
    let with_title = |title: &str| {
        Reply::xml(format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
             xmlns:image=\"http://www.google.com/schemas/sitemap-image/1.1\">\
             <url><loc>{base}/a</loc><lastmod>2026-11-01</lastmod>\
             <image:image><image:loc>{base}/{title}.png</image:loc></image:image></url>\
             <url><loc>{base}/b</loc></url></urlset>"
        ))
    };
    origin.set("/sitemap.xml", with_title("one"));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    origin.set("/sitemap.xml", with_title("two"));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(poll.counts, counts([0, 0, 1, 0, 1, 0, 0, 0]));
    assert_eq!(daemon.changes(&poll).await, ["touched /a"]);
    daemon.stop().await;
}

#[tokio::test]
async fn priority_and_changefreq_are_taken_over_and_are_no_signal() {
    let origin = Origin::start().await;
    let base = origin.base();
    let with = |hints: &str| {
        Reply::xml(
            sitemap(&base, &[("/a", "2026-11-01")]).replace("</url>", &format!("{hints}</url>")),
        )
    };
    origin.set("/sitemap.xml", with(""));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    origin.set("/sitemap.xml", with("<changefreq>daily</changefreq><priority>0.9</priority>"));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(
        (poll.counts, poll.result.as_str()),
        (counts([0, 0, 0, 0, 1, 0, 0, 0]), "unchanged")
    );
    let row = daemon.url(&format!("{base}/a")).await;
    assert_eq!(row.changefreq.unwrap().as_str(), "daily");
    assert_eq!(row.priority.unwrap().thousandths(), 900);
    assert_eq!(row.reason, Reason::New);
    daemon.stop().await;
}

#[tokio::test]
async fn a_document_read_again_changes_nothing_before_and_after_a_restart() {
    let origin = Origin::start().await;
    let base = origin.base();
    let list = sitemap(
        &base,
        &[("/a", "2026-11-01"), ("/b?utm_source=x", ""), ("/c", "2026-11-20T08:00:00.25Z")],
    );
    origin.set("/sitemap.xml", Reply::xml(&list));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let rows = dump(&world);
    origin.set("/sitemap.xml", Reply::xml(format!("{list}<!-- built anew -->")));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(
        (poll.counts, poll.result.as_str()),
        (counts([0, 0, 0, 0, 3, 0, 0, 0]), "unchanged")
    );
    assert_eq!(dump(&world), rows);
    daemon.stop().await;
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.settled().await;
    origin.set("/sitemap.xml", Reply::xml(format!("{list}<!-- and again -->")));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(poll.counts, counts([0, 0, 0, 0, 3, 0, 0, 0]));
    assert_eq!(dump(&world), rows);
    daemon.stop().await;
}

/// Rows of URLs, of the queue, and change events.
pub(super) fn dump(world: &World) -> Vec<String> {
    let look = world.look();
    let mut rows = Vec::new();
    for sql in [
        "SELECT id, path, raw, site_id, source_id, listed, lastmod_s, lastmod_precision,
             hints, reason, band, first_seen_s FROM urls ORDER BY id",
        "SELECT host_id, band, due_s, url_id FROM queue ORDER BY host_id, url_id",
        "SELECT url_id, source_id FROM url_sources ORDER BY url_id, source_id",
        "SELECT url_id, state, reason, due_s, record FROM feedback ORDER BY url_id",
        "SELECT id, generation, events, data FROM changes ORDER BY id",
    ] {
        rows.extend(look.rows(sql).into_iter().map(|row| format!("{row:?}")));
    }
    rows
}

#[tokio::test]
async fn alternating_dates_make_a_url_due_once_only() {
    let origin = Origin::start().await;
    let base = origin.base();
    let at = |date: &str| Reply::xml(sitemap(&base, &[("/a", date), ("/b", "")]));
    origin.set("/sitemap.xml", at("2026-11-01"));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let mut changed = 0;
    for date in ["2026-11-05", "2026-11-01", "2026-11-05", "2026-11-01", "2026-11-05"] {
        daemon.pass(HOUR).await;
        origin.set("/sitemap.xml", at(date));
        changed += daemon.poll("/sitemap.xml").await.counts.changed;
    }
    assert_eq!(changed, 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_date_far_in_the_future_is_none_and_masks_no_later_one() {
    let origin = Origin::start().await;
    let base = origin.base();
    let at = |date: &str| Reply::xml(sitemap(&base, &[("/a", date), ("/b", "")]));
    origin.set("/sitemap.xml", at("2026-11-01"));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    origin.set("/sitemap.xml", at("2099-01-01"));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(poll.counts, counts([0, 0, 0, 0, 2, 0, 0, 0]));
    origin.set("/sitemap.xml", at("2026-11-20"));
    assert_eq!(daemon.poll("/sitemap.xml").await.counts.changed, 1);
    let row = daemon.url(&format!("{base}/a")).await;
    assert_eq!(row.lastmod.unwrap().to_string(), "2026-11-20");
    daemon.stop().await;
}

#[tokio::test]
async fn two_spellings_of_one_page_in_one_sitemap_are_one_row() {
    let origin = Origin::start().await;
    let base = origin.base();
    let both = [("/a", "2026-11-01"), ("/a?utm_source=x", "2026-11-02"), ("/b", "")];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &both)));
    let world = World::new(&[&origin]);
    let site = listed(&origin, &["/sitemap.xml"], &[], "");
    let daemon = world.start(&site).await;
    daemon.polled("/sitemap.xml", 1).await;
    assert_eq!(daemon.store.site("site".to_owned()).await.unwrap().urls, 2);
    // One of the spellings goes; the page stays.
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", "2026-11-01"), ("/b", "")])));
    for _ in 0..5 {
        let poll = daemon.poll("/sitemap.xml").await;
        assert_eq!(poll.counts.removed, 0);
        daemon.pass(DAY).await;
    }
    assert!(daemon.url(&format!("{base}/a")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn a_page_that_is_respelled_is_not_removed() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/a", ""), ("/b", "")])));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &[("/b", "")])));
    for _ in 0..2 {
        daemon.pass(DAY).await;
        daemon.poll("/sitemap.xml").await;
    }
    daemon.pass(DAY).await;
    let respelled = [("/a?utm_medium=mail", ""), ("/b", "")];
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &respelled)));
    // In this very read the old spelling has been missing for long enough.
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!((poll.counts.new, poll.counts.removed), (0, 0));
    assert!(daemon.url(&format!("{base}/a")).await.listed);
    daemon.stop().await;
}
