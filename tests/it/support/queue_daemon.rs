//! A real store on a clock that tests move, filled without an origin; and the
//! whole daemon over such a store, asked over HTTP.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use sitemapd::app::{App, AppError};
use sitemapd::clock::Clock;
use sitemapd::config::Config;
use sitemapd::diff::snapshot::{EntryHints, Row};
use sitemapd::fetch::api::ApiClient;
use sitemapd::metrics::Metrics;
use sitemapd::model::{
    ChangeFreq, HostId, Lastmod, Outcome, Precision, Priority, Role, UrlId, UrlKind,
};
use sitemapd::queue::{LeaseBatch, LeaseRequest, Leased, Settlement, Token, TokenResult};
use sitemapd::recrawl::signal::Signal;
use sitemapd::store::migrate::{Migrated, Migration};
use sitemapd::store::views::{QueueView, SourceFilter, UrlView};
use sitemapd::store::{CHUNK, Effect, Origin, Store, StoreError};
use sitemapd::url::Admitted;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::engine::{self, Look};
use url::{Position, Url};

/// When the clock of every test starts.
pub const START: &str = "2026-11-21T00:00:00Z";

/// A `[[site]]` that is not judged by robots.txt and has no delay, unless
/// `extra` says otherwise.
pub fn site(name: &str, home: &str, extra: &str) -> String {
    let mut text = format!(
        "[[site]]\nname = \"{name}\"\nurl = \"{home}\"\nfeeds = []\n\
         sitemaps = [\"{home}sitemap-{name}.xml\"]\nscope = \"any\"\n{extra}\n"
    );
    for (key, value) in [("obey_robots", "false"), ("host_delay", "\"0s\"")] {
        if !extra.contains(key) {
            writeln!(text, "{key} = {value}").unwrap();
        }
    }
    text
}

/// One line of a sitemap.
#[derive(Debug, Clone)]
pub struct Entry {
    pub url: String,
    pub hints: EntryHints,
    pub lastmod: Option<Lastmod>,
}

/// An entry without hints.
pub fn entry(url: impl Into<String>) -> Entry {
    Entry { url: url.into(), hints: EntryHints::default(), lastmod: None }
}

impl Entry {
    pub fn priority(mut self, value: f64) -> Self {
        self.hints.priority = Some(Priority::from_f64(value).unwrap());
        self
    }

    pub fn changefreq(mut self, word: ChangeFreq) -> Self {
        self.hints.changefreq = Some(word);
        self
    }

    pub fn lastmod(mut self, at: Timestamp) -> Self {
        self.lastmod = Some(Lastmod { at, precision: Precision::Second });
        self
    }
}

/// A store without a daemon, on a manual clock.
pub struct Queue {
    pub store: Store,
    pub clock: Clock,
    pub config: Config,
    pub metrics: Arc<Metrics>,
    origins: HashMap<String, Origin>,
    dir: TempDir,
}

impl Queue {
    /// Opens a new store for a config.
    pub async fn open(text: &str) -> Self {
        Self::open_on(text, Clock::manual(START.parse().unwrap())).await
    }

    /// The same on another clock.
    pub async fn open_on(text: &str, clock: Clock) -> Self {
        let dir = TempDir::new().unwrap();
        let mut config = Config::from_toml_str(text).unwrap();
        engine::place(&mut config, &dir.path().join("data"));
        Self::in_folder(config, dir, clock).await
    }

    /// One site on `http://a.test/`, no delay, no robots.txt.
    pub async fn simple() -> Self {
        Self::open(&site("a", "http://a.test/", "")).await
    }

    /// Of a store in a file, whichever engine the tests are of.
    pub async fn open_in_file(text: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let mut config = Config::from_toml_str(text).unwrap();
        config.daemon.data_dir = dir.path().join("data");
        Self::in_folder(config, dir, Clock::manual(START.parse().unwrap())).await
    }

    /// Closes the store, which is in a file, copies it to a schema of the server, and
    /// opens that.
    pub async fn migrated(self) -> Self {
        let Self { store, clock, mut config, dir, .. } = self;
        store.close();
        drop(store);
        let folder = config.daemon.data_dir.clone();
        engine::place(&mut config, &folder);
        let to = config.store.url.clone().expect("a server");
        let copied = Migration::new(&folder, &to).run(&mut |_| {}).unwrap();
        assert!(matches!(copied, Migrated::Whole(_)), "{copied:?}");
        Self::in_folder(config, dir, clock).await
    }

    async fn in_folder(config: Config, dir: TempDir, clock: Clock) -> Self {
        let metrics = Arc::new(Metrics::new());
        let store = Store::open(&config, clock.clone(), Arc::clone(&metrics)).unwrap();
        let mut queue = Self { store, clock, config, metrics, origins: HashMap::new(), dir };
        queue.learn_origins().await;
        queue
    }

    /// Closes the store and leaves its folder, in which nothing is polled, and
    /// a door to the database.
    pub fn into_folder(self) -> (TempDir, Look) {
        let Self { store, config, dir, .. } = self;
        store.close();
        drop(store);
        let look = Look::of(&config);
        look.change("UPDATE sources SET next_poll_at = NULL");
        (dir, look)
    }

    /// Closes the store and opens it again, with the clock moved by `by`.
    pub async fn reopen(self, by: Duration) -> Self {
        let clock = Clock::manual(self.clock.now() + by);
        self.reopen_at(clock).await
    }

    /// Closes the store and opens it again on another clock.
    pub async fn reopen_at(self, clock: Clock) -> Self {
        let Self { store, config, dir, .. } = self;
        store.close();
        drop(store);
        Self::in_folder(config, dir, clock).await
    }

    /// All URLs of `http://a.test` have surfaced in one band, at that share of the price by
    /// what was learned of `/0`; `/best` lies behind them all.
    pub async fn surfaced_at(self, share: f64) -> Self {
        // What was learned of the first holds for all of them.
        self.look().change(
            "UPDATE feedback SET record = (SELECT f.record FROM feedback f
                 JOIN url_view u ON u.id = f.url_id WHERE u.url = 'http://a.test/0')",
        );
        let value = self.view("http://a.test/0").await.learned.unwrap().numbers.value;
        let now = self.clock.now();
        let (due, soon) = (now.as_second() - 100, now.as_millisecond());
        let best = "(SELECT id FROM url_view WHERE url = 'http://a.test/best')";
        self.look().change_packed(
            &format!(
                "UPDATE feedback SET place = (place & ~(127 << 7) & ~(274877906943 << 14)) | (40 << 7)
                     | (({due} + iif(url_id = {best}, 10, 0)) << 14)"
            ),
            &format!(
                "UPDATE feedback SET band = 40,
                     due_s = {due} + CASE WHEN url_id = {best} THEN 10 ELSE 0 END"
            ),
        );
        self.look().change(&format!(
            "UPDATE queue SET band = 40, due_s = {due};
             UPDATE queue SET due_s = {due} + 10 WHERE url_id = {best};
             UPDATE turns SET due_s = {due};
             UPDATE prices SET price = {value} / {share}, ticked_at = {soon}"
        ));
        self.reopen(Duration::ZERO).await
    }

    /// The sites are those of this config from now on, where the store takes it.
    pub async fn reload(&self, text: &str) -> Result<(), StoreError> {
        let mut config = Config::from_toml_str(text).unwrap();
        engine::place(&mut config, self.folder());
        let all = config.sites.keys().cloned().collect();
        self.store.reconfigure(config, all, || ()).await
    }

    /// All the housekeeping that there is to do.
    pub async fn maintain(&self) {
        while self.store.maintain().await.unwrap() {}
    }

    /// The data folder.
    pub fn folder(&self) -> &Path {
        &self.config.daemon.data_dir
    }

    /// The database, for a look past the store.
    pub fn look(&self) -> Look {
        Look::of(&self.config)
    }

    /// Learns what is listed by the sites of its config.
    pub async fn learn_origins(&mut self) {
        for name in self.config.sites.keys().cloned().collect::<Vec<_>>() {
            let filter =
                SourceFilter { site: Some(name.clone()), limit: 100, ..SourceFilter::default() };
            let sources = self.store.sources(filter).await.unwrap().items;
            let sitemap = sources.iter().find(|source| source.role == Role::Sitemap).unwrap();
            let target = self.store.poll_target(sitemap.id).await.unwrap();
            let origin = Origin {
                source: target.id,
                site: target.site.unwrap(),
                crawl: target.crawl,
                window: false,
                generation: 1,
                moves: Signal::Lastmod,
                stamped: None,
                tenure: target.tenure,
            };
            self.origins.insert(name, origin);
        }
    }

    /// What a chunk of a site's sitemap belongs to.
    pub fn origin(&self, site: &str) -> Origin {
        self.origins[site]
    }

    /// The site lists these; says their rows.
    pub async fn list(&self, site: &str, entries: &[Entry]) -> Vec<UrlId> {
        let mut rows = Vec::with_capacity(entries.len());
        for part in entries.chunks(CHUNK) {
            let effects = part.iter().enumerate().map(admit).collect();
            let mut applied = self.store.apply(self.origin(site), effects).await.unwrap().rows;
            applied.sort_by_key(|(slot, _)| *slot);
            rows.extend(applied.into_iter().map(|(_, row)| match row {
                Row::Url(id) => id,
                Row::Rejected(why) => panic!("rejected: {why:?}"),
            }));
        }
        rows
    }

    /// The site lists these plain URLs.
    pub async fn list_urls<I: IntoIterator<Item = String>>(
        &self,
        site: &str,
        urls: I,
    ) -> Vec<UrlId> {
        let entries: Vec<_> = urls.into_iter().map(entry).collect();
        self.list(site, &entries).await
    }

    /// Applies one effect of site `a`.
    pub async fn apply(&self, effect: Effect) {
        self.store.apply(self.origin("a"), vec![effect]).await.unwrap();
    }

    /// A newer lastmod is seen.
    pub async fn change(&self, url: UrlId) {
        let lastmod = Lastmod { at: self.clock.now(), precision: Precision::Second };
        self.apply(Effect::Changed { url, lastmod, hints: EntryHints::default() }).await;
    }

    /// Leases at most `max`, with the defaults of [`ask`].
    pub async fn lease(&self, max: u32) -> Vec<Leased> {
        self.lease_as(ask(max)).await.urls
    }

    pub async fn lease_as(&self, request: LeaseRequest) -> LeaseBatch {
        self.store.lease(request).await.unwrap()
    }

    /// Leases exactly one URL.
    pub async fn lease_one(&self) -> Leased {
        let mut urls = self.lease(1).await;
        assert_eq!(urls.len(), 1, "nothing is due");
        urls.remove(0)
    }

    pub async fn settle(&self, token: Token, outcome: Outcome) -> TokenResult {
        self.settle_as(report(token, outcome)).await
    }

    pub async fn settle_as(&self, settlement: Settlement) -> TokenResult {
        self.store.settle(vec![settlement]).await.unwrap()[0]
    }

    pub async fn extend(&self, token: Token, ttl: Duration) -> TokenResult {
        self.store.extend(vec![token], ttl).await.unwrap()[0]
    }

    pub async fn release(&self, token: Token, after: Duration) -> TokenResult {
        self.store.release(vec![token], after).await.unwrap()[0]
    }

    /// Moves the clock and takes back what has expired by then.
    pub async fn pass(&self, by: Duration) -> (usize, usize) {
        self.clock.advance(by);
        self.store.reap().await.unwrap()
    }

    pub async fn view(&self, url: &str) -> UrlView {
        self.store.url(None, url.parse().unwrap()).await.unwrap()
    }

    /// The numbers of crawl `default`.
    pub async fn counts(&self) -> QueueView {
        self.store.queue(Some("default".to_owned())).await.unwrap().remove(0)
    }

    /// The row of a host.
    pub fn host(&self, authority: &str) -> HostId {
        let sql = format!("SELECT id FROM hosts WHERE authority = '{authority}'");
        HostId(self.look().number(&sql))
    }
}

fn admit((slot, entry): (usize, &Entry)) -> Effect {
    let url: Url = entry.url.parse().unwrap();
    Effect::Admit {
        slot: u32::try_from(slot).unwrap(),
        url: Admitted {
            authority: sitemapd::url::authority(&url).into(),
            path: url[Position::BeforePath..].to_owned(),
            respelled: false,
        },
        raw: None,
        lastmod: entry.lastmod,
        hints: entry.hints,
        kind: UrlKind::Page,
    }
}

/// A lease call of crawl `default` for five minutes, hosts not capped.
pub fn ask(max: u32) -> LeaseRequest {
    LeaseRequest {
        max,
        ttl: Duration::from_secs(300),
        per_host: 1_000,
        crawl: "default".to_owned(),
        sites: Vec::new(),
        worker: None,
        request_id: None,
    }
}

/// A settlement that says no more than the outcome.
pub fn report(token: Token, outcome: Outcome) -> Settlement {
    Settlement::new(token, Some(outcome))
}

/// The paths of leased URLs, in order.
pub fn paths(urls: &[Leased]) -> Vec<&str> {
    urls.iter().map(|leased| &leased.url[leased.host.len()..]).collect()
}

/// A whole daemon over a store that was filled before.
pub struct QueueDaemon {
    pub addr: SocketAddr,
    pub store: Store,
    pub clock: Clock,
    stop: CancellationToken,
    running: JoinHandle<Result<(), AppError>>,
    _reload: mpsc::Sender<sitemapd::app::Reload>,
    look: Look,
    _dir: TempDir,
}

impl QueueDaemon {
    /// Starts the daemon over the folder of `queue`, its API on a free port.
    /// Its sources are put off, so that it makes no request.
    pub async fn over(queue: Queue, clock: Clock) -> Self {
        let mut config = queue.config.clone();
        let (dir, look) = queue.into_folder();
        config.listen.api = SocketAddr::from(([127, 0, 0, 1], 0));
        let app = App::build(config, clock.clone()).await.unwrap();
        let (addr, store) = (app.api_addr(), app.store().clone());
        let stop = CancellationToken::new();
        let (reload, reloads) = mpsc::channel(1);
        let running = tokio::spawn(app.run(stop.clone(), reloads));
        Self { addr, store, clock, stop, running, _reload: reload, look, _dir: dir }
    }

    pub fn client(&self) -> ApiClient {
        ApiClient::new(&format!("http://{}", self.addr), None).unwrap()
    }

    /// The database, for a look past the store.
    pub fn look(&self) -> &Look {
        &self.look
    }

    /// Asks it to stop, without waiting.
    pub fn cancel(&self) {
        self.stop.cancel();
    }

    pub async fn end(self) {
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
    }
}

/// Body of a lease call over HTTP.
pub fn lease_body(max: u32, wait: &str) -> Value {
    json!({ "max": max, "per_host": 1_000, "wait": wait })
}
