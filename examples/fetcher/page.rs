//! One page: fetched within limits, and what the daemon is told of it.

use std::time::Duration;

use jiff::fmt::rfc2822;
use reqwest::header::{ACCEPT_ENCODING, DATE, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Client, Url, redirect, retry};

use super::Args;
use super::api::{Lease, Seen};
use super::memory::Memory;

/// Bytes read of a page; the rest is not looked at.
const MAX_BODY: usize = 10 << 20;
/// A name of what is hashed: change it with the hash.
const HASH_KIND: &str = "xxh3-128-10MiB";
/// Redirects followed, on the page's own host only.
const MAX_REDIRECTS: usize = 5;
/// Before each: it is one more request to that host.
const REDIRECT_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause passed on, in seconds.
const LONGEST_PAUSE: i64 = 86_400;

/// Do here what you fetch pages for.
fn keep(_lease: &Lease, _headers: &HeaderMap, _body: &[u8]) {}

/// Fetches pages, and remembers what they said of themselves.
#[derive(Debug)]
pub(crate) struct Pages {
    client: Client,
    memory: Memory,
}

/// One answer of the web.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Pages {
    pub(crate) fn new(args: &Args) -> anyhow::Result<Self> {
        let client = sitemapd::fetch::tls::client()
            .user_agent(&args.user_agent)
            // By hand: another host has a clock and a robots.txt of its own.
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .connect_timeout(Duration::from_secs(30))
            .timeout(Duration::from_secs(args.timeout))
            .build()?;
        Ok(Self { client, memory: Memory::open(&args.memory)? })
    }

    /// Writes down what is remembered.
    pub(crate) fn save(&self) -> anyhow::Result<()> {
        self.memory.save()
    }

    /// Fetches a page; whatever the web comes up with is something seen.
    pub(crate) async fn look(&self, lease: &Lease) -> Seen {
        let seen = self.try_look(lease).await.unwrap_or_else(|error| Seen {
            outcome: Some("failed"),
            error: Some(format!("{error:#}").chars().take(500).collect()),
            ..Seen::default()
        });
        Seen { token: lease.token.clone(), ..seen }
    }

    async fn try_look(&self, lease: &Lease) -> anyhow::Result<Seen> {
        let leased = Url::parse(&lease.url)?;
        let (mut url, mut has_moved) = (leased.clone(), false);
        let mut answer = self.get(url.clone(), self.memory.conditions(lease)).await?;
        for _ in 0..MAX_REDIRECTS {
            let Some(target) = target(&url, &answer) else { break };
            has_moved |= matches!(answer.status, 301 | 308);
            if target.origin() != url.origin() {
                let (status, final_url) = (Some(answer.status), Some(target.into()));
                let outcome = Some("redirected");
                return Ok(Seen { outcome, status, final_url, ..Seen::default() });
            }
            tokio::time::sleep(REDIRECT_PAUSE).await;
            url = target;
            answer = self.get(url.clone(), HeaderMap::new()).await?;
        }
        Ok(self.judge(lease, &answer, (url != leased).then_some(url), has_moved))
    }

    async fn get(&self, url: Url, conditions: HeaderMap) -> anyhow::Result<Answer> {
        let request = self.client.get(url).header(ACCEPT_ENCODING, "identity").headers(conditions);
        let mut response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await? {
            let room = MAX_BODY - body.len();
            body.extend_from_slice(&part[..part.len().min(room)]);
            if part.len() >= room {
                break;
            }
        }
        Ok(Answer { status, headers, body })
    }

    /// What the daemon is told.
    fn judge(&self, lease: &Lease, answer: &Answer, moved: Option<Url>, has_moved: bool) -> Seen {
        let Answer { status, headers, body } = answer;
        let pause = Some(*status).filter(|status| matches!(status, 429 | 503));
        let mut seen = Seen {
            status: Some(*status),
            retry_after: pause.and_then(|_| pause_asked(headers)),
            final_url: moved.map(String::from),
            ..Seen::default()
        };
        seen.outcome = match status {
            304 => Some("unchanged"),
            404 | 410 => Some("gone"),
            401 | 403 | 451 => Some("blocked"),
            200..=299 => {
                keep(lease, headers, body);
                let hash = format!("{:032x}", xxhash_rust::xxh3::xxh3_128(body));
                if seen.final_url.is_none() {
                    self.memory.learn(&lease.url, &hash, headers);
                }
                (seen.content_hash, seen.hash_kind) = (Some(hash), Some(HASH_KIND));
                // It folds into its target, where that is listed too; else the
                // hash tells whether it changed.
                has_moved.then_some("redirected")
            }
            _ => {
                seen.error = Some(format!("status {status}"));
                Some("failed")
            }
        };
        seen
    }
}

/// Where a redirect leads.
fn target(url: &Url, answer: &Answer) -> Option<Url> {
    if !matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    // Its bytes as UTF-8, as browsers have it: unescaped paths are common.
    let location = String::from_utf8_lossy(answer.headers.get(LOCATION)?.as_bytes());
    let mut target = url.join(&location).ok()?;
    target.set_fragment(None);
    Some(target)
}

/// `Retry-After` as the API takes it; a date is meant by the clock of who says it.
fn pause_asked(headers: &HeaderMap) -> Option<String> {
    let said = |name| headers.get(name)?.to_str().ok();
    let after: &str = said(RETRY_AFTER)?;
    let seconds = after.trim().parse::<i64>().ok().or_else(|| {
        let moment = |text| rfc2822::parse(text).ok().map(|zoned| zoned.timestamp().as_second());
        Some(moment(after)? - moment(said(DATE)?)?)
    })?;
    Some(format!("{}s", seconds.clamp(0, LONGEST_PAUSE)))
}
