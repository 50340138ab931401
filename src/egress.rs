//! Egress: URLs that may be fetched now are published to NATS `JetStream`, and
//! what fetchers report comes back from there.
//!
//! The daemon leases from its own store as any fetcher does, so the delays of
//! hosts, turns and budgets hold; a URL is published when it may be fetched,
//! never before. What the broker has not acknowledged is given back at once,
//! and a result is acknowledged only when it is committed: whichever side is
//! killed, a URL is with a fetcher, in the stream or in the queue. The store
//! stays the only truth; a lease that nobody settles runs out there.
//!
//! A session is one connection. Whatever goes wrong ends it, and the next one
//! begins after a pause; in between nothing is leased. A broker that lets us in
//! and takes nothing is none: from a refusal until it acknowledges something
//! again it is given one URL at a time, and each session waits longer. So it
//! does while results do not come through, of which nothing is leased until the
//! broker has answered for them, and while the store takes nothing, which is no
//! fault of the broker.

mod book;
mod owed;
mod publish;
mod results;
mod said;
mod session;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::ConnectOptions;
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::book::Unsettled;
use self::owed::Owed;
use self::said::Said;
use crate::clock::Clock;
use crate::config::{Nats, first_line};
use crate::metrics::Metrics;
use crate::queue::LeaseRequest;
use crate::serve::LeaseDefaults;
use crate::store::{Store, StoreError};

/// The broker's name in metrics.
const BROKER: &str = "nats";
/// Pause after the first session that failed; it doubles up to [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_millis(250);
/// Longest such pause.
const MAX_PAUSE: Duration = Duration::from_secs(15);

/// Why the egress could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("egress.nats.{key} {path}: {why}")]
pub struct EgressError {
    key: &'static str,
    path: String,
    why: String,
}

/// What ended a session.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    /// The broker is away, or lets us do nothing.
    #[error("{0}")]
    Broker(String),
    /// It is there, and does not take what is published.
    #[error("{0}")]
    Refused(String),
    /// Nothing more is leased or settled.
    #[error("the store: {0}")]
    Store(#[from] StoreError),
}

/// How the session logs in.
enum Login {
    Nobody,
    Token(String),
    Password(String, String),
    /// The text of a credentials file.
    Credentials(String),
}

/// The egress to NATS, which may be off.
pub struct Egress {
    config: Nats,
    store: Store,
    clock: Clock,
    metrics: Arc<Metrics>,
    defaults: watch::Receiver<LeaseDefaults>,
    unsettled: Unsettled,
    owed: Owed,
    said: Said,
    /// From a refusal on until something is acknowledged, over any number of
    /// sessions: that one can connect says nothing then.
    is_refused: AtomicBool,
    /// Its results' side has given something in this session, or lasted: that it let us
    /// in says nothing, where that is what fails next.
    is_proven: AtomicBool,
    /// That it is there has been said, and since then nothing else of it.
    is_said: AtomicBool,
    /// That the store takes nothing has been said, and since then it took nothing.
    is_stuck: AtomicBool,
    /// The store has taken something in this session.
    has_written: AtomicBool,
    /// Stock has been taken of what the process before this one held.
    has_stock: AtomicBool,
    /// When the first call for leases began, since stock was taken, whose answer the store's
    /// server has kept to itself: what it may have leased nobody knows of.
    unanswered: Mutex<Option<Timestamp>>,
    /// Crawls that there are not, each of them said.
    absent: Mutex<BTreeSet<String>>,
}

impl Egress {
    /// Looks at all files, which each session reads anew; nothing is connected yet.
    pub fn new(
        config: Nats,
        store: Store,
        clock: Clock,
        metrics: Arc<Metrics>,
        defaults: watch::Receiver<LeaseDefaults>,
    ) -> Result<Self, EgressError> {
        check_files(&config)?;
        Ok(Self {
            config,
            store,
            clock,
            metrics,
            defaults,
            unsettled: Unsettled::default(),
            owed: Owed::default(),
            said: Said::default(),
            is_refused: AtomicBool::new(false),
            is_proven: AtomicBool::new(false),
            is_said: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            has_written: AtomicBool::new(false),
            has_stock: AtomicBool::new(false),
            unanswered: Mutex::default(),
            absent: Mutex::default(),
        })
    }

    /// The name under which is leased: daemons that share a store may each have a
    /// stream of their own, and what is in one of them is no other's.
    fn worker(&self) -> String {
        format!("nats:{}", self.config.stream)
    }

    /// A call for up to so many URLs of a crawl.
    fn request(&self, crawl: &str, room: usize) -> LeaseRequest {
        LeaseRequest {
            max: u32::try_from(room).unwrap_or(u32::MAX).min(self.config.batch),
            ttl: self.config.lease,
            per_host: self.defaults.borrow().per_host,
            crawl: crawl.to_owned(),
            sites: Vec::new(),
            worker: Some(self.worker()),
            request_id: None,
        }
    }

    /// A call for leases that began then may have been carried out, and was not answered.
    fn not_answered(&self, began: Timestamp) {
        self.unanswered().get_or_insert(began);
    }

    /// A time is whole after any panic of another holder.
    fn unanswered(&self) -> MutexGuard<'_, Option<Timestamp>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many leases are in flight by now, and when the first of them ends.
    fn count_unsettled(&self) -> (usize, Option<Timestamp>) {
        let (count, first_end) = self.unsettled.count(self.clock.steady());
        self.metrics.egress_unsettled(BROKER, count);
        (count, first_end)
    }

    fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// The broker does not take what it is given.
    fn refused(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
        self.metrics.egress_up(BROKER, false);
    }

    /// It takes what it is given, as far as anybody knows.
    fn is_there(&self) {
        self.is_refused.store(false, Ordering::Relaxed);
        self.metrics.egress_up(BROKER, true);
        if !self.is_said.swap(true, Ordering::Relaxed) {
            let stream = &self.config.stream;
            tracing::info!(stream, "nats is there; URLs are published to it");
        }
    }

    /// It does what it is there for; what goes wrong after this is something new.
    fn proven(&self) {
        if !self.is_refused() {
            self.is_proven.store(true, Ordering::Relaxed);
        }
    }

    /// The store has leased or settled something.
    fn written(&self) {
        self.has_written.store(true, Ordering::Relaxed);
        if self.is_stuck.swap(false, Ordering::Relaxed) {
            tracing::info!("the store takes leases and results of nats again");
        }
    }

    /// It takes none: said once until it does.
    fn stuck(&self, error: &StoreError) {
        if !self.is_stuck.swap(true, Ordering::Relaxed) {
            let error = error.to_string();
            tracing::warn!(error, "the store takes no leases or results of nats; they come again");
        }
    }

    /// There is no such crawl, or there is one: the former is said once until it changes.
    fn has_crawl(&self, crawl: &str, is_there: bool) {
        // The set is whole after any panic of another holder.
        let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        if is_there {
            absent.remove(crawl);
        } else if absent.insert(crawl.to_owned()) {
            tracing::warn!(crawl, "there is no crawl of that name; nothing of it goes to nats");
        }
    }

    /// Publishes and settles until told to stop, over any number of sessions.
    pub async fn run(self, stop: CancellationToken) {
        if self.config.servers.is_empty() {
            return stop.cancelled().await;
        }
        let mut pause = MIN_PAUSE;
        let mut last = (String::new(), false);
        self.metrics.egress_up(BROKER, false);
        while !stop.is_cancelled() {
            let ended = self.session(&stop).await;
            self.metrics.egress_up(BROKER, false);
            let has_written = self.has_written.swap(false, Ordering::Relaxed);
            let by_store = matches!(ended, Err(Trouble::Store(_)));
            // A broker that does well says nothing of a store that takes nothing.
            if self.is_proven.swap(false, Ordering::Relaxed) && (has_written || !by_store) {
                pause = MIN_PAUSE;
                last.0.clear();
            }
            match ended {
                Ok(()) => break,
                Err(Trouble::Store(StoreError::Closed)) => return stop.cancelled().await,
                Err(Trouble::Store(error)) => self.stuck(&error),
                // What goes wrong as we leave says nothing of the broker.
                Err(Trouble::Broker(_) | Trouble::Refused(_)) if stop.is_cancelled() => break,
                Err(trouble) => {
                    // Once for each thing that is wrong, however long it is. What the server
                    // says may name something that is another each time.
                    let what = (trouble.to_string(), self.said.is_something());
                    if what != last {
                        self.is_said.store(false, Ordering::Relaxed);
                        let error = self.said.beside(what.0.clone());
                        if matches!(trouble, Trouble::Refused(_)) {
                            tracing::warn!(error, "nats takes nothing; URLs are given back");
                        } else {
                            tracing::warn!(error, "nats is away; nothing is leased for it");
                        }
                        last = what;
                    }
                }
            }
            // Leases are settled over HTTP, and run out, whether or not the broker is there.
            self.count_unsettled();
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
        // Whoever comes after us finds what may not be fetched yet, and nothing else.
        let _ = self.give_back().await;
    }
}

/// Reads the files that a config names as a session will, and says what is wrong
/// with them.
pub fn check_files(config: &Nats) -> Result<(), EgressError> {
    login(config)?;
    check_authorities(config)
}

/// Are there certificates in `ca_file`, and nothing else for one? The broker's client
/// looks only when it connects, and takes a file without any.
fn check_authorities(config: &Nats) -> Result<(), EgressError> {
    let Some(path) = config.ca_file.as_deref().filter(|_| !config.servers.is_empty()) else {
        return Ok(());
    };
    let failed = |why: String| unread("ca_file", path, why);
    let pem = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let mut found = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        found.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    if found.is_empty() {
        return Err(failed("holds no PEM certificate".to_owned()));
    }
    Ok(())
}

/// The secret of the config's own way to log in.
fn login(config: &Nats) -> Result<Login, EgressError> {
    if config.servers.is_empty() {
        return Ok(Login::Nobody);
    }
    if let Some(path) = &config.credentials_file {
        let failed = |error: std::io::Error| unread("credentials_file", path, error.to_string());
        let text = std::fs::read_to_string(path).map_err(failed)?;
        // As a session will, once more, when it connects.
        ConnectOptions::new().credentials(&text).map_err(failed)?;
        return Ok(Login::Credentials(text));
    }
    let token = match &config.token_file {
        Some(path) => Some(first_line(path).map_err(|why| unread("token_file", path, why))?),
        None => config.token.as_ref().map(|token| token.as_str().to_owned()),
    };
    Ok(match (config.user.clone(), token) {
        (Some(user), Some(password)) => Login::Password(user, password),
        (None, Some(token)) => Login::Token(token),
        // A user without a password is refused where the config is read.
        (_, None) => Login::Nobody,
    })
}

fn unread(key: &'static str, path: &Path, why: String) -> EgressError {
    EgressError { key, path: path.display().to_string(), why }
}
