//! What those who watch over a daemon hear while its server is away.

use std::time::{Duration, Instant};

use serde_json::Value;
use sitemapd::fetch::api::{ApiClient, ApiError};
use tempfile::TempDir;

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
    let daemon = Daemon::start(&write_config_at(dir.path(), "", Some(url)));
    let api = daemon.client();
    health(&api, ("ok", None)).await;

    line.kill(true);
    health(&api, ("degraded", Some("the database server is away"))).await;
    let ready: Result<Value, _> = api.get("/readyz", &[]).await;
    assert!(matches!(ready, Err(ApiError::Refused { status: 503, .. })), "{ready:?}");

    line.kill(false);
    health(&api, ("ok", None)).await;
    let _: Value = api.get("/readyz", &[]).await.unwrap();
}
