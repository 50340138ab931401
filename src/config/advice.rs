//! What is allowed and still probably not what the operator wants.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use url::{Host, Url};

use super::defaults::{EXAMPLE_CONTACT, EXAMPLE_USER_AGENT};
use super::{Config, PollRule, Site};

/// Polls of a public site that are closer than this deserve a word.
const HASTY: Duration = Duration::from_secs(60);

/// Times of a cron line that are compared. The seconds that it names are the same in each
/// minute that it names: of three times two are in one minute, if any are.
const TIMES: usize = 3;

/// Most sites named in one warning.
const MAX_NAMED: usize = 3;

/// Warnings to be logged at start and after a reload, and printed by
/// `sitemapd config check`; each is one sentence.
pub fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.sites.is_empty() {
        warnings.push("no [[site]] is configured, so there is nothing to poll".to_owned());
    }
    let of = |claim: &dyn Fn(&Site) -> bool| -> Option<String> {
        let sites = config.sites.values().filter(|site| is_public(&site.url) && claim(site));
        named(&sites.map(|site| site.name.as_str()).collect::<Vec<_>>())
    };
    let daemon = &config.daemon;
    let is_example = daemon.user_agent == EXAMPLE_USER_AGENT
        || daemon.contact.as_deref() == Some(EXAMPLE_CONTACT);
    if let Some(sites) = of(&|_| is_example) {
        warnings.push(format!(
            "{sites} would be polled under the name of the example: set daemon.user_agent \
             and daemon.contact, so that its people can reach you"
        ));
    }
    if let Some(sites) = of(&|site| is_hasty(site, config)) {
        warnings.push(format!("{sites} may be polled more often than once a minute"));
    }
    if let Some(sites) = of(&|site| !site.obey_robots) {
        warnings.push(format!("{sites} is polled without regard to robots.txt"));
    }
    if config.fetch.allow.iter().any(|allowed| allowed.net.prefix_len() == 0) {
        warnings.push("fetch.allow lets every private address be fetched".to_owned());
    }
    let plain = config.listen.public_url.as_ref().filter(|url| url.scheme() == "http");
    if plain.is_some_and(is_public) {
        warnings.push(
            "listen.public_url is plain http: whoever is on the way of a push can read its secret \
             path, and push in the hub's place where pushes are not signed"
                .to_owned(),
        );
    }
    if is_out_of_reach(config) {
        warnings.push(
            "store.url is on another machine and listen.internal on this one only: daemons on \
             other machines that share the store could not reach this one"
                .to_owned(),
        );
    }
    warnings.extend(unknown_crawls(config));
    warnings.extend(same_urls(config));
    warnings
}

/// Crawls whose URLs are to be published and that nobody makes: a site does, or a
/// client of the frontier.
fn unknown_crawls(config: &Config) -> Option<String> {
    let nats = &config.egress.nats;
    if nats.servers.is_empty() || config.sites.is_empty() || config.listen.grpc.is_some() {
        return None;
    }
    let is_known = |crawl: &&String| config.sites.values().any(|site| site.crawl == **crawl);
    let unknown: Vec<_> = nats.crawls.iter().filter(|crawl| !is_known(crawl)).cloned().collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "egress.nats.crawls names {}, which is no site's crawl: nothing of it is published",
            unknown.join(", ")
        )
    })
}

/// Would other daemons that share the store look for this one on their own
/// machines?
fn is_out_of_reach(config: &Config) -> bool {
    let is_near = |host: url::Host<&str>| match host {
        // Addresses of version 4 too: to a URL of this scheme they are names.
        url::Host::Domain(name) => {
            let is_loopback = name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
            name.is_empty() || name == "localhost" || name.starts_with('%') || is_loopback
        }
        url::Host::Ipv4(ip) => ip.is_loopback(),
        url::Host::Ipv6(ip) => ip.is_loopback(),
    };
    let url = config.store.url.as_ref().and_then(|url| url::Url::parse(url.as_str()).ok());
    let is_far = url.is_some_and(|url| url.host().is_some_and(|host| !is_near(host)));
    is_far && config.listen.internal.ip().is_loopback()
}

fn is_hasty(site: &Site, config: &Config) -> bool {
    match &site.poll {
        PollRule::Every(every) => *every < HASTY,
        PollRule::Adaptive => config.poll.min < HASTY,
        PollRule::Cron(line) => {
            let times = line.upcoming(Timestamp::UNIX_EPOCH, &TimeZone::UTC, TIMES);
            let mut pairs = times.iter().zip(times.iter().skip(1));
            pairs.any(|(at, next)| next.duration_since(*at).unsigned_abs() < HASTY)
        }
    }
}

/// Two sites of one crawl with the same home page would share their sources.
fn same_urls(config: &Config) -> Vec<String> {
    let mut first = BTreeMap::new();
    let mut warnings = Vec::new();
    for site in config.sites.values() {
        let earlier = first.entry((&site.crawl, &site.url)).or_insert(site);
        if earlier.name != site.name {
            warnings.push(format!(
                "sites {} and {} are the same url in the same crawl",
                earlier.name, site.name
            ));
        }
    }
    warnings
}

/// Could the site belong to somebody else? Addresses and names that are kept
/// for private networks, tests and documentation (RFC 6761, RFC 2606) do not.
fn is_public(url: &Url) -> bool {
    const RESERVED: [&str; 10] = [
        "localhost",
        "local",
        "internal",
        "test",
        "invalid",
        "example",
        "example.org",
        "example.com",
        "example.net",
        "home.arpa",
    ];
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            let below = |zone: &&str| name.strip_suffix(*zone).is_some_and(|n| n.ends_with('.'));
            name.contains('.') && !RESERVED.iter().any(|zone| name == *zone || below(zone))
        }
        Some(Host::Ipv4(address)) => is_public_address(address.into()),
        Some(Host::Ipv6(address)) => is_public_address(address.into()),
        None => false,
    }
}

fn is_public_address(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => !(v4.is_loopback() || v4.is_private() || v4.is_link_local()),
        IpAddr::V6(v6) => !(v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local()),
    }
}

/// `site a`, or `sites a, b, c and 4 more`; `None` for none.
fn named(names: &[&str]) -> Option<String> {
    let shown = names.get(..MAX_NAMED.min(names.len()))?.join(", ");
    match names.len() {
        0 => None,
        1 => Some(format!("site {shown}")),
        count if count <= MAX_NAMED => Some(format!("sites {shown}")),
        count => Some(format!("sites {shown} and {} more", count - MAX_NAMED)),
    }
}
