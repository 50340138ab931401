//! sitemapd knows what changed on the sites it follows, and which URL to fetch next.
//!
//! A daemon polls sitemaps and feeds, compares what they list with what it
//! knew, and keeps a crawl queue that fetchers (other programs) lease from and
//! report back to. This library is the daemon and its command line; `main.rs`
//! only calls [`cli::run()`].
//!
//! # The way of the data
//!
//! ```text
//! config ─> schedule ─> fetch ─> decode ─> parse ─> diff ─> store ─> queue ─> serve
//!              ^                                      │                  │
//!              └───────── next poll ──────────────────┘   feedback <─────┘
//! ```
//!
//! A source that is due is fetched through one guarded door; its bytes are
//! decoded under limits and parsed into entries and issues; the entries are
//! compared with the source's last snapshot; the differences are committed with
//! what they do to the queue; fetchers lease, and settle with what they saw.
//! `docs/ARCHITECTURE.md` tells it in full.
//!
//! # The modules
//!
//! | module | what it does |
//! |---|---|
//! | `config` | the configuration as used: validated, immutable; errors with file, line and key |
//! | `model` | the plain types that every stage shares |
//! | `clock` | the only place that asks the machine's clocks |
//! | `date`, `url` | dates of the web with their precision; which URLs are a site's, and their identity |
//! | `schedule` | which source is polled when: the loop, intervals, cron lines, robots.txt |
//! | `fetch` | the one door to the network: guard, redirects by hand, limits, decoding |
//! | `parse` | bytes to entries and issues: sitemaps, feeds, text, robots.txt, links of a page |
//! | `diff` | pure: a snapshot and a document to differences |
//! | `recrawl` | pure: what is known of a URL to when it is due and its place in line |
//! | `store` | the only door to SQL: effects in, views out |
//! | `queue` | the words of leasing, and the window that says whose turn it is |
//! | `serve` | the HTTP API, the frontier over gRPC, the status page, health and metrics |
//! | `egress` | what may be fetched, published to a broker, and what comes back from there |
//! | `app` | builds the daemon and runs it; the caller owns the stop signal |
//! | `cli` | one file per subcommand |
//! | `metrics`, `log` | what is counted, what is said |
//! | `bounded` | maps of what can be made anew, bounded in bytes |
//! | `locks` | locks by name |
//! | `threads` | few threads for what would hold up an async worker |
//! | `by_id` | maps by row numbers of ours |
//! | `bitpack` | columns of integers in few bits, for snapshots and the lookup |
//!
//! Which module may name which is written down, and kept, in
//! `tests/it/walls.rs`.

pub mod app;
mod bitpack;
mod bounded;
mod by_id;
pub mod cli;
pub mod clock;
pub mod config;
pub mod date;
pub mod diff;
pub mod egress;
pub mod fetch;
mod locks;
pub mod log;
pub mod metrics;
pub mod model;
pub mod parse;
pub mod queue;
pub mod recrawl;
pub mod schedule;
pub mod serve;
pub mod store;
mod threads;
pub mod url;
