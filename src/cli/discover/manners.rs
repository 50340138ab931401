//! How a stranger behaves: one request at a time, a delay between two, and
//! robots.txt of each authority asked first and obeyed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use url::Url;

use crate::cli::check::fetch_request;
use crate::config::Config;
use crate::fetch::{Answer, Fetched, Fetcher, Gate, Refusal};
use crate::model::product_token;
use crate::parse::robots::Robots;

/// Most that a robots.txt may slow us down: a person waits for the answer.
const MAX_DELAY: Duration = Duration::from_secs(10);
/// Authorities whose robots.txt is kept; further ones are not asked anything.
const MAX_AUTHORITIES: usize = 50;

/// What a robots.txt lets us do.
#[derive(Debug)]
pub(super) enum Rules {
    /// What it says.
    File(Box<Robots>),
    /// There is none (RFC 9309 section 2.3.1.3): anything.
    Absent,
    /// It cannot be had (RFC 9309 section 2.3.1.4): nothing.
    Unreachable(String),
}

impl Rules {
    /// May this URL be fetched?
    pub(super) fn allow(&self, agent: &str, url: &Url) -> bool {
        match self {
            Self::File(robots) => robots.allows(agent, &path_and_query(url)),
            Self::Absent => true,
            Self::Unreachable(_) => false,
        }
    }
}

/// The delay and the rules so far.
pub(super) struct Manners {
    fetcher: Fetcher,
    config: Config,
    agent: String,
    state: Mutex<State>,
}

struct State {
    next_at: Instant,
    delay: Duration,
    rules: HashMap<String, Arc<Rules>>,
}

impl Manners {
    /// The manners of the configuration.
    pub(super) fn new(fetcher: Fetcher, config: &Config) -> Self {
        let agent = product_token(&config.daemon.user_agent).to_owned();
        let delay = config.politeness.host_delay;
        let state = State { next_at: Instant::now(), delay, rules: HashMap::new() };
        Self { fetcher, config: config.clone(), agent, state: Mutex::new(state) }
    }

    /// The name that robots.txt files know us by.
    pub(super) fn agent(&self) -> &str {
        &self.agent
    }

    /// Fetches a document, politely; the error is a clause that says why not.
    pub(super) async fn fetch(&self, url: &Url) -> Result<Fetched, String> {
        let request = fetch_request(url.clone(), &self.config);
        match self.fetcher.fetch(request, self).await {
            Ok(Answer::Document(fetched)) => Ok(fetched),
            Ok(Answer::Same(head) | Answer::NotModified(head) | Answer::Refused(head)) => {
                Err(format!("status {}", head.status))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// The rules of a URL's authority; fetches its robots.txt the first time.
    pub(super) async fn rules(&self, url: &Url) -> Arc<Rules> {
        let authority = url.origin().ascii_serialization();
        if let Some(known) = self.known_rules(url) {
            return known;
        }
        let rules = Arc::new(self.ask(url).await);
        let mut state = self.lock();
        if let Rules::File(robots) = rules.as_ref()
            && let Some(delay) = robots.crawl_delay(&self.agent)
        {
            state.delay = state.delay.max(delay.min(MAX_DELAY));
        }
        state.rules.insert(authority, Arc::clone(&rules));
        rules
    }

    /// The rules of a URL's authority, if its robots.txt was asked for already.
    pub(super) fn known_rules(&self, url: &Url) -> Option<Arc<Rules>> {
        self.lock().rules.get(&url.origin().ascii_serialization()).cloned()
    }

    async fn ask(&self, url: &Url) -> Rules {
        if self.lock().rules.len() >= MAX_AUTHORITIES {
            return Rules::Unreachable("too many hosts to ask each for its robots.txt".to_owned());
        }
        let Ok(robots_url) = url.join("/robots.txt") else { return Rules::Absent };
        let request = fetch_request(robots_url, &self.config);
        match self.fetcher.fetch(request, &InTurn(self)).await {
            Ok(Answer::Document(fetched)) => {
                let limit = self.config.fetch.limits.max_body_bytes;
                Rules::File(Box::new(Robots::parse(&decode(fetched, limit))))
            }
            Ok(Answer::Refused(head)) if !matches!(head.status, 429 | 500..) => Rules::Absent,
            Ok(Answer::Same(head) | Answer::NotModified(head) | Answer::Refused(head)) => {
                Rules::Unreachable(format!("robots.txt: status {}", head.status))
            }
            Err(error) => Rules::Unreachable(format!("robots.txt: {error}")),
        }
    }

    /// Waits for our turn.
    async fn turn(&self) {
        let at = {
            let mut state = self.lock();
            let at = state.next_at.max(Instant::now());
            state.next_at = at + state.delay;
            at
        };
        sleep_until(at).await;
    }

    /// Whole after any panic of another holder: each change is one call.
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate for Manners {
    async fn approach(&self, url: &Url) -> Result<(), Refusal> {
        let rules = self.rules(url).await;
        if !rules.allow(&self.agent, url) {
            let authority = url.origin().ascii_serialization();
            return Err(Refusal::Robots { authority });
        }
        Ok(())
    }

    async fn admit(&self, _url: &Url) -> Result<(), Refusal> {
        self.turn().await;
        Ok(())
    }
}

/// Lets robots.txt itself through, which is always allowed, in its turn.
struct InTurn<'a>(&'a Manners);

impl Gate for InTurn<'_> {
    async fn admit(&self, _url: &Url) -> Result<(), Refusal> {
        self.0.turn().await;
        Ok(())
    }
}

/// The decoded bytes of a small document.
pub(super) fn decode(fetched: Fetched, limit: u64) -> Vec<u8> {
    use std::io::Read as _;
    let mut body = Vec::new();
    let mut decoded =
        crate::fetch::body::Decoded::new(fetched.body, &fetched.content_encoding, limit);
    // Its reads never fail: a defect ends the document.
    let _ = decoded.read_to_end(&mut body);
    body
}

/// What robots.txt rules are matched against.
fn path_and_query(url: &Url) -> String {
    match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
}
