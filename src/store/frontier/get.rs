//! Serving queues in their turns: as leasing does, with the limits of the
//! protocol, and one delay for each serving of a queue, however many URLs it
//! has: the client spaces those itself.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use super::super::ending::End;
use super::super::expiry::Of;
use super::super::given::Call;
use super::super::hosts::partition_of;
use super::super::ledger::Asked;
use super::super::sql::Many;
use super::super::state::State;
use super::super::told::Count;
use super::super::{StoreError, engine};
use super::{Get, MAX_GET, Metadata, Progress, Served, WORKER};
use crate::by_id::ById;
use crate::metrics::Way;
use crate::model::{CrawlId, HostId, UrlId};
use crate::queue::{LeaseRequest, Leased};
use crate::recrawl::Fate;

/// Hosts looked at in one job at most.
const TURNS: usize = 20_000;
/// URLs taken out of the queue (blocked, forbidden) in one job at most.
const HELD: usize = 1_000;
/// Queues that one call has URLs of at most.
const MAX_QUEUES: usize = 100_000;

/// One job of a call.
struct Serving<'a> {
    get: &'a Get,
    leased: Vec<(String, Leased)>,
    /// Hosts that keep their turn for another call.
    passed: Vec<HostId>,
    /// Hosts of other daemons whose queues have been served.
    elsewhere: Vec<Delay>,
    progress: Progress,
}

/// A host, and until when it is left alone, in steady Unix milliseconds.
pub(in super::super) type Delay = (HostId, i64);

/// What one job of a call came to.
pub(super) struct Got {
    pub(super) served: Vec<Served>,
    pub(super) progress: Progress,
    /// For the owners of these to heed.
    pub(super) elsewhere: Vec<Delay>,
}

impl Serving<'_> {
    fn is_full(&self) -> bool {
        let queues = self.progress.served.len();
        let most = match self.get.max_queues {
            0 => MAX_QUEUES,
            limit => MAX_QUEUES.min(limit as usize),
        };
        queues >= most || self.leased.len() >= MAX_GET as usize
    }

    /// How many more URLs this call may have at most.
    fn left(&self) -> usize {
        let (left, get) = (MAX_GET as usize - self.leased.len(), self.get);
        if get.max_queues == 0 || get.per_queue == 0 {
            return left;
        }
        let queues = (get.max_queues as usize).saturating_sub(self.progress.served.len());
        left.min(queues.saturating_mul(get.per_queue as usize))
    }

    /// How many more URLs of a queue this call may have, if so many are out.
    fn room(&self, out: u32) -> usize {
        let left = MAX_GET as usize - self.leased.len();
        match self.get.per_queue {
            0 => left,
            most => left.min(most.saturating_sub(out) as usize),
        }
    }
}

static SAID: LazyLock<Many> = LazyLock::new(|| {
    let head = "SELECT url_id, spelled, metadata FROM frontier_urls WHERE";
    Many::of_ids(head, "url_id")
});

impl State {
    /// Leases URLs of the queues whose turn it is.
    pub(super) fn frontier_get(
        &mut self,
        get: &Get,
        progress: Progress,
    ) -> Result<Got, StoreError> {
        self.take_over_what_was_read()?;
        let (expired, dead) = self.return_expired()?;
        self.told.tell(Count::Expired(expired as u64, dead as u64));
        let (leased, passed, elsewhere) = (Vec::new(), Vec::new(), Vec::new());
        let mut serving = Serving { get, leased, passed, elsewhere, progress };
        if !self.frontier.active || serving.is_full() {
            let (served, elsewhere) = (Vec::new(), Vec::new());
            return Ok(Got { served, progress: serving.progress, elsewhere });
        }
        for crawl in self.crawls_of(get) {
            if self.crawls.get(&crawl).is_none_or(|crawl| crawl.paused) {
                continue;
            }
            self.tick_price(crawl)?;
            let request = self.request_of(crawl, get);
            let mut call = Call::new(crawl, &request, self.steady_ms());
            let only = match &get.key {
                Some(key) => Some(self.hosts_named(key)?),
                None => None,
            };
            self.serve_queues(&mut call, &mut serving, only.as_deref())?;
            if only.is_none() && !serving.is_full() {
                self.look_to_spare(&mut call, &[], serving.left())?;
                self.serve_queues(&mut call, &mut serving, None)?;
            }
            let held_up = self.windows.get(&crawl).is_some_and(|w| w.is_held_up(call.now));
            let short = only.is_none()
                && !serving.is_full()
                && serving.passed.is_empty()
                && !held_up
                && !call.is_cut;
            self.note_asked(crawl, if short { Asked::More } else { Asked::Something })?;
            if serving.is_full() {
                break;
            }
        }
        let Serving { leased, passed, elsewhere, progress, .. } = serving;
        self.look_again_at(&passed)?;
        self.tell_waits(&leased);
        Ok(Got { served: self.told(leased)?, progress, elsewhere })
    }

    /// The crawls that a call is about; of any, another first each time.
    fn crawls_of(&mut self, get: &Get) -> Vec<CrawlId> {
        if let Some(name) = &get.crawl {
            return self.find_crawl(name).into_iter().collect();
        }
        let mut all: Vec<CrawlId> = self.crawls.keys().copied().collect();
        all.sort_unstable();
        self.frontier.turn = (self.frontier.turn + 1) % all.len().max(1);
        all.rotate_left(self.frontier.turn);
        all
    }

    fn request_of(&self, crawl: CrawlId, get: &Get) -> LeaseRequest {
        LeaseRequest {
            max: MAX_GET,
            ttl: get.ttl,
            per_host: if get.per_queue == 0 { MAX_GET } else { get.per_queue.min(MAX_GET) },
            crawl: self.crawls.get(&crawl).map_or_else(String::new, |crawl| crawl.name.clone()),
            sites: Vec::new(),
            worker: Some(WORKER.to_owned()),
            request_id: None,
        }
    }

    fn serve_queues(
        &mut self,
        call: &mut Call,
        serving: &mut Serving<'_>,
        only: Option<&[HostId]>,
    ) -> Result<(), StoreError> {
        for turn in 0..=TURNS {
            if serving.is_full() || !call.may_have_any() {
                break;
            }
            if turn == TURNS || call.held >= HELD || call.has_passed_enough() {
                call.is_cut = true;
                break;
            }
            self.job.has_handled = true;
            let Some(window) = self.windows.get_mut(&call.crawl) else { break };
            let next = match only {
                Some(hosts) => window.next_turn_among(call.now, hosts.iter().copied()),
                None if call.spare => window.next_spare(call.now),
                None => window.next_turn(call.now),
            };
            let Some(host) = next else { break };
            let clock = self.host(host)?.not_before();
            let clock = clock.max(self.held_until(call.crawl, host)?);
            let queue = (call.crawl, self.queue_name(host)?);
            let room = if clock > call.now || serving.progress.served.contains(&queue) {
                0
            } else if serving.get.per_queue > 0 {
                serving.room(self.in_process((queue.0, host), &queue.1, serving.get.per_queue)?)
            } else {
                serving.room(0)
            };
            if room == 0 {
                self.window(call.crawl).skipped(host, clock.max(call.now + 1));
                if clock <= call.now {
                    serving.passed.push(host);
                }
                continue;
            }
            if self.serve_queue(call, host, room, &queue.1, serving)? > 0 {
                serving.progress.served.insert(queue);
            }
        }
        Ok(())
    }

    /// Leases what is due of one host; says how many.
    fn serve_queue(
        &mut self,
        call: &mut Call,
        host: HostId,
        room: usize,
        name: &str,
        serving: &mut Serving<'_>,
    ) -> Result<usize, StoreError> {
        let delay = self.delay_in(call.crawl, host)?;
        let start = self.host(host)?.not_before().max(call.now);
        let heads = self.take_heads(call, host, (room, HELD), (start, 0))?;
        let (taken, unjudged) = (heads.leased.len(), heads.unjudged);
        serving.leased.extend(heads.leased.into_iter().map(|leased| (name.to_owned(), leased)));
        if taken > 0 {
            // One delay for all of them.
            let before = delay * i64::try_from(taken - 1).unwrap_or(0);
            self.end_turn(call, host, taken, start - before, delay)?;
            if delay > 0 {
                self.delay_siblings(host, name, start + delay, &mut serving.elsewhere)?;
            }
        } else if unjudged {
            self.wait_for_robots(call, host);
        } else if !call.spare {
            self.end_turn(call, host, 0, start, delay)?;
        }
        Ok(taken)
    }

    /// A queue has one clock, under whatever schemes and ports its host is known.
    /// Those that are other daemons' are for them to move.
    fn delay_siblings(
        &mut self,
        host: HostId,
        name: &str,
        until: i64,
        elsewhere: &mut Vec<Delay>,
    ) -> Result<(), StoreError> {
        for sibling in self.hosts_named(name)?.into_iter().filter(|other| *other != host) {
            if self.owns(partition_of(sibling)) {
                self.delay_host(sibling, until)?;
            } else {
                elsewhere.push((sibling, until));
            }
        }
        Ok(())
    }

    /// Has it counted how long what is new or changed has waited.
    fn tell_waits(&mut self, leased: &[(String, Leased)]) {
        let mut waits: HashMap<&str, Vec<Duration>> = HashMap::new();
        for (_, leased) in leased {
            waits.entry(&leased.crawl).or_default().extend(leased.waited());
        }
        for (crawl, waits) in waits {
            self.told.tell(Count::Came(Way::SeenToLeased, crawl.to_owned(), waits));
        }
    }

    /// Leased URLs as the client is told of them.
    fn told(&mut self, leased: Vec<(String, Leased)>) -> Result<Vec<Served>, StoreError> {
        let ids: Vec<UrlId> = leased.iter().map(|(_, leased)| leased.id).collect();
        let mut said: ById<UrlId, (Option<String>, Option<String>)> = ById::default();
        SAID.query(
            &self.conn,
            &ids,
            |id, values| values.bind(id.0),
            |row| {
                said.insert(UrlId(row.get(0)?), (row.get(1)?, row.get(2)?));
                Ok(())
            },
        )
        .map_err(engine)?;
        let told = leased.into_iter().map(|(key, leased)| {
            let (spelled, metadata) = said.remove(&leased.id).unwrap_or_default();
            Served {
                url: spelled.unwrap_or(leased.url),
                key,
                crawl: leased.crawl,
                reason: leased.reason,
                metadata: metadata_of(metadata.as_deref()),
                token: leased.token,
            }
        });
        Ok(told.collect())
    }

    /// Takes back leases of this protocol that have expired: their URLs keep
    /// their places and can be had again at once. Says how many, and how many of
    /// them were given up.
    pub(in super::super) fn return_expired(&mut self) -> Result<(usize, usize), StoreError> {
        let tokens = self.expired(Of::Frontier)?;
        let mut dead = 0;
        for (row, lease) in self.read_leases(&tokens)?.into_values() {
            let given_up = lease.attempt >= self.policy.of(row.site).bounds.max_attempts;
            let due = lease.due_since();
            let fate = if given_up {
                Fate::Dead
            } else {
                Fate::Queue { due, reason: lease.reason, attempt: lease.attempt }
            };
            dead += usize::from(self.end_lease(row, &lease, End::Expired, fate, None)?);
        }
        if !tokens.is_empty() {
            self.write_pending()?;
        }
        Ok((tokens.len(), dead))
    }
}

/// Metadata as the table keeps it.
pub(super) fn metadata_of(json: Option<&str>) -> Metadata {
    json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
}
