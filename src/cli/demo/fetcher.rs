//! The example fetcher: leases over HTTP, fetches the page, compares its hash
//! with the one it reported last time, and settles.
//!
//! It knows nothing but the API, so it shows what any fetcher has to do. It
//! keeps no state: the lease brings the hash of last time. When told to stop it
//! gives back what it has not fetched.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::narrator::{Event, Fetch};
use crate::clock::Clock;
use crate::fetch::api::ApiClient;
use crate::fetch::{Answer, Fetcher, Gate, Refusal, Request, Validators};

/// URLs asked for at once: few, so that their order is easy to follow.
const BATCH: u32 = 4;
/// Bytes of one page; ours are below 1 KiB.
const MAX_PAGE: u64 = 1 << 20;
/// Wait after the API has failed us.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(500);

/// What a fetcher needs.
pub(super) struct ExampleFetcher {
    /// The daemon.
    pub(super) api: ApiClient,
    /// The way to the pages.
    pub(super) fetch: Fetcher,
    /// The time, for `not_before`.
    pub(super) clock: Clock,
    /// Where it tells what it does.
    pub(super) events: mpsc::Sender<Event>,
}

/// The answer to a lease call.
#[derive(Debug, Deserialize)]
struct Leases {
    urls: Vec<Lease>,
}

/// What it reads of a lease; the rest is ignored, as a client must.
#[derive(Debug, Deserialize)]
struct Lease {
    token: String,
    url: String,
    reason: String,
    priority: f64,
    changefreq: Option<String>,
    content_hash: Option<String>,
    not_before: Timestamp,
}

/// What it saw of a page.
#[derive(Debug, Default)]
struct Seen {
    outcome: &'static str,
    status: Option<u16>,
    content_hash: Option<String>,
    error: Option<String>,
}

/// Lets the requests through: the lease has said already when they may be sent.
struct Leased;

impl Gate for Leased {
    async fn admit(&self, _url: &Url) -> Result<(), Refusal> {
        Ok(())
    }
}

impl ExampleFetcher {
    /// Works until told to stop.
    pub(super) async fn run(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            // Not broken off by `stop`: an answer that nobody reads would be a lease that
            // nobody holds. It waits a second at most.
            let leases = match self.lease().await {
                Ok(leases) => leases,
                Err(error) => {
                    self.tell(Event::Trouble(error)).await;
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            self.tell(Event::Leased(leases.len() as u64)).await;
            let mut left = leases.into_iter();
            while let Some(lease) = left.next() {
                let in_turn = tokio::select! {
                    () = stop.cancelled() => false,
                    () = self.clock.sleep_until(lease.not_before) => true,
                };
                if !in_turn {
                    let tokens: Vec<String> =
                        std::iter::once(lease).chain(left).map(|lease| lease.token).collect();
                    self.release(tokens).await;
                    break;
                }
                self.serve(lease).await;
            }
        }
    }

    async fn lease(&self) -> Result<Vec<Lease>, String> {
        let body = json!({ "max": BATCH, "ttl": "30s", "wait": "1s", "worker": "example" });
        let answer = self.api.post::<Leases>("/v1/lease", &body).await;
        answer.map(|leases| leases.urls).map_err(|error| error.to_string())
    }

    /// Fetches one page and settles its lease.
    async fn serve(&self, lease: Lease) {
        let seen = self.look(&lease).await;
        let result = json!({ "results": [{
            "token": lease.token,
            "outcome": seen.outcome,
            "status": seen.status,
            "content_hash": seen.content_hash,
            "hash_kind": "xxh3",
            "fetched_at": self.clock.now().to_string(),
            "error": seen.error,
        }] });
        let answer = self.api.post::<Value>("/v1/settle", &result).await;
        let settled = match &answer {
            Ok(answer) => {
                answer.pointer("/results/0/result").and_then(Value::as_str).unwrap_or("?")
            }
            Err(_) => "failed",
        };
        self.tell(Event::Fetched(Fetch {
            url: lease.url,
            reason: lease.reason,
            priority: lease.priority,
            changefreq: lease.changefreq,
            status: seen.status,
            outcome: seen.outcome.to_owned(),
            settled: settled.to_owned(),
        }))
        .await;
        if let Err(error) = answer {
            self.tell(Event::Trouble(error.to_string())).await;
        }
    }

    async fn look(&self, lease: &Lease) -> Seen {
        let url = match Url::parse(&lease.url) {
            Ok(url) => url,
            Err(error) => return failed(&error),
        };
        let request = Request {
            url,
            validators: Validators::default(),
            headers: Vec::new(),
            known: None,
            max_wire_bytes: MAX_PAGE,
            max_redirects: 0,
        };
        match self.fetch.fetch(request, &Leased).await {
            Ok(Answer::Document(page)) => {
                let hash = format!("{:032x}", page.body.hash().unwrap_or_default());
                let same = lease.content_hash.as_deref() == Some(hash.as_str());
                Seen {
                    outcome: if same { "unchanged" } else { "changed" },
                    status: Some(page.head.status),
                    content_hash: Some(hash),
                    error: None,
                }
            }
            Ok(Answer::Same(head) | Answer::NotModified(head) | Answer::Refused(head)) => {
                let gone = matches!(head.status, 404 | 410);
                let outcome = if gone { "gone" } else { "failed" };
                Seen { outcome, status: Some(head.status), ..Seen::default() }
            }
            Err(error) => failed(&error),
        }
    }

    async fn release(&self, tokens: Vec<String>) {
        let count = tokens.len() as u64;
        let body = json!({ "tokens": tokens, "after": "0s" });
        match self.api.post::<Value>("/v1/release", &body).await {
            Ok(_) => self.tell(Event::Released(count)).await,
            Err(error) => self.tell(Event::Trouble(error.to_string())).await,
        }
    }

    async fn tell(&self, event: Event) {
        // Nobody listens any more: then nobody needs to be told.
        let _ = self.events.send(event).await;
    }
}

fn failed(error: &dyn std::error::Error) -> Seen {
    Seen { outcome: "failed", error: Some(error.to_string()), ..Seen::default() }
}
