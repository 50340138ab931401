//! `sitemapd check`: what would the daemon read here?
//!
//! Reads a file, stdin or a URL exactly as a poll does (same limits, same
//! decoding, same parser) and reports on it: to a person in the words of
//! Search Console, to a program as one JSON object. Nothing is stored.

mod input;
mod json;
mod reading;
mod report;
mod scope;

use super::output::Output;
use super::source_of_truth::{load_config, load_config_to_ask};
use super::{Failure, Options};
use crate::clock::Clock;

pub use input::{Document, fetch_request, fetcher_for};
pub use reading::{Reading, read};
pub use scope::default_rules;
use scope::{rules_at, site_at};

/// What to read, and how.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A file, a URL, or - for stdin
    #[arg(value_name = "FILE|URL|-")]
    input: String,
    /// URL that the document has: relative URLs resolve against it, scope is judged by it
    #[arg(long, value_name = "BASE")]
    url: Option<String>,
    /// Content-Type header that the document has
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// List every entry, not only the first
    #[arg(long)]
    entries: bool,
}

/// Reads and reports. Fails when the document is unsupported or broken beyond use.
pub async fn run(args: &Args, options: &Options, out: &mut Output) -> Result<(), Failure> {
    // To a site's own document go its headers, secrets and all.
    let config = if input::as_url(&args.input).is_some() {
        load_config(options)?
    } else {
        load_config_to_ask(options)?
    };
    let document = input::open(args, &config).await?;
    let known = document.has_url().then_some(&document.base);
    // As a poll: what was asked for is the site's, wherever it redirects to.
    let asked = document.moved_from.as_ref().filter(|_| args.url.is_none());
    let site = asked.into_iter().chain(known).find_map(|url| site_at(url, &config));
    let rules = known.and_then(|url| rules_at(url, site, &config));
    let limits = site.map_or(&config.fetch.limits, |site| &site.limits);
    let now = Clock::system().now();
    // A command line has nothing else to do meanwhile.
    let reading = reading::read(&document, limits, rules.as_ref(), args.entries, now);
    if options.json {
        out.json(&json::of(&reading, args.entries))?;
    } else {
        report::print(&document, &reading, args.entries, now, out)?;
    }
    out.flush()?;
    if reading.is_usable() { Ok(()) } else { Err(Failure::Reported) }
}
