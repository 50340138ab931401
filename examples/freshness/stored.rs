//! The daemon itself as a policy: its store, on a clock that is moved by hand.
//!
//! What is simulated elsewhere (rows, windows, turns, prices, what is learned) is
//! what users have here, with one site, host and source for each host of the world.
//! Polls are taken as read: their dates and effects go in as the schedule puts them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use sitemapd::clock::Clock;
use sitemapd::config::Config;
use sitemapd::diff::dates::Dates;
use sitemapd::diff::snapshot::{EntryHints, Row};
use sitemapd::fetch::Validators;
use sitemapd::metrics::Metrics;
use sitemapd::model::{
    DocumentKind, HostId, Lastmod, Outcome, Precision, SourceId, UrlId, UrlKind,
};
use sitemapd::queue::{LeaseRequest, Settlement, Token};
use sitemapd::recrawl::model::days_after;
use sitemapd::store::hubs::Named;
use sitemapd::store::views::{Counts, SourceFilter};
use sitemapd::store::{Effect, Kept, NextPollAt, Origin, PollEnd, ReadResult, Store};
use sitemapd::url::Admitted;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::learned::{EPOCH, Settings};
use crate::policy::{Caps, Policy};
use crate::world::{Page, Poll, World};

/// URLs of one host at a turn: what a lease has that does not say.
const PER_HOST: u32 = 10;
/// Calls of fetchers in an hour, where that matters.
const CALLS_AN_HOUR: u32 = 4;

/// The source of one host of the world.
#[derive(Debug, Clone, Copy)]
struct Source {
    origin: Origin,
    host: HostId,
    pages: u32,
}

/// The store at work.
pub(crate) struct Stored {
    compares: bool,
    has_budget: bool,
    store: Store,
    clock: Clock,
    sources: Vec<Source>,
    rows: Vec<(UrlId, EntryHints)>,
    pages: HashMap<UrlId, usize>,
    leased: HashMap<usize, Token>,
    reports: Vec<Settlement>,
    runtime: Runtime,
    // Its files go when it goes.
    _dir: TempDir,
}

impl Stored {
    /// All pages have been listed and fetched once at 0.
    pub(crate) fn new(world: &World, settings: Settings) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let dir = TempDir::new()?;
        let clock = Clock::manual(EPOCH);
        let config = config(world, settings, &dir)?;
        let store = Store::open(&config, clock.clone(), Arc::new(Metrics::new()))?;
        let mut stored = Self {
            compares: settings.compares,
            has_budget: settings.budget.is_some(),
            store,
            clock,
            sources: Vec::new(),
            rows: world.pages.iter().map(|page| (UrlId(0), hints(page))).collect(),
            pages: HashMap::new(),
            leased: HashMap::new(),
            reports: Vec::new(),
            runtime,
            _dir: dir,
        };
        for (host, site) in world.hosts.iter().enumerate() {
            stored.list(host, &site.pages)?;
        }
        let mut picked = Vec::new();
        while stored.lease(1_000, &mut picked)? > 0 {}
        anyhow::ensure!(picked.len() == world.pages.len(), "{} new pages", picked.len());
        let compares = std::mem::replace(&mut stored.compares, false);
        for page in picked {
            stored.settle(page, 0.0, false);
        }
        stored.compares = compares;
        stored.report()?;
        Ok(stored)
    }

    /// A first read of the sitemap of a host.
    fn list(&mut self, host: usize, pages: &[usize]) -> anyhow::Result<()> {
        let Self { store, runtime, .. } = self;
        let url = format!("{}sitemap.xml", home(host));
        let filter = SourceFilter { url: Some(url), limit: 10, ..SourceFilter::default() };
        let found = runtime.block_on(store.sources(filter))?.items;
        let id = found.first().context("the sitemap is registered")?.id;
        let target = runtime.block_on(store.poll_target(id))?;
        let origin = target.origin(false).context("the sitemap has a site")?;
        let admit = |(slot, page): (u32, &usize)| Effect::Admit {
            slot,
            url: Admitted {
                authority: format!("http://h{host}.test").into(),
                path: format!("/{page}"),
                respelled: false,
            },
            raw: None,
            lastmod: Some(lastmod(EPOCH - SignedDuration::from_hours(24))),
            hints: self.rows[*page].1,
            kind: UrlKind::Page,
        };
        let effects = (0..).zip(pages).map(admit).collect();
        let applied = runtime.block_on(store.apply(origin, effects))?;
        for (slot, row) in applied.rows {
            if let (Row::Url(url), Some(page)) = (row, pages.get(slot as usize)) {
                self.rows[*page].0 = url;
                self.pages.insert(url, *page);
            }
        }
        let pages = u32::try_from(pages.len())?;
        let source = Source { origin, host: target.host, pages };
        self.sources.push(source);
        self.end_poll(source, &dates(source, EPOCH, Vec::new()))
    }

    fn end_poll(&self, source: Source, dates: &Arc<Dates>) -> anyhow::Result<()> {
        let end = poll_end(source.origin.source, source.origin.tenure, dates);
        self.runtime.block_on(self.store.finish_poll(end))?;
        Ok(())
    }

    fn now(&self, day: f64) -> Timestamp {
        let now = days_after(EPOCH, day);
        let ahead = Duration::try_from(now.duration_since(self.clock.now())).unwrap_or_default();
        self.clock.advance(ahead);
        now
    }

    /// Leases so many at most, as long as there is any; says how many.
    fn lease_all(&mut self, most: u32, picked: &mut Vec<usize>) -> anyhow::Result<usize> {
        let mut left = most;
        while left > 0 {
            let leased = self.lease(left, picked)?;
            if leased == 0 {
                break;
            }
            left = left.saturating_sub(u32::try_from(leased)?);
        }
        Ok((most - left) as usize)
    }

    /// Leases so many at most; says how many.
    fn lease(&mut self, most: u32, picked: &mut Vec<usize>) -> anyhow::Result<usize> {
        let request = LeaseRequest {
            max: most,
            ttl: Duration::from_secs(7_200),
            per_host: PER_HOST,
            crawl: "default".to_owned(),
            sites: Vec::new(),
            worker: None,
            request_id: None,
        };
        let batch = self.runtime.block_on(self.store.lease(request))?;
        for leased in &batch.urls {
            let page = *self.pages.get(&leased.id).context("a page of the world")?;
            self.leased.insert(page, leased.token);
            picked.push(page);
        }
        Ok(batch.urls.len())
    }

    /// Sends what has been seen.
    fn report(&mut self) -> anyhow::Result<()> {
        let reports = std::mem::take(&mut self.reports);
        if !reports.is_empty() {
            self.runtime.block_on(self.store.settle(reports))?;
        }
        Ok(())
    }

    fn read(&mut self, poll: &Poll, day: f64) -> anyhow::Result<()> {
        self.report()?;
        let now = self.now(day);
        let source = self.sources[poll.host];
        let mut moved: Vec<i64> =
            poll.moved.iter().map(|(_, day)| days_after(EPOCH, *day).as_second()).collect();
        moved.sort_unstable();
        let dates = dates(source, now, moved);
        let judging = self.store.newer_of(source.origin.source, source.host, Arc::clone(&dates));
        let (newer, _) = self.runtime.block_on(judging)?;
        let changed = |(page, day): &(usize, f64)| Effect::Changed {
            url: self.rows[*page].0,
            lastmod: lastmod(days_after(EPOCH, *day)),
            hints: self.rows[*page].1,
        };
        let effects = poll.moved.iter().map(changed).collect();
        self.runtime.block_on(self.store.apply(source.origin.with(newer), effects))?;
        self.end_poll(source, &dates)
    }
}

// A store of a temporary folder that fails is the end of a simulation.
#[allow(clippy::expect_used)]
impl Policy for Stored {
    fn poll(&mut self, poll: &Poll, day: f64) {
        self.read(poll, day).expect("the store takes a poll");
    }

    fn pick(&mut self, day: f64, most: usize, _: &mut Caps, picked: &mut Vec<usize>) {
        self.report().expect("the store takes reports");
        let mut left = u32::try_from(most).unwrap_or(1_000).min(1_000);
        // Fetchers come all the time, and a named budget is theirs as the time passes.
        let calls = if self.has_budget { CALLS_AN_HOUR } else { 1 };
        for call in 0..calls {
            self.now(day + f64::from(call) / f64::from(calls) / 24.0);
            let leased = self.lease_all(left, picked).expect("the store leases");
            left = left.saturating_sub(u32::try_from(leased).unwrap_or(u32::MAX));
        }
    }

    fn settle(&mut self, page: usize, _: f64, changed: bool) {
        let outcome = match (self.compares, changed) {
            (false, _) => Outcome::Unknown,
            (true, true) => Outcome::Changed,
            (true, false) => Outcome::Unchanged,
        };
        if let Some(token) = self.leased.remove(&page) {
            let report = Settlement::new(token, Some(outcome));
            self.reports.push(Settlement { status: Some(200), ..report });
        }
    }

    fn saves_up(&self) -> f64 {
        if self.has_budget { 24.0 } else { 1.0 }
    }
}

fn hints(page: &Page) -> EntryHints {
    EntryHints { changefreq: page.changefreq, priority: None }
}

fn home(host: usize) -> String {
    format!("http://h{host}.test/")
}

fn lastmod(at: Timestamp) -> Lastmod {
    Lastmod { at, precision: Precision::Second }
}

fn config(world: &World, settings: Settings, dir: &TempDir) -> anyhow::Result<Config> {
    let Settings { min, max, budget, .. } = settings;
    let budget =
        budget.map_or_else(|| "auto".to_owned(), |hourly| format!("{:.0}/day", hourly * 24.0));
    let mut text = format!(
        "[store]\ndurability = \"normal\"\n\
         [recrawl]\nmin = \"{}s\"\nmax = \"{}s\"\nbudget = \"{budget}\"\n",
        min.as_secs(),
        max.as_secs()
    );
    for host in 0..world.hosts.len() {
        let home = home(host);
        write!(
            text,
            "[[site]]\nname = \"h{host}\"\nurl = \"{home}\"\nfeeds = []\n\
             sitemaps = [\"{home}sitemap.xml\"]\nobey_robots = false\nhost_delay = \"0s\"\n"
        )?;
    }
    let mut config = Config::from_toml_str(&text)?;
    config.daemon.data_dir = dir.path().join("data");
    Ok(config)
}

/// Dates of a read that found these newer lastmods.
fn dates(source: Source, at: Timestamp, moved: Vec<i64>) -> Arc<Dates> {
    let entries = source.pages;
    let (date_only, future, regressed, came) = (0, 0, 0, Vec::new());
    Arc::new(Dates {
        at,
        entries,
        dated: entries,
        date_only,
        future,
        known: entries,
        regressed,
        moved,
        came,
    })
}

fn poll_end(source: SourceId, tenure: i64, dates: &Arc<Dates>) -> PollEnd {
    let next = NextPollAt {
        at: Some(dates.at + SignedDuration::from_hours(1)),
        interval_ms: 3_600_000,
        rhythm: None,
        rule: "steady".to_owned(),
        why: "every hour".to_owned(),
    };
    let read = ReadResult {
        kind: DocumentKind::Urlset,
        window: 0,
        rolls: 0,
        shrunk_at: None,
        pending: 0,
        complete: true,
        epoch: Some(1),
        validators: Validators::default(),
        wire_hash: None,
        body_hash: None,
        bytes: 1,
        entries: dates.entries.into(),
        admitted: "{}".to_owned(),
        issues: "[]".to_owned(),
        hints: None,
        snapshot: None,
        changed: true,
        dates: Arc::clone(dates),
        hubs: Box::new(Named::Unknown),
        missed_push: false,
        has_made_room: false,
        tells_dropped: false,
    };
    PollEnd {
        source,
        tenure,
        at: dates.at,
        took_ms: 1,
        result: "changed",
        failing: None,
        status: "success",
        http_status: Some(200),
        wire_bytes: 1,
        counts: Counts::default(),
        error: None,
        next,
        moved: None,
        kept: Kept::Read(read),
    }
}
