//! Admissions: what a source lists that it did not list before becomes rows,
//! a whole chunk at a time.
//!
//! Most of what is listed for the first time is new to the store too. So all of
//! a chunk is looked up in one pass, and what is new is written by statements
//! of many rows. New rows have their numbers in the order in which the queue has
//! them: by host and band, and of one band as they come. So what is leased together
//! stands together, in `urls` and in all that is kept by URL.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use super::hosts::{ShortSite, partition_of};
use super::sql::{
    self, Connection,
    Kind::{Number as N, Text as T},
    Many, ToSql,
};

use super::apply::Chunk;
use super::packed::{Listing, OWNER_NAMES, SAID_NAMES, owner, owner_of, said_of};
use super::rows::UrlRow;
use super::state::State;
use super::turns::Place;
use super::worth::{rank_by, thousandths};
use super::{StoreError, engine};
use crate::by_id::ById;
use crate::diff::snapshot::{EntryHints, Row};
use crate::model::{ChangeKind, HostId, Lastmod, Reason, SiteId, UrlId, UrlKind};
use crate::url::Admitted;

/// Pairs of site and host remembered at most.
const REMEMBERED: usize = 200_000;

/// One entry that is to have a row.
pub(super) struct Admission {
    /// Admissions before it that were handed on with it.
    pub(super) number: usize,
    pub(super) slot: u32,
    pub(super) url: Admitted,
    pub(super) raw: Option<String>,
    pub(super) lastmod: Option<Lastmod>,
    pub(super) hints: EntryHints,
    pub(super) kind: UrlKind,
}

/// Where the admissions of a chunk may be known already.
struct Sought {
    /// Host, where it is known, and key, by admission.
    places: Vec<(Option<HostId>, u64)>,
    /// Rows that may be that of an admission, by its index, ascending.
    candidates: Vec<(usize, UrlId)>,
    /// Keys that come more than once.
    repeated: HashSet<u64>,
}

/// What is new of a chunk.
#[derive(Default)]
struct Fresh {
    /// Rows that are not written yet.
    rows: Vec<FreshRow>,
    /// Those whose key comes again: none before it is written.
    by_key: HashMap<u64, Option<UrlId>>,
    /// Key and number of all that have been written.
    made: Vec<(u64, UrlId)>,
}

struct FreshRow {
    index: usize,
    /// Of no URL until it is written.
    id: UrlId,
    host: HostId,
    /// Its keyed hash; a column on PostgreSQL only, SQLite has the lookup.
    key: u64,
    band: u8,
}

impl FreshRow {
    /// Sorts as the key of the queue does, in one comparison; of one chunk all are due
    /// at once, and have their numbers in this order.
    fn in_order(&self) -> u128 {
        let band = u128::from(u8::MAX - self.band);
        // No index is beyond 64 bits.
        u128::from(self.host.0.cast_unsigned()) << 72 | band << 64 | self.index as u128
    }
}

impl State {
    /// Finds or makes the rows of what a source lists: what is known in its order, then
    /// what is new.
    pub(super) fn admit_all(
        &mut self,
        chunk: &mut Chunk,
        admissions: &[Admission],
    ) -> Result<(), StoreError> {
        if admissions.is_empty() {
            return Ok(());
        }
        let delay = self.policy.of(Some(chunk.origin.site)).host_delay;
        let sought = self.seek(chunk, admissions)?;
        self.read_rows_ahead(sought.candidates.iter().map(|(_, id)| *id))?;
        let mut candidates = sought.candidates.as_slice();
        let mut fresh = Fresh::default();
        // How far looks decide, by host: asked once a chunk.
        let mut proofs: ById<HostId, f64> = ById::default();
        for (index, (listed, &(host, key))) in admissions.iter().zip(&sought.places).enumerate() {
            let is_full = chunk.quota_left == 0 || chunk.rows_left == 0;
            let host = match host {
                Some(host) => host,
                // A host is made for what is admitted: any document can name a million.
                None => match self.find_host(&listed.url.authority)? {
                    Some(host) => host,
                    None if is_full => {
                        chunk.refuse_for_quota(listed.slot);
                        continue;
                    }
                    None => self.host_named(&listed.url.authority, delay)?,
                },
            };
            let mine = candidates.partition_point(|(of, _)| *of == index);
            let (mine, others) = candidates.split_at(mine);
            candidates = others;
            if let Some(first) = fresh.by_key.get(&key) {
                // Two spellings of one page: the second needs the row of the first.
                if first.is_none() {
                    self.write_fresh(chunk, admissions, &mut fresh)?;
                }
                let first = fresh.by_key.get(&key).copied().flatten();
                if let Some(id) = first
                    && self.admit_known(chunk, listed, host, id)?
                {
                    continue;
                }
            }
            let mut is_known = false;
            for (_, id) in mine {
                is_known = is_known || self.admit_known(chunk, listed, host, *id)?;
            }
            if is_known {
                continue;
            }
            if chunk.quota_left == 0 || chunk.rows_left == 0 {
                chunk.refuse_for_quota(listed.slot);
                continue;
            }
            chunk.quota_left -= 1;
            chunk.rows_left -= 1;
            chunk.priorities += thousandths(listed.hints.priority);
            let proof = match proofs.entry(host) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(place) => {
                    self.poll_robots_of(chunk.origin.site, host)?;
                    *place.insert(self.proof_of_host(host)?)
                }
            };
            let band = rank_by(proof, Reason::New, listed.hints.priority);
            fresh.rows.push(FreshRow { index, id: UrlId(0), host, key, band });
            if sought.repeated.contains(&key) {
                fresh.by_key.insert(key, None);
            }
            chunk.applied.counts.new += 1;
            chunk.note_published(listed.lastmod);
        }
        self.write_fresh(chunk, admissions, &mut fresh)?;
        chunk.made += fresh.made.len();
        self.lookup.insert(&self.conn, &fresh.made).map_err(engine)
    }

    /// Sees to it that the robots.txt of a host is polled on which a site has
    /// URLs. Asked once: only what happens to sites undoes it.
    pub(super) fn poll_robots_of(&mut self, site: SiteId, host: HostId) -> Result<(), StoreError> {
        let first = self.host(host)?.done.robots;
        if first.is(site) || self.robots_known.contains(&(site, host)) {
            return Ok(());
        }
        self.ensure_robots(host, Some(site))?;
        if !first.is_some() {
            self.host(host)?.done.robots = ShortSite::of(site);
            return Ok(());
        }
        if self.robots_known.len() >= REMEMBERED {
            self.robots_known.clear();
        }
        self.robots_known.insert((site, host));
        Ok(())
    }

    /// What happened to sites may have put an end to polls of robots.txt.
    pub(super) fn doubt_robots(&mut self) {
        self.robots_known.clear();
        self.hosts.done().for_each(|done| done.robots = ShortSite::default());
    }

    /// Hosts, keys and candidates of all admissions.
    fn seek(&mut self, chunk: &Chunk, admissions: &[Admission]) -> Result<Sought, StoreError> {
        let first = admissions.first().map_or(0, |admission| admission.number);
        let numbers = first..first + admissions.len();
        let mut places = Vec::with_capacity(admissions.len());
        let mut last: Option<(&str, Option<HostId>)> = None;
        for (Admission { url, .. }, key) in admissions.iter().zip(chunk.paths.keys(numbers.clone()))
        {
            let host = match last {
                Some((authority, host)) if *authority == *url.authority => host,
                _ => self.find_host(&url.authority)?,
            };
            last = Some((&url.authority, host));
            places.push((host, *key));
        }
        debug_assert_eq!(places.len(), admissions.len(), "all were prepared");
        let order = chunk.paths.order(numbers.clone());
        let repeated = order.windows(2).filter_map(|pair| match pair {
            [(one, _), (other, _)] if one == other => Some(*one),
            _ => None,
        });
        let repeated = repeated.collect();
        let part_of = |number: usize| {
            places.get(number - first).map_or(0, |(host, _)| host.map_or(0, partition_of))
        };
        let mut candidates = Vec::new();
        let sifted = (chunk.paths.sifted(), numbers.clone());
        self.lookup
            .find_sorted(&self.conn, &order, sifted, part_of, &mut |number, id| {
                candidates.push((number - first, id));
            })
            .map_err(engine)?;
        // A row may be named by two runs.
        candidates.sort_unstable();
        candidates.dedup();
        Ok(Sought { places, candidates, repeated })
    }

    /// Takes over what is listed if that row is the URL's: the hash only says
    /// "perhaps", the text decides.
    fn admit_known(
        &mut self,
        chunk: &mut Chunk,
        listed: &Admission,
        host: HostId,
        id: UrlId,
    ) -> Result<bool, StoreError> {
        let is_it = |row: &UrlRow| {
            row.crawl == chunk.origin.crawl && row.host == host && row.path == listed.url.path
        };
        let Some(row) = self.url_row(id)?.filter(is_it) else { return Ok(false) };
        // A client may have pushed it, or another site had it: a row like any new one.
        let is_new_here = self.comes_over(chunk.origin, &row)?;
        let is_one_more = is_new_here || !row.listed;
        if is_one_more && chunk.quota_left == 0 || is_new_here && chunk.rows_left == 0 {
            chunk.refuse_for_quota(listed.slot);
            return Ok(true);
        }
        chunk.quota_left -= u64::from(is_one_more);
        chunk.rows_left -= u64::from(is_new_here);
        self.list_again(chunk, row, listed)?;
        chunk.applied.rows.push((listed.slot, Row::Url(id)));
        Ok(true)
    }

    /// Gives the rows that were made since the last time their numbers, and writes them.
    fn write_fresh(
        &mut self,
        chunk: &mut Chunk,
        admissions: &[Admission],
        fresh: &mut Fresh,
    ) -> Result<(), StoreError> {
        let mut rows = std::mem::take(&mut fresh.rows);
        if rows.is_empty() {
            return Ok(());
        }
        rows.sort_unstable_by_key(FreshRow::in_order);
        fresh.made.reserve(rows.len());
        for row in &mut rows {
            row.id = self.next_url(row.host)?;
            fresh.made.push((row.key, row.id));
            chunk.log.push(ChangeKind::New, row.id);
            if let Some(listed) = admissions.get(row.index) {
                chunk.applied.rows.push((listed.slot, Row::Url(row.id)));
            }
            if let Some(id) = fresh.by_key.get_mut(&row.key) {
                *id = Some(row.id);
            }
        }
        insert_urls(&self.conn, chunk, admissions, &rows).map_err(engine)?;
        insert_places(&self.conn, chunk, &rows).map_err(engine)?;
        for of_host in rows.chunk_by(|a, b| a.host == b.host) {
            let place = |row: &FreshRow| Place {
                crawl: chunk.origin.crawl,
                host: row.host,
                band: row.band,
                due_s: chunk.now_s,
                url: row.id,
                valued: false,
            };
            self.enqueued(of_host.iter().map(place), Some(chunk.origin.site))?;
        }
        Ok(())
    }
}

static URLS: LazyLock<Many> = LazyLock::new(|| {
    let head = format!(
        "INSERT /*lite*/ OR FAIL /*end*/ INTO urls (/*pg: part, key, */ crawl_id, site_id,
             source_id, id, host_id, path, raw, lastmod_s, {}) VALUES",
        *SAID_NAMES
    );
    let row = format!(
        "(/*pg: CAST(?4 AS BIGINT) & 255, ?6, */ ?1, ?2, ?3, ?4, ?5, ?7, ?8, ?9, {})",
        said_of("?10")
    );
    Many::of_pattern_sharing(&head, &row, (3, 7), "").in_columns(&[N, N, N, T, T, N, N])
});

static PLACES: LazyLock<Many> = LazyLock::new(|| {
    let head = format!(
        "INSERT /*lite*/ OR FAIL /*end*/ INTO queue (/*pg: part, */ crawl_id, due_s,
             {OWNER_NAMES}, host_id, band, url_id) VALUES"
    );
    let row =
        format!("(/*pg: CAST(?4 AS BIGINT) & 255, */ ?1, ?2, {}, ?4, ?5, ?6)", owner_of("?3"));
    Many::of_pattern_sharing(&head, &row, (3, 3), "").in_columns(&[N; 3])
});

/// Inserts rows into `urls`.
fn insert_urls(
    conn: &Connection,
    chunk: &Chunk,
    admissions: &[Admission],
    rows: &[FreshRow],
) -> sql::Result<()> {
    let origin = chunk.origin;
    let shared: [&dyn ToSql; 3] = [&origin.crawl.0, &origin.site.0, &origin.source.0];
    URLS.execute_sharing(conn, &shared, rows, |fresh, values| {
        let Some(listed) = admissions.get(fresh.index) else { return Ok(()) };
        let said = Listing {
            listed: true,
            kind: listed.kind,
            precision: listed.lastmod.map(|lastmod| lastmod.precision),
            hints: listed.hints,
            reason: Reason::New,
            band: fresh.band,
            first_seen_s: chunk.now_s,
        };
        values.bind(fresh.id.0)?;
        values.bind(fresh.host.0)?;
        values.bind(fresh.key.cast_signed())?;
        values.bind(chunk.paths.kept(listed.number, &listed.url.path))?;
        values.bind(&listed.raw)?;
        values.bind(listed.lastmod.map(|lastmod| lastmod.at.as_second()))?;
        values.bind(said.pack())
    })
}

/// Inserts rows into `queue`.
fn insert_places(conn: &Connection, chunk: &Chunk, rows: &[FreshRow]) -> sql::Result<()> {
    let origin = chunk.origin;
    let owner = owner(Some(origin.site), false);
    let shared: [&dyn ToSql; 3] = [&origin.crawl.0, &chunk.now_s, &owner];
    PLACES.execute_sharing(conn, &shared, rows, |fresh, values| {
        values.bind(fresh.host.0)?;
        values.bind(fresh.band)?;
        values.bind(fresh.id.0)
    })
}
