//! The work: who is leased what, whose turn it is, and what is told when.
//!
//! A lease is in `ends` from the answer that brought it until it is settled,
//! lost to somebody else, or given back. One task works on a host at a time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Args;
use super::api::{Api, Lease, Seen};
use super::page::Pages;

/// How long a lease call waits for something to be due.
const LONG_POLL: &str = "20s";
/// Between two looks at the books.
const BOOKS: Duration = Duration::from_millis(100);
/// Where nothing is due, or no more can be held.
const IDLE: Duration = Duration::from_millis(200);

/// Fetches until told to stop; gives back what was not begun.
pub(crate) async fn run(args: &Args, stop: CancellationToken) -> anyhow::Result<()> {
    let fetcher = Arc::new(Fetcher {
        api: Api::new(&args.api, args.token_file.as_deref())?,
        pages: Pages::new(args)?,
        args: args.clone(),
        stop,
        over: CancellationToken::new(),
        cut: CancellationToken::new(),
        hosts_at_once: Semaphore::new(args.hosts.max(1)),
        tasks: TaskTracker::new(),
        books: Mutex::default(),
    });
    let clerk = tokio::spawn(keep_books(Arc::clone(&fetcher)));
    let ended = lease_on(&fetcher).await;
    fetcher.stop.cancel();
    fetcher.tasks.close();
    fetcher.tasks.wait().await;
    // Given back sooner, a call of ours could lease it again.
    fetcher.over.cancel();
    // A daemon that is away now is not waited for any longer than a page.
    let cut = fetcher.cut.clone();
    let patience = Duration::from_secs(args.timeout);
    tokio::spawn(async move {
        sleep(patience).await;
        cut.cancel();
    });
    let told = clerk.await?;
    fetcher.pages.save()?;
    ended.and(told)
}

struct Fetcher {
    api: Api,
    pages: Pages,
    args: Args,
    /// Take no more.
    stop: CancellationToken,
    /// No more is taken, nothing is under way.
    over: CancellationToken,
    /// And wait for nothing any more.
    cut: CancellationToken,
    hosts_at_once: Semaphore,
    tasks: TaskTracker,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    /// Leased and waiting; a host is here while a task works on it.
    hosts: HashMap<String, VecDeque<(Instant, Lease)>>,
    /// How hosts were asked lately.
    paces: HashMap<String, Pace>,
    /// When each lease ends.
    ends: HashMap<String, Instant>,
    /// To be settled.
    results: Vec<Seen>,
}

/// The pace of a host.
struct Pace {
    /// When it was asked last.
    asked: Instant,
    /// Its last slot, by the daemon's clock.
    slot: Timestamp,
    /// The least that its slots were apart.
    apart: Option<Duration>,
}

/// Hosts whose pace is remembered.
const PACES: usize = 10_000;

impl Fetcher {
    /// When a host may be asked for what may be fetched at `start`: where we are late, no
    /// sooner after the last request than its slots are apart.
    fn turn(&self, host: &str, start: Instant, slot: Timestamp) -> Instant {
        let mut books = self.books();
        let now = Instant::now().max(start);
        if books.paces.len() > PACES {
            books.paces.clear();
        }
        let Some(pace) = books.paces.get_mut(host) else {
            books.paces.insert(host.to_owned(), Pace { asked: now, slot, apart: None });
            return now;
        };
        if let Ok(gap) = Duration::try_from(slot.duration_since(pace.slot))
            && !gap.is_zero()
        {
            pace.apart = Some(pace.apart.map_or(gap, |apart| apart.min(gap)));
            pace.slot = slot;
        }
        pace.asked = now.max(pace.asked + pace.apart.unwrap_or_default());
        pace.asked
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lasting(&self) -> Duration {
        Duration::from_secs(self.args.lease)
    }

    /// Takes a lease; the host's task comes to it.
    fn take(self: &Arc<Self>, lease: Lease, came: Instant) {
        // By the daemon's clock, wherever ours stands.
        let before_end = lease.expires_at.duration_since(lease.not_before).as_secs_f64();
        let start = came + Duration::from_secs_f64((lease.expires_in - before_end).max(0.0));
        let mut books = self.books();
        let end = came + Duration::from_secs_f64(lease.expires_in.max(0.0));
        books.ends.insert(lease.token.clone(), end);
        if let Some(waiting) = books.hosts.get_mut(&lease.host) {
            waiting.push_back((start, lease));
            return;
        }
        let host = lease.host.clone();
        books.hosts.insert(host.clone(), VecDeque::from([(start, lease)]));
        self.tasks.spawn(visit(Arc::clone(self), host));
    }

    /// The next of a host; without one the host has no task any more.
    fn next_of(&self, host: &str) -> Option<(Instant, Lease)> {
        let mut books = self.books();
        let next = books.hosts.get_mut(host).and_then(VecDeque::pop_front);
        if next.is_none() {
            books.hosts.remove(host);
        }
        next
    }

    async fn settle(&self) -> anyhow::Result<()> {
        let batch = self.books().results.clone();
        if batch.is_empty() {
            return Ok(());
        }
        // Twice is harmless: a token settles once.
        let told = self.api.ask("settle", &json!({ "results": batch }), &self.cut).await?;
        if told.is_some() {
            let mut books = self.books();
            books.results.drain(..batch.len());
            for seen in batch {
                books.ends.remove(&seen.token);
            }
        }
        Ok(())
    }

    async fn extend(&self) -> anyhow::Result<()> {
        let soon = Instant::now() + self.lasting() / 2;
        let is_soon = |(token, end): (&String, &Instant)| (*end < soon).then(|| token.clone());
        let tokens: Vec<String> = self.books().ends.iter().filter_map(is_soon).collect();
        if tokens.is_empty() {
            return Ok(());
        }
        let asked = Instant::now();
        let body = json!({ "tokens": tokens, "ttl": format!("{}s", self.args.lease) });
        let Some(answer) = self.api.ask("extend", &body, &self.cut).await? else { return Ok(()) };
        let mut books = self.books();
        for told in answer["results"].as_array().into_iter().flatten() {
            let Some(token) = told["token"].as_str() else { continue };
            if told["result"] == "ok" {
                books.ends.insert(token.to_owned(), asked + self.lasting());
            } else {
                // It went to somebody else.
                books.ends.remove(token);
            }
        }
        Ok(())
    }
}

/// Leases until told to stop, or, if asked to, until nothing is due.
async fn lease_on(fetcher: &Arc<Fetcher>) -> anyhow::Result<()> {
    while !fetcher.stop.is_cancelled() {
        let room = usize::from(fetcher.args.in_hand).saturating_sub(fetcher.books().ends.len());
        let came = if room == 0 { 1 } else { lease(fetcher, room).await? };
        if came == 0 && fetcher.args.once && fetcher.books().ends.is_empty() {
            return Ok(());
        }
        if came == 0 || room == 0 {
            sleep(IDLE).await;
        }
    }
    Ok(())
}

async fn lease(fetcher: &Arc<Fetcher>, room: usize) -> anyhow::Result<usize> {
    let args = &fetcher.args;
    let mut id = [0; 16];
    getrandom::fill(&mut id)?;
    let body = json!({
        "max": room,
        "ttl": format!("{}s", args.lease),
        "wait": if args.once { "0s" } else { LONG_POLL },
        "crawl": args.crawl,
        "worker": args.worker,
        // Asked for again after a lost answer, it is the same lease.
        "request_id": format!("{:032x}", u128::from_ne_bytes(id)),
    });
    let asking = fetcher.api.ask("lease", &body, &fetcher.stop);
    let answer = tokio::select! {
        answer = asking => answer?,
        // What this call was given, if anything, we ask for once more to give it back.
        () = fetcher.stop.cancelled() => {
            let mut again = body.clone();
            again["wait"] = "0s".into();
            fetcher.api.ask("lease", &again, &fetcher.stop).await?
        }
    };
    let came = Instant::now();
    let leases: Vec<Lease> = match answer {
        Some(Value::Object(mut answer)) => {
            serde_json::from_value(answer.remove("urls").unwrap_or_default())?
        }
        _ => Vec::new(),
    };
    let count = leases.len();
    for lease in leases {
        fetcher.take(lease, came);
    }
    Ok(count)
}

/// Fetches what is leased of a host, one after the other.
async fn visit(fetcher: Arc<Fetcher>, host: String) {
    // The semaphore is never closed.
    let _place = fetcher.hosts_at_once.acquire().await;
    while let Some((start, lease)) = fetcher.next_of(&host) {
        tokio::select! {
            biased;
            // The clerk gives it back.
            () = fetcher.stop.cancelled() => continue,
            () = sleep_until(fetcher.turn(&host, start, lease.not_before)) => {}
        }
        if !fetcher.books().ends.contains_key(&lease.token) {
            continue;
        }
        let seen = fetcher.pages.look(&lease).await;
        let status = seen.status.map_or_else(|| "-".to_owned(), |status| status.to_string());
        let outcome = seen.outcome.unwrap_or("by its hash");
        println!("{status} {outcome} {} {}", lease.reason, lease.url);
        fetcher.books().results.push(seen);
    }
}

/// Settles what was seen, extends what takes long; at the end gives back the rest.
async fn keep_books(fetcher: Arc<Fetcher>) -> anyhow::Result<()> {
    let mut failed = Ok(());
    loop {
        let is_over = fetcher.over.is_cancelled();
        if is_over && (fetcher.books().results.is_empty() || fetcher.cut.is_cancelled()) {
            break;
        }
        let _ = timeout(BOOKS, fetcher.over.cancelled()).await;
        for told in [fetcher.settle().await, fetcher.extend().await] {
            if let Err(error) = told {
                // What it was about goes back.
                failed = Err(error);
                fetcher.stop.cancel();
                fetcher.books().results.clear();
            }
        }
    }
    let rest: Vec<String> = fetcher.books().ends.drain().map(|(token, _)| token).collect();
    if !rest.is_empty() {
        fetcher.api.ask("release", &json!({ "tokens": rest }), &fetcher.cut).await?;
        eprintln!("gave {} back", rest.len());
    }
    failed
}
