//! What daemons that share a store ask of one another, and who does what.
//!
//! Whoever is asked something by a client does the part of it that is his, and
//! has the owners of the other partitions do theirs. Nothing of a queue, of a
//! URL's place or of a host's clock is written by any other than its owner.
//! Rows of sites and sources are nobody's memory: whoever has to, writes them,
//! and tells the others to look.
//!
//! While a partition is nobody's, as after a daemon has died, who needs it waits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use super::effect::{Applied, Effect, Origin};
use super::explain::Around;
use super::frontier::{Delay, Get, Progress, Put, Served, Taken};
use super::hosts::partition;
use super::peers::{Owner, PARTITIONS, Told};
use super::pushes::PushedUrl;
use super::state::State;
use super::tombstones::Deletion;
use super::writer::Lane;
use super::{Imported, PastFetch, Store, StoreError};
use crate::model::{SourceId, UrlId};
use crate::queue::token::Token;
use crate::queue::{LeaseBatch, LeaseRequest, Settlement, TokenResult};

/// A partition that is nobody's is waited for so long: longer than it takes
/// until a daemon that is gone is taken over.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks at whose it is now.
const PAUSE: Duration = Duration::from_millis(200);
/// A daemon that did not hear that it is to look is told again after this long.
const AGAIN: Duration = Duration::from_secs(2);
/// and twice as long after each further time, up to this.
const LATEST: Duration = Duration::from_secs(60);

/// Where a walk goes on: behind a row, and the second number of one that has two.
pub(super) type Spot = (i64, i64);
/// Before all rows.
pub(super) const START: Spot = (0, 0);

/// What is done to many rows of all partitions, a part at a time. To do it again
/// changes nothing more.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Walk {
    /// Puts dead letters back.
    Replay { crawl: String },
    /// Puts back what no block holds any more.
    Release { crawl: String },
    /// Drops the URLs of a site that is to be forgotten.
    Forget { site: String },
}

/// What a daemon does for another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Order {
    /// Lease of what is its own.
    Lease(LeaseRequest),
    /// Lease on behalf of a client, whose calls with this id all come to it.
    LeaseAll(LeaseRequest),
    Settle(Vec<Settlement>),
    Extend(Vec<Token>, Duration),
    Release(Vec<Token>, Duration),
    Apply(Origin, Vec<Effect>),
    Bury(Origin, Vec<Deletion>),
    Reserve {
        authority: String,
        delay: Option<Duration>,
        patience: Duration,
        unused: Option<jiff::Timestamp>,
    },
    GiveBack {
        authority: String,
        slot: jiff::Timestamp,
    },
    PauseHost {
        authority: String,
        pause: Duration,
        why: String,
    },
    Heed(Vec<PushedUrl>),
    Replay {
        crawl: String,
        urls: Vec<String>,
    },
    Requeue {
        crawl: String,
        urls: Vec<String>,
    },
    Block {
        crawl: String,
        pattern: String,
        prefix: bool,
    },
    Import {
        crawl: String,
        fetches: Vec<PastFetch>,
    },
    FrontierPut(Vec<Put>),
    FrontierGet(Get, Progress),
    /// Leave hosts alone whose queues were served elsewhere.
    Delay(Vec<Delay>),
    RemovePushed(Vec<UrlId>),
    /// A part of a walk over these partitions, which are its own.
    Walk {
        walk: Walk,
        parts: Vec<i64>,
        behind: Spot,
    },
    /// What is set for crawls, sites and queues has changed.
    Remember,
    /// Sources or hubs have something to do.
    Look,
    /// Those of these sources that are its own are to be polled before all others.
    PollFirst(Vec<SourceId>),
    /// Say what a lease of a URL would be decided by.
    Recall(UrlId),
}

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Reply {
    Done,
    Leased(LeaseBatch),
    Tokens(Vec<TokenResult>),
    Applied(Applied),
    Count(u64),
    Known(Vec<bool>),
    Slot(Result<jiff::Timestamp, jiff::Timestamp>),
    Imported(Imported),
    Taken(Vec<Taken>),
    Served(Vec<Served>, Progress),
    /// What a part came to, and where the walk goes on, if it does.
    Walked(u64, Option<Spot>),
    Recalled(Option<Around>),
}

impl Reply {
    fn unexpected(&self) -> StoreError {
        StoreError::Engine(format!("another daemon answered something else: {self:?}"))
    }

    pub(super) fn leased(self) -> Result<LeaseBatch, StoreError> {
        if let Self::Leased(batch) = self { Ok(batch) } else { Err(self.unexpected()) }
    }

    pub(super) fn tokens(self) -> Result<Vec<TokenResult>, StoreError> {
        if let Self::Tokens(results) = self { Ok(results) } else { Err(self.unexpected()) }
    }

    pub(super) fn applied(self) -> Result<Applied, StoreError> {
        if let Self::Applied(applied) = self { Ok(applied) } else { Err(self.unexpected()) }
    }

    pub(super) fn count(self) -> Result<u64, StoreError> {
        if let Self::Count(count) = self { Ok(count) } else { Err(self.unexpected()) }
    }

    pub(super) fn known(self) -> Result<Vec<bool>, StoreError> {
        if let Self::Known(known) = self { Ok(known) } else { Err(self.unexpected()) }
    }

    pub(super) fn imported(self) -> Result<Imported, StoreError> {
        if let Self::Imported(imported) = self { Ok(imported) } else { Err(self.unexpected()) }
    }

    pub(super) fn taken(self) -> Result<Vec<Taken>, StoreError> {
        if let Self::Taken(taken) = self { Ok(taken) } else { Err(self.unexpected()) }
    }

    pub(super) fn recalled(self) -> Result<Option<Around>, StoreError> {
        if let Self::Recalled(around) = self { Ok(around) } else { Err(self.unexpected()) }
    }

    fn walked(self) -> Result<(u64, Option<Spot>), StoreError> {
        if let Self::Walked(count, next) = self {
            Ok((count, next))
        } else {
            Err(self.unexpected())
        }
    }

    pub(super) fn slot(self) -> Result<Result<jiff::Timestamp, jiff::Timestamp>, StoreError> {
        if let Self::Slot(slot) = self { Ok(slot) } else { Err(self.unexpected()) }
    }
}

impl Store {
    /// Is it a daemon that shares the store who gives this secret?
    pub(crate) fn is_peer(&self, secret: &str) -> bool {
        self.inner.peers.as_ref().is_some_and(|peers| peers.knows(secret))
    }

    /// Does what another daemon asks: its order and our answer are JSON.
    pub(crate) async fn serve_peer(&self, order: &[u8]) -> Vec<u8> {
        let answer = match serde_json::from_slice(order) {
            Ok(order) => Box::pin(self.carry_out(order)).await,
            Err(error) => {
                tracing::warn!(%error, "an order of another daemon cannot be read");
                Err(StoreError::Engine(format!("it is of another version: {error}")))
            }
        };
        // What cannot be written is an answer that cannot be read.
        serde_json::to_vec(&answer.map_err(Told::from)).unwrap_or_default()
    }

    /// Does what is ours.
    async fn carry_out(&self, order: Order) -> Result<Reply, StoreError> {
        Ok(match order {
            Order::Lease(request) => Reply::Leased(self.lease_share(request).await?),
            Order::LeaseAll(request) => Reply::Leased(self.lease_for(request).await?),
            Order::Settle(results) => Reply::Tokens(self.settle_here(results).await?),
            Order::Extend(tokens, ttl) => Reply::Tokens(self.extend_here(tokens, ttl).await?),
            Order::Release(tokens, after) => Reply::Tokens(self.release_here(tokens, after).await?),
            Order::Apply(origin, effects) => {
                Reply::Applied(self.apply_here(origin, effects).await?)
            }
            Order::Bury(origin, deleted) => Reply::Count(self.bury_here(origin, deleted).await?),
            Order::Reserve { authority, delay, patience, unused } => {
                Reply::Slot(self.reserve_here(authority, delay, patience, unused).await?)
            }
            Order::GiveBack { authority, slot } => {
                self.give_back_here(authority, slot).await?;
                Reply::Done
            }
            Order::PauseHost { authority, pause, why } => {
                self.pause_host_here(authority, pause, why).await?;
                Reply::Done
            }
            Order::Heed(urls) => Reply::Known(self.heed_here(urls).await?),
            Order::Replay { crawl, urls } => Reply::Count(self.replay_here(crawl, urls).await?),
            Order::Requeue { crawl, urls } => Reply::Count(self.requeue_here(crawl, urls).await?),
            Order::Block { crawl, pattern, prefix } => {
                Reply::Count(self.block_here(crawl, pattern, prefix).await?)
            }
            Order::Import { crawl, fetches } => {
                Reply::Imported(self.import_here(crawl, fetches).await?)
            }
            Order::FrontierPut(items) => Reply::Taken(self.frontier_put_here(items).await?),
            Order::FrontierGet(get, progress) => {
                let (served, progress) = self.frontier_get_here(get, progress).await?;
                Reply::Served(served, progress)
            }
            Order::Delay(hosts) => {
                self.delay_here(hosts).await?;
                Reply::Done
            }
            Order::RemovePushed(rows) => Reply::Count(self.remove_pushed_here(rows).await?),
            Order::Walk { walk, parts, behind } => {
                let (count, next) = self.walk_here(walk, parts, behind).await?;
                Reply::Walked(count, next)
            }
            Order::Remember => {
                self.remember_here().await?;
                Reply::Done
            }
            Order::Look => {
                self.look_here_too();
                Reply::Done
            }
            Order::PollFirst(sources) => {
                self.poll_first_here(sources);
                Reply::Done
            }
            Order::Recall(url) => Reply::Recalled(self.recall_here(url).await?),
        })
    }

    /// Tells those who share the store when something may have come due to them
    /// by what we did. Runs until it is dropped.
    ///
    /// Who they are is known as of the last look: one that joins meanwhile may
    /// have looked for what is due before we wrote it, and is told once it is
    /// seen. One that did not answer is told again, as long as it seems to be up, and
    /// ever less often: it may be up and out of our reach.
    pub async fn tell_peers(&self) {
        let Some(peers) = &self.inner.peers else { return std::future::pending().await };
        let mut moved = self.inner.moved.subscribe();
        let (mut all_know, mut again) = (true, AGAIN);
        loop {
            // What moves while they are told is told next time.
            let happened = async {
                tokio::select! {
                    // The sender cannot go away: we hold it.
                    _ = moved.changed() => {}
                    () = peers.joined() => {}
                }
            };
            if all_know {
                again = AGAIN;
                happened.await;
            } else if tokio::time::timeout(again, happened).await.is_err() {
                again = LATEST.min(again * 2);
            }
            all_know = self.on_others(Order::Look).await.len() == peers.others().len();
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Is the store shared with others just now?
    pub fn is_shared(&self) -> bool {
        self.inner.peers.as_ref().is_some_and(|peers| peers.deal().nodes.len() > 1)
    }

    /// Deals items to the owners of their partitions and has each do its part of
    /// them; gives what each answered with the places of its items. What is
    /// nobody's is waited for.
    pub(super) async fn spread<I: Clone>(
        &self,
        items: Vec<I>,
        part: impl Fn(&I) -> i64,
        order: impl Fn(Vec<I>) -> Order,
    ) -> Result<Vec<(Vec<usize>, Reply)>, StoreError> {
        let Some(peers) = &self.inner.peers else {
            let places = (0..items.len()).collect();
            let reply = Box::pin(self.carry_out(order(items))).await?;
            return Ok(vec![(places, reply)]);
        };
        let mut left: Vec<(usize, I)> = items.into_iter().enumerate().collect();
        let mut done = Vec::new();
        let began = Instant::now();
        loop {
            let mut dealt: BTreeMap<Owner, Vec<(usize, I)>> = BTreeMap::new();
            for (place, item) in left {
                dealt.entry(peers.owner(part(&item))).or_default().push((place, item));
            }
            let answers = dealt.into_iter().map(|(owner, share)| {
                let order = order(share.iter().map(|(_, item)| item.clone()).collect());
                async move {
                    let answer = match &owner {
                        Owner::Us => Box::pin(self.carry_out(order)).await,
                        Owner::At(address) => peers.ask(address, &order).await,
                        Owner::Nobody => Err(StoreError::Elsewhere),
                    };
                    (owner, share, answer)
                }
            });
            left = Vec::new();
            let mut why = StoreError::Elsewhere;
            for (owner, share, answer) in join_all(answers).await {
                match answer {
                    Ok(reply) => {
                        done.push((share.into_iter().map(|(place, _)| place).collect(), reply));
                    }
                    // The database is away, and others do not help.
                    Err(error @ StoreError::Away(_)) if owner == Owner::Us => return Err(error),
                    Err(
                        error @ (StoreError::Elsewhere
                        | StoreError::Away(_)
                        | StoreError::Unreached(_)),
                    ) => {
                        why = error;
                        left.extend(share);
                    }
                    Err(error) => return Err(error),
                }
            }
            if left.is_empty() {
                return Ok(done);
            }
            if began.elapsed() >= PATIENCE {
                return Err(why);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Has the owner of a partition do something.
    pub(super) async fn on_owner(&self, part: i64, order: Order) -> Result<Reply, StoreError> {
        let mut answers = self.spread(vec![part], |part| *part, |_| order.clone()).await?;
        answers.pop().map(|(_, reply)| reply).ok_or(StoreError::Elsewhere)
    }

    /// The same by the authority of a host.
    pub(super) async fn on_host(&self, authority: &str, order: Order) -> Result<Reply, StoreError> {
        self.on_owner(partition(authority), order).await
    }

    /// Has the owners of all partitions walk what is theirs, a bounded part in each
    /// order, as an order that takes long is given up; adds up what the parts say.
    /// What gets another owner meanwhile is walked by that one, from the beginning
    /// where that is somewhere else with what it had.
    pub(super) async fn walk(&self, walk: Walk) -> Result<u64, StoreError> {
        let mut left: Vec<(i64, Spot)> = (0..).take(PARTITIONS).map(|part| (part, START)).collect();
        let mut total = 0;
        while !left.is_empty() {
            let order = |share: Vec<(i64, Spot)>| {
                let (parts, spots): (Vec<_>, Vec<_>) = share.into_iter().unzip();
                let behind = spots.first().copied().unwrap_or(START);
                let is_one = spots.iter().all(|spot| *spot == behind);
                let behind = if is_one { behind } else { START };
                Order::Walk { walk: walk.clone(), parts, behind }
            };
            let mut more = Vec::new();
            for (places, reply) in self.spread(left.clone(), |(part, _)| *part, order).await? {
                let (count, next) = reply.walked()?;
                total += count;
                let Some(next) = next else { continue };
                let parts = places.into_iter().filter_map(|place| left.get(place));
                more.extend(parts.map(|(part, _)| (*part, next)));
            }
            left = more;
        }
        Ok(total)
    }

    /// A part of a walk over what is ours, in a transaction of its own, so that
    /// leases get in between.
    async fn walk_here(
        &self,
        walk: Walk,
        parts: Vec<i64>,
        behind: Spot,
    ) -> Result<(u64, Option<Spot>), StoreError> {
        let walked = self
            .write(Lane::Bulk, move |state| {
                parts.iter().try_for_each(|part| state.must_own(*part))?;
                match walk {
                    Walk::Replay { crawl } => state.replay_all(&crawl, behind),
                    Walk::Release { crawl } => state.release_blocked(&crawl, behind),
                    Walk::Forget { site } => state.forget_part(&site, behind),
                }
            })
            .await;
        self.inner.figures.outdate();
        walked
    }

    /// Has all others do something; what those who do not answer would say is
    /// left out.
    pub(super) async fn on_others(&self, order: Order) -> Vec<Reply> {
        let Some(peers) = &self.inner.peers else { return Vec::new() };
        let others = peers.others();
        let asked = others.iter().map(|address| peers.ask(address, &order));
        let answers = join_all(asked).await;
        answers
            .into_iter()
            .filter_map(|answer| {
                answer
                    .inspect_err(|error| {
                        tracing::warn!(%error, "another daemon did not do what it was asked");
                    })
                    .ok()
            })
            .collect()
    }

    /// Changes what is set for crawls, sites and queues. That others are to read it
    /// again is a part of the same commit: whoever is not told, or whose teller has
    /// gone by then, sees it at the next look.
    pub(super) async fn set<T, F>(&self, lane: Lane, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut State) -> Result<T, StoreError> + Send + 'static,
    {
        let done = self.set_here(lane, job).await?;
        self.tell_settings().await;
        Ok(done)
    }

    /// The same where it is for another to tell.
    pub(super) async fn set_here<T, F>(&self, lane: Lane, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut State) -> Result<T, StoreError> + Send + 'static,
    {
        self.write(lane, |state| {
            let done = job(state)?;
            state.note_settings()?;
            Ok(done)
        })
        .await
    }

    /// What is set has changed: everybody is to look now, and not just within a
    /// second.
    pub(super) async fn tell_settings(&self) {
        if self.is_shared() {
            self.on_others(Order::Remember).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::snapshot::EntryHints;
    use crate::model::{
        ChangeFreq, CrawlId, Lastmod, Precision, Priority, SiteId, SourceId, UrlKind,
    };
    use crate::recrawl::habit::Span;
    use crate::recrawl::signal::Signal;
    use crate::url::Admitted;

    fn origin() -> Origin {
        Origin {
            source: SourceId(257),
            site: SiteId(1),
            crawl: CrawlId(1),
            window: false,
            generation: 7,
            moves: Signal::Stamp,
            stamped: Some(Span { from_s: -1, to_s: 1_795_000_000 }),
            tenure: 3,
        }
    }

    #[test]
    fn an_order_comes_over_the_wire_as_it_was_given() {
        let at = "2026-11-21T08:30:00.25Z".parse().unwrap();
        let hints = EntryHints {
            changefreq: Some(ChangeFreq::Weekly),
            priority: Priority::from_thousandths(333),
        };
        for precision in Precision::ALL {
            let effects = vec![
                Effect::Admit {
                    slot: 4,
                    url: Admitted {
                        authority: "https://example.org".into(),
                        path: "/\u{e4}?\u{0}".to_owned(),
                        respelled: true,
                    },
                    raw: Some("x".to_owned()),
                    lastmod: Some(Lastmod { at, precision }),
                    hints,
                    kind: UrlKind::Image,
                },
                Effect::Changed { url: UrlId(1), lastmod: Lastmod { at, precision }, hints },
                Effect::Hints { url: UrlId(2), lastmod: None, hints: EntryHints::default() },
                Effect::Extensions { url: UrlId(3), said: None },
            ];
            let order = Order::Apply(origin(), effects);
            let sent = serde_json::to_string(&order).unwrap();
            let read: Order = serde_json::from_str(&sent).unwrap();
            assert_eq!(format!("{read:?}"), format!("{order:?}"));
        }
    }

    #[test]
    fn every_priority_comes_over_the_wire_as_it_is() {
        for thousandths in 0..=1_000 {
            let priority = Priority::from_thousandths(thousandths).unwrap();
            let sent = serde_json::to_string(&priority).unwrap();
            assert_eq!(serde_json::from_str::<Priority>(&sent).unwrap(), priority);
        }
    }

    #[test]
    fn an_error_means_the_same_to_whoever_asked() {
        let text = || "why".to_owned();
        for (error, heard) in [
            (StoreError::Elsewhere, StoreError::Elsewhere),
            (StoreError::Busy, StoreError::Busy),
            (StoreError::Full, StoreError::Full),
            (StoreError::NotFound(text()), StoreError::NotFound(text())),
            (StoreError::Gone(text()), StoreError::Gone(text())),
            (StoreError::Refused(text()), StoreError::Refused(text())),
            // What ends that daemon does not end this one.
            (StoreError::Failed(text()), StoreError::Unreached(text())),
        ] {
            let sent = serde_json::to_string(&Told::from(error)).unwrap();
            let told: Told = serde_json::from_str(&sent).unwrap();
            assert_eq!(StoreError::from(told), heard);
        }
    }
}
