//! `sitemapd`: the daemon in this process, asked over HTTP as any fetcher asks.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use sitemapd::app::App;
use sitemapd::clock::Clock;
use sitemapd::config::Config;
use sitemapd::diff::snapshot::EntryHints;
use sitemapd::model::{Priority, Role, UrlKind};
use sitemapd::recrawl::signal::Signal;
use sitemapd::store::views::SourceFilter;
use sitemapd::store::{CHUNK, Effect, Origin, Store};
use sitemapd::url::Admitted;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{Args, Line, Worker, both};

/// Hosts that the entries lie on.
const HOSTS: u64 = 20;

struct Client(Line);

pub(crate) async fn run(args: &Args, durability: &str) -> anyhow::Result<[Option<f64>; 2]> {
    let folder = tempfile::tempdir()?;
    // Nothing is ever asked of the site: the clock stands before its first poll.
    let text = format!(
        "[listen]\napi = \"127.0.0.1:0\"\n[store]\ndurability = \"{durability}\"\n\
         [politeness]\nper_host = 100\n\
         [[site]]\nname = \"a\"\nurl = \"http://a.test/\"\nfeeds = []\nscope = \"any\"\n\
         sitemaps = [\"http://a.test/sitemap.xml\"]\nobey_robots = false\nhost_delay = \"0s\"\n\
         max_urls = 1000000000\n"
    );
    let mut config = Config::from_toml_str(&text)?;
    config.daemon.data_dir = folder.path().to_owned();
    let clock = Clock::manual("2026-11-21T12:00:00Z".parse()?);
    let app = App::build(config, clock.clone()).await?;
    let (port, store) = (app.api_addr().port(), app.store().clone());
    fill(&store, args.urls).await?;
    clock.advance(Duration::from_secs(1));
    let stop = CancellationToken::new();
    let (_reload, reloads) = mpsc::channel(1);
    let running = tokio::spawn(app.run(stop.clone(), reloads));
    let rates = both(args, || async { Ok(Client(Line::to(port).await?)) }).await?;
    stop.cancel();
    running.await??;
    Ok(rates)
}

/// Lists so many URLs.
async fn fill(store: &Store, urls: u64) -> anyhow::Result<()> {
    let filter = SourceFilter { limit: 100, ..SourceFilter::default() };
    let sources = store.sources(filter).await?.items;
    let sitemap = sources.iter().find(|source| source.role == Role::Sitemap);
    let target = store.poll_target(sitemap.context("the sitemap is registered")?.id).await?;
    let origin = Origin {
        source: target.id,
        site: target.site.context("of a site")?,
        crawl: target.crawl,
        window: false,
        generation: 1,
        moves: Signal::Lastmod,
        stamped: None,
        tenure: target.tenure,
    };
    let hosts: Vec<Arc<str>> = (0..HOSTS).map(|n| format!("http://h{n}.test").into()).collect();
    let numbers: Vec<u64> = (0..urls).collect();
    for part in numbers.chunks(CHUNK) {
        let effects = (0..).zip(part).filter_map(|(slot, number)| {
            let priority = u16::try_from(number % 11 * 100).ok()?;
            Some(Effect::Admit {
                slot,
                url: Admitted {
                    authority: Arc::clone(hosts.get(usize::try_from(number % HOSTS).ok()?)?),
                    path: format!("/articles/some-article-{number}.html"),
                    respelled: false,
                },
                raw: None,
                lastmod: None,
                hints: EntryHints {
                    changefreq: None,
                    priority: Priority::from_thousandths(priority),
                },
                kind: UrlKind::Page,
            })
        });
        store.apply(origin, effects.collect()).await?;
    }
    Ok(())
}

impl Client {
    async fn post(&mut self, path: &str, body: &str) -> anyhow::Result<String> {
        let Self(line) = self;
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        line.send(request.as_bytes()).await?;
        let status = line.line().await?;
        let mut length = 0;
        loop {
            let header = line.line().await?.to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let body = String::from_utf8_lossy(&line.bytes(length).await?).into_owned();
        ensure!(status.contains(" 200 "), "{path}: {status} {body}");
        Ok(body)
    }
}

impl Worker for Client {
    async fn round(&mut self, batch: u32) -> anyhow::Result<u64> {
        let leased =
            self.post("/v1/lease", &format!("{{\"max\":{batch},\"per_host\":100}}")).await?;
        let after = leased.split("\"token\":\"").skip(1);
        let tokens: Vec<_> = after.filter_map(|rest| Some(rest.split_once('"')?.0)).collect();
        ensure!(!tokens.is_empty(), "nothing is due any more: take more --urls");
        let one = |token: &&str| {
            format!(
                "{{\"token\":\"{token}\",\"outcome\":\"unchanged\",\"status\":200,\
                 \"content_hash\":\"0123456789abcdef\"}}"
            )
        };
        let all: Vec<_> = tokens.iter().map(one).collect();
        self.post("/v1/settle", &format!("{{\"results\":[{}]}}", all.join(","))).await?;
        Ok(tokens.len() as u64)
    }
}
