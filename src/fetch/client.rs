//! The HTTP client: one GET at a time, through every gate, within every limit.
//!
//! Each hop is judged by the guard and the caller's [`Gate`], resolved to checked
//! addresses, admitted by the gate, given its turn at them, and only then sent,
//! if its time has not passed meanwhile. A body that did not arrive whole is an
//! error, never a short document; a connection that broke the protocol or was cut
//! is closed, not used again. Decoding is [`super::body`]'s, politeness between
//! polls the caller's.

mod post;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue, LOCATION};
use reqwest::{Client, Response};
use tokio::time::Instant;
use url::Url;

use super::guard::Guard;
use super::redirect::{self, Trail};
use super::resolver::{self, LookupTurn, Resolver};
use super::room::{LARGE_BODIES, MIDDLING_BODIES, Room};
use super::setup::{self, Clock, FetchSetupError, Surroundings};
use super::turns::{Turn, Turns};
use super::warm::Warm;
use super::wire::{self, Body};
use super::{
    Answer, FetchError, Fetched, Gate, Head, Refusal, Request, Validators, Wait, failure, headers,
};
use crate::config;

pub use post::{Form, Told};

/// Share of `fetch.total_timeout` that an origin may be silent for.
const SILENCE: u32 = 4;
/// And so long, where that is less.
const LEAST_SILENCE: Duration = Duration::from_secs(30);

/// Longest wait for the headers, and between two pieces of a body, of a request that
/// may take `total`.
fn read_timeout(total: Duration) -> Duration {
    (total / SILENCE).max(LEAST_SILENCE).min(total)
}

/// How a hop waits for a turn at an address, or to look up a name; and what follows where
/// that, or the room for its body, does not come.
struct Manners {
    /// No longer than this; beyond that the request comes back.
    patience: Duration,
    /// In a line at the address that may be so many times as long as for most.
    times: usize,
    /// Comes back after this, as does one that finds that line full.
    pause: Duration,
}

/// Of a hop that is asked first.
const FIRST: Manners =
    Manners { patience: Duration::from_secs(30), times: 1, pause: Duration::from_secs(60) };

/// Of one that another place led to, which would be asked again each time. The line
/// is half of the polls that may be under way, as that for one host is.
const LED: Manners =
    Manners { patience: Duration::from_secs(150), times: 2, pause: Duration::from_secs(15 * 60) };

/// A request whose host's time has passed each time that it had its turn at the address
/// is sent all the same after so many: whoever always asks its host would keep it out.
const TRIES: usize = 3;

/// The one door to the network. Cheap to clone.
#[derive(Clone)]
pub struct Fetcher {
    inner: Arc<Inner>,
}

struct Inner {
    /// Keeps the connection for the next request to the host.
    client: Client,
    /// Closes it: for when many are kept already.
    closing: Client,
    guard: Guard,
    resolver: Resolver,
    turns: Turns,
    /// For bodies in memory.
    memory: Room,
    /// For large ones on the disk.
    room: Room,
    warm: Warm,
    limits: failure::Limits,
    proxied: bool,
    clock: Option<Clock>,
    spool: PathBuf,
}

/// What one hop came to.
enum Hop {
    Redirect(u16, HeaderValue),
    End(Box<Answer>),
}

/// What the headers of a hop announce.
enum Begun {
    Hop(Hop),
    Body(Box<Head>, Vec<String>, Box<Body>),
}

/// The time that origins have taken of the time they have.
struct Spent {
    took: Duration,
    total: Duration,
}

impl Fetcher {
    /// A fetcher as configured; `per_address` is `politeness.per_address`, the
    /// requests in flight to one public address. As many as `fetch.concurrency`
    /// are or wait there at most: others of the polls under way go elsewhere.
    pub fn new(
        fetch: &config::Fetch,
        daemon: &config::Daemon,
        per_address: u32,
    ) -> Result<Self, FetchSetupError> {
        Self::with_surroundings(fetch, daemon, per_address, Surroundings::default())
    }

    /// The same with another source of names or a clock.
    pub fn with_surroundings(
        fetch: &config::Fetch,
        daemon: &config::Daemon,
        per_address: u32,
        surroundings: Surroundings,
    ) -> Result<Self, FetchSetupError> {
        let guard = Guard::new(&fetch.allow);
        let limits = failure::Limits {
            connect: fetch.connect_timeout,
            read: read_timeout(fetch.total_timeout),
            total: fetch.total_timeout,
        };
        let Surroundings { lookup, clock, spool } = surroundings;
        Ok(Self {
            inner: Arc::new(Inner {
                client: setup::client(fetch, daemon, &limits, lookup.clone(), 1)?,
                closing: setup::client(fetch, daemon, &limits, lookup.clone(), 0)?,
                resolver: Resolver::new(guard.clone(), lookup, fetch.connect_timeout),
                guard,
                turns: Turns::new(per_address, fetch.concurrency),
                memory: Room::new(MIDDLING_BODIES),
                room: Room::new(LARGE_BODIES),
                warm: Warm::new(setup::IDLE_TIMEOUT),
                limits,
                proxied: fetch.proxy.is_some(),
                clock,
                spool,
            }),
        })
    }

    /// The guard, for URLs that are to be refused before they are stored.
    pub fn guard(&self) -> &Guard {
        &self.inner.guard
    }

    /// Fetches one document, following redirects. Waiting for the gate, for a
    /// turn to look up the name or at the address, or for room, does not count
    /// against `fetch.total_timeout`, which holds for all hops together.
    pub async fn fetch<G: Gate>(&self, request: Request, gate: &G) -> Result<Answer, FetchError> {
        let inner = &*self.inner;
        let mut trail = Trail::new(request.url.clone(), request.max_redirects);
        let mut spent = Spent { took: Duration::ZERO, total: inner.limits.total };
        loop {
            match inner.hop(&request, &trail, &mut spent, gate).await? {
                Hop::Redirect(status, location) => trail.follow(status, &location)?,
                Hop::End(mut answer) => {
                    answer.head_mut().took = spent.took;
                    return Ok(*answer);
                }
            }
        }
    }
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher").finish_non_exhaustive()
    }
}

impl Answer {
    fn head_mut(&mut self) -> &mut Head {
        match self {
            Self::Document(fetched) => &mut fetched.head,
            Self::Same(head) | Self::NotModified(head) | Self::Refused(head) => head,
        }
    }
}

impl Manners {
    fn crowded(&self, wait: Wait) -> Refusal {
        Refusal::Crowded { pause: self.pause, wait }
    }
}

impl Spent {
    /// Lets the origin work while there is time left, and adds what it took.
    async fn on<T>(
        &mut self,
        limits: &failure::Limits,
        work: impl Future<Output = Result<T, FetchError>>,
    ) -> Result<T, FetchError> {
        let started = Instant::now();
        let done = tokio::time::timeout(self.total.saturating_sub(self.took), work).await;
        self.took += started.elapsed();
        done.unwrap_or_else(|_| Err(limits.total_reached()))
    }
}

impl Inner {
    /// One request and its answer.
    async fn hop<G: Gate>(
        &self,
        request: &Request,
        trail: &Trail,
        spent: &mut Spent,
        gate: &G,
    ) -> Result<Hop, FetchError> {
        let (addresses, _turns) = self.enter(trail, spent, gate).await?;
        let begun = spent.on(&self.limits, self.begin(request, trail, addresses)).await?;
        let (mut head, content_encoding, mut body) = match begun {
            Begun::Hop(hop) => return Ok(hop),
            Begun::Body(head, content_encoding, body) => (*head, content_encoding, body),
        };
        body.make_room().await;
        spent.on(&self.limits, body.read_start(&self.spool, &self.limits)).await?;
        let mut room = None;
        if let Some(bytes) = body.needs_room() {
            // Servers give up those that they cannot send to, many after a minute: what
            // waited longer would seem to be cut off by its origin.
            let waits = self.room.wait(bytes, self.limits.read).await;
            // It was asked, and would send as much again.
            room = Some(waits.ok_or_else(|| LED.crowded(Wait::Room))?);
            spent.on(&self.limits, body.read_rest(&self.spool, &self.limits)).await?;
            // Without a length it might have had as much as a document may.
            Room::shrink(&mut room, usize::try_from(body.len()).unwrap_or(usize::MAX));
        }
        head.wire_bytes = body.len();
        let answer = match body.finish(room) {
            Some((body, cut)) => Answer::Document(Fetched { head, content_encoding, body, cut }),
            None => Answer::Same(head),
        };
        Ok(Hop::End(Box::new(answer)))
    }

    /// Every gate before a request to this URL: the addresses that it may connect
    /// to, and its turns at them.
    async fn enter<G: Gate>(
        &self,
        trail: &Trail,
        spent: &mut Spent,
        gate: &G,
    ) -> Result<(Arc<[SocketAddr]>, Vec<Turn>), FetchError> {
        let url = trail.current();
        let manners = if trail.is_first() && !gate.is_led() { &FIRST } else { &LED };
        self.guard.check_url(url)?;
        gate.approach(url).await?;
        let addresses = self.resolve(url, spent, manners).await?;
        let turns = self.turns_at(&self.counted(&addresses), url, manners, gate).await?;
        Ok((addresses, turns))
    }

    /// Its turns at these addresses, when its host may be asked. Whoever waits for its
    /// host's clock has no place in the line: others would wait for a clock that is not
    /// theirs. So its own may have passed when the turn comes: it is not sent then right
    /// before others who have the next slot.
    async fn turns_at<G: Gate>(
        &self,
        counted: &[IpAddr],
        url: &Url,
        manners: &Manners,
        gate: &G,
    ) -> Result<Vec<Turn>, FetchError> {
        for tries in 1..=TRIES {
            if self.turns.are_crowded(counted, manners.times) {
                break;
            }
            gate.admit(url).await?;
            let turns = match self.turns.places(counted, manners.times) {
                Some(places) => match places.free() {
                    Ok(turns) => Some(turns),
                    Err(places) => tokio::time::timeout(manners.patience, places.wait()).await.ok(),
                },
                None => None,
            };
            let Some(turns) = turns else {
                gate.give_back(url).await;
                break;
            };
            if gate.is_on_time(url, tries == TRIES).await? {
                return Ok(turns);
            }
        }
        Err(manners.crowded(Wait::Address).into())
    }

    /// Waits for its turn to look up the name, and does. Through a proxy that is no
    /// more than a look at whether it leads to an inner address: who has no turn in the
    /// time that a lookup may take does without, as whose name is not answered for.
    async fn resolve(
        &self,
        url: &Url,
        spent: &mut Spent,
        manners: &Manners,
    ) -> Result<Arc<[SocketAddr]>, FetchError> {
        if self.proxied && self.resolver.is_silent(url) {
            return Ok(Arc::new([]));
        }
        let patience = if self.proxied { self.limits.connect } else { manners.patience };
        match tokio::time::timeout(patience, self.resolver.turn(url)).await {
            Ok(turn) => spent.on(&self.limits, self.addresses(url, turn)).await,
            Err(_) if self.proxied => {
                self.resolver.pass_over(url);
                Ok(Arc::new([]))
            }
            Err(_) => Err(manners.crowded(Wait::Lookup).into()),
        }
    }

    /// The addresses that this hop may connect to. Through a proxy they are
    /// the proxy's to choose: a name that only the proxy can resolve is let
    /// through, one that resolves here to nothing public is not.
    async fn addresses(
        &self,
        url: &Url,
        turn: LookupTurn,
    ) -> Result<Arc<[SocketAddr]>, FetchError> {
        match self.resolver.addresses(url, turn).await {
            Err(FetchError::Dns(_) | FetchError::Timeout(_)) if self.proxied => Ok(Arc::new([])),
            other => other,
        }
    }

    /// All addresses but those of `fetch.allow`, which are the operator's own machines.
    fn counted(&self, addresses: &[SocketAddr]) -> Vec<IpAddr> {
        let counted = addresses.iter().filter(|&&addr| !self.guard.is_allowed(addr));
        counted.map(SocketAddr::ip).collect()
    }

    /// Sends the request and reads the answer, but for the body of a document.
    async fn begin(
        &self,
        request: &Request,
        trail: &Trail,
        addresses: Arc<[SocketAddr]>,
    ) -> Result<Begun, FetchError> {
        let (response, conditional) = self.send(request, trail, addresses).await?;
        headers::check_transfer(response.headers()).map_err(FetchError::Protocol)?;
        let status = response.status().as_u16();
        let mut head = self.head(&response, trail);
        match status {
            304 if conditional => Ok(Begun::Hop(Hop::End(Box::new(Answer::NotModified(head))))),
            304 => Err(protocol("status 304 to a request without validators")),
            301 | 302 | 303 | 307 | 308 => {
                let location = response.headers().get(LOCATION).cloned();
                wire::drain(response).await;
                let location = location.ok_or_else(|| redirect::without_location(status))?;
                Ok(Begun::Hop(Hop::Redirect(status, location)))
            }
            206 => Err(protocol("status 206 to a request without a range")),
            200..=299 => {
                let content_encoding = headers::content_encoding(response.headers());
                let body = Body::new(response, request, &self.memory);
                Ok(Begun::Body(Box::new(head), content_encoding, Box::new(body)))
            }
            300.. => {
                head.wire_bytes = wire::drain(response).await;
                Ok(Begun::Hop(Hop::End(Box::new(Answer::Refused(head)))))
            }
            _ => Err(protocol(&format!("status {status} is no final answer"))),
        }
    }

    /// Sends the request; says whether it was a conditional one.
    async fn send(
        &self,
        request: &Request,
        trail: &Trail,
        addresses: Arc<[SocketAddr]>,
    ) -> Result<(Response, bool), FetchError> {
        let url = trail.current();
        let mut sent = HeaderMap::new();
        if trail.is_at_home() {
            for (name, value) in &request.headers {
                let (name, value) =
                    headers::site_header(name, value).map_err(FetchError::Blocked)?;
                sent.append(name, value);
            }
        }
        let conditional =
            trail.is_first() && headers::add_conditions(&mut sent, &request.validators);
        let host = url.host_str().unwrap_or_default();
        let was_warm = self.warm.take(url, Instant::now());
        let keeps = was_warm || self.warm.has_room(Instant::now());
        let client = if keeps { &self.client } else { &self.closing };
        let once = || {
            let sending = client.get(url.clone()).headers(sent.clone()).send();
            resolver::with_checked(host, addresses.clone(), sending)
        };
        let outcome = match once().await {
            Err(error) if was_warm && failure::is_stale_connection(&error) => once().await,
            other => other,
        };
        let response = outcome.map_err(|error| self.limits.explain(error))?;
        if keeps {
            self.warm.put(url, Instant::now());
        }
        if !self.proxied
            && let Some(peer) = response.remote_addr()
        {
            self.guard.check_addr(peer)?;
        }
        Ok((response, conditional))
    }

    fn head(&self, response: &Response, trail: &Trail) -> Head {
        let got = response.headers();
        let now = self.clock.as_ref().map(|clock| clock());
        let is_first = trail.is_first();
        Head {
            status: response.status().as_u16(),
            final_url: trail.current().clone(),
            redirects: trail.followed().to_vec(),
            validators: if is_first { headers::validators(got) } else { Validators::default() },
            retry_after: headers::retry_after(got, now),
            max_age: headers::max_age(got, now),
            content_type: headers::content_type(got),
            links: headers::links(got),
            wire_bytes: 0,
            took: Duration::ZERO,
        }
    }
}

fn protocol(text: &str) -> FetchError {
    FetchError::Protocol(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_may_be_silent_for_a_quarter_of_the_time_and_half_a_minute_at_least() {
        for (total, silent) in [(10, 10), (30, 30), (120, 30), (121, 30), (400, 100)] {
            let silent_for = read_timeout(Duration::from_secs(total)).as_secs();
            assert_eq!(silent_for, silent, "{total}");
        }
    }
}
