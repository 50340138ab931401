//! Hosts: the shared clock, pauses, delays, and which robots.txt judges pages.
//!
//! One row, and one clock, per scheme, host and port. Polls and leases both
//! move it, in the database where anybody has to wait for it, so that it survives a
//! restart.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::sql::{Connection, OptionalExtension, params};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::state::State;
use super::{StoreError, engine};
use crate::bounded::Bounded;
use crate::by_id::{ById, IdHasher, IdSet};
use crate::model::{HostId, SiteId, UrlId};
use crate::parse::robots::{Preferences, Robots, Rules};

/// Partitions that hosts are dealt to, for when one machine is not enough.
const PARTITIONS: u64 = 256;

/// The partition of a host. In a database of a server it stands in the last eight
/// bits of the host's number, and of those of its sources and URLs.
pub(super) fn partition_of(host: HostId) -> i64 {
    host.0 & 255
}

/// The same of a URL.
pub(super) fn partition_of_url(url: UrlId) -> i64 {
    url.0 & 255
}

/// The same by its authority.
pub(super) fn partition(authority: &str) -> i64 {
    (xxh3_64(authority.as_bytes()) % PARTITIONS).cast_signed()
}

/// Hosts remembered at most; beyond that all are read again when needed.
const REMEMBERED: usize = 200_000;

/// Crawl-delay is honoured up to this (as the largest news crawl does).
pub(super) const MAX_CRAWL_DELAY: Duration = Duration::from_secs(120);

/// So long past its time a robots.txt still judges pages: its poll may have to wait. Who
/// could be asked and was not has by then not been asked for two days.
const OVERTIME_MS: i64 = 24 * 3_600_000;

/// Memory that the rules of their robots.txt may take: that of twenty thousand
/// ordinary ones, and several of the largest.
const RULES_BYTES: usize = 64 << 20;

/// What the writer remembers of hosts.
pub(super) struct Hosts {
    by_id: ById<HostId, Host>,
    by_authority: HashMap<Arc<str>, HostId, Seeded>,
    /// Rules of the version that pages are judged by, for one agent, compiled when
    /// first needed.
    rules: Bounded<HostId, Ruling, BuildHasherDefault<IdHasher>>,
    /// Octets of robots.txt that were parsed for that.
    pub(super) parsed: usize,
    /// Hosts whose robots.txt somebody waits for who leases, and was asked for.
    pub(super) awaited: IdSet<HostId>,
}

/// The rules of a host, and until when they judge its pages, in Unix milliseconds.
pub(super) struct Ruling {
    rules: Arc<HostRules>,
    until: i64,
}

impl Ruling {
    /// The rules, while they judge.
    pub(super) fn at(&self, now_ms: i64) -> Option<&HostRules> {
        (self.until > now_ms).then_some(&*self.rules)
    }

    /// Memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.rules.bytes()
    }
}

/// The last robots.txt of a host as it judges for an agent, and its length in octets.
pub(super) fn read_ruling(
    conn: &Connection,
    host: HostId,
    agent: &str,
) -> Result<Option<(Ruling, usize)>, StoreError> {
    let read: Option<(Vec<u8>, bool, i64, i64)> = conn
        .prepare_cached(
            "SELECT body, unreachable, status, expires_at FROM robots WHERE host_id = ?1
                 /*pg: AND part = (?1 & 255) */",
        )
        .and_then(|mut query| {
            query
                .query_row([host.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
                .optional()
        })
        .map_err(engine)?;
    let Some((body, unreachable, status, expires_at)) = read else { return Ok(None) };
    let robots = Robots::parse(&body);
    let usage = robots.usage(agent);
    let rules = Arc::new(HostRules {
        agent: agent.to_owned(),
        unreachable,
        rules: robots.rules_for(agent),
        content_signal: usage.content_signal,
        content_usage: usage.content_usage,
        license: usage.license.map(Arc::from),
    });
    Ok(Some((Ruling { rules, until: judges_until(status, expires_at) }, body.len())))
}

impl Hosts {
    /// None, whose authorities are hashed with a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            by_id: ById::default(),
            by_authority: HashMap::with_hasher(Seeded(seed)),
            rules: Bounded::new(REMEMBERED, RULES_BYTES),
            parsed: 0,
            awaited: IdSet::default(),
        }
    }
}

/// Hashes one text quickly, by a seed that strangers do not know: authorities are
/// asked for with each URL that is new.
#[derive(Debug, Clone, Copy)]
struct Seeded(u64);

impl BuildHasher for Seeded {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Seeded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    /// The end of a text, which is all that is hashed.
    fn write_u8(&mut self, _end: u8) {}
}

/// One host as the writer remembers it.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) authority: Arc<str>,
    /// No request before, in steady Unix milliseconds.
    pub(super) next_at: i64,
    /// Nothing before, in steady Unix milliseconds.
    pub(super) paused_until: i64,
    /// Least milliseconds between two requests.
    pub(super) delay_ms: i64,
    /// Version of robots.txt that pages are judged by; 0 unknown.
    pub(super) robots: i64,
    /// What was done once for the first site that came to it.
    pub(super) done: Done,
}

/// For which site something was done that is to be done once a site and host: most
/// hosts have one site, and what is done for the others of a host stands in sets.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Done {
    /// `site_hosts` has it.
    pub(super) noted: ShortSite,
    /// Its robots.txt is polled.
    pub(super) robots: ShortSite,
}

/// A site in half the room, or none: all hosts are remembered at once, and the
/// processor reads memory by lines of 64 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ShortSite(u32);

impl ShortSite {
    /// What is too large is none, and asked for again each time.
    pub(super) fn of(site: SiteId) -> Self {
        Self(u32::try_from(site.0).unwrap_or_default())
    }

    pub(super) fn is(self, site: SiteId) -> bool {
        self.is_some() && i64::from(self.0) == site.0
    }

    pub(super) fn is_some(self) -> bool {
        self != Self::default()
    }
}

/// robots.txt of a host as it judges pages for one agent.
#[derive(Debug)]
pub(super) struct HostRules {
    agent: String,
    unreachable: bool,
    rules: Rules,
    pub(super) content_signal: Preferences,
    pub(super) content_usage: Preferences,
    pub(super) license: Option<Arc<str>>,
}

impl HostRules {
    /// May the agent fetch this path (query included)?
    pub(super) fn allows(&self, path: &str) -> bool {
        !self.unreachable && self.rules.allows(path)
    }

    /// Did nobody get an answer, and is there no good copy?
    pub(super) fn is_unreachable(&self) -> bool {
        self.unreachable
    }

    /// Octets that are looked at to judge a path of so many, and for what is said of it.
    pub(super) fn work(&self, path: usize) -> usize {
        if self.unreachable {
            return 0;
        }
        let said = self.content_signal.work(path) + self.content_usage.work(path);
        self.rules.work(path).saturating_add(said)
    }

    /// Memory that they take, about.
    fn bytes(&self) -> usize {
        let license = self.license.as_ref().map_or(0, |text| text.len());
        self.rules.bytes() + self.content_signal.bytes() + self.content_usage.bytes() + license
    }
}

impl Hosts {
    /// What was done for the first sites of hosts.
    pub(super) fn done(&mut self) -> impl Iterator<Item = &mut Done> {
        self.by_id.values_mut().map(|host| &mut host.done)
    }

    /// How many are remembered.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.by_id.len()
    }
}

impl Host {
    /// When the host may be asked next.
    pub(super) fn not_before(&self) -> i64 {
        self.next_at.max(self.paused_until)
    }
}

impl State {
    /// The host with an authority, made when it is new. `delay` is its least
    /// delay when it is.
    pub(super) fn host_named(
        &mut self,
        authority: &str,
        delay: Duration,
    ) -> Result<HostId, StoreError> {
        if let Some(id) = self.find_host(authority)? {
            return Ok(id);
        }
        let part = partition(authority);
        let id = self
            .conn
            .prepare_cached(
                "INSERT INTO hosts (/*pg: id, */ authority, name, part, delay_ms)
                 VALUES (/*pg: nextval('ids') * 256 + CAST(?3 AS BIGINT), */ ?1, ?2, ?3, ?4)
                 /*pg: ON CONFLICT (part, authority) DO UPDATE SET name = excluded.name */
                 RETURNING id",
            )
            .and_then(|mut insert| {
                let values = params![authority, name_of(authority), part, millis(delay)];
                insert.query_row(values, |row| row.get(0))
            })
            .map(HostId)
            .map_err(engine)?;
        self.read_host(id)?;
        Ok(id)
    }

    /// The host with an authority, if there is one.
    pub(super) fn find_host(&mut self, authority: &str) -> Result<Option<HostId>, StoreError> {
        if let Some(id) = self.hosts.by_authority.get(authority) {
            return Ok(Some(*id));
        }
        let id: Option<i64> = self
            .conn
            .prepare_cached("SELECT id FROM hosts WHERE /*pg: part = ?1 AND */ authority = ?2")
            .and_then(|mut query| {
                let values = params![partition(authority), authority];
                query.query_row(values, |row| row.get(0)).optional()
            })
            .map_err(engine)?;
        let Some(id) = id.map(HostId) else { return Ok(None) };
        self.read_host(id)?;
        Ok(Some(id))
    }

    /// What is remembered of a host.
    pub(super) fn host(&mut self, id: HostId) -> Result<&mut Host, StoreError> {
        if !self.hosts.by_id.contains_key(&id) {
            self.read_host(id)?;
        }
        self.hosts
            .by_id
            .get_mut(&id)
            .ok_or_else(|| StoreError::Engine(format!("host {} vanished", id.0)))
    }

    fn read_host(&mut self, id: HostId) -> Result<(), StoreError> {
        if self.hosts.by_id.len() >= REMEMBERED {
            // What a call has had parsed it goes on counting.
            let parsed = self.hosts.parsed;
            self.hosts = Hosts { parsed, ..Hosts::new(self.seed) };
        }
        let host = self
            .conn
            .prepare_cached(
                "SELECT authority, next_at, paused_until, delay_ms, robots FROM hosts WHERE id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut query| {
                query.query_row([id.0], |row| {
                    let authority: String = row.get(0)?;
                    Ok(Host {
                        authority: authority.into(),
                        next_at: row.get(1)?,
                        paused_until: row.get(2)?,
                        delay_ms: row.get(3)?,
                        robots: row.get(4)?,
                        done: Done::default(),
                    })
                })
            })
            .map_err(engine)?;
        self.hosts.by_authority.insert(Arc::clone(&host.authority), id);
        self.hosts.by_id.insert(id, host);
        Ok(())
    }

    /// Moves the clock of a host. From one time that has passed to another it moves in
    /// memory only, where it tells whose turn it is: nobody has to wait for either, and
    /// hosts without a delay have no other.
    pub(super) fn set_clock(&mut self, id: HostId, next_at: i64) -> Result<(), StoreError> {
        let now = self.steady_ms();
        if next_at > now || self.host(id)?.next_at > now {
            self.conn
                .prepare_cached(
                    "UPDATE hosts SET next_at = ?2 WHERE id = ?1
                     /*pg: AND part = (?1 & 255) */",
                )
                .and_then(|mut update| update.send(params![id.0, next_at]))
                .map_err(engine)?;
        }
        let host = self.host(id)?;
        host.next_at = next_at;
        let not_before = host.not_before();
        self.tell_windows(id, not_before);
        Ok(())
    }

    /// Moves the clock of a host on to then, unless it is left alone for longer.
    pub(super) fn delay_host(&mut self, id: HostId, until: i64) -> Result<(), StoreError> {
        if self.host(id)?.not_before() < until { self.set_clock(id, until) } else { Ok(()) }
    }

    /// Leaves a host alone until then, unless it already is for longer.
    pub(super) fn pause_host(
        &mut self,
        id: HostId,
        until: i64,
        reason: &str,
    ) -> Result<(), StoreError> {
        if self.host(id)?.paused_until >= until {
            return Ok(());
        }
        self.conn
            .prepare_cached(
                "UPDATE hosts SET paused_until = ?2, pause_reason = ?3 WHERE id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut update| update.execute(params![id.0, until, reason]))
            .map_err(engine)?;
        let host = self.host(id)?;
        host.paused_until = until;
        let not_before = host.not_before();
        self.tell_windows(id, not_before);
        Ok(())
    }

    pub(super) fn tell_windows(&mut self, id: HostId, not_before: i64) {
        self.job.has_handled = true;
        for window in self.windows.values_mut() {
            window.set_clock(id, not_before);
        }
    }

    /// Takes the host's next slot for one request: when it may be sent. `Err`
    /// holds that time when it is further off than `patience` and nothing was
    /// taken. The least delay is from then on that of the sites whose home it
    /// is, else the one that is asked with; asked without, it stays. A slot that was
    /// taken before, and not used, is given back for it.
    pub(super) fn reserve(
        &mut self,
        authority: &str,
        delay: Option<Duration>,
        patience: Duration,
        unused: Option<i64>,
    ) -> Result<Result<i64, i64>, StoreError> {
        if let Some(slot) = unused {
            self.give_back(authority, slot)?;
        }
        let delay = self.policy.delay_at(authority).or(delay);
        let id = self.host_named(authority, delay.unwrap_or(self.policy.default.host_delay))?;
        if let Some(delay) = delay {
            self.set_delay(id, delay)?;
        }
        let now = self.steady_ms();
        let host = self.host(id)?;
        let at = host.not_before().max(now);
        if at - now > millis(patience) {
            return Ok(Err(at));
        }
        let next = at + host.delay_ms;
        self.set_clock(id, next)?;
        Ok(Ok(at))
    }

    /// Gives back a slot that was not used, unless somebody has one after it.
    pub(super) fn give_back(&mut self, authority: &str, slot: i64) -> Result<(), StoreError> {
        let Some(id) = self.find_host(authority)? else { return Ok(()) };
        let host = self.host(id)?;
        let is_last = host.next_at == slot.saturating_add(host.delay_ms);
        if is_last { self.set_clock(id, slot) } else { Ok(()) }
    }

    /// The least delay of a host: the site's, or the host's own Crawl-delay
    /// (kept with its robots.txt) where that is longer.
    pub(super) fn set_delay(&mut self, id: HostId, delay: Duration) -> Result<(), StoreError> {
        let crawl_delay: i64 = self
            .conn
            .prepare_cached(
                "SELECT crawl_delay_ms FROM robots WHERE host_id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut query| query.query_row([id.0], |row| row.get(0)).optional())
            .map_err(engine)?
            .unwrap_or(0);
        let delay_ms = millis(delay).max(crawl_delay);
        if self.host(id)?.delay_ms == delay_ms {
            return Ok(());
        }
        self.conn
            .prepare_cached(
                "UPDATE hosts SET delay_ms = ?2 WHERE id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut update| update.execute(params![id.0, delay_ms]))
            .map_err(engine)?;
        self.host(id)?.delay_ms = delay_ms;
        Ok(())
    }

    /// The rules that judge a host's pages for an agent; `None` while its
    /// robots.txt has not been read, or was not for too long.
    pub(super) fn host_rules(
        &mut self,
        id: HostId,
        agent: &str,
    ) -> Result<Option<Arc<HostRules>>, StoreError> {
        if self.host(id)?.robots == 0 {
            return Ok(None);
        }
        let now = self.now_ms();
        if let Some(known) = self.hosts.rules.get(&id).filter(|known| known.rules.agent == agent) {
            return Ok((known.until > now).then(|| Arc::clone(&known.rules)));
        }
        let Some((ruling, parsed)) = read_ruling(&self.conn, id, agent)? else { return Ok(None) };
        self.hosts.parsed = self.hosts.parsed.wrapping_add(parsed);
        let (rules, until) = (Arc::clone(&ruling.rules), ruling.until);
        self.hosts.rules.insert(id, ruling, rules.bytes());
        Ok((until > now).then_some(rules))
    }

    /// What is known of a host's robots.txt is read again when it is needed.
    pub(super) fn forget_rules(&mut self, id: HostId) {
        self.hosts.rules.remove(&id);
    }

    /// A new version of a host's robots.txt holds from now on; a longer
    /// Crawl-delay at once, a shorter one from the next request of ours.
    pub(super) fn set_robots_version(
        &mut self,
        id: HostId,
        version: i64,
    ) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "UPDATE hosts SET robots = ?2 WHERE id = ?1
                 /*pg: AND part = (?1 & 255) */",
            )
            .and_then(|mut update| update.execute(params![id.0, version]))
            .map_err(engine)?;
        self.host(id)?.robots = version;
        self.forget_rules(id);
        Ok(())
    }
}

/// Until when a robots.txt judges pages, in Unix milliseconds, by the status of its last
/// answer: while its server does not answer the last good copy holds (RFC 9309 section
/// 2.3.1.4), as long as that lasts.
fn judges_until(status: i64, expires_at: i64) -> i64 {
    let has_failed = matches!(status, 0 | 429 | 500..);
    if has_failed { i64::MAX } else { expires_at.saturating_add(OVERTIME_MS) }
}

/// Marks the authority of a queue that a client of the frontier named.
pub(super) const KEYED: &str = "key:";

/// The host of an authority without scheme and port, or the key that a client
/// named: what the frontier calls the queue.
pub(super) fn name_of(authority: &str) -> &str {
    if let Some(key) = authority.strip_prefix(KEYED) {
        return key;
    }
    let rest = authority.split_once("://").map_or(authority, |(_, rest)| rest);
    let end = match rest.find(']') {
        Some(bracket) => bracket + 1,
        None => rest.find(':').unwrap_or(rest.len()),
    };
    rest.get(..end).unwrap_or(rest)
}

/// The text of a URL. Under a key of a client's own its path is all of it.
pub(super) fn page_text(authority: &str, path: &str) -> String {
    if authority.starts_with(KEYED) { path.to_owned() } else { [authority, path].concat() }
}

/// A duration in whole milliseconds.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_the_name_of_its_host_or_its_key() {
        for (authority, name) in [
            ("https://example.org", "example.org"),
            ("http://example.org:8080", "example.org"),
            ("http://[2001:db8::1]", "[2001:db8::1]"),
            ("http://[2001:db8::1]:81", "[2001:db8::1]"),
            ("key:example.org", "example.org"),
            ("key:http://a:b", "http://a:b"),
        ] {
            assert_eq!(name_of(authority), name);
        }
    }
}
