//! What operators ask of the store: the queue, URLs, sites, sources, the whole.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use url::Url;

use super::hosts::partition;
use super::log_order::Log;
use super::operate::parse;
use super::orders::{Order, Reply, Walk};
use super::sql::Connection;
use super::state::State;
use super::views::{
    BlockPlace, BlockView, ChangeView, DeadView, Page, PeekView, PollView, QueueView, SiteView,
    SourceFilter, SourceView, StatusView, UrlView,
};
use super::writer::Lane;
use super::{
    CHUNK, Imported, PastFetch, Store, StoreError, explain, history, hubs, peek, poll_reads,
    queue_reads, source_lists, url_reads,
};
use crate::model::{SourceId, UrlId};
use crate::url::{authority, identities};

/// URLs that are named, or fetches, that one job takes: none keeps leases waiting for long.
const AT_ONCE: usize = 500;

/// Which row is meant by the name of a page whose site was found at its twin since.
#[derive(Debug, Clone, Copy)]
enum As {
    /// That which has this name.
    Named,
    /// That which took its place.
    InForce,
}

/// What all answered, added up.
fn sum(replies: impl IntoIterator<Item = Reply>) -> Result<u64, StoreError> {
    replies.into_iter().map(Reply::count).sum()
}

/// The partition of a URL that someone wrote; of what is none any.
fn partition_of_text(url: &str) -> i64 {
    let spelled = Url::parse(url).ok().and_then(|url| identities(&url).pop());
    spelled.map_or(0, |url| partition(&authority(&url)))
}

impl Store {
    /// Counts of the queue, per crawl (all crawls where `crawl` is `None`).
    pub async fn queue(&self, crawl: Option<String>) -> Result<Vec<QueueView>, StoreError> {
        let (policy, now) = (self.policy(), self.inner.clock.steady());
        let read =
            self.read(move |conn| queue_reads::queue(conn, &policy, crawl.as_deref(), now)).await;
        read.map(|queues| self.shown_queues(queues))
    }

    /// What is next in line, due or not, without leasing it: what is due by
    /// turns of the hosts, each one's in lease order; then the rest by when it is due.
    pub async fn peek(&self, crawl: String, limit: u32) -> Result<Vec<PeekView>, StoreError> {
        let now = self.inner.clock.steady();
        let mut lines = self.read(move |conn| peek::peek(conn, &crawl, limit, now)).await?;
        for line in &mut lines {
            [line.due_at, line.not_before] =
                [line.due_at, line.not_before].map(|at| self.shown_at(at));
        }
        Ok(lines)
    }

    /// Dead letters, of one crawl or of all, oldest row first; `after` is the last
    /// row of the page before.
    pub async fn dead(
        &self,
        crawl: Option<String>,
        limit: u32,
        after: Option<UrlId>,
    ) -> Result<Page<DeadView>, StoreError> {
        self.read(move |conn| queue_reads::dead(conn, crawl.as_deref(), limit, after)).await
    }

    /// URLs that people name, as they are known in a crawl: sites fold twins, and
    /// take parameters off. What is not known stays as it is. `As` tells which of two
    /// rows is meant where a site has moved to its twin since.
    async fn as_known(
        &self,
        crawl: &str,
        urls: Vec<String>,
        meant: As,
    ) -> Result<Vec<String>, StoreError> {
        let (seed, policy, crawl) = (self.inner.seed, self.policy(), crawl.to_owned());
        self.read(move |conn| {
            let crawl = url_reads::crawl_id(conn, &crawl)?;
            let mut named = url_reads::Named { conn, seed, crawl, policy, hosts: HashMap::new() };
            let known = |text: String| {
                let Ok(url) = Url::parse(&text) else { return Ok(text) };
                let known = match meant {
                    As::Named => named.text_known(&url),
                    As::InForce => named.text_in_force(&url),
                };
                Ok(known?.unwrap_or(text))
            };
            urls.into_iter().map(known).collect()
        })
        .await
    }

    /// The patterns of a block that somebody names: as it is known, as the site has it
    /// that it is of, which may list it there only from now on, and as it was given:
    /// another site, or a client, may have named what that one folds.
    async fn patterns_as_known(
        &self,
        crawl: &str,
        pattern: String,
        prefix: bool,
    ) -> Result<Vec<String>, StoreError> {
        let (seed, policy, crawl) = (self.inner.seed, self.policy(), crawl.to_owned());
        self.read(move |conn| {
            let crawl = url_reads::crawl_id(conn, &crawl)?;
            let Ok(url) = Url::parse(&pattern) else { return Ok(vec![pattern]) };
            let mut known = None;
            if !prefix {
                let policy = Arc::clone(&policy);
                let mut named =
                    url_reads::Named { conn, seed, crawl, policy, hosts: HashMap::new() };
                known = named.text_known(&url)?;
            }
            let home = url_reads::home_of(conn, &policy, crawl, &url)?;
            let Some(known) = known else {
                let mut patterns: Vec<_> =
                    home.iter().map(|home| home.fold(&policy, &url, prefix)).collect();
                if !patterns.iter().any(|folded| *folded == pattern || *folded == url.as_str()) {
                    patterns.push(pattern);
                }
                return Ok(patterns);
            };
            let twins = home.iter().flat_map(|home| home.twins_of(&policy, &known, &url));
            let twins: Vec<_> = twins.collect();
            Ok(std::iter::once(known).chain(twins).collect())
        })
        .await
    }

    /// The patterns by which a block may be kept that is lifted as somebody says: as its
    /// site has had it, too. Of a URL, apart from these, as it is known.
    async fn patterns_to_lift(
        &self,
        crawl: &str,
        pattern: String,
        prefix: bool,
    ) -> Result<(Vec<String>, Vec<String>), StoreError> {
        let known = self.patterns_as_known(crawl, pattern.clone(), prefix).await?;
        let (policy, crawl) = (self.policy(), crawl.to_owned());
        let given = pattern.clone();
        let forms = self.read(move |conn| {
            let crawl = url_reads::crawl_id(conn, &crawl)?;
            let mut forms = vec![given.clone()];
            let Ok(url) = Url::parse(&given) else { return Ok(forms) };
            if let Some(home) = url_reads::home_of(conn, &policy, crawl, &url)? {
                let folded = home.fold(&policy, &url, prefix);
                let all = [Some(url), Url::parse(&folded).ok()].into_iter().flatten();
                forms.extend(all.flat_map(|url| home.forms(&policy, url)).map(String::from));
            }
            Ok(forms)
        });
        let mut forms = forms.await?;
        let mut seen = HashSet::new();
        forms.retain(|form| seen.insert(form.clone()));
        Ok((forms, known))
    }

    /// Puts dead letters back, all or these; says how many.
    pub async fn replay(&self, crawl: String, urls: Vec<String>) -> Result<u64, StoreError> {
        if urls.is_empty() {
            return self.walk(Walk::Replay { crawl }).await;
        }
        // As the list has it: it is that row which is dead.
        let urls = self.as_known(&crawl, urls, As::Named).await?;
        let order = |urls| Order::Replay { crawl: crawl.clone(), urls };
        let told = self.spread(urls, |url| partition_of_text(url), order).await;
        self.inner.figures.outdate();
        let told = told?;
        sum(told.into_iter().map(|(_, reply)| reply))
    }

    pub(super) async fn replay_here(
        &self,
        crawl: String,
        urls: Vec<String>,
    ) -> Result<u64, StoreError> {
        self.of_named(crawl, urls, State::replay).await
    }

    /// Makes known URLs due now with reason `submitted`; says how many.
    pub async fn requeue(&self, crawl: String, urls: Vec<String>) -> Result<u64, StoreError> {
        let mut urls = self.as_known(&crawl, urls, As::InForce).await?;
        // Each counts once.
        urls.sort_unstable();
        urls.dedup();
        let order = |urls| Order::Requeue { crawl: crawl.clone(), urls };
        let told = self.spread(urls, |url| partition_of_text(url), order).await;
        self.inner.figures.outdate();
        let told = told?;
        sum(told.into_iter().map(|(_, reply)| reply))
    }

    pub(super) async fn requeue_here(
        &self,
        crawl: String,
        urls: Vec<String>,
    ) -> Result<u64, StoreError> {
        self.of_named(crawl, urls, State::requeue).await
    }

    /// Does something to the URLs that somebody names, a part at a time, so that leases
    /// get in between; all of them are URLs, or nothing is done.
    async fn of_named(
        &self,
        crawl: String,
        urls: Vec<String>,
        what: fn(&mut State, &str, &[Url]) -> Result<u64, StoreError>,
    ) -> Result<u64, StoreError> {
        let urls: Vec<Url> = urls.iter().map(|url| parse(url)).collect::<Result<_, _>>()?;
        let mut done = 0;
        for part in urls.chunks(AT_ONCE) {
            let (crawl, part) = (crawl.clone(), part.to_vec());
            done += self.write(Lane::Bulk, move |state| what(state, &crawl, &part)).await?;
        }
        Ok(done)
    }

    /// Keeps a URL (or every URL below a prefix) from being leased until
    /// lifted; says how many were taken out of the queue at once. Those below
    /// a prefix are held as their turn comes.
    pub async fn block(
        &self,
        crawl: String,
        pattern: String,
        prefix: bool,
    ) -> Result<u64, StoreError> {
        let mut held = 0;
        for pattern in self.patterns_as_known(&crawl, pattern, prefix).await? {
            let part = partition_of_text(&pattern);
            let order = Order::Block { crawl: crawl.clone(), pattern, prefix };
            held += self.on_owner(part, order).await?.count()?;
        }
        if self.is_shared() {
            // It may have been another who set it.
            self.remember_here().await?;
        }
        self.tell_settings().await;
        self.inner.figures.outdate();
        Ok(held)
    }

    pub(super) async fn block_here(
        &self,
        crawl: String,
        pattern: String,
        prefix: bool,
    ) -> Result<u64, StoreError> {
        self.set_here(Lane::Bulk, move |state| state.block(&crawl, &pattern, prefix)).await
    }

    /// Lifts a block; says how many URLs came back. Of one that was lifted
    /// before, what an interruption has left over.
    pub async fn unblock(
        &self,
        crawl: String,
        pattern: String,
        prefix: bool,
    ) -> Result<u64, StoreError> {
        let (forms, known) = self.patterns_to_lift(&crawl, pattern.clone(), prefix).await?;
        let of = crawl.clone();
        let lift = move |state: &mut State| {
            let (mut was_there, mut at_once, mut is_all) = (false, 0, true);
            let mut lift = |text: &String| {
                let lifted = state.unblock(&of, text, prefix)?;
                if lifted.was_there {
                    was_there = true;
                    is_all &= lifted.back.is_some();
                    at_once += lifted.back.unwrap_or(0);
                }
                Ok::<_, StoreError>(was_there)
            };
            let mut is_lifted = false;
            for text in &forms {
                is_lifted = lift(text)?;
            }
            // Not as what it was given for is known, where it was kept as it was given.
            let as_known = if is_lifted && !prefix { &[][..] } else { &known };
            as_known.iter().try_for_each(|text| lift(text).map(|_| ()))?;
            Ok((was_there, at_once, was_there && is_all))
        };
        let (was_there, at_once, is_all) = self.set(Lane::Bulk, lift).await?;
        let rest = if is_all { 0 } else { self.walk(Walk::Release { crawl }).await? };
        let back = at_once + rest;
        self.inner.figures.outdate();
        if !was_there && back == 0 {
            let why = if prefix {
                format!("the prefix {pattern:?}; a block of the URL alone is lifted as one")
            } else {
                format!("the URL {pattern:?}; a block of what begins so is lifted as a prefix")
            };
            return Err(StoreError::NotFound(format!("nothing is blocked as {why}")));
        }
        Ok(back)
    }

    /// A part of the blocks in force, of one crawl or of all, and where the next
    /// one goes on.
    pub async fn blocks(
        &self,
        crawl: Option<String>,
        limit: u32,
        after: Option<BlockPlace>,
    ) -> Result<(Vec<BlockView>, Option<BlockPlace>), StoreError> {
        self.read(move |conn| queue_reads::blocks(conn, crawl.as_deref(), limit, after.as_ref()))
            .await
    }

    /// Stops (or starts again) leasing from a crawl.
    pub async fn pause_crawl(&self, crawl: String, paused: bool) -> Result<(), StoreError> {
        let done = self.set(Lane::Hot, move |state| state.pause_crawl(&crawl, paused)).await;
        self.inner.figures.outdate();
        done
    }

    /// Everything known of one URL, and why it is due when it is: by what its daemon
    /// remembers, as a lease of it would be decided.
    pub async fn url(&self, crawl: Option<String>, url: Url) -> Result<UrlView, StoreError> {
        let seed = self.inner.seed;
        let (of, named) = (crawl.clone(), url.clone());
        let find = move |conn: &Connection| url_reads::row_named(conn, seed, of.as_deref(), &named);
        let around = match self.read(find).await? {
            Some(id) => self.recalled(id).await.map(|around| (id, around)),
            None => None,
        };
        let now = self.inner.clock.steady();
        let (policy, wall) = (self.policy(), self.now());
        let read = move |conn: &Connection| {
            url_reads::url(conn, seed, (crawl.as_deref(), &url), &policy, around, (now, wall))
        };
        self.read(read).await.map(|view| self.shown_url(view))
    }

    /// Everything known of the URLs after a row, `limit` of them, 1 to 1,000.
    pub async fn urls(
        &self,
        limit: u32,
        after: Option<UrlId>,
    ) -> Result<Page<UrlView>, StoreError> {
        let (policy, now) = (self.policy(), self.inner.clock.steady());
        let (limit, wall) = (limit.clamp(1, 1_000), self.now());
        let read =
            self.read(move |conn| history::urls(conn, &policy, limit, after, (now, wall))).await;
        read.map(|page| Page {
            items: page.items.into_iter().map(|view| self.shown_url(view)).collect(),
            ..page
        })
    }

    /// Takes in fetches of the past, a part at a time, so that leases get in
    /// between.
    pub async fn import(
        &self,
        crawl: String,
        mut fetches: Vec<PastFetch>,
    ) -> Result<Imported, StoreError> {
        // A log has what was asked for: a twin, or what a site takes off.
        for fetch in &mut fetches {
            // By the clock that those see who tell it.
            fetch.at = self.inner.clock.told_at(fetch.at);
        }
        for part in fetches.chunks_mut(CHUNK) {
            let urls = part.iter().map(|fetch| fetch.url.to_string()).collect();
            let known = self.as_known(&crawl, urls, As::InForce).await?;
            for (fetch, known) in part.iter_mut().zip(known) {
                fetch.url = Url::parse(&known).unwrap_or_else(|_| fetch.url.clone());
            }
        }
        let order = |fetches| Order::Import { crawl: crawl.clone(), fetches };
        let part = |fetch: &PastFetch| partition(&authority(&fetch.url));
        let mut total = Imported::default();
        for (_, reply) in self.spread(fetches, part, order).await? {
            let Imported { taken, unknown, ignored } = reply.imported()?;
            total.taken += taken;
            total.unknown += unknown;
            total.ignored += ignored;
        }
        Ok(total)
    }

    pub(super) async fn import_here(
        &self,
        crawl: String,
        mut fetches: Vec<PastFetch>,
    ) -> Result<Imported, StoreError> {
        fetches.sort_by_key(|fetch| fetch.at);
        let mut total = Imported::default();
        for part in fetches.chunks(AT_ONCE) {
            let (crawl, part) = (crawl.clone(), part.to_vec());
            let some = self.write(Lane::Bulk, move |state| state.import(&crawl, part)).await?;
            total.taken += some.taken;
            total.unknown += some.unknown;
            total.ignored += some.ignored;
        }
        Ok(total)
    }

    /// All sites, by name.
    pub async fn sites(&self) -> Result<Vec<SiteView>, StoreError> {
        self.read(poll_reads::sites).await
    }

    /// One site.
    pub async fn site(&self, name: String) -> Result<SiteView, StoreError> {
        self.read(move |conn| poll_reads::site(conn, &name)).await
    }

    /// Stops (or starts again) polling and leasing of a site.
    pub async fn pause_site(&self, name: String, paused: bool) -> Result<(), StoreError> {
        let done = self.set(Lane::Bulk, move |state| state.pause_site(&name, paused)).await;
        self.inner.figures.outdate();
        done
    }

    /// Drops all rows of a site that is no longer in the config; says how many
    /// URLs that were.
    pub async fn forget_site(&self, name: String) -> Result<u64, StoreError> {
        let mut read = Some(0);
        while let Some(behind) = read {
            let of = name.clone();
            read = self.write(Lane::Bulk, move |state| state.forget_reads(&of, behind)).await?;
        }
        let mut dropped = 0;
        loop {
            let of = name.clone();
            let counted = self.read(move |conn| poll_reads::counted_urls(conn, &of)).await?;
            let walked = self.walk(Walk::Forget { site: name.clone() }).await?;
            dropped += walked;
            let none = (walked == 0).then_some(counted);
            match self.forget_all_else(&name, none).await {
                // It counts some yet: wrongly, or they came behind the walk.
                Err(StoreError::Elsewhere) if walked > 0 => {}
                forgotten => return forgotten.map(|()| dropped),
            }
        }
    }

    async fn forget_all_else(&self, name: &str, none: Option<i64>) -> Result<(), StoreError> {
        loop {
            let name = name.to_owned();
            if !self.set_here(Lane::Bulk, move |state| state.forget_rest(&name, none)).await? {
                self.tell_settings().await;
                return Ok(());
            }
        }
    }

    /// Reads again what is set for crawls, sites and queues, where that has changed.
    pub(super) async fn remember_here(&self) -> Result<(), StoreError> {
        self.write(Lane::Hot, State::heed_settings).await
    }

    /// There may be something to do for the poll loop, or with hubs.
    pub(super) fn look_here_too(&self) {
        for ear in [&self.inner.sources, &self.inner.hubs] {
            ear.send_modify(|times| *times = times.wrapping_add(1));
        }
    }

    /// Sources in order of id.
    pub async fn sources(&self, filter: SourceFilter) -> Result<Page<SourceView>, StoreError> {
        let learns = self.policy().learns();
        self.read(move |conn| {
            let mut page = source_lists::sources(conn, &filter)?;
            for source in &mut page.items {
                source.push = hubs::view(conn, source.id)?;
                if learns {
                    explain::add_trust(conn, source)?;
                }
            }
            Ok(page)
        })
        .await
    }

    /// One source, with its poll history, newest first.
    pub async fn source(&self, id: SourceId) -> Result<(SourceView, Vec<PollView>), StoreError> {
        let learns = self.policy().learns();
        self.read(move |conn| {
            let (mut source, polls) = poll_reads::source(conn, id)?;
            source.push = hubs::view(conn, id)?;
            if learns {
                explain::add_trust(conn, &mut source)?;
            }
            Ok((source, polls))
        })
        .await
    }

    /// Registers a source of a site by hand, or makes a known one due now.
    pub async fn submit_source(&self, site: String, url: Url) -> Result<SourceId, StoreError> {
        self.write(Lane::Bulk, move |state| state.submit_source(&site, url)).await
    }

    /// Retires a source by hand. Its URLs are let go after a grace period, or
    /// at once with `drop_urls`.
    pub async fn delete_source(&self, id: SourceId, drop_urls: bool) -> Result<(), StoreError> {
        let delete = move |state: &mut State| state.delete_source(id, drop_urls);
        for source in self.write(Lane::Bulk, delete).await? {
            // In parts, so that leases get in between.
            let part = move |state: &mut State| state.left_of(source);
            while let Some(left) = self.write(Lane::Bulk, part).await? {
                self.let_go(left).await?;
            }
        }
        Ok(())
    }

    /// Makes a source due now.
    pub async fn poll_source(&self, id: SourceId) -> Result<(), StoreError> {
        self.write(Lane::Hot, move |state| state.poll_now(id)).await
    }

    /// Makes all sources of a site due now; says how many.
    pub async fn poll_site(&self, name: String) -> Result<u64, StoreError> {
        self.write(Lane::Bulk, move |state| state.poll_site(&name)).await
    }

    /// The polls of a source (or of all) with an id above `after`, oldest first.
    pub async fn polls_after(
        &self,
        source: Option<SourceId>,
        after: i64,
        limit: u32,
    ) -> Result<Vec<PollView>, StoreError> {
        let page = move |conn: &Connection| poll_reads::polls_after(conn, source, after, limit);
        self.read_in_order(Log::Polls, page).await
    }

    /// The newest polls, newest first.
    pub async fn last_polls(&self, limit: u32) -> Result<Vec<PollView>, StoreError> {
        self.read(move |conn| poll_reads::last_polls(conn, limit)).await
    }

    /// The changes that one poll made, in order; `after` is the `next` of the
    /// page before, and 0 at first.
    pub async fn changes_of_poll(
        &self,
        poll: i64,
        limit: u32,
        after: i64,
    ) -> Result<Page<ChangeView>, StoreError> {
        self.read(move |conn| poll_reads::changes_of_poll(conn, poll, limit, after)).await
    }

    /// The whole at a glance.
    pub async fn status(&self) -> Result<StatusView, StoreError> {
        let (policy, inner) = (self.policy(), Arc::clone(&self.inner));
        let read = self.read(move |conn| {
            poll_reads::status(
                conn,
                &policy,
                &inner.path,
                inner.started_at,
                inner.clock.now(),
                inner.clock.steady(),
            )
        });
        let status = read.await?;
        Ok(StatusView { queues: self.shown_queues(status.queues), ..status })
    }

    /// Times of the queue beside those of the wall clock.
    fn shown_queues(&self, mut queues: Vec<QueueView>) -> Vec<QueueView> {
        for queue in &mut queues {
            for at in [&mut queue.next_due_at, &mut queue.oldest_due_at, &mut queue.oldest_lease_at]
            {
                *at = at.map(|at| self.shown_at(at));
            }
        }
        queues
    }

    /// The same of a URL.
    fn shown_url(&self, view: UrlView) -> UrlView {
        let [due_at, leased_until, fetched_at] = [view.due_at, view.leased_until, view.fetched_at]
            .map(|at| at.map(|at| self.shown_at(at)));
        let first_seen = self.shown_at(view.first_seen);
        UrlView { first_seen, due_at, leased_until, fetched_at, ..view }
    }

    /// Answers if the writer is alive and can commit.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.write_naming(Lane::Hot, State::probe).await
    }
}
