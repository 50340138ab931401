//! From what was measured to the rows of the table, with the bars of the issue.

use serde::{Deserialize, Serialize};

use crate::ingest::{Ingested, Pass};
use crate::input::Shape;
use crate::leasing::{Leased, Load};
use crate::table::{Better, Row};

/// Everything.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Figures {
    pub(crate) urls: u64,
    pub(crate) layouts: Vec<Layout>,
}

/// One layout.
#[derive(Debug, Serialize)]
pub(crate) struct Layout {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    /// What the peer had of the same files.
    pub(crate) peer: Option<Peer>,
    pub(crate) figures: OfLayout,
}

/// What was measured of one layout.
#[derive(Debug, Default, Serialize)]
pub(crate) struct OfLayout {
    pub(crate) ingested: Option<Ingested>,
    pub(crate) leased: Vec<(String, Load, Leased)>,
    pub(crate) trained: Option<Leased>,
    pub(crate) trained_size: Option<(f64, Vec<(String, f64)>)>,
    pub(crate) beside: Option<Leased>,
}

/// Scrapy's parser with sqlite3: entries, seconds by the clock, on the processor.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Peer {
    missing: Option<String>,
    cold: Option<(u64, f64, f64)>,
    unchanged: Option<(u64, f64, f64)>,
}

/// The bars of a figure: which way is better, the floor, the goal.
type Bars = (Better, f64, f64);

/// The table so far.
pub(crate) fn rows(figures: &Figures) -> Vec<Row> {
    let mut rows = Vec::new();
    for Layout { name, peer, figures, .. } in &figures.layouts {
        if let Some(peer) = peer {
            of_peer(name, peer, &mut rows);
        }
        let cold = peer.as_ref().and_then(|peer| peer.cold);
        let unchanged = peer.as_ref().and_then(|peer| peer.unchanged);
        if let Some(done) = &figures.ingested {
            of_reading(name, done, [cold, unchanged], &mut rows);
        }
        for (durability, load, leased) in &figures.leased {
            rows.push(of_load(name, durability, *load, leased));
        }
        if let Some((_, _, first)) = figures.leased.first() {
            let note = String::new();
            let bars = (Better::Less, 3_000.0, 50.0);
            let start = (first.start_ms, "ms");
            rows.push(Row::new(name, "start to first lease", start, bars, note));
            let note = format!("{:.0} MB after the start", first.resident_mb);
            let bars = (Better::Less, 256.0, 128.0);
            let peak = (first.peak_mb, "MB");
            rows.push(Row::new(name, "peak memory holding, with leases", peak, bars, note));
        }
        if let Some((bytes, parts)) = &figures.trained_size {
            let bars = (Better::Less, 150.0, 110.0);
            let what = "bytes a URL, all leased and settled once";
            rows.push(Row::new(name, what, (*bytes, "B"), bars, parts_of(parts)));
        }
        if let Some(trained) = &figures.trained {
            let bars = (Better::Neither, 0.0, 0.0);
            let what = "all leased and settled, batches of 1,000, normal";
            let note = format!("{} URLs", trained.urls);
            rows.push(Row::new(name, what, (trained.rate(), "URL/s"), bars, note));
        }
        if let Some(beside) = &figures.beside {
            let bars = (Better::Less, 50.0, 20.0);
            let what = "p99 of a lease of 10 while reading at full speed";
            let note = format!("{} URLs leased in {:.0} s", beside.urls, beside.seconds);
            rows.push(Row::new(name, what, (beside.p99_ms, "ms"), bars, note));
        }
    }
    rows
}

fn of_peer(name: &str, peer: &Peer, rows: &mut Vec<Row>) {
    for (what, timed) in [("cold", peer.cold), ("unchanged", peer.unchanged)] {
        let (rate, note) = match timed {
            Some(timed) => (rate(timed), format!("{} URLs, {:.1} s CPU", timed.0, timed.2)),
            None => (f64::NAN, "not installed".to_owned()),
        };
        let what = format!("peer: Scrapy's parser with sqlite3, {what}");
        rows.push(Row::new(name, &what, (rate, "URL/s"), (Better::Neither, 0.0, 0.0), note));
    }
}

fn rate((entries, seconds, _): (u64, f64, f64)) -> f64 {
    // Far below 2^52.
    #[allow(clippy::cast_precision_loss)]
    let entries = entries as f64;
    entries / seconds
}

fn of_reading(
    name: &str,
    done: &Ingested,
    [cold, unchanged]: [Option<(u64, f64, f64)>; 2],
    rows: &mut Vec<Row>,
) {
    let mut pass = |what: &str, pass: Pass, bars: Bars, peer: Option<(u64, f64, f64)>| {
        if pass.entries == 0 {
            return;
        }
        let ratio = peer.map_or_else(String::new, |peer| {
            format!(", {:.1} times the peer", pass.rate() / rate(peer))
        });
        let note = format!("{:.1} s, {:.2} us CPU a URL{ratio}", pass.seconds, pass.cost());
        rows.push(Row::new(name, what, (pass.rate(), "URL/s"), bars, note));
    };
    let neither = (Better::Neither, 0.0, 0.0);
    pass("hosts with front page and robots.txt", done.hosts, neither, None);
    pass("cold, gz file to committed rows", done.cold, (Better::More, 4e5, 1e6), cold);
    let bars = (Better::More, 1.5e6, 4e6);
    pass("unchanged, bodies read", done.unchanged, bars, unchanged);
    let bars = (Better::More, 8e5, 1.5e6);
    pass("5 % changed, 1 % added, 1 % removed", done.second, bars, None);
    pass("the round that removes what is gone", done.removal, neither, None);
    let bars = (Better::Less, 1.0, 0.2);
    for (what, ms) in [("304", done.not_modified_ms), ("equal bytes", done.equal_ms)] {
        if ms > 0.0 {
            let what = format!("a source of 50,000 URLs by {what}");
            rows.push(Row::new(name, &what, (ms, "ms CPU"), bars, String::new()));
        }
    }
    if done.bytes_per_url > 0.0 {
        let bars = (Better::Less, 120.0, 80.0);
        let bytes = (done.bytes_per_url, "B");
        rows.push(Row::new(name, "bytes a URL, fresh", bytes, bars, parts_of(&done.parts)));
    }
    let bars = (Better::Less, 256.0, 128.0);
    let peak = (done.peak_mb, "MB");
    rows.push(Row::new(name, "peak memory of the first pass", peak, bars, String::new()));
}

fn of_load(name: &str, durability: &str, load: Load, leased: &Leased) -> Row {
    let bars = match (load.over_http, load.batch, durability) {
        (false, _, "normal") => (Better::More, 150e3, 300e3),
        (false, _, _) => (Better::More, 80e3, 170e3),
        (true, 1, _) => (Better::More, 8e3, 20e3),
        (true, _, _) => (Better::More, 60e3, 150e3),
    };
    let way = if load.over_http { "HTTP" } else { "in process" };
    let what = format!(
        "lease and settle, {way}, {} clients, batches of {}, {durability}",
        load.clients, load.batch
    );
    // The clients' own is in it.
    let cost = leased.processor / leased.seconds / leased.rate() * 1e6;
    let note = format!("{cost:.1} us CPU a URL, p99 of a lease {:.1} ms", leased.p99_ms);
    Row::new(name, &what, (leased.rate(), "URL/s"), bars, note)
}

fn parts_of(parts: &[(String, f64)]) -> String {
    let told = parts.iter().filter(|(_, bytes)| *bytes >= 0.5);
    told.map(|(name, bytes)| format!("{name} {bytes:.1}")).collect::<Vec<_>>().join(", ")
}
