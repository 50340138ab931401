//! The daemon's API: the calls of a fetcher, asked until there is an answer.
//!
//! A daemon that restarts, is busy or has a full disk is asked again, after
//! what its `Retry-After` says or later and later. A refusal is an error: the
//! same call would be refused again.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// First pause before a call is repeated; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest such pause.
const LAST_PAUSE: Duration = Duration::from_secs(60);
/// Statuses after which the same call may succeed.
const PASSING: [u16; 6] = [408, 429, 500, 502, 503, 504];

/// One leased URL; what it does not use of the answer, it does not name.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Lease {
    pub(crate) token: String,
    pub(crate) url: String,
    pub(crate) host: String,
    pub(crate) reason: String,
    pub(crate) content_hash: Option<String>,
    pub(crate) not_before: jiff::Timestamp,
    pub(crate) expires_at: jiff::Timestamp,
    pub(crate) expires_in: f64,
}

/// What was seen of one URL: an element of `results`.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Seen {
    pub(crate) token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hash_kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) final_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// The daemon.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    client: reqwest::Client,
    base: String,
}

impl Api {
    pub(crate) fn new(base: &str, token_file: Option<&Path>) -> anyhow::Result<Self> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(path) = token_file {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            let token = text.lines().next().unwrap_or_default().trim();
            let mut bearer = HeaderValue::try_from(format!("Bearer {token}"))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        // The daemon is near: no proxy of the environment, no redirect.
        let client = sitemapd::fetch::tls::client()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .default_headers(headers)
            .connect_timeout(Duration::from_secs(10))
            .timeout(Duration::from_secs(90))
            .build()?;
        Ok(Self { client, base: base.trim_end_matches('/').to_owned() })
    }

    /// The answer; `None` when `give_up` comes first.
    pub(crate) async fn ask(
        &self,
        what: &str,
        body: &Value,
        give_up: &CancellationToken,
    ) -> anyhow::Result<Option<Value>> {
        let mut pause = FIRST_PAUSE;
        loop {
            let asked = match self.once(what, body).await {
                Ok(answer) => answer,
                Err(error) => Answer::Later { why: format!("{error:#}"), after: None },
            };
            let (why, after) = match asked {
                Answer::Here(value) => return Ok(Some(value)),
                Answer::Refused(why) => bail!("{what}: {why}"),
                Answer::Later { why, after } => (why, after),
            };
            // Many fetchers must not come back at the same moment.
            let share = f64::from(rand_byte()) / 1024.0;
            let wait = after.unwrap_or(pause).mul_f64(1.0 + share);
            eprintln!("{what}: {why}; again in {:.1} s", wait.as_secs_f64());
            tokio::select! {
                () = give_up.cancelled() => return Ok(None),
                () = tokio::time::sleep(wait) => {}
            }
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    async fn once(&self, what: &str, body: &Value) -> anyhow::Result<Answer> {
        let request = self.client.post(format!("{}/v1/{what}", self.base)).body(body.to_string());
        let mut answer = request.send().await?;
        let status = answer.status();
        let after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let after = after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let mut text = Vec::new();
        while let Some(part) = answer.chunk().await? {
            text.extend_from_slice(&part);
        }
        Ok(if status.is_success() {
            Answer::Here(serde_json::from_slice(&text)?)
        } else if PASSING.contains(&status.as_u16()) {
            Answer::Later { why: status.to_string(), after }
        } else {
            Answer::Refused(format!("{status} {}", String::from_utf8_lossy(&text)))
        })
    }
}

enum Answer {
    Here(Value),
    Later { why: String, after: Option<Duration> },
    Refused(String),
}

/// Chance, without a crate for it: the addresses of the process are random.
fn rand_byte() -> u8 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0).to_le_bytes()[0]
}
