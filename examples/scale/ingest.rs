//! The rows of reading: a store is filled, read again unchanged, hears that
//! nothing has changed, and takes over the second version. Each count is
//! compared with the generator's.

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use crate::daemon::{Daemon, NOTHING_YET, Setup, Usage, forget_peak, peak_mb};
use crate::input::Truth;
use crate::look::Look;
use crate::web::manner;

/// Rounds in which every source is asked and says that nothing has changed.
const QUIET_ROUNDS: u32 = 10;

/// What was measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Ingested {
    /// Further hosts, each with its front page and its robots.txt.
    pub(crate) hosts: Pass,
    /// All for the first time.
    pub(crate) cold: Pass,
    /// The same once more, every body read.
    pub(crate) unchanged: Pass,
    /// Milliseconds on the processor a source and poll: by a 304, by an equal hash.
    pub(crate) not_modified_ms: f64,
    pub(crate) equal_ms: f64,
    /// The second version.
    pub(crate) second: Pass,
    /// The round after it, in which what is gone is removed.
    pub(crate) removal: Pass,
    pub(crate) peak_mb: f64,
    pub(crate) bytes_per_url: f64,
    /// The file by what is in it, in bytes a URL.
    pub(crate) parts: Vec<(String, f64)>,
}

/// One pass.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Pass {
    pub(crate) entries: u64,
    pub(crate) seconds: f64,
    pub(crate) processor: f64,
}

impl Pass {
    fn since(usage: Usage, entries: u64) -> Self {
        let (seconds, processor) = usage.since();
        Self { entries, seconds, processor }
    }

    /// Entries a second.
    pub(crate) fn rate(&self) -> f64 {
        // Far below 2^52.
        #[allow(clippy::cast_precision_loss)]
        let entries = self.entries as f64;
        entries / self.seconds
    }

    /// Microseconds on the processor an entry.
    pub(crate) fn cost(&self) -> f64 {
        self.processor / self.seconds / self.rate() * 1e6
    }
}

/// The first pass on a fresh store, and nothing else.
pub(crate) async fn cold(setup: Setup, [first, _]: [Truth; 2]) -> anyhow::Result<Ingested> {
    let mut done = Ingested::default();
    let daemon = Daemon::start(setup).await?;
    fill(&daemon, first, &mut done).await?;
    daemon.end().await?;
    Ok(done)
}

/// Runs all passes on a fresh store.
pub(crate) async fn run(setup: Setup, [first, second]: [Truth; 2]) -> anyhow::Result<Ingested> {
    let mut done = Ingested::default();
    let daemon = Daemon::start(setup.clone()).await?;
    let further = fill(&daemon, first, &mut done).await?;
    check(&daemon.connect()?, further, first, "cold")?;

    let usage = Usage::now();
    daemon.pass("unchanged, read again").await?;
    done.unchanged = Pass::since(usage, first.entries);
    expect(&daemon.connect()?, "unchanged", first.entries, "unchanged")?;
    (done.bytes_per_url, done.parts) = size(&setup, first.urls + further)?;

    // Once to learn the tags, and the hash of the plain bytes.
    daemon.serve(1, manner::TAG).await?;
    daemon.pass("tags").await?;
    done.not_modified_ms = quiet(&daemon, "304", first).await?;
    daemon.serve(1, manner::EQUAL).await?;
    daemon.pass("no tags").await?;
    done.equal_ms = quiet(&daemon, "equal bytes", first).await?;

    daemon.serve(2, manner::REMARK).await?;
    let usage = Usage::now();
    daemon.pass("second version").await?;
    done.second = Pass::since(usage, second.entries);
    let conn = daemon.connect()?;
    expect(&conn, "changed", second.changed, "second version")?;
    expect(&conn, "new", second.added, "second version")?;
    expect(&conn, "missing", second.removed, "second version")?;
    // What is gone may have moved to a sibling: all of them are read first.
    daemon.pass("gone, or moved").await?;
    let usage = Usage::now();
    daemon.pass("removal").await?;
    done.removal = Pass::since(usage, second.entries);
    let removed = conn.number(&format!("SELECT sum({}) FROM polls", conn.count("removed")))?;
    ensure!(removed == second.removed.cast_signed(), "{removed} removed, not {}", second.removed);
    check(&conn, further, second, "second version")?;
    daemon.end().await?;
    Ok(done)
}

/// Makes the further hosts known, then reads everything for the first time;
/// says how many further hosts there are.
async fn fill(daemon: &Daemon, truth: Truth, done: &mut Ingested) -> anyhow::Result<u64> {
    daemon.serve(1, NOTHING_YET).await?;
    let further = daemon.shape().further_hosts().count() as u64;
    let usage = Usage::now();
    daemon.settle("hosts and their robots.txt").await?;
    done.hosts = Pass::since(usage, further);
    forget_peak();
    daemon.serve(1, manner::REMARK).await?;
    let usage = Usage::now();
    daemon.pass("cold").await?;
    done.cold = Pass::since(usage, truth.entries);
    done.peak_mb = peak_mb()?;
    Ok(further)
}

/// Rounds without news: milliseconds on the processor a source and poll.
async fn quiet(daemon: &Daemon, told: &str, truth: Truth) -> anyhow::Result<f64> {
    let usage = Usage::now();
    for _ in 0..QUIET_ROUNDS {
        daemon.pass(told).await?;
    }
    let (_, processor) = usage.since();
    let sources = truth.entries.div_ceil(crate::input::PER_FILE);
    // Far below 2^52.
    #[allow(clippy::cast_precision_loss)]
    let polls = sources as f64 * f64::from(QUIET_ROUNDS);
    Ok(processor * 1e3 / polls)
}

/// Compares the rows with the truth; beside it there is a front page of each
/// further host, without a date.
fn check(look: &Look, further: u64, truth: Truth, when: &str) -> anyhow::Result<()> {
    let of_listed = |what: &str| {
        let is_listed = look.listed();
        let listed = format!("FROM urls WHERE {is_listed} AND lastmod_s IS NOT NULL");
        look.number(&format!("SELECT {what} {listed}"))
    };
    let listed = (of_listed("count(*)")?, of_listed("sum(lastmod_s)")?);
    let expected = (truth.urls.cast_signed(), truth.dates.cast_signed());
    ensure!(listed == expected, "{when}: rows and sum of dates {listed:?}, not {expected:?}");
    let all = look.number("SELECT count(*) FROM urls")?;
    let queued = look.number("SELECT count(*) FROM queue")?;
    let turns = look.number("SELECT sum(queued) FROM turns")?;
    ensure!(queued == turns, "{when}: {queued} rows queued, {turns} in the turns");
    let rows = (truth.urls + truth.removed + further).cast_signed();
    ensure!(all == rows && queued == rows, "{when}: {all} rows, {queued} queued, not {rows}");
    Ok(())
}

/// Compares a count of the last round of the sitemaps with the truth.
fn expect(look: &Look, kind: &str, truth: u64, when: &str) -> anyhow::Result<()> {
    let counted = look.number(&format!(
        "SELECT sum({}) FROM polls WHERE id IN
             (SELECT max(p.id) FROM polls p JOIN sources s ON s.id = p.source_id
              WHERE s.url LIKE '%/map-%' GROUP BY s.id)",
        look.count(kind)
    ))?;
    ensure!(counted == truth.cast_signed(), "{when}: {counted} {kind}, not {truth}");
    Ok(())
}

/// Bytes of the file a URL, in all and by table.
pub(crate) fn size(setup: &Setup, urls: u64) -> anyhow::Result<(f64, Vec<(String, f64)>)> {
    // Far below 2^52.
    #[allow(clippy::cast_precision_loss)]
    let a_url = |bytes: i64| bytes as f64 / urls as f64;
    let conn = match Look::at(setup)? {
        Look::File(conn) => conn,
        look @ Look::Server(_) => return far_size(&look, a_url),
    };
    let pages: i64 = conn.query_row(
        "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
        [],
        |row| row.get(0),
    )?;
    let free: i64 = conn.query_row(
        "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size",
        [],
        |row| row.get(0),
    )?;
    let mut parts = vec![("free pages".to_owned(), a_url(free))];
    let by_table = "SELECT name, sum(pgsize) FROM dbstat WHERE aggregate = TRUE GROUP BY name
                    ORDER BY 2 DESC LIMIT 8";
    if let Ok(mut query) = conn.prepare(by_table) {
        let rows = query.query_map([], |row| Ok((row.get(0)?, a_url(row.get(1)?))))?;
        parts.extend(rows.collect::<Result<Vec<_>, _>>()?);
    }
    Ok((a_url(pages), parts))
}

/// The same in a database of a server, indexes included.
fn far_size(look: &Look, a_url: impl Fn(i64) -> f64) -> anyhow::Result<(f64, Vec<(String, f64)>)> {
    let all = look.number("SELECT pg_database_size(current_database())")?;
    let mut parts = Vec::new();
    for table in ["urls", "feedback", "queue", "snapshots", "leases"] {
        let bytes = look.number(&format!("SELECT pg_total_relation_size('{table}')"))?;
        parts.push((table.to_owned(), a_url(bytes)));
    }
    Ok((a_url(all), parts))
}
