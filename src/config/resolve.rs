//! From what was typed to what is used: every section but the sites.
//!
//! Starts from the defaults and sets what is there, so a key that is left
//! out keeps its default and nothing has two sources.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::env::{Env, TOKEN};
use super::raw::{
    Leaf, RawChangeFreq, RawConfig, RawDaemon, RawFetch, RawListen, RawLog, RawPoliteness, RawPoll,
    RawQueue, RawRecrawl, RawStore,
};
use super::read::{
    Reader, allowed_address, duration, flag, list, listener, masked, no_file, number, one_of, size,
    string, timezone, web_url, whole,
};
use super::units::format_duration;
use super::{
    Budget, ChangeFreqIntervals, Config, Daemon, Durability, Fetch, FetchLimits, Listen, Log,
    LogFormat, Order, Politeness, Poll, Queue, Recrawl, Store,
};
use crate::model::product_token;

/// Intervals of polls and of the recrawl: a second to ten years.
pub(super) const INTERVALS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3_650 * 86_400);
/// Delays between two requests to a host: none (our own hosts) to an hour.
pub(super) const DELAYS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3_600);
/// Bytes of one document: 1 KiB to 4 GiB.
pub(super) const DOCUMENT_BYTES: RangeInclusive<u64> = 1 << 10..=4 << 30;
/// Entries of one document, and children of one index.
pub(super) const ENTRIES: RangeInclusive<usize> = 1..=10_000_000;
/// Most characters that a URL may be let have, and so most of one that is known.
pub const MAX_URL_CHARS: usize = 65_536;
/// Most bytes of the URL of a source as it is sent: what the protocol lets a
/// location have. The indexes of a server have room for little more.
pub const MAX_SOURCE_BYTES: usize = 2_048;
/// Characters of one URL.
pub(super) const URL_CHARS: RangeInclusive<usize> = 64..=MAX_URL_CHARS;
/// Longest lease that anybody can have.
pub(super) const MAX_LEASE: Duration = Duration::from_secs(12 * 3_600);

/// The option that names the file of the token, as faults tell of it.
const TOKEN_FILE_OPTION: &str = "--token-file (SITEMAPD_TOKEN_FILE)";

/// Everything in `raw` but its sites.
pub(super) fn sections(raw: &RawConfig, env: &Env, reader: &mut Reader<'_>) -> Config {
    let mut config = Config::default();
    config.daemon.data_dir = reader.base.join(&config.daemon.data_dir);
    daemon(&mut config.daemon, &raw.daemon, reader);
    listen(&mut config.listen, &raw.listen, env, reader);
    fetch(&mut config.fetch, &raw.fetch, reader);
    politeness(&mut config.politeness, &raw.politeness, reader);
    poll(&mut config.poll, &raw.poll, reader);
    recrawl(&mut config.recrawl, &raw.recrawl, reader);
    queue(&mut config.queue, &raw.queue, reader);
    reader.set(&mut config.urlfrontier.trust_dates, &raw.urlfrontier.trust_dates, flag);
    store(&mut config.store, &raw.store, reader);
    log(&mut config.log, &raw.log, reader);
    super::egress::nats(&mut config.egress.nats, &raw.egress.nats, env, reader);
    one_address_each(&config, &raw.listen, reader);
    config
}

fn daemon(daemon: &mut Daemon, raw: &RawDaemon, reader: &mut Reader<'_>) {
    let path = reader.path();
    reader.set(&mut daemon.data_dir, &raw.data_dir, path);
    reader.set(&mut daemon.user_agent, &raw.user_agent, |v| user_agent(string(v)?));
    reader.set(&mut daemon.contact, &raw.contact, |v| contact(string(v)?));
    reader.set(&mut daemon.timezone, &raw.timezone, timezone);
}

/// A `User-Agent` whose product token can stand in robots.txt.
fn user_agent(text: &str) -> Result<String, String> {
    let visible = text.bytes().all(|b| (b' '..=b'~').contains(&b));
    if !visible || text.len() > 256 || product_token(text).is_empty() {
        return Err("allowed is a name of letters, digits, _ and - at the start, \
                    in at most 256 ASCII characters: \"mybot/1.0 (+https://…)\""
            .to_owned());
    }
    Ok(text.to_owned())
}

/// A mail address for the `From` header; an empty one sends none.
fn contact(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let visible = text.bytes().all(|b| b.is_ascii_graphic());
    let parts = text.split_once('@').is_some_and(|(a, b)| !a.is_empty() && !b.is_empty());
    if visible && parts && text.len() <= 256 {
        return Ok(Some(text.to_owned()));
    }
    Err("allowed is a mail address, or \"\" to send none".to_owned())
}

fn listen(listen: &mut Listen, raw: &RawListen, env: &Env, reader: &mut Reader<'_>) {
    reader.set(&mut listen.api, &raw.api, listener);
    reader.set(&mut listen.public, &raw.public, |v| listener(v).map(Some));
    reader.set(&mut listen.public_url, &raw.public_url, |v| public_url(string(v)?).map(Some));
    if raw.public_url.is_some() && raw.public.is_none() {
        let message = "is where listen.public is reached from outside, and that is not set";
        reader.fault_at(&[&raw.public_url], message.to_owned());
    }
    reader.set(&mut listen.internal, &raw.internal, listener);
    reader.set(&mut listen.grpc, &raw.grpc, |v| listener(v).map(Some));
    listen.token = env.token();
    token_file(&mut listen.token_file, &raw.token_file, env, reader);
    let has_token =
        raw.token_file.is_some() || listen.token_file.is_some() || listen.token.is_some();
    for (address, leaf) in [(Some(listen.api), &raw.api), (listen.grpc, &raw.grpc)] {
        let Some(address) = address.filter(|address| !address.ip().is_loopback()) else { continue };
        // Who asks nobody needs none: it may be known to the daemon only.
        if !has_token && !env.sends_nothing() {
            let message = format!(
                "found \"{address}\", which others can reach; allowed beyond loopback only with \
                 listen.token_file, the file that holds the bearer token, or with the token itself \
                 in the environment as {TOKEN}"
            );
            reader.fault_at(&[leaf], message);
        }
    }
}

/// The file of the token: that of the command line, else that of the configuration.
fn token_file(target: &mut Option<PathBuf>, leaf: &Leaf, env: &Env, reader: &mut Reader<'_>) {
    let Some(named) = env.token_file() else {
        // Who asks with a token of its own needs no file, which may be there for the
        // daemon only.
        if env.sends_nothing() && env.token().is_some() {
            let path = reader.path();
            return reader.set(target, leaf, |v| path(v).map(Some));
        }
        let file = reader.file();
        return reader.set(target, leaf, |v| file(v).map(Some));
    };
    // Who only asks tells by itself that it cannot read what it would send.
    if !named.is_file() && !env.sends_nothing() {
        let found = format!("found {}, {}", masked(&named.to_string_lossy()), no_file(named));
        reader.fault_of_option(TOKEN_FILE_OPTION, "listen.token_file", found);
    }
    *target = Some(named.to_owned());
}

/// Two listeners at one address cannot both be bound, which would end the start.
fn one_address_each(config: &Config, raw: &RawListen, reader: &mut Reader<'_>) {
    let listen = &config.listen;
    // Nobody but daemons that share a server's store listens there.
    let internal = config.store.url.is_some().then_some(listen.internal);
    let mut taken: Vec<(&str, SocketAddr)> = Vec::new();
    for (key, address, leaf) in [
        ("listen.api", Some(listen.api), &raw.api),
        ("listen.public", listen.public, &raw.public),
        ("listen.internal", internal, &raw.internal),
        ("listen.grpc", listen.grpc, &raw.grpc),
    ] {
        let Some(address) = address.filter(|address| address.port() != 0) else { continue };
        if let Some((other, _)) = taken.iter().find(|(_, other)| clash(*other, address)) {
            let message = format!(
                "found \"{address}\", where {other} listens; allowed is an address of its own"
            );
            reader.fault_at(&[leaf, &raw.api], message);
        }
        taken.push((key, address));
    }
}

/// Is one of two addresses part of the other?
fn clash(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip(), other.ip());
    let all = a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified());
    one.port() == other.port() && (a == b || all)
}

/// A URL that paths are put below.
fn public_url(text: &str) -> Result<url::Url, String> {
    let mut url = web_url(text)?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(
            "allowed is a URL without query and fragment: \"https://push.example.org/\"".to_owned()
        );
    }
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

fn fetch(fetch: &mut Fetch, raw: &RawFetch, reader: &mut Reader<'_>) {
    let connect = Duration::from_millis(100)..=Duration::from_secs(300);
    let total = Duration::from_secs(1)..=Duration::from_secs(3_600);
    reader.set(&mut fetch.concurrency, &raw.concurrency, whole(1..=4_096));
    reader.set(&mut fetch.connect_timeout, &raw.connect_timeout, duration(connect));
    reader.set(&mut fetch.total_timeout, &raw.total_timeout, duration(total));
    let FetchLimits { max_wire_bytes, max_body_bytes, max_urls, max_sitemaps, max_url_chars } =
        &mut fetch.limits;
    reader.set(max_wire_bytes, &raw.max_wire_bytes, size(DOCUMENT_BYTES));
    reader.set(max_body_bytes, &raw.max_body_bytes, size(DOCUMENT_BYTES));
    reader.set(max_urls, &raw.max_urls, whole(ENTRIES));
    reader.set(max_sitemaps, &raw.max_sitemaps, whole(ENTRIES));
    reader.set(max_url_chars, &raw.max_url_chars, whole(URL_CHARS));
    reader.set(&mut fetch.max_index_depth, &raw.max_index_depth, whole(1..=10));
    reader.set(&mut fetch.max_redirects, &raw.max_redirects, whole(0..=20));
    reader.set(&mut fetch.proxy, &raw.proxy, |v| proxy(string(v)?).map(Some));
    let file = reader.file();
    reader.set(&mut fetch.ca_file, &raw.ca_file, |v| file(v).map(Some));
    reader.set(&mut fetch.allow, &raw.allow, list(allowed_address));
}

/// The URL of a proxy; unlike other URLs it may carry a user and password.
fn proxy(text: &str) -> Result<url::Url, String> {
    let allowed = "allowed is the http or https URL of a proxy";
    let mut bare = url::Url::parse(text).map_err(|e| format!("{allowed} ({e})"))?;
    let proxy = bare.clone();
    // Only a URL without a host has no place for them, and it is refused.
    let _ = bare.set_username("").and_then(|()| bare.set_password(None));
    web_url(bare.as_str()).map(|_| proxy).map_err(|_| allowed.to_owned())
}

fn politeness(politeness: &mut Politeness, raw: &RawPoliteness, reader: &mut Reader<'_>) {
    reader.set(&mut politeness.host_delay, &raw.host_delay, duration(DELAYS));
    reader.set(&mut politeness.per_host, &raw.per_host, whole(1..=1_000));
    reader.set(&mut politeness.per_address, &raw.per_address, whole(1..=1_000));
}

fn poll(poll: &mut Poll, raw: &RawPoll, reader: &mut Reader<'_>) {
    reader.set(&mut poll.min, &raw.min, duration(INTERVALS));
    reader.set(&mut poll.max, &raw.max, duration(INTERVALS));
    reader.ordered((&raw.min, poll.min), (&raw.max, poll.max), "poll");
    reader.set(&mut poll.first, &raw.first, duration(INTERVALS));
    // Where min and max contradict each other, or mean nothing, that is said and enough.
    let are_read = !reader.is_unread(&raw.min) && !reader.is_unread(&raw.max);
    if are_read && poll.min <= poll.max {
        first(poll, &raw.first, reader);
    }
    reader.set(&mut poll.jitter, &raw.jitter, number(0.0..=0.5));
    reader.set(&mut poll.removal_polls, &raw.removal_polls, whole(1..=100));
    let removal = Duration::ZERO..=*INTERVALS.end();
    reader.set(&mut poll.removal_after, &raw.removal_after, duration(removal));
}

/// Only a typed `first` can contradict the other two.
fn first(poll: &mut Poll, typed: &Leaf, reader: &mut Reader<'_>) {
    let within = poll.first.clamp(poll.min, poll.max);
    if typed.is_some() && poll.first != within {
        let (first, min, max) =
            (format_duration(poll.first), format_duration(poll.min), format_duration(poll.max));
        let message = format!(
            "found \"{first}\", allowed is a duration from poll.min to poll.max: {min} to {max}"
        );
        reader.fault_at(&[typed], message);
    }
    poll.first = within;
}

fn recrawl(recrawl: &mut Recrawl, raw: &RawRecrawl, reader: &mut Reader<'_>) {
    reader.set(&mut recrawl.budget, &raw.budget, |v| budget(string(v)?));
    reader.set(&mut recrawl.min, &raw.min, duration(INTERVALS));
    reader.set(&mut recrawl.max, &raw.max, duration(INTERVALS));
    reader.ordered((&raw.min, recrawl.min), (&raw.max, recrawl.max), "recrawl");
    changefreq(&mut recrawl.changefreq, &raw.changefreq, reader);
}

/// Most fetches of a budget, a day or an hour.
pub(super) const MAX_BUDGET: u32 = 1_000_000_000;

/// "auto", or whole fetches a day or an hour.
fn budget(text: &str) -> Result<Budget, String> {
    let allowed =
        "allowed is \"auto\" or a number of 1 to 1000000000 a day or an hour: \"50000/day\"";
    if text == "auto" {
        return Ok(Budget::Auto);
    }
    let (number, hours) = match text.split_once('/') {
        Some((number, "day")) => (number, 24.0),
        Some((number, "hour")) => (number, 1.0),
        _ => return Err(allowed.to_owned()),
    };
    match number.trim().parse::<u32>() {
        Ok(fetches @ 1..=MAX_BUDGET) => Ok(Budget::Daily(f64::from(fetches) * 24.0 / hours)),
        _ => Err(allowed.to_owned()),
    }
}

fn changefreq(intervals: &mut ChangeFreqIntervals, raw: &RawChangeFreq, reader: &mut Reader<'_>) {
    let words =
        [&raw.always, &raw.hourly, &raw.daily, &raw.weekly, &raw.monthly, &raw.yearly, &raw.never];
    for (interval, leaf) in intervals.by_word.iter_mut().zip(words) {
        reader.set(interval, leaf, duration(INTERVALS));
    }
    reader.set(&mut intervals.absent, &raw.absent, duration(INTERVALS));
}

fn queue(queue: &mut Queue, raw: &RawQueue, reader: &mut Reader<'_>) {
    let lease = Duration::from_secs(1)..=MAX_LEASE;
    let order = one_of(&[("learned", Order::Learned), ("protocol", Order::Protocol)]);
    reader.set(&mut queue.order, &raw.order, order);
    reader.set(&mut queue.lease, &raw.lease, duration(lease));
    reader.set(&mut queue.max_attempts, &raw.max_attempts, whole(1..=1_000));
}

fn store(store: &mut Store, raw: &RawStore, reader: &mut Reader<'_>) {
    let durability = one_of(&[("full", Durability::Full), ("normal", Durability::Normal)]);
    let keep = Duration::from_secs(3_600)..=*INTERVALS.end();
    reader.set(&mut store.url, &raw.url, |v| store_url(string(v)?).map(Some));
    reader.set(&mut store.durability, &raw.durability, durability);
    reader.set(&mut store.keep_changes, &raw.keep_changes, duration(keep.clone()));
    reader.set(&mut store.keep_polls, &raw.keep_polls, duration(keep));
    reader.set(&mut store.min_free_disk, &raw.min_free_disk, size(0..=1 << 50));
}

/// The URL of a database; it may carry a user and password.
fn store_url(text: &str) -> Result<url::Url, String> {
    let allowed = "allowed is postgres://user:password@host/database";
    let url = url::Url::parse(text).map_err(|e| format!("{allowed} ({e})"))?;
    if !["postgres", "postgresql"].contains(&url.scheme()) {
        return Err(allowed.to_owned());
    }
    // As the store will read it again.
    match crate::store::check_url(url.as_str()) {
        Ok(()) => Ok(url),
        Err(reason) => Err(format!("{allowed} ({reason})")),
    }
}

fn log(log: &mut Log, raw: &RawLog, reader: &mut Reader<'_>) {
    let format = one_of(&[("text", LogFormat::Text), ("json", LogFormat::Json)]);
    reader.set(&mut log.format, &raw.format, format);
    reader.set(&mut log.level, &raw.level, |v| log_level(string(v)?));
}

/// A level or directives, as the log set-up will read them again.
fn log_level(text: &str) -> Result<String, String> {
    let allowed = "allowed is a level (error, warn, info, debug, trace) \
                   or directives: \"info,sitemapd=debug\"";
    match crate::log::filter(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(reason) => Err(format!("{allowed} ({reason})")),
    }
}
