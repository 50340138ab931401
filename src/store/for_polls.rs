//! What the poll loop asks of the store: what is due, effects of a read, hosts.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use url::Url;

use super::effect::{Applied, CHUNK, Effect, Origin, Unapplied};
use super::hosts::partition;
use super::maintain::Leftover;
use super::orders::Order;
use super::peers::Owner;
use super::policy::Policy;
use super::polling::{DueSource, NextPollAt, PollEnd, PollTarget};
use super::prepared::{Paths, Prepared, Preparer};
use super::robots::{KeptRobots, RobotsRead, SavedRobots};
use super::sources::{Child, ChildEffect, NewSource};
use super::state::{State, Wish};
use super::stranded::{self, Stranded};
use super::writer::Lane;
use super::{
    Store, StoreError, changes, checkpoint, due_reads, hosts, learn, poll_reads, timestamp,
};
use crate::config::Config;
use crate::diff::dates::Dates;
use crate::model::{ChangeKind, HostId, SiteId, SourceId, UrlId};
use crate::parse::robots::Robots;
use crate::recrawl::habit::Newer;

/// Sources registered, and children of an index changed, in one job at most.
const SOURCES_PER_JOB: usize = 1_000;

impl Store {
    /// Sites, policies and limits are those of this config from now on. Sites that
    /// are not `touched` are as the store has them. `taken` is called where all that
    /// holds, before sources of sites that are new are named as due; it may not block.
    pub async fn reconfigure(
        &self,
        config: Config,
        touched: BTreeSet<String>,
        taken: impl FnOnce() + Send + 'static,
    ) -> Result<(), StoreError> {
        let policy = Policy::new(&config);
        self.write(Lane::Bulk, move |state| {
            state.replace_policy(Policy::new(&config), Box::new(taken));
            // Sites come, go and return, and with them what may be leased.
            state.sync_sites(&config, |name| touched.contains(name))?;
            state.reload_windows()?;
            // In the same commit: a reload holds whole or not at all.
            state.note_settings()
        })
        .await?;
        self.set_policy(policy);
        self.tell_settings().await;
        Ok(())
    }

    /// Sources that are due, the longest due first, at most one per host, and none of
    /// these sites ([`MOST_PASSED_OVER`](crate::store::MOST_PASSED_OVER) at most).
    pub async fn due_sources(
        &self,
        limit: u32,
        but: Vec<SiteId>,
    ) -> Result<Vec<DueSource>, StoreError> {
        let now = self.inner.clock.now();
        self.read(move |conn| due_reads::due_sources(conn, now, limit, &but)).await
    }

    /// What somebody has asked for since the last call, where it is due: to be polled
    /// before all others.
    pub async fn asked_sources(&self) -> Result<Vec<DueSource>, StoreError> {
        let asked = self.inner.asked_sources.take();
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.inner.clock.now();
        let sources: Vec<_> = asked.iter().map(|wish| wish.source).collect();
        let due = match self.read(move |conn| due_reads::due_of(conn, &sources, now)).await {
            Ok(due) => due,
            Err(error) => {
                self.inner.asked_sources.add(asked);
                return Err(error);
            }
        };
        let is_here = |source| due.iter().any(|here| here.id == source);
        let mut others = asked;
        others.retain(|wish| !wish.is_told && !is_here(wish.source));
        if self.is_shared() && !others.is_empty() {
            // Some of them are of another daemon, which nobody waits for here.
            let (store, sources) = (self.clone(), others.iter().map(|wish| wish.source).collect());
            tokio::spawn(async move { store.on_others(Order::PollFirst(sources)).await });
        }
        Ok(due)
    }

    /// Another daemon was asked to have these polled first.
    pub(super) fn poll_first_here(&self, sources: Vec<SourceId>) {
        let wish = |source| Wish { source, is_told: true };
        self.inner.asked_sources.add(sources.into_iter().map(wish));
        self.look_here_too();
    }

    /// The longest due source of each of these hosts, where there is any.
    pub async fn next_due_of(&self, hosts: Vec<HostId>) -> Result<Vec<DueSource>, StoreError> {
        let now = self.inner.clock.now();
        self.read(move |conn| due_reads::next_due_of(conn, &hosts, now)).await
    }

    /// A source that was due, as a poll needs it; `None` where it no longer is.
    pub async fn still_due(&self, id: SourceId) -> Result<Option<PollTarget>, StoreError> {
        let now = self.inner.clock.now();
        self.read(move |conn| due_reads::still_due(conn, id, now)).await
    }

    /// When the next source is due, if any is polled at all.
    pub async fn next_source_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read(due_reads::next_source_due).await
    }

    /// One source as a poll needs it.
    pub async fn poll_target(&self, id: SourceId) -> Result<PollTarget, StoreError> {
        self.read(move |conn| due_reads::poll_target(conn, id)).await
    }

    /// The snapshot of a source, encoded, and since when all its siblings
    /// under the same index have been read.
    pub async fn snapshot(
        &self,
        target: &PollTarget,
    ) -> Result<(Option<Vec<u8>>, i64), StoreError> {
        let (id, parent) = (target.id, target.parent);
        self.read(move |conn| poll_reads::snapshot(conn, id, parent)).await
    }

    /// Of these URLs those that another source lists that shows the whole.
    pub async fn listed_elsewhere(
        &self,
        source: SourceId,
        urls: Vec<UrlId>,
    ) -> Result<HashSet<UrlId>, StoreError> {
        self.read(move |conn| poll_reads::listed_elsewhere(conn, source, &urls)).await
    }

    /// What the newer lastmods of a read are as signals, by the habit of its
    /// source; to be told with its effects. And whether such ones have proven true.
    pub async fn newer_of(
        &self,
        source: SourceId,
        host: HostId,
        dates: Arc<Dates>,
    ) -> Result<(Newer, bool), StoreError> {
        self.read(move |conn| learn::newer_of(conn, (source, host), &dates)).await
    }

    /// Applies effects of a diff, a chunk at a time. What is on hosts of others'
    /// partitions they apply; what is told twice changes nothing the second time.
    pub async fn apply(&self, origin: Origin, effects: Vec<Effect>) -> Result<Applied, StoreError> {
        if self.inner.peers.is_none() {
            return self.apply_here(origin, effects).await;
        }
        let order = |effects| Order::Apply(origin, effects);
        let mut all = Applied::default();
        let mut rest = effects.into_iter();
        while !rest.as_slice().is_empty() {
            let chunk: Vec<_> = rest.by_ref().take(CHUNK).collect();
            // Others may have joined since the last one.
            if !self.is_shared() {
                all.add(self.apply_here(origin, chunk).await?);
                continue;
            }
            for (_, reply) in self.spread(chunk, Effect::partition, order).await? {
                all.add(reply.applied()?);
            }
        }
        Ok(all)
    }

    /// The same for effects that were prepared elsewhere than on an async worker, as
    /// many admissions are to be.
    pub async fn apply_prepared(
        &self,
        origin: Origin,
        prepared: Prepared,
    ) -> Result<Applied, StoreError> {
        match prepared.paths {
            Some(paths) => self.apply_own(origin, Unapplied::new(prepared.effects, paths)).await,
            None => self.apply(origin, prepared.effects).await,
        }
    }

    /// Prepares effects for [`Store::apply_prepared`].
    pub fn preparer(&self) -> Preparer {
        let is_one_file = self.inner.peers.is_none();
        let sieves = is_one_file.then(|| Arc::clone(&self.inner.sieves));
        Preparer { seed: self.seed(), sieves }
    }

    pub(super) async fn apply_here(
        &self,
        origin: Origin,
        effects: Vec<Effect>,
    ) -> Result<Applied, StoreError> {
        // Of a server the rows have the text.
        let abbreviates = self.inner.peers.is_none();
        let paths = Paths::of(self.seed(), origin.crawl, &effects, abbreviates);
        tokio::task::yield_now().await;
        self.apply_own(origin, Unapplied::new(effects, paths)).await
    }

    async fn apply_own(&self, origin: Origin, mut left: Unapplied) -> Result<Applied, StoreError> {
        let mut all = Applied::default();
        while !left.effects.as_slice().is_empty() {
            let mut rest = left;
            let chunk = self.write_naming(Lane::Bulk, move |state| {
                state.must_hold(origin.source, origin.tenure)?;
                // Of a file all partitions are ours.
                if state.conn.embedded().is_none() {
                    let mut partitions = rest.effects.as_slice().iter().map(Effect::partition);
                    partitions.try_for_each(|partition| state.must_own(partition))?;
                }
                Ok((state.apply(origin, &mut rest)?, rest))
            });
            let (applied, rest) = chunk.await?;
            all.add(applied);
            left = rest;
        }
        Ok(all)
    }

    /// Events that this very read of a source has logged already: of a process
    /// that died in the middle of it.
    pub async fn logged(&self, origin: Origin) -> Result<HashSet<(ChangeKind, UrlId)>, StoreError> {
        self.read(move |conn| changes::logged(conn, origin.source, origin.generation)).await
    }

    /// What is needed of URLs that a read admitted and did not keep in a snapshot.
    pub async fn stranded(&self, urls: Vec<UrlId>) -> Result<Vec<Stranded>, StoreError> {
        if urls.is_empty() {
            return Ok(Vec::new());
        }
        let seed = self.seed();
        self.read(move |conn| stranded::stranded(conn, seed, &urls)).await
    }

    /// The children of an index.
    pub async fn children(&self, index: SourceId) -> Result<Vec<Child>, StoreError> {
        let seed = self.seed();
        self.read(move |conn| poll_reads::children(conn, seed, index)).await
    }

    /// Applies what a read of an index asks of its children, unless the index was
    /// retired meanwhile; says how many are new and how many the site's quota
    /// refused.
    pub async fn apply_children(
        &self,
        index: Option<SourceId>,
        site: SiteId,
        effects: Vec<ChildEffect>,
    ) -> Result<(u64, u64), StoreError> {
        let (mut added, mut refused) = (0, 0);
        let mut rest = effects.into_iter().peekable();
        while rest.peek().is_some() {
            let part: Vec<_> = rest.by_ref().take(SOURCES_PER_JOB).collect();
            let (a, r) = self
                .write(Lane::Bulk, move |state| state.apply_children(index, site, part))
                .await?;
            added += a;
            refused += r;
        }
        Ok((added, refused))
    }

    /// Registers sources of a site; says how many are new and how many the
    /// site's quota refused.
    pub async fn register(
        &self,
        site: SiteId,
        sources: Vec<NewSource>,
    ) -> Result<(u64, u64), StoreError> {
        let effects = sources.into_iter().map(ChildEffect::Add).collect();
        self.apply_children(None, site, effects).await
    }

    /// The form that a site's home page redirects to; says whether it is new.
    pub async fn learn_origin(&self, site: SiteId, origin: Url) -> Result<bool, StoreError> {
        let is_new = self.write(Lane::Bulk, move |state| state.learn_origin(site, &origin)).await?;
        if is_new {
            // Blocks may have come with it.
            self.tell_settings().await;
        }
        Ok(is_new)
    }

    /// Writes how a poll ended: the one step that moves snapshot, validators
    /// and the next poll. Returns the number of the poll.
    pub async fn finish_poll(&self, end: PollEnd) -> Result<i64, StoreError> {
        // Polls that bring nothing are most of all, and short: many in a commit.
        let lane = if end.kept.has_snapshot() { Lane::Bulk } else { Lane::Hot };
        self.write_naming(lane, move |state| {
            state.must_hold(end.source, end.tenure)?;
            state.must_own(end.source.0)?;
            state.finish_poll(&end)
        })
        .await
    }

    /// The poll was not made: it is due again at `until`, and why.
    pub async fn defer_poll(
        &self,
        source: SourceId,
        until: Timestamp,
        why: &'static str,
    ) -> Result<(), StoreError> {
        self.write_naming(Lane::Hot, move |state| state.defer_poll(source, until, why)).await
    }

    /// The poll was not needed, says the index.
    pub async fn skip_poll(&self, source: SourceId, next: NextPollAt) -> Result<(), StoreError> {
        self.write_naming(Lane::Hot, move |state| state.skip_poll(source, &next)).await
    }

    /// The home page of a site, if it has never been polled.
    pub async fn unseen_home(&self, site: SiteId) -> Result<Option<PollTarget>, StoreError> {
        self.read(move |conn| due_reads::unseen_home(conn, site)).await
    }

    /// Tells when sources have come due for another reason than time.
    pub fn sources_changed(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.sources.subscribe()
    }

    /// Takes a host's next slot for one request: when it may be sent. `Err` in
    /// the result holds that time when it is further off than `patience`.
    /// `delay` is the least between two requests, where the host is nobody's
    /// home; `None` goes by what it is already. `unused` is a slot that was taken
    /// before and not used, which is given back for it.
    pub async fn reserve(
        &self,
        authority: String,
        delay: Option<Duration>,
        patience: Duration,
        unused: Option<Timestamp>,
    ) -> Result<Result<Timestamp, Timestamp>, StoreError> {
        if !self.is_shared() {
            return self.reserve_here(authority, delay, patience, unused).await;
        }
        let order = Order::Reserve { authority: authority.clone(), delay, patience, unused };
        self.on_host(&authority, order).await?.slot()
    }

    pub(super) async fn reserve_here(
        &self,
        authority: String,
        delay: Option<Duration>,
        patience: Duration,
        unused: Option<Timestamp>,
    ) -> Result<Result<Timestamp, Timestamp>, StoreError> {
        let slot = self
            .write_naming(Lane::Hot, move |state| {
                state.must_own(partition(&authority))?;
                let unused = unused.map(Timestamp::as_millisecond);
                state.reserve(&authority, delay, patience, unused)
            })
            .await?;
        Ok(slot.map(timestamp).map_err(timestamp))
    }

    /// Gives back a slot of a host that was not used, unless somebody has one after it.
    pub async fn give_back(&self, authority: String, slot: Timestamp) -> Result<(), StoreError> {
        if !self.is_shared() {
            return self.give_back_here(authority, slot).await;
        }
        let order = Order::GiveBack { authority: authority.clone(), slot };
        self.on_host(&authority, order).await.map(|_| ())
    }

    pub(super) async fn give_back_here(
        &self,
        authority: String,
        slot: Timestamp,
    ) -> Result<(), StoreError> {
        self.write_naming(Lane::Hot, move |state| {
            state.must_own(partition(&authority))?;
            state.give_back(&authority, slot.as_millisecond())
        })
        .await
    }

    /// Leaves a host alone for a while, polls and leases alike.
    pub async fn pause_host(
        &self,
        authority: String,
        pause: Duration,
        why: &'static str,
    ) -> Result<(), StoreError> {
        if !self.is_shared() {
            return self.pause_host_here(authority, pause, why.to_owned()).await;
        }
        let why = why.to_owned();
        let order = Order::PauseHost { authority: authority.clone(), pause, why };
        self.on_host(&authority, order).await.map(|_| ())
    }

    pub(super) async fn pause_host_here(
        &self,
        authority: String,
        pause: Duration,
        why: String,
    ) -> Result<(), StoreError> {
        self.write_naming(Lane::Hot, move |state| {
            state.must_own(partition(&authority))?;
            let Some(host) = state.find_host(&authority)? else { return Ok(()) };
            let until = state.steady_ms().saturating_add(hosts::millis(pause));
            state.pause_host(host, until, &why)
        })
        .await
    }

    /// What is kept of the robots.txt of an authority, and the source that
    /// polls it (made when there is none).
    pub async fn robots(
        &self,
        authority: String,
        delay: Duration,
    ) -> Result<(SourceId, Option<KeptRobots>), StoreError> {
        let read = authority.clone();
        if let Some(found) = self.read(move |conn| poll_reads::robots_of(conn, &read)).await? {
            return Ok(found);
        }
        self.write(Lane::Hot, move |state| {
            let host = state.host_named(&authority, delay)?;
            state.ensure_robots(host, None)?;
            poll_reads::robots_of(&state.conn, &authority)?
                .ok_or_else(|| StoreError::Engine(format!("no robots.txt source for {authority}")))
        })
        .await
    }

    /// Is an authority known, whatever for?
    pub async fn knows_host(&self, authority: String) -> Result<bool, StoreError> {
        self.read(move |conn| poll_reads::knows_host(conn, &authority)).await
    }

    /// Robots.txt files that are due, the longest due first.
    pub async fn due_robots(&self, limit: u32) -> Result<Vec<DueSource>, StoreError> {
        let now = self.inner.clock.now();
        self.read(move |conn| due_reads::due_robots(conn, now, limit)).await
    }

    /// What is kept of it, where anything is.
    pub async fn kept_robots(&self, authority: String) -> Result<Option<KeptRobots>, StoreError> {
        let found = self.read(move |conn| poll_reads::robots_of(conn, &authority)).await?;
        Ok(found.and_then(|(_, kept)| kept))
    }

    /// Sees to it that the robots.txt of an authority is polled for a site.
    pub async fn poll_robots_for(
        &self,
        site: SiteId,
        authority: String,
        delay: Duration,
    ) -> Result<(), StoreError> {
        self.write(Lane::Bulk, move |state| {
            let host = state.host_named(&authority, delay)?;
            state.ensure_robots(host, Some(site))
        })
        .await
    }

    /// Keeps what was read of a host's robots.txt; says what changed. What the
    /// old rules held back is judged anew by others; where that is broken off,
    /// maintenance does the rest.
    pub async fn save_robots(
        &self,
        host: HostId,
        read: RobotsRead,
        expires_at: Timestamp,
    ) -> Result<SavedRobots, StoreError> {
        // Beside the writer: it may be long.
        let robots = match &read {
            RobotsRead::Rules { body, .. } => Robots::parse(body),
            RobotsRead::Same | RobotsRead::Unreachable { .. } => Robots::default(),
        };
        let saved = self
            .write(Lane::Hot, move |state| {
                state.must_own(host.0)?;
                state.save_robots(host, &read, &robots, expires_at)
            })
            .await?;
        while saved.changed && self.write(Lane::Bulk, move |state| state.recheck_for(host)).await? {
        }
        Ok(saved)
    }

    /// Sites whose home authority is this one: who a robots.txt speaks for.
    pub async fn sites_at(&self, host: HostId) -> Result<Vec<(SiteId, String)>, StoreError> {
        self.read(move |conn| poll_reads::sites_at(conn, host)).await
    }

    /// The learned origin of a site.
    pub async fn origin_of(&self, site: SiteId) -> Result<Option<Url>, StoreError> {
        self.read(move |conn| poll_reads::origin_of(conn, site)).await
    }

    /// Is the host of a URL ours to ask for its robots.txt? If not, its owner is
    /// told to do so.
    pub async fn may_ask_robots(&self, authority: String) -> Result<bool, StoreError> {
        let part = partition(&authority);
        if !self.is_shared() || self.inner.peers.as_ref().is_none_or(|p| p.owner(part) == Owner::Us)
        {
            return Ok(true);
        }
        self.write(Lane::Hot, move |state| state.poll_robots_soon(&authority)).await?;
        self.on_others(Order::Look).await;
        Ok(false)
    }

    /// Retention, what is to be judged anew by robots.txt, and what retired
    /// sources still hold: a bounded part of the work; `true` while there is more.
    pub async fn maintain(&self) -> Result<bool, StoreError> {
        let (more, left) = self.write(Lane::Bulk, State::maintain).await?;
        let Some(left) = left else { return Ok(more) };
        self.let_go(left).await?;
        Ok(true)
    }

    /// Lets go of a part of what a retired source holds.
    pub(super) async fn let_go(&self, left: Leftover) -> Result<(), StoreError> {
        if !self.is_shared() {
            return self.write(Lane::Bulk, move |state| state.let_go(left)).await;
        }
        let Leftover { source, origin, effects, taken, .. } = left;
        // It may have come back since; what it lists then is not to be let go. Should it do so
        // from here on, it is told as gone and new.
        if !self.write(Lane::Bulk, move |state| state.is_retired(source)).await? {
            return Ok(());
        }
        let counts = self.apply(origin, effects).await?.counts;
        self.write(Lane::Bulk, move |state| {
            state.note_let_go(source, &counts)?;
            state.cut_retired(source, taken.as_ref())
        })
        .await
    }

    /// Bytes free on the disk of the store.
    pub fn free_disk(&self) -> Option<u64> {
        checkpoint::free_disk(&self.inner.path)
    }
}
