//! Shares: how much a client, or a host that clients speak of, may ask for.
//!
//! A share is a bucket of tokens that fills with time. However many clients
//! there are, memory is bounded: where the table is full, those that it has no
//! place for share one bucket. A client is an IPv4 address or a /64 of IPv6,
//! which is what one customer of a provider gets.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use jiff::Timestamp;

/// Buckets of one kind at most.
const MAX_BUCKETS: usize = 16_384;
/// The bucket of all for whom there is no place.
const SHARED: u128 = u128::MAX;

/// How much there is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// Tokens at once.
    pub(crate) burst: f64,
    /// Tokens that come back in an hour.
    pub(crate) hourly: f64,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Timestamp,
}

/// Buckets of one kind, by whose they are.
#[derive(Debug)]
pub(crate) struct Shares {
    share: Share,
    buckets: Mutex<HashMap<u128, Bucket>>,
}

impl Shares {
    pub(crate) fn new(share: Share) -> Self {
        Self { share, buckets: Mutex::default() }
    }

    /// Takes `tokens` of a bucket, or says how long to wait until there are so
    /// many. More than a bucket holds is never there: callers do not ask.
    pub(crate) fn take(&self, whose: u128, tokens: f64, now: Timestamp) -> Result<(), Duration> {
        self.with(whose, now, |there| if there < tokens { there } else { there - tokens }, tokens)
    }

    /// The same, and takes nothing.
    pub(crate) fn look(&self, whose: u128, tokens: f64, now: Timestamp) -> Result<(), Duration> {
        self.with(whose, now, |there| there, tokens)
    }

    fn with(
        &self,
        whose: u128,
        now: Timestamp,
        leave: impl FnOnce(f64) -> f64,
        tokens: f64,
    ) -> Result<(), Duration> {
        // Nothing that panics is done while this lock is held.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_BUCKETS && !buckets.contains_key(&whose) {
            let share = self.share;
            buckets.retain(|_, bucket| share.filled(*bucket, now) < share.burst);
        }
        let is_full = buckets.len() >= MAX_BUCKETS && !buckets.contains_key(&whose);
        let whose = if is_full { SHARED } else { whose };
        let fresh = Bucket { tokens: self.share.burst, at: now };
        let bucket = buckets.entry(whose).or_insert(fresh);
        let there = self.share.filled(*bucket, now);
        *bucket = Bucket { tokens: leave(there), at: now };
        let missing = tokens - there;
        if missing > 0.0 { Err(self.share.wait(missing)) } else { Ok(()) }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Share {
    /// What a bucket holds by now. A clock that was set back fills nothing.
    fn filled(self, bucket: Bucket, now: Timestamp) -> f64 {
        let hours = now.duration_since(bucket.at).as_secs_f64().max(0.0) / 3_600.0;
        (bucket.tokens + hours * self.hourly).min(self.burst)
    }

    fn wait(self, tokens: f64) -> Duration {
        Duration::try_from_secs_f64(tokens / self.hourly * 3_600.0).unwrap_or(Duration::MAX)
    }
}

/// Whose bucket a client at this address takes from.
pub(crate) fn key_of(client: IpAddr) -> u128 {
    match client.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        // Beyond all of IPv4.
        IpAddr::V6(address) => address.to_bits() >> 64 << 64 | 1 << 63,
    }
}

/// Who asks. A peer on this machine may be a proxy: then it is the last that
/// the proxy has added to `X-Forwarded-For`; nobody else is believed that.
pub(crate) fn client_of(peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    if !peer.to_canonical().is_loopback() {
        return peer;
    }
    let told = headers.get_all("x-forwarded-for").iter().next_back();
    let last = told.and_then(|value| value.to_str().ok()?.rsplit(',').next());
    last.and_then(|text| text.trim().trim_matches(['[', ']']).parse().ok()).unwrap_or(peer)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn second(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a timestamp")
    }

    #[test]
    fn a_share_is_spent_and_comes_back_with_time() {
        let shares = Shares::new(Share { burst: 2.0, hourly: 60.0 });
        assert_eq!(shares.take(1, 1.0, second(0)), Ok(()));
        assert_eq!(shares.take(1, 1.0, second(0)), Ok(()));
        assert_eq!(shares.take(1, 1.0, second(0)), Err(Duration::from_secs(60)));
        assert_eq!(shares.take(2, 1.0, second(0)), Ok(()), "another's is its own");
        assert_eq!(shares.take(1, 1.0, second(30)), Err(Duration::from_secs(30)));
        assert_eq!(shares.take(1, 1.0, second(61)), Ok(()));
        assert!(shares.take(1, 1.0, second(-9_999)).is_err(), "a clock set back fills nothing");
    }

    #[test]
    fn however_many_clients_come_memory_is_bounded_and_the_rest_share() {
        let shares = Shares::new(Share { burst: 1.0, hourly: 1.0 });
        for client in 0..40_000 {
            let _ = shares.take(client, 1.0, second(0));
        }
        assert!(shares.len() <= MAX_BUCKETS + 1, "{}", shares.len());
        assert!(shares.take(50_000, 1.0, second(0)).is_err(), "newcomers have one share");
        // What is full again is as good as new.
        assert_eq!(shares.take(60_000, 1.0, second(3_700)), Ok(()));
        assert!(shares.len() < 3);
    }

    #[test]
    fn a_client_is_an_address_or_a_64_and_only_a_local_proxy_names_another() {
        let key = |text: &str| key_of(text.parse().expect("an address"));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:2"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("10.0.0.1, 192.0.2.7"));
        let client = |peer: &str| client_of(peer.parse().expect("an address"), &headers);
        assert_eq!(client("127.0.0.1").to_string(), "192.0.2.7");
        assert_eq!(client("198.51.100.1").to_string(), "198.51.100.1");
        assert_eq!(client_of([127, 0, 0, 1].into(), &HeaderMap::new()).to_string(), "127.0.0.1");
    }
}
