//! The orders of those commands that change something.
//!
//! Each is carried out by the running daemon, over its API. When none runs the
//! store is opened as a daemon would, under the lock of its folder, so two of
//! us never write at once.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};
use url::Url;

use super::Failure;
use super::humane::{self, count};
use super::question::explain;
use super::source_of_truth::segment;
use crate::clock::Clock;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::serve::wire::sources::Site;
use crate::store::{PastFetch, Store, StoreError};

/// An order.
#[derive(Debug, Clone)]
pub enum Order {
    /// Drop all that is kept of a site that is no longer registered.
    Forget {
        /// Its name.
        site: String,
    },
    /// Stop polling a site and leasing from it, or start again.
    PauseSite {
        /// Its name.
        site: String,
        /// Stop?
        paused: bool,
    },
    /// Put dead letters back.
    Replay {
        /// These; none means all of the crawl.
        urls: Vec<String>,
        /// Their crawl.
        crawl: String,
    },
    /// Make known URLs due now.
    Requeue {
        /// These.
        urls: Vec<String>,
        /// Their crawl.
        crawl: String,
    },
    /// Keep URLs from being leased, or no longer.
    Block {
        /// A URL, or the beginning of URLs.
        pattern: String,
        /// Is it the beginning?
        prefix: bool,
        /// Their crawl.
        crawl: String,
        /// Lift the block instead.
        lift: bool,
    },
    /// Take in fetches of the past.
    Import {
        /// Of URLs of this crawl.
        crawl: String,
        /// These, at most 10,000.
        fetches: Vec<PastFetch>,
    },
    /// Stop leasing from a crawl, or start again.
    Pause {
        /// Its name.
        crawl: String,
        /// Stop?
        paused: bool,
    },
}

/// How the API takes an order.
#[derive(Debug, PartialEq)]
pub enum Call {
    /// With a body.
    Post(Cow<'static, str>, Value),
    /// Without one.
    Delete(String),
}

impl Order {
    /// The call that gives this order to a daemon.
    pub fn call(&self) -> Call {
        match self {
            Self::Forget { site } => Call::Delete(format!("/v1/sites/{}", segment(site))),
            Self::PauseSite { site, paused } => {
                let what = if *paused { "pause" } else { "resume" };
                Call::Post(format!("/v1/sites/{}/{what}", segment(site)).into(), json!({}))
            }
            Self::Replay { urls, crawl } if urls.is_empty() => {
                Call::Post("/v1/queue/replay".into(), json!({ "crawl": crawl, "all": true }))
            }
            Self::Replay { urls, crawl } => {
                Call::Post("/v1/queue/replay".into(), json!({ "crawl": crawl, "urls": urls }))
            }
            Self::Requeue { urls, crawl } => {
                Call::Post("/v1/queue/requeue".into(), json!({ "crawl": crawl, "urls": urls }))
            }
            Self::Block { pattern, prefix, crawl, lift } => {
                let path = if *lift { "/v1/queue/unblock" } else { "/v1/queue/block" };
                let kind = if *prefix { "prefix" } else { "url" };
                Call::Post(path.into(), json!({ "crawl": crawl, kind: pattern }))
            }
            Self::Import { crawl, fetches } => {
                let fetches: Vec<Value> = fetches.iter().map(as_json).collect();
                Call::Post("/v1/import".into(), json!({ "crawl": crawl, "fetches": fetches }))
            }
            Self::Pause { crawl, paused } => {
                Call::Post("/v1/queue/pause".into(), json!({ "crawl": crawl, "paused": paused }))
            }
        }
    }

    /// Refuses what no daemon and no store takes, as wrong usage.
    pub fn check(&self) -> Result<(), Failure> {
        match self {
            Self::Replay { urls, .. } | Self::Requeue { urls, .. } => parsed(urls).map(drop),
            Self::Block { pattern, .. } => web_url(pattern).map(drop),
            Self::Forget { .. }
            | Self::PauseSite { .. }
            | Self::Import { .. }
            | Self::Pause { .. } => Ok(()),
        }
    }

    /// What an order came to, in words.
    pub fn in_words(&self, answer: &Value) -> String {
        let urls = |field: &str| {
            count(answer.get(field).and_then(Value::as_u64).unwrap_or(0), "URL", "URLs")
        };
        match self {
            Self::Forget { site } => {
                format!("forgot {}: {} dropped", humane::safe(site), urls("forgotten"))
            }
            Self::PauseSite { site, paused: true } => {
                format!("paused {}: nothing of it is polled or leased", humane::safe(site))
            }
            Self::PauseSite { site, paused: false } => {
                format!("polling {} and leasing from it again", humane::safe(site))
            }
            Self::Replay { .. } => format!("put back {}", urls("replayed")),
            Self::Requeue { urls: named, .. } => {
                let done = answer.get("requeued").and_then(Value::as_u64).unwrap_or(0);
                let rest = (named.len() as u64).saturating_sub(done);
                let rest = match rest {
                    0 => String::new(),
                    _ => format!(
                        "; {} not known, named twice, or held: what is held is due once it is let go",
                        count(rest, "URL is", "URLs are")
                    ),
                };
                format!("made {} due now{rest}", urls("requeued"))
            }
            // Not counted: each is held back when its turn comes.
            Self::Block { lift: false, prefix: true, pattern, .. } => {
                // As it is kept: that of a host ends with its slash.
                let kept = Url::parse(pattern).map_or_else(|_| pattern.clone(), String::from);
                format!("blocked: no URL that begins with {} is leased", humane::safe(&kept))
            }
            Self::Block { lift: false, .. } => {
                format!("blocked: {} held back now", urls("blocked"))
            }
            Self::Block { lift: true, .. } => format!("unblocked: {} came back", urls("unblocked")),
            Self::Import { .. } => {
                let taken = answer.get("taken").and_then(Value::as_u64).unwrap_or(0);
                format!("took in {}", count(taken, "fetch", "fetches"))
            }
            Self::Pause { crawl, paused: true } => {
                format!("paused leasing from {}", humane::safe(crawl))
            }
            Self::Pause { crawl, paused: false } => {
                format!("leasing from {} again", humane::safe(crawl))
            }
        }
    }

    /// Carries it out without a daemon, on a store that is opened for that; answers as
    /// the API does.
    pub async fn carry_out(&self, store: &Store) -> Result<Value, Failure> {
        let done: Result<Value, StoreError> = match self.clone() {
            Self::Forget { site } => {
                store.forget_site(site).await.map(|urls| json!({ "forgotten": urls }))
            }
            Self::PauseSite { site, paused } => {
                let pausing = async {
                    store.pause_site(site.clone(), paused).await?;
                    store.site(site).await
                };
                pausing.await.map(|site| json!(Site::from(site)))
            }
            Self::Replay { urls, crawl } => {
                let urls = parsed(&urls)?;
                store.replay(crawl, urls).await.map(|urls| json!({ "replayed": urls }))
            }
            Self::Requeue { urls, crawl } => {
                let urls = parsed(&urls)?;
                store.requeue(crawl, urls).await.map(|urls| json!({ "requeued": urls }))
            }
            Self::Block { pattern, prefix, crawl, lift: false } => {
                let pattern = web_url(&pattern)?.into();
                store.block(crawl, pattern, prefix).await.map(|urls| json!({ "blocked": urls }))
            }
            Self::Block { pattern, prefix, crawl, lift: true } => {
                let pattern = web_url(&pattern)?.into();
                store.unblock(crawl, pattern, prefix).await.map(|urls| json!({ "unblocked": urls }))
            }
            Self::Import { crawl, fetches } => {
                store.import(crawl, fetches).await.map(|imported| json!(imported))
            }
            Self::Pause { crawl, paused } => store
                .pause_crawl(crawl.clone(), paused)
                .await
                .map(|()| json!({ "crawl": crawl, "paused": paused })),
        };
        done.map_err(explain)
    }
}

/// Opens the store for orders, beside no daemon.
pub async fn open_alone(config: &Config) -> Result<Store, Failure> {
    let config = config.clone();
    let opened = tokio::task::spawn_blocking(move || {
        Store::open_alone(&config, Clock::system(), Arc::new(Metrics::new()))
    });
    opened.await.map_err(anyhow::Error::new)?.map_err(explain)
}

/// A fetch of the past as the API takes it.
fn as_json(fetch: &PastFetch) -> Value {
    let PastFetch { url, at, changed, content_hash, hash_kind } = fetch;
    json!({
        "url": url.as_str(), "time": at, "changed": changed,
        "hash": content_hash, "hash_kind": hash_kind,
    })
}

fn parsed(urls: &[String]) -> Result<Vec<String>, Failure> {
    urls.iter().map(|url| web_url(url).map(String::from)).collect()
}

/// An absolute http or https URL, as the API takes it.
pub(super) fn web_url(text: &str) -> Result<Url, Failure> {
    let shown = humane::safe(text);
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or_else(|| {
        Failure::Usage(format!(
            "{shown}: not an absolute http or https URL, such as https://example.org/a"
        ))
    })?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Failure::Usage(
            "a user name and a password in a URL are never sent; leave them out".to_owned(),
        ));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaying_all_is_said_and_never_an_empty_list() {
        let order = |urls: &[&str]| Order::Replay {
            urls: urls.iter().map(|&url| url.to_owned()).collect(),
            crawl: "default".to_owned(),
        };
        let call = |body| Call::Post("/v1/queue/replay".into(), body);
        assert_eq!(order(&[]).call(), call(json!({ "crawl": "default", "all": true })));
        let one = json!({ "crawl": "default", "urls": ["https://example.org/"] });
        assert_eq!(order(&["https://example.org/"]).call(), call(one));
    }

    #[test]
    fn what_is_no_url_is_wrong_usage_before_anybody_is_asked() {
        for typed in ["nonsense", "ftp://example.org/", "http://me:s3cret@example.org/"] {
            let crawl = "default".to_owned();
            let orders = [
                Order::Requeue { urls: vec![typed.to_owned()], crawl: crawl.clone() },
                Order::Block { pattern: typed.to_owned(), prefix: true, crawl, lift: true },
            ];
            for order in orders {
                let failure = order.check().expect_err(typed);
                assert!(matches!(failure, Failure::Usage(_)), "{typed}");
                assert!(!failure.to_string().contains("s3cret"), "{failure}");
            }
        }
    }

    #[test]
    fn a_block_names_a_url_or_a_prefix() {
        let order = |prefix, lift| Order::Block {
            pattern: "https://example.org/a".to_owned(),
            prefix,
            crawl: "news".to_owned(),
            lift,
        };
        assert_eq!(
            order(false, false).call(),
            Call::Post(
                "/v1/queue/block".into(),
                json!({ "crawl": "news", "url": "https://example.org/a" })
            )
        );
        assert_eq!(
            order(true, true).call(),
            Call::Post(
                "/v1/queue/unblock".into(),
                json!({ "crawl": "news", "prefix": "https://example.org/a" })
            )
        );
    }
}
