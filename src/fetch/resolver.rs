//! From a host name to addresses that have been checked, and to nothing else.
//!
//! A hop resolves its name once, checks every address with the port it is
//! going to use, and then sends its request inside `with_checked`. The HTTP
//! client's own resolver (`CheckedOnly`) answers only from there, so that the
//! address checked is the address connected to and a second, different DNS
//! answer has no effect (rebinding). Outside of a hop it refuses to answer.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::{Host, Url};

use super::guard::{Blocked, Guard};
use super::{FetchError, outside};
use crate::bounded::Bounded;

/// Addresses of one name that are tried; the rest of a longer answer is ignored.
const MAX_ADDRESSES: usize = 8;

/// Lookups at once. They block a thread each, of a pool that parsing shares.
const MAX_LOOKUPS: usize = 32;

/// Of these, so many of names whose last lookup was slow: others come through.
const MAX_SLOW_LOOKUPS: usize = MAX_LOOKUPS / 2;

/// A lookup is slow from here on, whatever came of it: a resolver that has asked dead
/// servers says so after some seconds, mostly before `fetch.connect_timeout`.
const SLOW_LOOKUP: Duration = Duration::from_secs(2);

/// A name that was not answered for is silent so long.
const SILENCE: Duration = Duration::from_secs(300);

/// Names remembered whose lookup was slow, and the bytes that these may take.
const SLOW_NAMES: (usize, usize) = (10_000, 1 << 20);

/// The future of a [`Lookup`].
pub type LookingUp = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// How names become addresses, before any check.
pub type Lookup = Arc<dyn Fn(String) -> LookingUp + Send + Sync>;

/// The system's resolver (getaddrinfo).
pub fn system_lookup() -> Lookup {
    Arc::new(|host| {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|addr| addr.ip()).collect())
        })
    })
}

#[derive(Clone)]
struct Checked {
    host: String,
    addresses: Arc<[SocketAddr]>,
}

tokio::task_local! {
    static CHECKED: Checked;
}

/// Runs a request that may connect to these addresses of this host only.
pub(super) async fn with_checked<F: Future>(
    host: &str,
    addresses: Arc<[SocketAddr]>,
    request: F,
) -> F::Output {
    CHECKED.scope(Checked { host: host.to_owned(), addresses }, request).await
}

/// The resolver given to the HTTP client. It answers while the connection is
/// being opened inside the hop's own task, which is where the client asks it.
pub(super) struct CheckedOnly {
    /// The operator's proxy, if any: its address is the operator's choice.
    pub(super) proxy_host: Option<String>,
    pub(super) lookup: Lookup,
}

impl Resolve for CheckedOnly {
    fn resolve(&self, name: Name) -> Resolving {
        if self.proxy_host.as_deref().is_some_and(|proxy| proxy.eq_ignore_ascii_case(name.as_str()))
        {
            let looking_up = (self.lookup)(name.as_str().to_owned());
            return Box::pin(async move {
                let found = looking_up.await?.into_iter().map(|ip| SocketAddr::new(ip, 0));
                Ok(Box::new(found) as Addrs)
            });
        }
        let known = CHECKED
            .try_with(|checked| {
                checked.host.eq_ignore_ascii_case(name.as_str()).then(|| checked.addresses.clone())
            })
            .ok()
            .flatten();
        Box::pin(async move {
            let Some(addresses) = known else {
                return Err(Box::new(NotChecked(name.as_str().to_owned())).into());
            };
            let list: Vec<SocketAddr> = addresses.to_vec();
            Ok(Box::new(list.into_iter()) as Addrs)
        })
    }
}

/// The client wanted an address that no hop has checked.
#[derive(Debug, thiserror::Error)]
#[error("no checked address of {0}")]
pub(super) struct NotChecked(String);

/// Resolves names and checks what they resolve to.
pub(super) struct Resolver {
    guard: Guard,
    lookup: Lookup,
    lookups: Arc<Semaphore>,
    slow_lookups: Arc<Semaphore>,
    /// Names that were slow, and since when one is silent that had no answer.
    slow: Mutex<Bounded<String, Option<Instant>>>,
    timeout: Duration,
}

/// The right to look up one name; given back when that is over.
pub(super) struct LookupTurn {
    _slow: Option<OwnedSemaphorePermit>,
    _any: Option<OwnedSemaphorePermit>,
}

impl Resolver {
    /// `timeout` bounds one lookup.
    pub(super) fn new(guard: Guard, lookup: Lookup, timeout: Duration) -> Self {
        let turns = |most| Arc::new(Semaphore::new(most));
        Self {
            guard,
            lookup,
            lookups: turns(MAX_LOOKUPS),
            slow_lookups: turns(MAX_SLOW_LOOKUPS),
            slow: Mutex::new(Bounded::new(SLOW_NAMES.0, SLOW_NAMES.1)),
            timeout,
        }
    }

    /// Waits until the name of this URL may be looked up, which is no time that its
    /// servers take.
    pub(super) async fn turn(&self, url: &Url) -> LookupTurn {
        let Some(Host::Domain(host)) = url.host() else {
            return LookupTurn { _slow: None, _any: None };
        };
        // The semaphores are never closed; if they were, the caps would be off.
        let is_slow = self.slow().get(host).is_some();
        let slow =
            if is_slow { self.slow_lookups.clone().acquire_owned().await.ok() } else { None };
        LookupTurn { _slow: slow, _any: self.lookups.clone().acquire_owned().await.ok() }
    }

    /// The addresses that may be connected to for this URL, at least one.
    pub(super) async fn addresses(
        &self,
        url: &Url,
        turn: LookupTurn,
    ) -> Result<Arc<[SocketAddr]>, FetchError> {
        let port = url.port_or_known_default().unwrap_or_default();
        let host = match url.host() {
            Some(Host::Domain(host)) => host,
            Some(Host::Ipv4(ip)) => return self.only(SocketAddr::new(ip.into(), port)),
            Some(Host::Ipv6(ip)) => return self.only(SocketAddr::new(ip.into(), port)),
            None => return Err(Blocked::NoHost.into()),
        };
        let began = Instant::now();
        let Ok(found) = tokio::time::timeout(self.timeout, self.look_up(host, turn)).await else {
            self.remember(host, SLOW_LOOKUP.max(self.timeout), false);
            return Err(FetchError::Timeout(format!(
                "looking up {} took longer than fetch.connect_timeout ({:?})",
                outside::text(host),
                self.timeout
            )));
        };
        self.remember(host, began.elapsed(), found.is_ok());
        self.check(host, &found?, port)
    }

    /// Did nobody answer for this name a short while ago?
    pub(super) fn is_silent(&self, url: &Url) -> bool {
        let Some(Host::Domain(host)) = url.host() else { return false };
        let since = self.slow().get(host).copied().flatten();
        since.is_some_and(|since| since.elapsed() < SILENCE)
    }

    /// The name had no turn in time: it counts as not answered for.
    pub(super) fn pass_over(&self, url: &Url) {
        if let Some(Host::Domain(host)) = url.host() {
            self.remember(host, SLOW_LOOKUP, false);
        }
    }

    /// Only who answers quickly is no longer slow.
    fn remember(&self, host: &str, took: Duration, is_answered: bool) {
        let mut slow = self.slow();
        if took >= SLOW_LOOKUP {
            let silent_since = (!is_answered).then(Instant::now);
            slow.insert(host.to_owned(), silent_since, host.len());
        } else {
            slow.remove(host);
        }
    }

    /// Nothing that panics is done while this lock is held.
    fn slow(&self) -> MutexGuard<'_, Bounded<String, Option<Instant>>> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn only(&self, addr: SocketAddr) -> Result<Arc<[SocketAddr]>, FetchError> {
        self.guard.check_addr(addr)?;
        Ok(Arc::new([addr]))
    }

    fn check(
        &self,
        host: &str,
        found: &[IpAddr],
        port: u16,
    ) -> Result<Arc<[SocketAddr]>, FetchError> {
        let checked: Arc<[SocketAddr]> = found
            .iter()
            .map(|&ip| SocketAddr::new(ip, port))
            .filter(|&addr| self.guard.check_addr(addr).is_ok())
            .take(MAX_ADDRESSES)
            .collect();
        if checked.is_empty() {
            let host = outside::text(host);
            return Err(Blocked::NoAddress { host, found: found.len() }.into());
        }
        Ok(checked)
    }

    /// The lookup runs as a task of its own that holds its turn to the end:
    /// getaddrinfo cannot be cancelled, and giving its turn away when the hop
    /// gives up would pile up blocked threads.
    async fn look_up(&self, host: &str, turn: LookupTurn) -> Result<Vec<IpAddr>, FetchError> {
        let failed = |error: &dyn std::fmt::Display| {
            FetchError::Dns(outside::text(&format!("{host}: {error}")))
        };
        let looking_up = (self.lookup)(host.to_owned());
        let task = tokio::spawn(async move {
            let found = looking_up.await;
            drop(turn);
            found
        });
        let found = task.await.map_err(|e| failed(&e))?.map_err(|e| failed(&e))?;
        if found.is_empty() {
            return Err(failed(&"the name has no address"));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusing() -> CheckedOnly {
        let lookup: Lookup = Arc::new(|host| panic!("{host} is looked up behind our back"));
        CheckedOnly { proxy_host: None, lookup }
    }

    async fn asked(resolver: &CheckedOnly, name: &str) -> Result<Vec<SocketAddr>, String> {
        match resolver.resolve(name.parse().unwrap()).await {
            Ok(found) => Ok(found.collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[tokio::test]
    async fn the_client_gets_the_checked_addresses_of_that_name_and_no_others() {
        let resolver = refusing();
        let checked: Arc<[SocketAddr]> = Arc::new(["1.1.1.1:80".parse().unwrap()]);
        let inside = with_checked("a.example", checked.clone(), async {
            (asked(&resolver, "A.example").await, asked(&resolver, "b.example").await)
        });
        let (right, wrong) = inside.await;
        assert_eq!(right.unwrap(), *checked);
        assert_eq!(wrong.unwrap_err(), "no checked address of b.example");
        assert!(asked(&resolver, "a.example").await.is_err(), "outside of a hop");
    }

    #[test]
    fn names_that_are_slow_leave_half_of_all_lookups_to_others_whatever_came_of_theirs() {
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};

        let resolver = Resolver::new(Guard::new(&[]), system_lookup(), Duration::from_secs(10));
        let url = |name: &str| Url::parse(&format!("http://{name}.test/")).unwrap();
        let turn = |name: &str| {
            let url = url(name);
            let poll = pin!(resolver.turn(&url)).poll(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(turn) = poll { Some(turn) } else { None }
        };
        // Its servers are dead, and the resolver says so after some seconds.
        resolver.remember("dead.test", Duration::from_secs(5), false);
        resolver.remember("late.test", Duration::from_secs(5), true);
        let held: Vec<_> = (0..MAX_SLOW_LOOKUPS).map_while(|_| turn("dead")).collect();
        assert_eq!(held.len(), MAX_SLOW_LOOKUPS);
        assert!(turn("dead").is_none() && turn("late").is_none() && turn("sound").is_some());
        assert!(resolver.is_silent(&url("dead")) && !resolver.is_silent(&url("late")));
        // A quick answer of any kind is an end of it.
        resolver.remember("dead.test", Duration::from_millis(20), false);
        assert!(turn("dead").is_some() && turn("late").is_none());
        assert!(!resolver.is_silent(&url("dead")));
    }
}
