//! `sitemapd sites`: the registered sites, pausing one, and forgetting one that is no
//! longer.

use super::answers::{self, Site};
use super::humane;
use super::order::Order;
use super::output::{Output, Tone};
use super::question::Question;
use super::source_of_truth::SourceOfTruth;
use super::table::{Align, Cell, Table};
use super::{Failure, Options};

/// What of the sites.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
}

/// What to do with a site; listing is the default.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Action {
    /// Drop all that is kept of a site that is no longer in the configuration
    Forget {
        /// Name of the site
        name: String,
    },
    /// Stop polling a site and leasing its URLs, until `resume`
    Pause {
        /// Name of the site
        name: String,
    },
    /// Go on with a paused site
    Resume {
        /// Name of the site
        name: String,
    },
}

/// Lists the sites, or gives an order about one.
pub async fn run(args: &Args, options: &Options, out: &mut Output) -> Result<(), Failure> {
    let truth = SourceOfTruth::of(options)?;
    let order = match args.action.clone() {
        None => return list(&truth, options, out).await,
        Some(Action::Forget { name }) => Order::Forget { site: name },
        Some(Action::Pause { name }) => Order::PauseSite { site: name, paused: true },
        Some(Action::Resume { name }) => Order::PauseSite { site: name, paused: false },
    };
    let answer = truth.order(&order).await?;
    if options.json {
        return Ok(out.json(&answer)?);
    }
    Ok(out.line(&order.in_words(&answer))?)
}

async fn list(truth: &SourceOfTruth, options: &Options, out: &mut Output) -> Result<(), Failure> {
    let answer = truth.ask(&Question::Sites).await?;
    if options.json {
        return Ok(out.json(&answer)?);
    }
    let now = truth.now();
    let mut table = Table::new(&[
        ("site", Align::Left),
        ("url", Align::Elastic),
        ("state", Align::Left),
        ("sources", Align::Right),
        ("failing", Align::Right),
        ("urls", Align::Right),
        ("polled", Align::Right),
        ("next poll", Align::Right),
    ])
    .without_if_narrow(&["polled", "sources", "url"]);
    for site in answers::rows::<Site>(&answer, "sites")? {
        let failing = if site.failing > 0 { Tone::Bad } else { Tone::Faint };
        table.row(vec![
            site.name.into(),
            site.url.into(),
            state(&site.state),
            site.sources.into(),
            Cell::toned(failing, &humane::number(site.failing)),
            site.urls.into(),
            humane::when_or_dash(site.last_poll_at, now).into(),
            humane::due(site.next_poll_at, now).into(),
        ]);
    }
    if table.is_empty() {
        out.line("no sites yet: add a [[site]] block to the configuration; this finds one:")?;
        return Ok(out.line("  sitemapd discover https://example.org/")?);
    }
    Ok(table.print(out)?)
}

/// The state of a site or a source, in its colour.
pub fn state(word: &str) -> Cell {
    let tone = match word {
        "active" => Tone::Good,
        "paused" => Tone::Warn,
        _ => Tone::Faint,
    };
    Cell::toned(tone, word)
}
