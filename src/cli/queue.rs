//! `sitemapd queue`: looking into the crawl queue, and changing it by hand.

use serde_json::Value;

use super::answers::{self, Block, Dead, Peek, Queue};
use super::humane::{self, count};
use super::order::Order;
use super::output::{Output, Tone};
use super::question::Question;
use super::source_of_truth::SourceOfTruth;
use super::status::queues;
use super::table::{Align, Cell, Table};
use super::{Failure, Options};

/// Other crawls that are named after a replay.
const OTHERS: usize = 10;

/// What to do with the queue.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Count what is queued, due, leased, dead and held back
    Stats,
    /// Show what would be leased next, in order, without leasing it
    Peek {
        /// Rows
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// The crawl to look into
        #[arg(long, default_value = "default")]
        crawl: String,
    },
    /// List the URLs that were given up
    Dead {
        /// Rows
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Only those of this crawl
        #[arg(long)]
        crawl: Option<String>,
    },
    /// Put URLs that were given up back into the queue
    #[command(group(clap::ArgGroup::new("which").required(true).args(["urls", "all"])))]
    Replay {
        /// The URLs
        #[arg(value_name = "URL")]
        urls: Vec<String>,
        /// All of the crawl
        #[arg(long)]
        all: bool,
        /// Their crawl
        #[arg(long, default_value = "default")]
        crawl: String,
    },
    /// Make known URLs due now
    Requeue {
        /// The URLs
        #[arg(required = true, value_name = "URL")]
        urls: Vec<String>,
        /// Their crawl
        #[arg(long, default_value = "default")]
        crawl: String,
    },
    /// Keep a URL, or all below a prefix, from being leased until lifted
    Block(BlockArgs),
    /// Lift a block
    Unblock(BlockArgs),
    /// List the blocks in force
    Blocks {
        /// Rows
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Only those of this crawl
        #[arg(long)]
        crawl: Option<String>,
    },
    /// Stop leasing from a crawl
    Pause {
        /// The crawl
        #[arg(long, default_value = "default")]
        crawl: String,
    },
    /// Lease from a crawl again
    Resume {
        /// The crawl
        #[arg(long, default_value = "default")]
        crawl: String,
    },
}

/// What to block, or no longer.
#[derive(Debug, Clone, clap::Args)]
pub struct BlockArgs {
    /// The URL
    url: String,
    /// Take it as the beginning of URLs
    #[arg(long)]
    prefix: bool,
    /// Their crawl
    #[arg(long, default_value = "default")]
    crawl: String,
}

/// Asks, and prints what comes back.
pub async fn run(command: &Command, options: &Options, out: &mut Output) -> Result<(), Failure> {
    let truth = SourceOfTruth::of(options)?;
    let (answer, done) = match meaning(command) {
        Meaning::Question(question) => (truth.ask(&question).await?, None),
        Meaning::Order(order) => {
            let answer = truth.order(&order).await?;
            let words = order.in_words(&answer);
            (answer, Some(words))
        }
    };
    if options.json {
        return Ok(out.json(&answer)?);
    }
    if let Some(words) = done {
        out.line(&words)?;
        if let Command::Replay { urls, crawl, .. } = command {
            let replayed = answer.get("replayed").and_then(Value::as_u64).unwrap_or(0);
            tell_of_others(&truth, urls, crawl, replayed, out).await?;
        }
        return Ok(());
    }
    let now = truth.now();
    match command {
        Command::Peek { crawl, .. } => {
            print_peek(&answers::rows(&answer, "urls")?, now, out)?;
            tell_if_paused(&truth, crawl, out).await
        }
        Command::Dead { .. } => {
            print_dead(&answers::rows(&answer, "urls")?, now, out)?;
            if has_more(&answer) {
                let told = "there are more: --limit shows up to 1,000, `queue stats` counts them";
                out.toned(Tone::Faint, told)?;
            }
            Ok(())
        }
        Command::Blocks { .. } => {
            print_blocks(&answers::rows(&answer, "blocks")?, now, out)?;
            if has_more(&answer) {
                out.toned(Tone::Faint, "there are more: --limit shows up to 1,000")?;
            }
            Ok(())
        }
        _ => {
            let rows: Vec<Queue> = answers::rows(&answer, "queues")?;
            Ok(queues(&rows, now).print(out)?)
        }
    }
}

/// Is there another part of a list?
fn has_more(answer: &Value) -> bool {
    answer.get("next").is_some_and(|next| !next.is_null())
}

/// What a command comes to.
enum Meaning {
    Question(Question),
    Order(Order),
}

fn meaning(command: &Command) -> Meaning {
    let block = |args: &BlockArgs, lift| {
        let BlockArgs { url, prefix, crawl } = args.clone();
        Meaning::Order(Order::Block { pattern: url, prefix, crawl, lift })
    };
    match command.clone() {
        Command::Stats => Meaning::Question(Question::Queues),
        Command::Peek { limit, crawl } => Meaning::Question(Question::Peek { limit, crawl }),
        Command::Dead { limit, crawl } => Meaning::Question(Question::Dead { limit, crawl }),
        Command::Blocks { limit, crawl } => Meaning::Question(Question::Blocks { limit, crawl }),
        // Without URLs it was said that all are meant.
        Command::Replay { urls, crawl, .. } => Meaning::Order(Order::Replay { urls, crawl }),
        Command::Requeue { urls, crawl } => Meaning::Order(Order::Requeue { urls, crawl }),
        Command::Block(args) => block(&args, false),
        Command::Unblock(args) => block(&args, true),
        Command::Pause { crawl } => Meaning::Order(Order::Pause { crawl, paused: true }),
        Command::Resume { crawl } => Meaning::Order(Order::Pause { crawl, paused: false }),
    }
}

/// Says what a replay left: of the URLs that were named, and in other crawls.
async fn tell_of_others(
    truth: &SourceOfTruth,
    urls: &[String],
    crawl: &str,
    replayed: u64,
    out: &mut Output,
) -> Result<(), Failure> {
    let left = (urls.len() as u64).saturating_sub(replayed);
    if left > 0 {
        let left = count(left, "URL", "URLs");
        out.line(&format!("no dead letters of crawl {}: {left}", humane::safe(crawl)))?;
    } else if !urls.is_empty() {
        return Ok(());
    }
    let answer = truth.ask(&Question::Queues).await?;
    let queues: Vec<Queue> = answers::rows(&answer, "queues")?;
    let others: Vec<_> =
        queues.iter().filter(|queue| queue.crawl != crawl && queue.dead > 0).collect();
    for queue in others.iter().take(OTHERS) {
        let (crawl, dead) = (humane::safe(&queue.crawl), count(queue.dead, "URL", "URLs"));
        out.line(&format!("dead in crawl {crawl}: {dead}; put back with --crawl {crawl}"))?;
    }
    if others.len() > OTHERS {
        out.toned(Tone::Faint, "and in more crawls, see `queue stats`")?;
    }
    Ok(())
}

/// Nothing of a paused crawl is leased, whatever is next in it.
async fn tell_if_paused(
    truth: &SourceOfTruth,
    crawl: &str,
    out: &mut Output,
) -> Result<(), Failure> {
    let answer = truth.ask(&Question::Queues).await?;
    let queues: Vec<Queue> = answers::rows(&answer, "queues")?;
    if queues.iter().any(|queue| queue.crawl == crawl && queue.paused) {
        let crawl = humane::safe(crawl);
        let paused = format!("nothing of it is leased: {crawl} is paused (`queue resume`)");
        out.toned(Tone::Warn, &paused)?;
    }
    Ok(())
}

fn print_peek(rows: &[Peek], now: jiff::Timestamp, out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("url", Align::Elastic),
        ("reason", Align::Left),
        ("priority", Align::Right),
        ("changefreq", Align::Left),
        ("due", Align::Right),
        ("host free", Align::Right),
    ])
    .without_if_narrow(&["changefreq", "host free", "priority"]);
    for row in rows {
        table.row(vec![
            row.url.as_str().into(),
            row.reason.as_str().into(),
            row.priority.to_string().into(),
            row.changefreq.as_deref().unwrap_or("-").into(),
            humane::due(Some(row.due_at), now).into(),
            free(row.not_before, now),
        ]);
    }
    print_or(&table, "nothing that may be leased is queued", out)
}

fn free(not_before: Option<jiff::Timestamp>, now: jiff::Timestamp) -> Cell {
    match not_before {
        Some(at) if at > now => humane::when(at, now).into(),
        _ => Cell::toned(Tone::Faint, "now"),
    }
}

fn print_dead(rows: &[Dead], now: jiff::Timestamp, out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("url", Align::Elastic),
        ("crawl", Align::Left),
        ("tries", Align::Right),
        ("given up", Align::Right),
        ("status", Align::Right),
        ("error", Align::Elastic),
    ])
    .without_if_narrow(&["crawl", "tries", "given up"]);
    for row in rows {
        table.row(vec![
            row.url.as_str().into(),
            row.crawl.as_str().into(),
            u64::from(row.attempts).into(),
            humane::when(row.died_at, now).into(),
            row.status.map_or_else(|| "-".to_owned(), |status| status.to_string()).into(),
            row.error.as_deref().unwrap_or("-").into(),
        ]);
    }
    print_or(&table, "no dead letters", out)
}

fn print_blocks(rows: &[Block], now: jiff::Timestamp, out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("blocked", Align::Elastic),
        ("as", Align::Left),
        ("crawl", Align::Left),
        ("since", Align::Right),
    ]);
    for row in rows {
        let (text, kind) = match (&row.url, &row.prefix) {
            (_, Some(prefix)) => (prefix.as_str(), "prefix"),
            (url, None) => (url.as_deref().unwrap_or_default(), "url"),
        };
        table.row(vec![
            text.into(),
            kind.into(),
            row.crawl.as_str().into(),
            humane::when(row.since, now).into(),
        ]);
    }
    print_or(&table, "nothing is blocked", out)
}

fn print_or(table: &Table, nothing: &str, out: &mut Output) -> Result<(), Failure> {
    if table.is_empty() { Ok(out.line(nothing)?) } else { Ok(table.print(out)?) }
}
