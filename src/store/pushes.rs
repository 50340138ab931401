//! What owners push: URLs that they say have changed, proved by a key.
//!
//! A pushed URL that we know is a signal, as far as pushes of its host have
//! proved right; one that we do not know makes nobody a row. It is the source
//! that lists it that is looked at sooner, so that a push never grows what a
//! site has beyond what its own sitemaps name. A push whose key could not be
//! checked yet waits here, bounded, and for a day at most.

use std::collections::HashSet;

use super::sql::{self, OptionalExtension, params};
use url::Url;

use super::hosts::partition;
use super::orders::Order;
use super::rows::url_key;
use super::state::State;
use super::writer::Lane;
use super::{Store, StoreError, engine};
use crate::model::{CrawlId, SiteId, SourceId};
use crate::recrawl::signal::Signal;
use crate::url::Admitted;

/// URLs in one job at most, so that leases get in between.
const AT_ONCE: usize = 1_000;
/// Sources of a site that one push of unknown URLs has looked at.
const HINTED: i64 = 10;
/// Pushes that wait for their key at most; of one host; of all hosts of a domain, of which
/// its owner has as many as they like; and their text.
const MAX_WAITING: usize = 100;
const MAX_WAITING_OF_HOST: usize = 5;
const MAX_WAITING_OF_DOMAIN: usize = 20;
const MAX_WAITING_BYTES: i64 = 32 << 20;
/// How long one waits.
const WAIT_MS: i64 = 24 * 3_600_000;
/// Between two tries to check its key.
const RETRY_MS: i64 = 10 * 60_000;
/// Tried in one round.
const ROUND: i64 = 8;

/// URLs of one host, and the key that is to prove that its owner sends them.
#[derive(Debug, Clone)]
pub struct Push {
    /// Host and, where it is not the default, port.
    pub host: String,
    /// 8 to 128 of `[A-Za-z0-9-]`.
    pub key: String,
    /// Where the key is to be found, on that host.
    pub key_url: Url,
    /// At most 10,000, all on that host and within the key's scope.
    pub urls: Vec<Url>,
}

/// The folder, with its slash, that a key at this place speaks for, or why it is no place
/// of a key. That is a file (<https://www.indexnow.org/documentation>). What has a query is
/// a script, which may answer whatever it is asked for, or what anybody has written there;
/// and servers undo escaped slashes before they look for a file, which then lies in another
/// folder than it seems to.
pub fn key_scope(key_url: &Url) -> Result<&str, &'static str> {
    if key_url.query().is_some() {
        return Err("it has a query, and must be the place of a file, such as /{key}.txt");
    }
    let path = key_url.path();
    let lower = path.to_ascii_lowercase();
    if lower.contains("%2f") || lower.contains("%5c") {
        return Err("it has an escaped slash in its path");
    }
    Ok(&path[..=path.rfind('/').unwrap_or(0)])
}

/// What a push came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pushed {
    /// It was taken in.
    Taken(Heeded),
    /// It is kept until its key can be checked.
    Waiting,
    /// The key is not that of the host; the text says why.
    InvalidKey(String),
    /// Too much of this host waits, or was asked for.
    TooMany(std::time::Duration),
}

/// The URLs of a push, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heeded {
    /// Known, and noted as changed.
    pub known: u64,
    /// Not known; the sitemaps that may list them are read sooner.
    pub unknown: u64,
    /// Pushed before within ten minutes.
    pub repeated: u64,
    /// Outside of what the site takes.
    pub outside: u64,
}

/// One pushed URL, as sites of one crawl know it.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct PushedUrl {
    /// The sites.
    pub sites: Vec<SiteId>,
    /// Their crawl.
    pub crawl: CrawlId,
    /// Its identity.
    pub url: Admitted,
}

/// A site as a push needs it.
#[derive(Debug, Clone)]
pub struct SiteRow {
    /// The row.
    pub id: SiteId,
    /// Its crawl.
    pub crawl: CrawlId,
    /// The form that its twins are folded into.
    pub origin: Option<Url>,
}

impl Store {
    /// An active site by its name.
    pub async fn site_row(&self, name: String) -> Result<Option<SiteRow>, StoreError> {
        self.read(move |conn| {
            conn.prepare_cached(
                "SELECT id, crawl_id, origin FROM sites WHERE name = ?1 AND state = 0",
            )
            .and_then(|mut query| {
                query
                    .query_row([name], |row| {
                        let origin: String = row.get(2)?;
                        let (id, crawl) = (SiteId(row.get(0)?), CrawlId(row.get(1)?));
                        Ok(SiteRow { id, crawl, origin: Url::parse(&origin).ok() })
                    })
                    .optional()
            })
            .map_err(engine)
        })
        .await
    }

    /// Notes that these may have changed; says which are known. The sources of
    /// sites with others are looked at sooner.
    pub async fn heed(&self, urls: Vec<PushedUrl>) -> Result<Vec<bool>, StoreError> {
        let part = |pushed: &PushedUrl| partition(&pushed.url.authority);
        let mut known = vec![false; urls.len()];
        for (places, reply) in self.spread(urls, part, Order::Heed).await? {
            for (place, is_known) in places.into_iter().zip(reply.known()?) {
                if let Some(known) = known.get_mut(place) {
                    *known = is_known;
                }
            }
        }
        Ok(known)
    }

    pub(super) async fn heed_here(&self, urls: Vec<PushedUrl>) -> Result<Vec<bool>, StoreError> {
        let mut known = Vec::with_capacity(urls.len());
        for part in urls.chunks(AT_ONCE) {
            let part = part.to_vec();
            known.extend(self.write(Lane::Bulk, move |state| state.heed(&part)).await?);
        }
        Ok(known)
    }

    /// Keeps a push until its key can be checked; `false` where there is no room.
    pub async fn keep_push(&self, push: Push) -> Result<bool, StoreError> {
        self.write(Lane::Bulk, move |state| state.keep_push(&push)).await
    }

    /// Some pushes whose keys are to be checked now. They come again later
    /// unless they are dropped.
    pub async fn waiting_pushes(&self) -> Result<Vec<(i64, Push)>, StoreError> {
        // A look costs no write where nothing waits.
        let now = self.now().as_millisecond();
        let any = self
            .read(move |conn| {
                conn.prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM pushes WHERE next_at <= ?1 /*ours: 0 */)",
                )
                .and_then(|mut query| query.query_row([now], |row| row.get::<bool>(0)))
                .map_err(engine)
            })
            .await?;
        if !any {
            return Ok(Vec::new());
        }
        self.write(Lane::Bulk, State::waiting_pushes).await
    }

    /// A push that waited has been taken in, or will never be.
    pub async fn drop_push(&self, row: i64) -> Result<(), StoreError> {
        self.write(Lane::Bulk, move |state| {
            let dropped = state.conn.execute("DELETE FROM pushes WHERE id = ?1", [row]);
            dropped.map(|_| ()).map_err(engine)
        })
        .await
    }
}

/// The registrable domain of a host, which may have a port; itself where it has none.
fn domain_of(host: &str) -> &str {
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    // No address has one.
    let is_name = name.rsplit('.').next().is_some_and(|last| last.parse::<u8>().is_err());
    psl::domain_str(name).filter(|_| is_name).unwrap_or(host)
}

impl State {
    fn heed(&mut self, urls: &[PushedUrl]) -> Result<Vec<bool>, StoreError> {
        let mut known = Vec::with_capacity(urls.len());
        let mut hinted = HashSet::new();
        for PushedUrl { sites, crawl, url } in urls {
            self.must_own(partition(&url.authority))?;
            let row = match self.find_host(&url.authority)? {
                Some(host) => {
                    let key = url_key(self.seed, *crawl, &url.authority, &url.path);
                    self.find_url(*crawl, host, &url.path, key)?
                }
                None => None,
            };
            known.push(row.is_some());
            if let Some(row) = row {
                self.take_signal(row, Signal::Pushed, None, false)?;
                continue;
            }
            for site in sites {
                if hinted.insert(*site) {
                    self.hint_site(*site)?;
                }
            }
        }
        Ok(known)
    }

    /// Has the sources of a site looked at that changed last, as a ping would.
    fn hint_site(&mut self, site: SiteId) -> Result<(), StoreError> {
        let sources = self.column(
            "SELECT id FROM sources WHERE site_id = ?1 AND role IN (2, 3) AND state = 0
                 AND parent_id IS NULL ORDER BY last_changed_at DESC NULLS LAST, id LIMIT ?2",
            params![site.0, HINTED],
        )?;
        let now = self.now_ms();
        for source in sources {
            self.hint(SourceId(source), now)?;
            self.hint_undated(SourceId(source), now)?;
        }
        Ok(())
    }

    /// The same of what an index lists without dates, if it is one: its own document does
    /// not tell which of those have changed. Those that changed last, and none that fails,
    /// of which nobody has said anything.
    pub(super) fn hint_undated(&mut self, index: SourceId, now: i64) -> Result<(), StoreError> {
        let children = self.column(
            "SELECT id FROM sources WHERE parent_id = ?1 AND state = 0 AND index_lastmod IS NULL
                 AND failures = 0 AND dropped_at IS NULL
             ORDER BY last_changed_at DESC NULLS LAST, id LIMIT ?2",
            params![index.0, HINTED],
        )?;
        for child in children {
            self.hint(SourceId(child), now)?;
        }
        Ok(())
    }

    fn keep_push(&mut self, push: &Push) -> Result<bool, StoreError> {
        let urls: Vec<&str> = push.urls.iter().map(Url::as_str).collect();
        let urls = urls.join("\n");
        let bytes = i64::try_from(urls.len()).unwrap_or(i64::MAX);
        let waiting = self
            .conn
            .prepare_cached("SELECT host, bytes FROM pushes")
            .and_then(|mut query| {
                query
                    .query_map(params![], |row| Ok((row.get(0)?, row.get(1)?)))
                    .and_then(|rows| rows.collect::<sql::Result<Vec<(String, i64)>>>())
            })
            .map_err(engine)?;
        let hosts = || waiting.iter().map(|(host, _)| host);
        let of_host = hosts().filter(|host| **host == push.host).count();
        let domain = domain_of(&push.host);
        let of_domain = hosts().filter(|host| domain_of(host) == domain).count();
        let held: i64 = waiting.iter().map(|(_, bytes)| bytes).sum();
        let is_full = waiting.len() >= MAX_WAITING
            || of_host >= MAX_WAITING_OF_HOST
            || of_domain >= MAX_WAITING_OF_DOMAIN;
        if is_full || held.saturating_add(bytes) > MAX_WAITING_BYTES {
            return Ok(false);
        }
        let now = self.now_ms();
        self.conn
            .prepare_cached(
                "INSERT INTO pushes (at, next_at, host, key, key_url, bytes, urls)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )
            .and_then(|mut insert| {
                insert.execute(params![
                    now,
                    now + RETRY_MS,
                    push.host,
                    push.key,
                    push.key_url.as_str(),
                    bytes,
                    urls
                ])
            })
            .map(|_| true)
            .map_err(engine)
    }

    fn waiting_pushes(&mut self) -> Result<Vec<(i64, Push)>, StoreError> {
        let now = self.now_ms();
        self.conn.execute("DELETE FROM pushes WHERE at < ?1", [now - WAIT_MS]).map_err(engine)?;
        let mut query = self
            .conn
            .prepare_cached(
                "UPDATE pushes SET next_at = ?1 + ?2 WHERE id IN (SELECT id FROM pushes
                     WHERE next_at <= ?1 ORDER BY next_at LIMIT ?3) RETURNING id, host, key, key_url, urls",
            )
            .map_err(engine)?;
        let rows: Vec<(i64, String, String, String, String)> = query
            .query_map(params![now, RETRY_MS, ROUND], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            })
            .and_then(Iterator::collect)
            .map_err(engine)?;
        let read = |(id, host, key, key_url, urls): (i64, String, String, String, String)| {
            let urls = urls.lines().filter_map(|url| Url::parse(url).ok()).collect();
            Some((id, Push { host, key, key_url: Url::parse(&key_url).ok()?, urls }))
        };
        Ok(rows.into_iter().filter_map(read).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_one_owner_are_those_of_a_registrable_domain() {
        for (host, domain) in [
            ("a.example.com", "example.com"),
            ("example.com:8080", "example.com"),
            ("deep.a.example.co.uk", "example.co.uk"),
            ("one.github.io", "one.github.io"),
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("[::1]:8080", "[::1]:8080"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(domain_of(host), domain, "{host}");
        }
    }
}
