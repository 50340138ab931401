//! A whole daemon on a manual clock: real sockets, a real database.
//!
//! Nothing here sleeps for a fixed time: every wait is for a condition, with a
//! real deadline after which the test fails and says what it waited for.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sitemapd::app::{App, AppError, Reload};
use sitemapd::clock::Clock;
use sitemapd::config::Config;
use sitemapd::fetch::resolver::{Lookup, system_lookup};
use sitemapd::model::SourceId;
use sitemapd::queue::{LeaseRequest, Leased};
use sitemapd::store::views::{Counts, PollView, SourceFilter, SourceView, UrlView};
use sitemapd::store::{Store, StoreError};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::engine::{self, Look};
use super::{Origin, PATIENCE};

/// Between two looks at a condition.
const LOOK: Duration = Duration::from_millis(3);

/// When the tests begin: a Saturday, 12:00 UTC.
pub const START: &str = "2026-11-21T12:00:00Z";

/// A minute of the manual clock.
pub const MINUTE: Duration = Duration::from_secs(60);
/// An hour of the manual clock.
pub const HOUR: Duration = Duration::from_secs(3_600);
/// A day of the manual clock.
pub const DAY: Duration = Duration::from_secs(86_400);

/// The folder and the clock outlive the daemon, so that it can be restarted.
pub struct World {
    dir: TempDir,
    /// Moves only when told to.
    pub clock: Clock,
    lookup: Lookup,
    allow: Vec<u16>,
}

/// A running daemon.
pub struct Daemon {
    /// Its store.
    pub store: Store,
    /// Its clock.
    pub clock: Clock,
    /// Where its API listens.
    pub api: SocketAddr,
    /// Where webmasters are listened to, if anywhere.
    pub public: Option<SocketAddr>,
    /// Where clients of the frontier are listened to, if anywhere.
    pub grpc: Option<SocketAddr>,
    folder: PathBuf,
    allow: Vec<u16>,
    stop: CancellationToken,
    running: JoinHandle<Result<(), AppError>>,
    reload: mpsc::Sender<Reload>,
}

impl World {
    /// A new folder; the ports of these origins may be fetched from. No name exists
    /// but `localhost`, whatever the servers of this machine make of others.
    pub fn new(origins: &[&Origin]) -> Self {
        let system = system_lookup();
        let lookup: Lookup = Arc::new(move |name| {
            if name == "localhost" {
                return system(name);
            }
            Box::pin(async { Err(std::io::Error::other("no such name")) })
        });
        Self::with_lookup(origins, lookup)
    }

    /// The same where names lead to the origins.
    pub fn with_names(origins: &[&Origin]) -> Self {
        let lookup: Lookup =
            Arc::new(|_| Box::pin(async { Ok(vec![std::net::IpAddr::from([127, 0, 0, 1])]) }));
        Self::with_lookup(origins, lookup)
    }

    /// The same where names have the addresses that this says.
    pub fn with_lookup(origins: &[&Origin], lookup: Lookup) -> Self {
        let allow = origins.iter().map(|origin| origin.port()).collect();
        let clock = Clock::manual(START.parse().unwrap());
        Self { dir: TempDir::new().unwrap(), clock, lookup, allow }
    }

    /// Where its daemons keep everything.
    pub fn folder(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A config of this world: `text` holds the sites and what differs.
    pub fn config(&self, text: &str) -> Config {
        config(text, &self.allow, &self.folder())
    }

    /// Starts a daemon, or starts it again on the same folder.
    pub async fn start(&self, text: &str) -> Daemon {
        self.start_with(self.config(text)).await
    }

    /// The same with a config that no text says.
    pub async fn start_with(&self, config: Config) -> Daemon {
        let app = App::build_with(config, self.clock.clone(), self.lookup.clone()).await.unwrap();
        let (store, api, public) = (app.store().clone(), app.api_addr(), app.public_addr());
        let grpc = app.grpc_addr();
        let stop = CancellationToken::new();
        let (reload, reloads) = mpsc::channel(1);
        let running = tokio::spawn(app.run(stop.clone(), reloads));
        Daemon {
            store,
            clock: self.clock.clone(),
            api,
            public,
            grpc,
            folder: self.folder(),
            allow: self.allow.clone(),
            stop,
            running,
            reload,
        }
    }

    /// The database, for a look past the store.
    pub fn look(&self) -> Look {
        Look::of(&self.config(""))
    }

    /// The database file, where there is one.
    pub fn database(&self) -> PathBuf {
        self.look().file().to_owned()
    }
}

fn config(text: &str, allow: &[u16], folder: &Path) -> Config {
    let list: Vec<_> = allow.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    let head = format!("[fetch]\nallow = [{}]\n", list.join(", "));
    let polite = "[politeness]\nhost_delay = \"0s\"\n";
    // TOML knows each table once; a test may bring its own.
    let head = if text.contains("[politeness]") { head } else { head + polite };
    let mut config = Config::from_toml_str(&format!("{head}{text}")).unwrap();
    engine::place(&mut config, folder);
    config.listen.api = SocketAddr::from(([127, 0, 0, 1], 0));
    config.store.min_free_disk = 0;
    // Fetches go by real time. An origin that hangs does so until the test lets it go on,
    // and one on a machine that stands still has not failed; a test may say otherwise.
    config.fetch.connect_timeout = PATIENCE;
    config.fetch.total_timeout = 8 * PATIENCE;
    config
}

impl Daemon {
    /// Lets another config take effect, and waits until it has.
    pub async fn reload(&self, text: &str) {
        self.try_reload(text).await.unwrap();
    }

    /// The same where the store may refuse it.
    pub async fn try_reload(&self, text: &str) -> Result<(), StoreError> {
        let config = config(text, &self.allow, &self.folder);
        let (done, holds) = oneshot::channel();
        self.reload.send(Reload { config, done }).await.unwrap();
        holds.await.unwrap()
    }

    /// Stops it and waits until the folder is free.
    pub async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
    }

    /// Waits until `look` finds something.
    pub async fn wait<T>(&self, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
        let looking = async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        if let Ok(found) = tokio::time::timeout(PATIENCE, looking).await {
            return found;
        }
        let polls = self.store.last_polls(20).await.unwrap();
        let polls: Vec<_> = polls.iter().map(|poll| (&poll.url, &poll.result)).collect();
        panic!("waited in vain for {what}; the last polls: {polls:?}")
    }

    /// All sources, retired ones too.
    pub async fn sources(&self) -> Vec<SourceView> {
        let filter = SourceFilter { retired: true, limit: 1_000, ..SourceFilter::default() };
        self.store.sources(filter).await.unwrap().items
    }

    /// The source with a URL that ends so, once there is one.
    pub async fn source(&self, tail: &str) -> SourceView {
        self.wait(&format!("source {tail}"), async || self.find_source(tail).await).await
    }

    /// The source with a URL that ends so, if there is one.
    pub async fn find_source(&self, tail: &str) -> Option<SourceView> {
        self.sources().await.into_iter().find(|source| source.url.ends_with(tail))
    }

    /// Its polls so far, oldest first.
    pub async fn polls(&self, source: SourceId) -> Vec<PollView> {
        self.store.polls_after(Some(source), 0, 1_000).await.unwrap()
    }

    /// Waits until a source was polled so many times; the last of these.
    pub async fn polled(&self, tail: &str, times: usize) -> PollView {
        let id = self.source(tail).await.id;
        self.wait(&format!("poll {times} of {tail}"), async || {
            self.polls(id).await.into_iter().nth(times - 1)
        })
        .await
    }

    /// Polls a source now and waits until that is written down.
    pub async fn poll(&self, tail: &str) -> PollView {
        let id = self.source(tail).await.id;
        // What is under way would be taken for the poll that is asked for.
        self.settled().await;
        let before = self.polls(id).await.len();
        self.store.poll_source(id).await.unwrap();
        self.polled(tail, before + 1).await
    }

    /// Waits until nothing is due: all polls have ended.
    pub async fn settled(&self) {
        self.wait("all polls", async || {
            let due = self.store.due_sources(1_000, Vec::new()).await.unwrap();
            due.is_empty().then_some(())
        })
        .await;
    }

    /// Lets time pass, and everything that comes due with it happen.
    pub async fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.settled().await;
    }

    /// All that is known of a URL.
    pub async fn url(&self, url: &str) -> UrlView {
        self.store.url(None, Url::parse(url).unwrap()).await.unwrap()
    }

    /// Is there a row for this URL?
    pub async fn knows(&self, url: &str) -> bool {
        self.store.url(None, Url::parse(url).unwrap()).await.is_ok()
    }

    /// Kinds and paths of the changes of a poll, sorted.
    pub async fn changes(&self, poll: &PollView) -> Vec<String> {
        let changes = self.store.changes_of_poll(poll.id, 1_000, 0).await.unwrap().items;
        let mut words: Vec<_> = changes
            .iter()
            .map(|change| {
                let url = Url::parse(&change.url).unwrap();
                format!("{} {}", change.kind, &url[url::Position::BeforePath..])
            })
            .collect();
        words.sort();
        words
    }

    /// Leases all that may be leased now.
    pub async fn lease(&self) -> Vec<Leased> {
        let request = LeaseRequest {
            max: 1_000,
            ttl: 5 * MINUTE,
            per_host: 1_000,
            crawl: "default".to_owned(),
            sites: Vec::new(),
            worker: None,
            request_id: None,
        };
        self.store.lease(request).await.unwrap().urls
    }

    /// URLs queued, due or not.
    pub async fn queued(&self) -> u64 {
        self.store.queue(None).await.unwrap().iter().map(|queue| queue.queued).sum()
    }

    /// The time by the clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// The same of a poll that tells of nothing missing, since others have.
pub fn missed_again(figures: [u64; 8]) -> Counts {
    Counts { first_missing: 0, ..counts(figures) }
}

/// Counts with these figures, in the order new, changed, touched, regressed,
/// unchanged, missing, removed, rejected.
pub fn counts(figures: [u64; 8]) -> Counts {
    let [new, changed, touched, regressed, unchanged, missing, removed, rejected] = figures;
    // What is missing is so for the first time, unless a test says otherwise.
    let first_missing = missing;
    Counts {
        new,
        changed,
        touched,
        regressed,
        unchanged,
        missing,
        first_missing,
        removed,
        rejected,
    }
}

/// A sitemap of these entries: a URL and a lastmod, if it is not empty.
pub fn sitemap(base: &str, entries: &[(&str, &str)]) -> String {
    let mut xml = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n",
    );
    for (path, lastmod) in entries {
        let absolute =
            if path.starts_with("http") { (*path).to_owned() } else { format!("{base}{path}") };
        let date = if lastmod.is_empty() {
            String::new()
        } else {
            format!("<lastmod>{lastmod}</lastmod>")
        };
        let entry = format!("<url><loc>{absolute}</loc>{date}</url>\n");
        xml += &entry;
    }
    xml + "</urlset>\n"
}

/// An index of these children: a path and a lastmod, if it is not empty.
pub fn index(base: &str, children: &[(&str, &str)]) -> String {
    let inner = sitemap(base, children);
    inner
        .replace("urlset", "sitemapindex")
        .replace("<url>", "<sitemap>")
        .replace("</url>", "</sitemap>")
}

/// An RSS feed of these items: a path and a date.
pub fn rss(base: &str, items: &[(&str, &str)]) -> String {
    let mut xml = format!("<rss version=\"2.0\"><channel><title>t</title><link>{base}/</link>");
    for (path, date) in items {
        let entry = format!(
            "<item><title>{path}</title><link>{base}{path}</link><pubDate>{date}</pubDate></item>"
        );
        xml += &entry;
    }
    xml + "</channel></rss>"
}
