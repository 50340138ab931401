//! The queue's rows, and the table of turns that sums them up per host.
//!
//! Rows of `queue` and counts of `turns` change in the same transaction, and
//! the window in memory hears of each row.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use super::hosts::ShortSite;
use super::sql::{Many, params};

use super::packed::{OWNER_NAMES, owner, owner_of};
use super::policy::{Policy, SitePolicy};
use super::state::State;
use super::{StoreError, engine};
use crate::by_id::ById;
use crate::model::{CrawlId, HostId, SiteId, UrlId};
use crate::queue::window::Window;
use crate::queue::{Candidate, Claim};

/// Key of `meta`: the weights that turns were last given, those of 1 left out.
const WEIGHTS: &str = "weights";

/// Pairs of site and host remembered at most.
const REMEMBERED: usize = 200_000;

/// What a job did to the counts of hosts' queues.
#[derive(Debug, Default)]
pub(super) struct TurnDeltas {
    changes: ById<(CrawlId, HostId), Delta>,
}

impl TurnDeltas {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Delta {
    rows: i64,
    earliest: Option<i64>,
    weight: Option<f64>,
}

/// A host that has rows more, or as many as before, and not fewer: what a read of a
/// document brings is written by statements of many hosts.
struct More {
    crawl: CrawlId,
    host: HostId,
    rows: i64,
    due_s: i64,
    weight: f64,
}

static MORE: LazyLock<Many> = LazyLock::new(|| {
    let head = "INSERT INTO turns (crawl_id, host_id, queued, due_s, weight) VALUES";
    let tail = "ON CONFLICT (crawl_id, host_id) DO UPDATE SET
        queued = turns.queued + excluded.queued,
        due_s = CASE WHEN turns.queued > 0 THEN min(turns.due_s, excluded.due_s)
            ELSE excluded.due_s END,
        weight = excluded.weight";
    Many::of_pattern(head, "(?1, ?2, ?3, ?4, ?5)", 5, tail)
});

/// A URL's place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) crawl: CrawlId,
    pub(super) host: HostId,
    pub(super) band: u8,
    pub(super) due_s: i64,
    pub(super) url: UrlId,
    /// Is its value taken anew when it comes due?
    pub(super) valued: bool,
}

impl Place {
    /// Sorts as the queue does.
    pub(super) fn in_order(&self) -> (CrawlId, HostId, u8, i64, UrlId) {
        (self.crawl, self.host, u8::MAX - self.band, self.due_s, self.url)
    }

    /// Are both in the same band of a host's list?
    pub(super) fn is_of_same_band(&self, other: &Self) -> bool {
        (self.crawl, self.host, self.band) == (other.crawl, other.host, other.band)
    }

    /// Does it differ by its URL only?
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let Self { crawl, host, band, due_s, .. } = *self;
        (crawl, host, band, due_s) == (other.crawl, other.host, other.band, other.due_s)
    }

    pub(super) fn candidate(self) -> Candidate {
        let claim = if self.valued { Claim::Worth } else { Claim::Fixed };
        Candidate { claim, ..Candidate::as_listed(self.url, self.host, self.band, self.due_s) }
    }
}

static ENQUEUE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "INSERT /*lite*/ OR IGNORE /*end*/
             INTO queue (/*pg: part, */ crawl_id, host_id, band, due_s, url_id, {OWNER_NAMES})
         VALUES (/*pg: CAST(?2 AS BIGINT) & 255, */ ?1, ?2, ?3, ?4, ?5, {})
         /*pg: ON CONFLICT DO NOTHING */",
        owner_of("?6")
    )
});

impl State {
    /// Puts a URL into the queue.
    pub(super) fn enqueue(&mut self, place: Place, site: Option<SiteId>) -> Result<(), StoreError> {
        if self.pending.enter(place, site) {
            return self.enqueued(std::iter::once(place), site);
        }
        let added = self
            .conn
            .prepare_cached(&ENQUEUE)
            .and_then(|mut insert| {
                insert.execute(params![
                    place.crawl.0,
                    place.host.0,
                    place.band,
                    place.due_s,
                    place.url.0,
                    owner(site, place.valued),
                ])
            })
            .map_err(engine)?;
        if added == 0 { Ok(()) } else { self.enqueued(std::iter::once(place), site) }
    }

    /// Puts a URL back whose lease ended, which was not in the queue; its row is
    /// written with the others of the job.
    pub(super) fn enqueue_ended(
        &mut self,
        place: Place,
        site: Option<SiteId>,
    ) -> Result<(), StoreError> {
        self.pending.place(place, site);
        self.enqueued(std::iter::once(place), site)
    }

    /// Rows of one host, all of one due time, have come into the queue: counts
    /// and window hear of them.
    pub(super) fn enqueued(
        &mut self,
        places: impl ExactSizeIterator<Item = Place>,
        site: Option<SiteId>,
    ) -> Result<(), StoreError> {
        let rows = i64::try_from(places.len()).unwrap_or(i64::MAX);
        let mut places = places.peekable();
        let Some(&Place { crawl, host, due_s, .. }) = places.peek() else { return Ok(()) };
        if let Some(site) = site {
            self.site_walks.queued(crawl, host, site);
            self.note_site_host(site, host)?;
        }
        let weight = self.policy.of(site).weight;
        let delta = self.deltas.changes.entry((crawl, host)).or_default();
        delta.rows += rows;
        delta.earliest = Some(delta.earliest.map_or(due_s, |due| due.min(due_s)));
        delta.weight = Some(weight);
        if site.is_some_and(|site| self.paused_sites.contains(&site)) {
            return Ok(());
        }
        let not_before = self.host(host)?.not_before();
        let now = self.steady_ms();
        if places.peek().is_some_and(|place| !place.valued) {
            self.none_new.forget((crawl, host));
        }
        self.job.has_handled = true;
        let heads = self.paused_heads.get_mut();
        let mut heads = (!heads.is_empty()).then_some(heads);
        let mut window = self.windows.get_mut(&crawl);
        if let Some(window) = &mut window {
            window.wake(host, due_s.saturating_mul(1000), weight);
            window.set_clock(host, not_before);
        }
        for place in places {
            if let Some(heads) = &mut heads {
                heads.queued(&place);
            }
            if let Some(window) = &mut window {
                self.at_hand.ahead.queued(place);
                window.insert(place.candidate(), now);
            }
        }
        Ok(())
    }

    /// Remembers where a site has URLs.
    pub(super) fn note_site_host(&mut self, site: SiteId, host: HostId) -> Result<(), StoreError> {
        let first = self.host(host)?.done.noted;
        if first.is(site) || self.site_hosts.contains(&(site, host)) {
            return Ok(());
        }
        let noted = self
            .conn
            .prepare_cached(
                "INSERT /*lite*/ OR IGNORE /*end*/ INTO site_hosts (/*pg: part, */ site_id, host_id)
                 VALUES (/*pg: CAST(?2 AS BIGINT) & 255, */ ?1, ?2) /*pg: ON CONFLICT DO NOTHING */",
            )
            .and_then(|mut insert| insert.execute(params![site.0, host.0]))
            .map_err(engine)?;
        if noted > 0 {
            self.heed_newcomer(host)?;
        }
        if !first.is_some() {
            self.host(host)?.done.noted = ShortSite::of(site);
            return Ok(());
        }
        if self.site_hosts.len() >= REMEMBERED {
            self.site_hosts.clear();
        }
        self.site_hosts.insert((site, host));
        Ok(())
    }

    /// A site is nowhere any more.
    pub(super) fn forget_site_hosts(&mut self, site: SiteId) {
        self.site_hosts.retain(|(other, _)| *other != site);
        let of_site = self.hosts.done().filter(|done| done.noted.is(site));
        of_site.for_each(|done| done.noted = ShortSite::default());
    }

    /// Hosts of a crawl where a site may have something queued.
    pub(super) fn hosts_of_site(
        &mut self,
        crawl: CrawlId,
        site: SiteId,
    ) -> Result<Vec<HostId>, StoreError> {
        // What other jobs of this transaction have queued counts.
        self.flush_deltas()?;
        let hosts = self.column(
            "SELECT s.host_id FROM site_hosts s
             JOIN turns t ON t.crawl_id = ?1 AND t.host_id = s.host_id
                 /*pg: AND t.part = s.part */ AND t.queued > 0
             WHERE s.site_id = ?2",
            params![crawl.0, site.0],
        )?;
        Ok(hosts.into_iter().map(HostId).collect())
    }

    /// Takes a URL out of the queue that is there, as its row says; it goes with
    /// the others of the job. One that came `from_window` is not there any more.
    pub(super) fn dequeue_leased(&mut self, place: Place, from_window: bool) {
        self.pending.leave(place);
        if from_window {
            self.count_out(place);
        } else {
            self.dequeued(place);
        }
    }

    fn count_out(&mut self, place: Place) {
        self.deltas.changes.entry((place.crawl, place.host)).or_default().rows -= 1;
        self.at_hand.ahead.left(place);
    }

    /// A row has left the queue: counts and window hear of it.
    fn dequeued(&mut self, place: Place) {
        self.count_out(place);
        self.job.has_handled = true;
        if let Some(window) = self.windows.get_mut(&place.crawl) {
            window.remove(place.host, place.url);
        }
    }

    /// Takes a URL out of the queue; says whether it was there.
    pub(super) fn dequeue(&mut self, place: Place) -> Result<bool, StoreError> {
        if self.pending.vacate(place) {
            self.dequeued(place);
            return Ok(true);
        }
        let removed = self
            .conn
            .prepare_cached(
                "DELETE FROM queue
                 WHERE crawl_id = ?1 AND host_id = ?2 AND band = ?3 AND due_s = ?4 AND url_id = ?5
                 /*pg: AND part = (?5 & 255) */",
            )
            .and_then(|mut delete| {
                delete.execute(params![
                    place.crawl.0,
                    place.host.0,
                    place.band,
                    place.due_s,
                    place.url.0
                ])
            })
            .map_err(engine)?;
        if removed == 0 {
            return Ok(false);
        }
        self.dequeued(place);
        Ok(true)
    }

    /// Has the table a URL in that place?
    pub(super) fn is_in_queue(&mut self, place: Place) -> Result<bool, StoreError> {
        self.write_pending()?;
        self.conn
            .prepare_cached(
                "SELECT count(*) FROM queue
                 WHERE crawl_id = ?1 AND host_id = ?2 AND band = ?3 AND due_s = ?4 AND url_id = ?5
                 /*pg: AND part = (?5 & 255) */",
            )
            .and_then(|mut query| {
                let Place { crawl, host, band, due_s, url, .. } = place;
                query.query_row(params![crawl.0, host.0, band, due_s, url.0], |row| {
                    row.get::<i64>(0)
                })
            })
            .map(|rows| rows > 0)
            .map_err(engine)
    }

    /// Writes what the job that just ran did to the counts.
    pub(super) fn flush_deltas(&mut self) -> Result<(), StoreError> {
        let mut changes: Vec<_> = std::mem::take(&mut self.deltas).changes.into_iter().collect();
        // In the order of the table: neighbours are written together.
        changes.sort_unstable_by_key(|(place, _)| *place);
        let mut more = Vec::new();
        for ((crawl, host), delta) in changes {
            // Whoever comes here with what is another's must not go on.
            self.must_own(host.0)?;
            if self.conn.embedded().is_some()
                && let Delta { rows: 0.., earliest: Some(due_s), weight: Some(weight) } = delta
            {
                more.push(More { crawl, host, rows: delta.rows, due_s, weight });
                continue;
            }
            self.conn
                .prepare_cached(
                    "INSERT INTO turns (/*pg: part, */ crawl_id, host_id, queued, due_s, weight)
                     VALUES (/*pg: CAST(?2 AS BIGINT) & 255, */ ?1, ?2, /*lite*/ max /*end*/ /*pg: GREATEST */ (CAST(?3 AS BIGINT), 0),
                         coalesce(CAST(?4 AS BIGINT), 0),
                         coalesce(CAST(?5 AS DOUBLE PRECISION), 1.0))
                     ON CONFLICT (/*pg: part, */ crawl_id, host_id) DO UPDATE SET
                     queued = /*lite*/ max /*end*/ /*pg: GREATEST */ (turns.queued + ?3, 0),
                     due_s = CASE WHEN turns.queued > 0
                         THEN /*lite*/ min /*end*/ /*pg: LEAST */ (turns.due_s, coalesce(?4, turns.due_s))
                         ELSE coalesce(?4, turns.due_s) END,
                     weight = coalesce(?5, turns.weight)",
                )
                .and_then(|mut upsert| {
                    upsert.send(params![
                        crawl.0,
                        host.0,
                        delta.rows,
                        delta.earliest,
                        delta.weight
                    ])
                })
                .map_err(engine)?;
        }
        // A server has been told of each.
        if more.is_empty() {
            return Ok(());
        }
        MORE.execute(&self.conn, &more, |more, row| {
            row.bind(more.crawl.0)?;
            row.bind(more.host.0)?;
            row.bind(more.rows)?;
            row.bind(more.due_s)?;
            row.bind(more.weight)
        })
        .map_err(engine)
    }

    /// Gives the hosts of sites whose weight is another than the turns were last given
    /// the one that they have now. A host of several has that of whoever queued last. Of
    /// daemons that share a store each does it for its own hosts.
    pub(super) fn heed_weights(&mut self) -> Result<(), StoreError> {
        let holds = own_weights(&self.policy);
        let was = self.meta(WEIGHTS)?.unwrap_or_default();
        let was: BTreeSet<String> = was.lines().map(str::to_owned).collect();
        let mut others: BTreeSet<&String> = was.symmetric_difference(&holds).collect();
        // Who came before us has noted what holds, and given it to hosts that are not ours.
        let before = self.policies.before().map(own_weights).unwrap_or_default();
        if self.is_shared() {
            others.extend(before.iter().chain(&holds));
        }
        if others.is_empty() {
            return Ok(());
        }
        let named = |line: &&String| line.split_once(' ').map(|(_, name)| name.to_owned());
        let others: BTreeSet<String> = others.iter().filter_map(named).collect();
        let sites = self.active_sites()?;
        for site in others.iter().filter_map(|name| sites.get(name)) {
            self.weigh_hosts(*site, self.policy.of(Some(*site)).weight)?;
        }
        self.set_meta(WEIGHTS, &holds.into_iter().collect::<Vec<_>>().join("\n"))
    }

    fn weigh_hosts(&self, site: SiteId, weight: f64) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(
                "UPDATE turns SET weight = ?2
                 WHERE crawl_id = (SELECT crawl_id FROM sites WHERE id = ?1)
                     AND /*lite*/ host_id /*end*/ /*pg: (part, host_id) */ IN
                         (SELECT /*pg: part, */ host_id FROM site_hosts WHERE site_id = ?1)
                     AND weight <> ?2 /*ours: part */",
            )
            .and_then(|mut update| update.execute(params![site.0, weight]))
            .map(|_| ())
            .map_err(engine)
    }

    /// Reads the hosts of a crawl that have anything queued: as much work as
    /// there are hosts, whatever the number of URLs.
    pub(super) fn load_window(&mut self, crawl: CrawlId) -> Result<(), StoreError> {
        let mut window = Window::new();
        let mut query = self
            .conn
            .prepare_cached(
                "SELECT t.host_id, t.due_s, t.weight, /*lite*/ max /*end*/ /*pg: GREATEST */ (h.next_at, h.paused_until)
                 FROM turns t JOIN hosts h ON h.id = t.host_id /*pg: AND h.part = t.part */
                 WHERE t.crawl_id = ?1 AND t.queued > 0 /*ours: t.part */ ORDER BY t.due_s",
            )
            .map_err(engine)?;
        let mut rows = query.query([crawl.0]).map_err(engine)?;
        while let Some(row) = rows.next().map_err(engine)? {
            let host = HostId(row.get(0).map_err(engine)?);
            let due_s: i64 = row.get(1).map_err(engine)?;
            window.wake(host, due_s.saturating_mul(1000), row.get(2).map_err(engine)?);
            window.set_clock(host, row.get(3).map_err(engine)?);
        }
        self.job.has_handled = true;
        self.windows.insert(crawl, window);
        Ok(())
    }
}

/// Sites whose weight is not that of all, each with it before its name.
fn own_weights(policy: &Policy) -> BTreeSet<String> {
    let own = |(name, site): (&String, &Arc<SitePolicy>)| {
        (site.weight.total_cmp(&1.0).is_ne()).then(|| format!("{} {name}", site.weight))
    };
    policy.by_name.iter().filter_map(own).collect()
}
