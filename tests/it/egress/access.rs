//! Who may log in, and what who logs in must be permitted.

use std::time::Duration;

use super::consumer::Fetcher;
use super::server::{Access, Nats, PASSWORD};
use super::{Setup, UP, egressed, is_done, left, metric, wait};

#[tokio::test(flavor = "multi_thread")]
async fn who_logs_in_with_the_token_of_the_file_is_let_in_and_nobody_else() {
    let Some(nats) = Nats::start_as(Access::Token("s3cret")).await else { return };
    let setup = Setup::new(&nats, 2, "", "").await;
    let daemon = setup.start();
    let told = daemon.hear("nats is away").to_string();
    assert!(told.contains("authorization"), "{told}");
    assert_eq!(setup.leases(), 0);
    drop(daemon);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "s3cret\n").unwrap();
    let key = format!("token_file = \"{}\"", file.path().display());
    let setup = Setup::new(&nats, 2, "", &key).await;
    let daemon = setup.start();
    daemon.hear("nats is there");
    wait("all messages", async || (egressed(&daemon, "acknowledged").await == 2).then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_replaced_in_its_file_is_used_without_a_restart() {
    let Some(nats) = Nats::start_as(Access::Token("s3cret")).await else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "of yesterday\n").unwrap();
    let key = format!("token_file = \"{}\"", file.path().display());
    let setup = Setup::new(&nats, 2, "", &key).await;
    let daemon = setup.start();
    assert!(daemon.hear("nats is away").to_string().contains("authorization"));
    // As it is while somebody replaces it.
    std::fs::remove_file(file.path()).unwrap();
    assert!(daemon.hear("nats is away").to_string().contains("egress.nats.token_file"));
    std::fs::write(file.path(), "s3cret\n").unwrap();
    daemon.hear("nats is there");
    wait("all messages", async || (egressed(&daemon, "acknowledged").await == 2).then_some(()))
        .await;
}

/// What docs/CLIENTS.md says that the daemon must be permitted, but for what contains one
/// of these.
fn permissions(without: &[&str]) -> String {
    let text = include_str!("../../../docs/CLIENTS.md");
    let (_, rest) = text.split_once("```text\npermissions").unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    let is_left = |line: &&str| !without.iter().any(|left_out| line.contains(left_out));
    let lines: Vec<_> = block.lines().filter(is_left).collect();
    format!("permissions{}", lines.join("\n"))
}

/// Keys of a daemon that logs in as the user of these, and their file.
fn user() -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), PASSWORD).unwrap();
    let keys = format!("user = \"sitemapd\"\ntoken_file = \"{}\"", file.path().display());
    (file, keys)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_that_are_told_of_are_enough() {
    let access = Access::Users { permissions: permissions(&[]) };
    let Some(nats) = Nats::start_as(access).await else { return };
    let (_file, keys) = user();
    let setup = Setup::new(&nats, 40, "", &keys).await;
    let mut daemon = setup.start();
    let api = daemon.client();
    let fetcher = Fetcher::start(nats.context().await, Duration::ZERO);
    wait("all results", async || is_done(&api).await.then_some(())).await;
    assert_eq!(fetcher.seen.count(), 40);
    wait("an empty stream", async || (left(&nats.context().await).await == 0).then_some(())).await;
    drop(fetcher);
    // The streams are there: nothing more is needed to change one.
    daemon.kill();
    setup.look.let_go();
    let text = std::fs::read_to_string(&setup.config).unwrap();
    std::fs::write(&setup.config, text.replace("[egress.nats]", "[egress.nats]\nlease = \"5m\""))
        .unwrap();
    daemon = setup.start();
    daemon.hear("stream changed as configured");
    daemon.hear("nats is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_is_missing_is_named() {
    for (missing, words) in [
        ("CONSUMER.MSG.NEXT", "nats is away"),
        ("STREAM.INFO", "nats is away"),
        ("\"sitemapd.urls\"", "nats takes nothing"),
    ] {
        let access = Access::Users { permissions: permissions(&[missing]) };
        let Some(nats) = Nats::start_as(access).await else { return };
        let (_file, keys) = user();
        let setup = Setup::new(&nats, 40, "", &keys).await;
        let daemon = setup.start();
        let heard = daemon.hear_all(words);
        let error = heard.last().unwrap()["error"].as_str().unwrap().to_owned();
        let subject = missing.trim_matches('"');
        assert!(error.contains("Permissions Violation for Publish"), "{error}");
        assert!(error.contains(subject), "{error}");
        assert_eq!(metric(&daemon, UP).await, 0, "{missing}");
        if words == "nats is away" {
            assert!(!heard.iter().any(|event| event.to_string().contains("nats is there")));
            assert_eq!(egressed(&daemon, "published").await, 0, "{missing}");
            assert_eq!(setup.leases(), 0, "{missing}");
        }
    }
}
