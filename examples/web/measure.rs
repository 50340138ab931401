//! What a pass costs: the daemon's own figures, those of the web, and those
//! that the system keeps of this process.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;

use crate::Place;

/// Where the figures come from.
pub(crate) struct Meter {
    client: reqwest::Client,
    api: String,
    web: String,
    /// The process that is the web.
    web_id: u32,
}

/// All counters at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Look {
    polls: f64,
    skipped: f64,
    equal_hash: f64,
    entries: f64,
    requests: f64,
    not_modified: f64,
    bytes: f64,
    cpu_s: f64,
    web_cpu_s: f64,
    peak_mb: f64,
}

/// What one pass cost.
#[derive(Debug, Serialize)]
pub(crate) struct Pass {
    name: &'static str,
    seconds: f64,
    polls: f64,
    requests: f64,
    skipped_children: f64,
    not_modified: f64,
    equal_hash: f64,
    megabytes: f64,
    entries_read: f64,
    cpu_seconds: f64,
    web_cpu_seconds: f64,
    peak_rss_mb: f64,
}

impl Meter {
    pub(crate) fn new(api: SocketAddr, web: Place) -> Self {
        Self {
            client: sitemapd::fetch::tls::client().no_proxy().build().unwrap_or_default(),
            api: format!("http://{api}"),
            web: format!("http://127.0.0.1:{}", web.port),
            web_id: web.process,
        }
    }

    pub(crate) async fn set_version(&self, version: u64) -> anyhow::Result<()> {
        self.client.post(format!("{}/version/{version}", self.web)).send().await?;
        Ok(())
    }

    /// Reads a page of our own.
    #[allow(clippy::disallowed_methods)] // of two processes that this program started
    async fn page(&self, url: &str) -> anyhow::Result<String> {
        Ok(self.client.get(url).send().await?.text().await?)
    }

    async fn metrics(&self) -> anyhow::Result<String> {
        self.page(&format!("{}/metrics", self.api)).await
    }

    /// How long a health check takes.
    pub(crate) async fn health(&self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.client.get(format!("{}/healthz", self.api)).send().await?.error_for_status()?;
        Ok(began.elapsed())
    }

    /// Asks for all sources of a site.
    pub(crate) async fn poll_site(&self, name: &str) -> anyhow::Result<()> {
        let url = format!("{}/v1/sites/{name}/poll", self.api);
        self.client.post(url).send().await?.error_for_status()?;
        Ok(())
    }

    /// Requests at the address that no site may lead us to.
    pub(crate) async fn touched(&self) -> anyhow::Result<u64> {
        Ok(self.page(&format!("{}/touched", self.web)).await?.parse()?)
    }

    /// Polls by what became of them.
    pub(crate) async fn results(&self) -> anyhow::Result<String> {
        let text = self.metrics().await?;
        let lines = text.lines().filter(|line| line.starts_with("sitemapd_polls_total"));
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    pub(crate) async fn look(&self) -> anyhow::Result<Look> {
        let text = self.metrics().await?;
        let counts = self.page(&format!("{}/counts", self.web)).await?;
        let counts: Vec<f64> = counts.split(' ').filter_map(|count| count.parse().ok()).collect();
        let [requests, not_modified, bytes] = counts[..] else {
            anyhow::bail!("the web counts in another way");
        };
        let saved = |by: &str| sum(&text, "sitemapd_work_saved_total", by);
        Ok(Look {
            polls: sum(&text, "sitemapd_polls_total", ""),
            skipped: saved("skipped-child"),
            equal_hash: saved("equal-hash"),
            entries: sum(&text, "sitemapd_entries_total", ""),
            requests,
            not_modified,
            bytes,
            cpu_s: cpu_seconds("self")?,
            web_cpu_s: cpu_seconds(&self.web_id.to_string())?,
            peak_mb: peak_mb()?,
        })
    }
}

/// The sum over all lines of a metric that contain `label`.
fn sum(text: &str, name: &str, label: &str) -> f64 {
    text.lines()
        .filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && line.contains(label)
        })
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// CPU time of a process, user and system.
fn cpu_seconds(process: &str) -> anyhow::Result<f64> {
    /// What Linux counts in, on every machine that this runs on.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after_name = stat.rsplit(") ").next().context("no process name")?;
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks = |n: usize| fields.get(n).and_then(|field| field.parse::<f64>().ok());
    let (user, system) = ticks(11).zip(ticks(12)).context("no CPU times")?;
    Ok((user + system) / TICKS_PER_SECOND)
}

/// Peak resident memory of this process.
fn peak_mb() -> anyhow::Result<f64> {
    memory_mb("VmHWM:")
}

/// Resident memory of this process.
pub(crate) fn resident_mb() -> anyhow::Result<f64> {
    memory_mb("VmRSS:")
}

fn memory_mb(key: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(key)).context("no such figure")?;
    let kib: f64 = line.split_whitespace().nth(1).context("no figure")?.parse()?;
    Ok(kib / 1024.0)
}

impl Look {
    pub(crate) fn polls(&self) -> f64 {
        self.polls
    }

    pub(crate) fn cpu_s(&self) -> f64 {
        self.cpu_s
    }
}

impl Pass {
    pub(crate) fn between(name: &'static str, took: Duration, before: &Look, after: &Look) -> Self {
        Self {
            name,
            seconds: took.as_secs_f64(),
            polls: after.polls - before.polls,
            requests: after.requests - before.requests,
            skipped_children: after.skipped - before.skipped,
            not_modified: after.not_modified - before.not_modified,
            equal_hash: after.equal_hash - before.equal_hash,
            megabytes: (after.bytes - before.bytes) / 1e6,
            entries_read: after.entries - before.entries,
            cpu_seconds: after.cpu_s - before.cpu_s,
            web_cpu_seconds: after.web_cpu_s - before.web_cpu_s,
            peak_rss_mb: after.peak_mb,
        }
    }
}

/// Prints the passes as a table, and as JSON where asked.
pub(crate) fn print(passes: &[Pass], json: bool) {
    println!(
        "{:12} {:>7} {:>8} {:>8} {:>8} {:>7} {:>7} {:>8} {:>10} {:>7} {:>7} {:>8}",
        "pass",
        "wall s",
        "requests",
        "polls/s",
        "skipped",
        "304",
        "equal",
        "MB",
        "entries",
        "CPU s",
        "its CPU",
        "peak MB"
    );
    for pass in passes {
        let done = pass.polls + pass.skipped_children;
        println!(
            "{:12} {:>7.1} {:>8} {:>8.0} {:>8} {:>7} {:>7} {:>8.1} {:>10} {:>7.1} {:>7.1} {:>8.0}",
            pass.name,
            pass.seconds,
            pass.requests,
            done / pass.seconds,
            pass.skipped_children,
            pass.not_modified,
            pass.equal_hash,
            pass.megabytes,
            pass.entries_read,
            pass.cpu_seconds,
            pass.web_cpu_seconds,
            pass.peak_rss_mb
        );
    }
    if json {
        println!("{}", serde_json::json!({ "passes": passes }));
    }
}
