//! What the listed URLs come to: in scope, or out of it and why.

use std::collections::{BTreeMap, HashSet};

use url::Url;
use xxhash_rust::xxh3::xxh3_64;

use crate::url::Rejection;

/// Hosts told apart; the rest are counted together.
const MAX_HOSTS: usize = 1_000;
/// Where the URLs of further hosts are counted.
const OTHERS: &str = "further hosts";

/// Counts over all documents; a URL that is listed twice counts once.
#[derive(Debug, Default)]
pub(super) struct Sums {
    seen: HashSet<u64>,
    /// URLs that the site would get.
    pub(super) in_scope: u64,
    /// URLs of other hosts, by host.
    pub(super) other_hosts: BTreeMap<String, u64>,
    /// URLs that the site would not take for another reason, by it.
    pub(super) refused: BTreeMap<&'static str, u64>,
    /// URLs in scope that robots.txt of their host forbids.
    pub(super) forbidden: u64,
}

/// Where a listed URL belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// In scope, and to be fetched.
    Ours,
    /// In scope, and forbidden by robots.txt.
    Forbidden,
    /// What a new site would not take, and why.
    Refused(Rejection),
}

impl Sums {
    /// Counts a URL.
    pub(super) fn add(&mut self, url: &Url, standing: Standing) {
        // A collision would miscount one in billions; this is a summary.
        if !self.seen.insert(xxh3_64(url.as_str().as_bytes())) {
            return;
        }
        match standing {
            Standing::Ours => self.in_scope += 1,
            Standing::Forbidden => self.forbidden += 1,
            // The scope of a new site is its host.
            Standing::Refused(Rejection::OutOfScope) => {
                let host = with_port(url);
                let known = self.other_hosts.contains_key(&host);
                let name = if known || self.other_hosts.len() < MAX_HOSTS { &host } else { OTHERS };
                *self.other_hosts.entry(name.to_owned()).or_default() += 1;
            }
            Standing::Refused(why) => *self.refused.entry(why.as_str()).or_default() += 1,
        }
    }

    /// URLs counted.
    pub(super) fn listed(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Other hosts, most URLs first.
    pub(super) fn hosts_by_urls(&self) -> Vec<(&str, u64)> {
        let mut hosts: Vec<(&str, u64)> =
            self.other_hosts.iter().map(|(host, urls)| (host.as_str(), *urls)).collect();
        hosts.sort_by_key(|(_, urls)| std::cmp::Reverse(*urls));
        hosts
    }

    /// Other hosts of the same registrable domain: candidates for `hosts`.
    pub(super) fn relatives_of(&self, home: &Url) -> Vec<&str> {
        let Some(domain) = registrable(home.host_str().unwrap_or_default()) else {
            return Vec::new();
        };
        self.hosts_by_urls()
            .into_iter()
            .map(|(host, _)| host)
            .filter(|host| registrable(host) == Some(domain))
            .collect()
    }
}

/// The host of a URL, and its port where it is not the scheme's: `a.example:8443`.
fn with_port(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// The registrable domain of a host with or without a port; `None` for
/// addresses, for which the public suffix list has no meaning.
fn registrable(host: &str) -> Option<&str> {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let host =
        host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(host, _)| host);
    let is_address = host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok();
    if is_address { None } else { psl::domain_str(host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELSEWHERE: Standing = Standing::Refused(Rejection::OutOfScope);

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    #[test]
    fn a_url_listed_twice_counts_once() {
        let mut sums = Sums::default();
        for _ in 0..2 {
            sums.add(&url("https://example.org/a"), Standing::Ours);
        }
        sums.add(&url("https://example.org/b"), Standing::Forbidden);
        sums.add(&url("https://cdn.example.com:8443/c"), ELSEWHERE);
        sums.add(&url("https://example.org/long"), Standing::Refused(Rejection::TooLong));
        assert_eq!((sums.listed(), sums.in_scope, sums.forbidden), (4, 1, 1));
        assert_eq!(sums.hosts_by_urls(), [("cdn.example.com:8443", 1)]);
        assert_eq!(sums.refused, BTreeMap::from([("too-long", 1)]));
    }

    #[test]
    fn only_hosts_of_the_same_registrable_domain_are_relatives() {
        let mut sums = Sums::default();
        for other in ["https://blog.example.co.uk:81/", "https://other.co.uk/", "http://127.0.0.1/"]
        {
            sums.add(&url(other), ELSEWHERE);
        }
        assert_eq!(
            sums.relatives_of(&url("https://www.example.co.uk/")),
            ["blog.example.co.uk:81"]
        );
        assert!(sums.relatives_of(&url("http://127.0.0.2/")).is_empty());
    }
}
