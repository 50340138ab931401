//! The one request that is no GET: a form for a hub (`WebSub` section 5.1).
//!
//! It passes the same guard, gate and resolver as a poll, hop by hop. But where it
//! goes any document says, and it may change something there: what `fetch.allow`
//! opens for polls is open to it only at the host of the source itself, and only there
//! does it go out on a connection that was opened before. Of the answer only the status
//! and a few words of it are read.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use tokio::time::Instant;
use url::Url;

use super::{Fetcher, Spent};
use crate::fetch::guard::is_public;
use crate::fetch::redirect::{self, Trail};
use crate::fetch::{Blocked, FetchError, Gate, Guard, failure, headers, outside, resolver};

/// Redirects followed: hubs move now and then, and need no more.
const MAX_REDIRECTS: u32 = 3;
/// Bytes read of what a hub says of a refusal, and how long that may take.
const MAX_SAID: usize = 2_048;
const SAYING: Duration = Duration::from_secs(2);
/// How a form is written.
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// Why an address that polls may go to is none for a form.
const INSIDE: &str =
    "a hub at no public address is asked only for sources of its own host, and by fetch.allow";

/// A form to be sent.
#[derive(Clone)]
pub struct Form {
    /// Where to.
    pub url: Url,
    /// Names and values.
    pub fields: Vec<(&'static str, String)>,
    /// The source whose document names that place; none where it is gone.
    pub source: Option<Url>,
    /// Does it hold what nobody on the way may read? Then it is sent over
    /// https only, redirects included.
    pub is_secret: bool,
}

/// What was answered to a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Who answered, after all redirects.
    pub final_url: Url,
    /// The status.
    pub status: u16,
    /// The first words of the body, fit to be shown.
    pub said: String,
    /// `Retry-After`, as a delay from when the answer came.
    pub retry_after: Option<Duration>,
}

impl Form {
    /// Is this at the host of its source?
    fn is_at_home(&self, url: &Url) -> bool {
        self.source.as_ref().is_some_and(|source| source.host() == url.host())
    }
}

impl Fetcher {
    /// Judges what the URL of a hub that a source names shows by itself.
    pub fn check_hub(&self, hub: &Url, source: &Url) -> Result<(), Blocked> {
        if hub.host() == source.host() {
            return self.inner.guard.check_url(hub);
        }
        Guard::default().check_url(hub)
    }

    /// Sends a form. A redirect that asks to send it again (307, 308) is
    /// followed; any other is an answer.
    pub async fn post_form<G: Gate>(&self, form: &Form, gate: &G) -> Result<Told, FetchError> {
        let mut trail = Trail::new(form.url.clone(), MAX_REDIRECTS);
        let mut spent = Spent { took: Duration::ZERO, total: self.inner.limits.total };
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form.fields.iter().map(|(name, value)| (*name, value.as_str())))
            .finish();
        loop {
            let url = trail.current();
            if form.is_secret && url.scheme() != "https" {
                return Err(FetchError::Blocked("a secret is sent over https only".to_owned()));
            }
            match self.post(form, &trail, &body, &mut spent, gate).await? {
                Posted::Elsewhere(status, location) => trail.follow(status, &location)?,
                Posted::Told(told) => return Ok(told),
            }
        }
    }

    async fn post<G: Gate>(
        &self,
        form: &Form,
        trail: &Trail,
        body: &str,
        spent: &mut Spent,
        gate: &G,
    ) -> Result<Posted, FetchError> {
        let inner = &*self.inner;
        let url = trail.current();
        let is_at_home = form.is_at_home(url);
        if !is_at_home && let Err(Blocked::Address(_)) = Guard::default().check_url(url) {
            return Err(inside());
        }
        let (mut addresses, _turns) = inner.enter(trail, spent, gate).await?;
        // Through a proxy there may be none that we know of.
        if !is_at_home && !addresses.is_empty() {
            addresses = addresses.iter().copied().filter(|at| is_public(at.ip())).collect();
            if addresses.is_empty() {
                return Err(inside());
            }
        }
        let asking = async {
            let host = url.host_str().unwrap_or_default();
            // A connection that is kept was opened by whoever asked there before, and may
            // lead where only polls may go: by the time that its other end is known, the
            // form is sent.
            let client = if is_at_home { &inner.client } else { &inner.closing };
            let once = || {
                let request = client.post(url.clone()).header(CONTENT_TYPE, FORM);
                let sending = request.body(body.to_owned()).send();
                resolver::with_checked(host, addresses.clone(), sending)
            };
            let was_warm = is_at_home && inner.warm.take(url, Instant::now());
            // Asking a hub twice for the same is harmless.
            let outcome = match once().await {
                Err(error) if was_warm && failure::is_stale_connection(&error) => once().await,
                other => other,
            };
            let mut response = outcome.map_err(|error| inner.limits.explain(error))?;
            if is_at_home {
                inner.warm.put(url, Instant::now());
            }
            if !inner.proxied
                && let Some(peer) = response.remote_addr()
            {
                inner.guard.check_addr(peer)?;
                if !is_at_home && !is_public(peer.ip()) {
                    return Err(inside());
                }
            }
            let status = response.status().as_u16();
            let now = inner.clock.as_ref().map(|clock| clock());
            let retry_after = headers::retry_after(response.headers(), now);
            let location = response.headers().get(LOCATION).cloned();
            let said = said(&mut response).await;
            match (status, location) {
                (307 | 308, Some(location)) => Ok(Posted::Elsewhere(status, location)),
                (307 | 308, None) => Err(redirect::without_location(status)),
                _ => {
                    let final_url = url.clone();
                    Ok(Posted::Told(Told { final_url, status, said, retry_after }))
                }
            }
        };
        spent.on(&inner.limits, asking).await
    }
}

fn inside() -> FetchError {
    FetchError::Blocked(INSIDE.to_owned())
}

enum Posted {
    Elsewhere(u16, HeaderValue),
    Told(Told),
}

/// The first words of a body; the rest goes with its connection.
async fn said(response: &mut reqwest::Response) -> String {
    let mut read = Vec::new();
    let reading = async {
        while read.len() < MAX_SAID
            && let Ok(Some(chunk)) = response.chunk().await
        {
            let room = MAX_SAID - read.len();
            read.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
    };
    // What came in time is enough for people.
    let _ = tokio::time::timeout(SAYING, reading).await;
    outside::text(String::from_utf8_lossy(&read).trim())
}
