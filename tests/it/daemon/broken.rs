//! Broken, refused and foreign documents change no URL and remove none.

use super::one_sitemap;
use crate::support::daemon::{DAY, World, counts, sitemap};
use crate::support::{Origin, Reply, pack};

const ALL: [(&str, &str); 4] =
    [("/a", "2026-11-01"), ("/b", "2026-11-02"), ("/c", "2026-11-03"), ("/d", "")];

struct Case {
    name: &'static str,
    reply: Reply,
    result: &'static str,
    status: &'static str,
    error: &'static str,
    why: &'static str,
}

fn cases(whole: &str) -> Vec<Case> {
    let packed = pack::gzip(whole.as_bytes());
    let case = |name, reply, (result, status), error, why| Case {
        name,
        reply,
        result,
        status,
        error,
        why,
    };
    let unread = ("incomplete", "has-errors");
    let failed = |result| (result, "could-not-fetch");
    vec![
        case(
            "cut gzip",
            Reply::bytes("application/gzip", &packed[..packed.len() - 20]).etag("\"x\""),
            unread,
            "not read to its end",
            "",
        ),
        case(
            "cut XML",
            Reply::xml(&whole[..whole.len() / 2]).etag("\"x\""),
            unread,
            "not read to its end",
            "",
        ),
        case(
            "cut body",
            Reply::xml(whole).etag("\"x\"").cut_after(100),
            failed("failed"),
            "protocol",
            "failed once",
        ),
        case(
            "HTML",
            Reply::html("<!doctype html><title>x</title>").etag("\"x\""),
            failed("unsupported"),
            "Unsupported format",
            "",
        ),
        case(
            "HTML that is said to be XML",
            Reply::xml("<html><head><title>Not found</title></head><body>404</body></html>"),
            failed("unsupported"),
            "Unsupported format",
            "",
        ),
        case(
            "JSON",
            Reply::json("{\"error\": \"not found\"}").etag("\"x\""),
            failed("unsupported"),
            "Unsupported format",
            "",
        ),
        case(
            "random bytes",
            Reply::xml(noise()).etag("\"x\""),
            failed("unsupported"),
            "Unsupported format",
            "",
        ),
        case(
            "empty",
            Reply::xml("").etag("\"x\""),
            failed("unsupported"),
            "the document is empty",
            "",
        ),
        case(
            "no entries",
            Reply::xml(sitemap("", &[])).etag("\"x\""),
            unread,
            "suddenly empty",
            "",
        ),
        case(
            "404",
            Reply::status(404),
            failed("not-found"),
            "HTTP error 404",
            "404, once in a row",
        ),
        case("410", Reply::status(410), failed("gone"), "HTTP error 410", "410 (gone)"),
        case("403", Reply::status(403), failed("denied"), "HTTP error 403", "once in a row"),
        case("500", Reply::status(500), failed("failed"), "HTTP error 500", "failed once"),
    ]
}

/// Bytes of no meaning, among them some that end a line or drive a terminal.
fn noise() -> String {
    (0..20_000_u32).map(|n| char::from(n.wrapping_mul(2_654_435_761).to_be_bytes()[0])).collect()
}

#[tokio::test]
async fn a_broken_document_changes_no_url_and_removes_none() {
    for case in cases(&sitemap("http://127.0.0.1:1", &ALL)) {
        let origin = Origin::start().await;
        let base = origin.base();
        let name = case.name;
        // The port of the origin is known only now.
        let whole = sitemap(&base, &ALL);
        let case = cases(&whole).into_iter().find(|other| other.name == name).unwrap();
        origin.set("/sitemap.xml", Reply::xml(&whole).etag("\"whole\""));
        let world = World::new(&[&origin]);
        let daemon = world.start(&one_sitemap(&origin)).await;
        daemon.polled("/sitemap.xml", 1).await;
        let rows = super::three_polls::dump(&world);
        // As broken as it is unconditional.
        origin.set("/sitemap.xml", case.reply.clone().unconditional());
        for nth in 0..4 {
            let poll = daemon.poll("/sitemap.xml").await;
            let source = daemon.source("/sitemap.xml").await;
            assert_eq!(poll.result, case.result, "{name}");
            assert_eq!(source.status, case.status, "{name}");
            let error = poll.error.unwrap_or_default();
            assert!(error.contains(case.error), "{name}: {error}");
            assert!(error.len() <= 500 && !error.chars().any(char::is_control), "{name}: {error}");
            assert_eq!((poll.counts.missing, poll.counts.removed), (0, 0), "{name}");
            if nth == 0 {
                assert!(source.why.contains(case.why), "{name}: {}", source.why);
                let next = source.next_poll_at.unwrap();
                assert!(next > daemon.now(), "{name}");
                assert!(next <= daemon.now() + 31 * DAY, "{name}");
            }
            daemon.pass(DAY).await;
            if daemon.source("/sitemap.xml").await.state == "retired" {
                break;
            }
        }
        assert_eq!(super::three_polls::dump(&world), rows, "{name}");
        // When it is whole again it is as if nothing had been.
        origin.clear_log();
        origin.set("/sitemap.xml", Reply::xml(format!("{whole}<!-- -->")).etag("\"new\""));
        let poll = daemon.poll("/sitemap.xml").await;
        assert_eq!(poll.counts, counts([0, 0, 0, 0, 4, 0, 0, 0]), "{name}");
        let asked = origin.requests("/sitemap.xml")[0].header("if-none-match").map(str::to_owned);
        // Only the validator of a whole document is ever sent back.
        assert_ne!(asked.as_deref(), Some("\"x\""), "{name}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn what_a_cut_document_still_says_is_taken_over() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &ALL)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    let newer = sitemap(&base, &[("/new", ""), ("/a", "2026-11-20"), ("/b", "2026-11-02")]);
    let cut = newer.split("</url>\n<url><loc>").next().unwrap().len() + 120;
    origin.set("/sitemap.xml", Reply::xml(&newer[..cut]));
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(poll.result, "incomplete");
    assert_eq!((poll.counts.new, poll.counts.missing), (1, 0));
    assert!(daemon.url(&format!("{base}/new")).await.listed);
    daemon.stop().await;
}

#[tokio::test]
async fn robots_that_forbid_a_sitemap_leave_its_urls_alone() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/sitemap.xml", Reply::xml(sitemap(&base, &ALL)));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow: /sitemap.xml\n"));
    daemon.pass(DAY + DAY / 24).await;
    daemon.settled().await;
    origin.clear_log();
    let poll = daemon.poll("/sitemap.xml").await;
    assert_eq!(poll.result, "forbidden");
    assert!(poll.error.unwrap().contains("robots.txt of"));
    assert!(origin.requests("/sitemap.xml").is_empty());
    let source = daemon.source("/sitemap.xml").await;
    assert_eq!(source.status, "could-not-fetch");
    assert!(source.why.contains("robots.txt forbids it"));
    assert!(daemon.url(&format!("{base}/a")).await.listed);
    // The next version lets us, and that is noticed without waiting further.
    origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow:\n"));
    daemon.poll("/robots.txt").await;
    daemon.settled().await;
    assert!(!origin.requests("/sitemap.xml").is_empty());
    daemon.stop().await;
}

#[tokio::test]
async fn a_source_tells_dates_to_come_repetitions_and_what_its_body_lacks() {
    let origin = Origin::start().await;
    let base = origin.base();
    let codes = async |daemon: &crate::support::daemon::Daemon| -> Vec<String> {
        let issues = daemon.source("/sitemap.xml").await.issues;
        issues.iter().map(|i| format!("{} {}", i.code, i.count)).collect()
    };
    let list = sitemap(&base, &[("/a", "2031-01-01"), ("/b", "2026-11-22T11:00:00Z"), ("/a", "")]);
    origin.set("/sitemap.xml", Reply::xml(list));
    let world = World::new(&[&origin]);
    let daemon = world.start(&one_sitemap(&origin)).await;
    daemon.polled("/sitemap.xml", 1).await;
    assert_eq!(codes(&daemon).await, ["future-date 1", "duplicate-url 1"]);
    let source = daemon.source("/sitemap.xml").await;
    let future = &source.issues[0];
    assert_eq!((future.line, future.sample.as_str()), (3, &*format!("2031-01-01 for {base}/a")));
    let repeated = &source.issues[1];
    assert_eq!((repeated.line, repeated.sample.as_str()), (5, &*format!("{base}/a")));
    assert_eq!(source.status, "success", "a warning is no error");
    assert_eq!(daemon.url(&format!("{base}/a")).await.lastmod, None);

    let paths: Vec<String> = (0..400).map(|n| format!("/{}", n * 7_919 % 10_007)).collect();
    let entries: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "")).collect();
    let mut packed = crate::support::pack::gzip(sitemap(&base, &entries).as_bytes());
    packed.truncate(packed.len() / 2);
    origin.set("/sitemap.xml", Reply::bytes("application/gzip", packed));
    daemon.poll("/sitemap.xml").await;
    assert_eq!(codes(&daemon).await, ["compression-error 1"]);
    daemon.stop().await;
}
