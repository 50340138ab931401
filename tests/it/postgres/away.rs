//! What those who watch over a daemon hear while its server is away.

use std::time::{Duration, Instant};

use serde_json::Value;
use sitemapd::fetch::api::{ApiClient, ApiError};
use tempfile::TempDir;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::support::engine;
use crate::support::process::{Daemon, write_config_at};
use crate::support::relay::Relay;

/// Longest wait until a daemon has noticed.
const NOTICED: Duration = Duration::from_secs(20);

/// Asks for the health, which is told each time, until it is as wanted.
async fn health(api: &ApiClient, wanted: (&str, Option<&str>)) {
    let began = Instant::now();
    loop {
        let health: Value = api.get("/healthz", &[]).await.unwrap();
        if (health["status"].as_str(), health["detail"].as_str()) == (Some(wanted.0), wanted.1) {
            return;
        }
        assert!(began.elapsed() < NOTICED, "{health}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_daemon_whose_server_is_away_is_alive_and_not_ready() {
    let dir = TempDir::new().unwrap();
    let Some(mut url) = engine::server_for(&dir.path().join("data")) else {
        eprintln!("SKIPPED: a server that is away is one that SITEMAPD_POSTGRES names");
        return;
    };
    let line = Relay::to(url.socket_addrs(|| Some(5_432)).unwrap());
    url.set_host(Some("127.0.0.1")).unwrap();
    url.set_port(Some(line.addr.port())).unwrap();
    let mut daemon = Daemon::start(&write_config_at(dir.path(), "", Some(url)));
    let api = daemon.client();
    health(&api, ("ok", None)).await;

    line.kill(true);
    health(&api, ("degraded", Some("the database server is away"))).await;
    let ready: Result<Value, _> = api.get("/readyz", &[]).await;
    assert!(matches!(ready, Err(ApiError::Refused { status: 503, .. })), "{ready:?}");

    line.kill(false);
    health(&api, ("ok", None)).await;
    let _: Value = api.get("/readyz", &[]).await.unwrap();

    // What is stopped while it is away has nothing to give back, and did not fail.
    line.kill(true);
    health(&api, ("degraded", Some("the database server is away"))).await;
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0), "{:?}", daemon.complaints());
}

#[tokio::test]
async fn a_daemon_that_starts_on_a_standby_waits_until_that_takes_writes() {
    let dir = TempDir::new().unwrap();
    let Some(url) = engine::server_for(&dir.path().join("data")) else {
        eprintln!("SKIPPED: a standby is one of a server that SITEMAPD_POSTGRES names");
        return;
    };
    let config = write_config_at(dir.path(), "", Some(url.clone()));
    let mut daemon = Daemon::start(&config);
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0));

    let role = format!("standby_{}", std::process::id());
    let ask = |sql: &str| {
        drop(engine::ask(url.as_str(), &sql.replace("ROLE x", &format!("ROLE {role}"))));
    };
    ask("CREATE ROLE x SUPERUSER LOGIN");
    ask("ALTER ROLE x SET default_transaction_read_only = on");
    let mut by_role = url.clone();
    by_role.set_username(&role).unwrap();
    let config = write_config_at(dir.path(), "", Some(by_role));
    let mut daemon = Daemon::launch(&config, None);
    daemon.hear("the store is opened when its server is back");
    ask("ALTER ROLE x RESET default_transaction_read_only");
    daemon.hear("\"listening\"");
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0));
    ask("DROP ROLE x");
}

#[tokio::test]
async fn daemons_that_start_wait_while_the_store_is_brought_up_to_date() {
    let dirs = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let Some(url) = engine::server_for(&dirs[0].path().join("data")) else {
        eprintln!("SKIPPED: the store of several daemons is one that SITEMAPD_POSTGRES names");
        return;
    };
    let [one, two] = dirs.each_ref().map(|dir| write_config_at(dir.path(), "", Some(url.clone())));
    let mut daemon = Daemon::start(&one);
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0));
    let ask = |sql: &str| drop(engine::ask(url.as_str(), sql));
    ask("ALTER TABLE sites DROP COLUMN unlisted; UPDATE meta SET value = '1' WHERE key = 'schema'");
    // One of that version works on it, which would misread what newer ones write.
    ask("INSERT INTO nodes VALUES ('old', '', 0, now(), now() + interval '1 hour')");
    let mut early = Daemon::launch(&one, None);
    early.hear("daemons of that version work on it (1): stop them first");
    assert_eq!(early.wait().code(), Some(1));
    ask("DELETE FROM nodes");
    // Another one stood still for so long that it does not count any more.
    ask("INSERT INTO nodes VALUES ('late', '', 0, now(), now() - interval '5 seconds')");
    // Somebody is at it.
    let (client, connection) = tokio_postgres::connect(url.as_str(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
        .batch_execute("BEGIN; SELECT 1 FROM meta WHERE key = 'schema' FOR UPDATE")
        .await
        .unwrap();
    let daemons = [one, two].map(|config| Daemon::launch(&config, None));
    for daemon in &daemons {
        let told = daemon.hear("the store is brought up to date");
        assert_eq!((&told["level"], &told["from"]), (&"INFO".into(), &1.into()), "{told}");
    }
    client.batch_execute("COMMIT").await.unwrap();
    for mut daemon in daemons {
        daemon.hear("\"listening\"");
        // Should it go on, it finds that out before it writes.
        let late = engine::ask(url.as_str(), "SELECT 1 FROM nodes WHERE name = 'late'");
        assert!(!late.iter().any(|said| matches!(said, SimpleQueryMessage::Row(_))));
        daemon.signal("TERM");
        assert_eq!(daemon.wait().code(), Some(0));
    }
}
