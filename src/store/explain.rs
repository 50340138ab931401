//! Why a URL is due when it is, and how far sources and hosts are believed: read
//! models of what was learned.
//!
//! Taken by the functions that the queue orders by, so that what is told is what
//! decides: of one URL from the memory of whoever would lease it ([`Around`]), where
//! that can be asked, and else from the tables, which are a few looks behind.

use std::time::Duration;

use super::sql::{Connection, OptionalExtension};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::hosts::partition_of_url;
use super::learn::{self, Scope};
use super::ledger::Ledger;
use super::orders::Order;
use super::peers::Owner;
use super::policy::{Policy, SitePolicy};
use super::rows::{self, UrlRow};
use super::state::State;
use super::views::{Learned, SignalView, SourceView, Trusted, UrlState, UrlView};
use super::worth::{MEAN_PRIORITY, worth};
use super::writer::Lane;
use super::{Store, StoreError, engine, timestamp};
use crate::model::{HostId, Reason, UrlId};
use crate::recrawl;
use crate::recrawl::explain::Explanation;
use crate::recrawl::model::{Beliefs, UrlState as Model};
use crate::recrawl::prior::Bucket;
use crate::recrawl::signal::Signal;
use crate::recrawl::trust::{self, Record, Trust};
use crate::recrawl::value::{REFERENCE, Worth};

/// Memory is waited for so long. A writer that is at something longer, or that cannot
/// write, keeps nobody from what the tables say.
const RECALLS: Duration = Duration::from_secs(1);

/// What is learned around one URL.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Around {
    beliefs: Beliefs,
    /// What is told of the lastmods of its host.
    lastmod: Record,
    /// Mean priority of its site.
    mean: f64,
    price: f64,
}

impl Store {
    /// What a lease of a URL would be decided by now, as the daemon remembers it that
    /// has it; nothing where that does not say so soon.
    pub(super) async fn recalled(&self, url: UrlId) -> Option<Around> {
        self.inner.writer.as_ref()?;
        if !self.policy().learns() {
            return None;
        }
        let owner = match &self.inner.peers {
            Some(peers) => peers.owner(partition_of_url(url)),
            None => Owner::Us,
        };
        let recalling = async {
            match (owner, &self.inner.peers) {
                (Owner::Us, _) => self.recall_here(url).await,
                (Owner::At(address), Some(peers)) => {
                    peers.ask(&address, &Order::Recall(url)).await?.recalled()
                }
                _ => Ok(None),
            }
        };
        tokio::time::timeout(RECALLS, recalling).await.ok()?.unwrap_or_else(|error| {
            tracing::debug!(%error, "explained by what the tables say");
            None
        })
    }

    /// The same of what is ours, after all that was asked of the writer before.
    pub(super) async fn recall_here(&self, url: UrlId) -> Result<Option<Around>, StoreError> {
        self.write_naming(Lane::Hot, move |state| {
            state.must_own(url.0)?;
            state.around(url)
        })
        .await
    }
}

impl State {
    /// What is remembered around a URL.
    fn around(&mut self, url: UrlId) -> Result<Option<Around>, StoreError> {
        let Some(row) = self.url_row(url)? else { return Ok(None) };
        let beliefs = self.beliefs_of(&row)?;
        let (mean, price) = (self.mean_priority(row.site)?, self.price(row.crawl)?);
        let of_all = self.lessons(Scope::All)?.trust;
        let lastmod = lastmod_of(&self.lessons(Scope::Host(row.host))?.trust, &of_all);
        Ok(Some(Around { beliefs, lastmod, mean, price }))
    }
}

/// What can be told of the lastmods of a host.
fn lastmod_of(host: &Trust, all: &Trust) -> Record {
    host.record(Signal::Lastmod, Trust::weights(host, host, all)[Signal::Lastmod])
}

/// Adds to a view what was learned of the URL, and says by that why it is due when it
/// decides: where its reason so far is `open`, or not the time any more. What is learned
/// `around` it is that of the tables where nobody remembers it.
pub(super) fn explain(
    conn: &Connection,
    policy: &Policy,
    view: &mut UrlView,
    (open, around): (bool, Option<&Around>),
    now: Timestamp,
) -> Result<(), StoreError> {
    if !policy.learns() {
        return Ok(());
    }
    let Some(row) = rows::read_url(conn, view.id)? else { return Ok(()) };
    let site = policy.named(view.site.as_deref());
    let around = match around {
        Some(remembered) => *remembered,
        None => kept_around(conn, policy, site, &row)?,
    };
    // What nobody has seen is judged as if it had been when it was first listed.
    let model = row.learned();
    let state = model.unwrap_or_else(|| Model::first(view.first_seen));
    let worth = worth(&row, &state, &around.beliefs, site, around.mean, now);
    let decides = view.state == UrlState::Queued && is_by_value(&row, &worth, now);
    let was_due = view.due_at;
    if decides && let Some(due) = view.due_at {
        let is_passed_over = policy.is_capped() && !worth.at(now).is_due(around.price);
        if due > now || is_passed_over {
            // The row may be looked at sooner, to see whether more is known by then.
            let price = around.price * if policy.is_capped() { 1.0 } else { REFERENCE };
            let worth_it = due.max(worth.due(price)).max(after(now));
            let owed = owed_at(&row, due, &worth, site);
            view.due_at = Some(owed.map_or(worth_it, |owed| worth_it.min(owed)));
        }
    }
    let due = view.due_at.unwrap_or(now);
    let told = tell(&row, &around, &worth, model.as_ref(), due, now);
    if decides && (open || view.due_at != was_due) {
        view.why = told.to_string();
    }
    view.learned = model.map(|model| Learned {
        seen_at: model.seen(),
        pending: Signal::ALL
            .into_iter()
            .map(|signal| (signal.as_str(), model.pending()[signal]))
            .filter(|(_, count)| *count > 0)
            .collect(),
        numbers: told,
    });
    Ok(())
}

/// Does its value decide when a URL of the queue is due?
fn is_by_value(row: &UrlRow, worth: &Worth, now: Timestamp) -> bool {
    row.record.looks.is_some()
        && row.listed
        && row.attempt == 0
        && !row.is_fresh(now.as_second())
        && matches!(row.reason, Reason::Recrawl | Reason::Changed)
        && worth.proof() > 0.0
}

/// When a look at a URL is owed whatever it is worth, if one is; `due` is when its row
/// is looked at.
fn owed_at(row: &UrlRow, due: Timestamp, worth: &Worth, site: &SitePolicy) -> Option<Timestamp> {
    let has_changed = row.reason == Reason::Changed && row.due_s <= worth.seen.as_second();
    if row.attempt > 0 || row.record.came_to_nothing() || row.record.gone > 0 || has_changed {
        return Some(due);
    }
    let end = recrawl::day_end_after(row.lastmod, worth.seen, &site.bounds.timezone)?;
    let owed = end.max(recrawl::later(worth.seen, site.bounds.min));
    (due.as_second() <= owed.as_second()).then(|| owed.max(due))
}

/// When a URL that has surfaced is due, or since when, where nobody gets it for less than
/// the price.
pub(super) fn due_at_price(
    conn: &Connection,
    policy: &Policy,
    url: UrlId,
    now: Timestamp,
) -> Result<Option<Timestamp>, StoreError> {
    let Some(row) = rows::read_url(conn, url)? else { return Ok(None) };
    let due = timestamp(row.due_s.saturating_mul(1000));
    let Some(state) = row.learned() else { return Ok(Some(due)) };
    let name: Option<String> = match row.site {
        Some(site) => conn
            .prepare_cached("SELECT name FROM sites WHERE id = ?1")
            .and_then(|mut query| query.query_row([site.0], |row| row.get(0)).optional())
            .map_err(engine)?,
        None => None,
    };
    let site = policy.named(name.as_deref());
    let around = kept_around(conn, policy, site, &row)?;
    let worth = worth(&row, &state, &around.beliefs, site, around.mean, now);
    if !is_by_value(&row, &worth, now) {
        return Ok(Some(due));
    }
    let worth_it = due.max(worth.due(around.price));
    let is_worth_it = worth.at(now).is_due(around.price);
    let worth_it = if is_worth_it { worth_it.min(now) } else { worth_it.max(after(now)) };
    let owed = owed_at(&row, due, &worth, site);
    Ok(Some(owed.map_or(worth_it, |owed| worth_it.min(owed))))
}

/// A second later, for what rounding has due a moment too soon.
fn after(now: Timestamp) -> Timestamp {
    recrawl::later(now, std::time::Duration::from_secs(1))
}

/// What the tables have around a URL.
fn kept_around(
    conn: &Connection,
    policy: &Policy,
    site: &SitePolicy,
    row: &UrlRow,
) -> Result<Around, StoreError> {
    let assumed = site.bounds.changefreq.of(row.hints.changefreq);
    let (host, all) = (learn::read(conn, Scope::Host(row.host))?, learn::read(conn, Scope::All)?);
    let source = match row.giver() {
        Some(source) => learn::read(conn, Scope::Source(source))?.trust,
        None => Trust::default(),
    };
    let beliefs = Beliefs {
        rate: host.priors.rate(&all.priors, Bucket::of(row.hints.changefreq), assumed),
        looks: host.priors.looks(&all.priors),
        silent: host.trust.silent(),
        pulls: trust::pulls(&Trust::weights(&source, &host.trust, &all.trust)),
    };
    let mean = match row.site {
        Some(site) => conn
            .prepare_cached(MEAN_PRIORITY)
            .and_then(|mut query| query.query_row([site.0], |row| row.get(0)).optional())
            .map_err(engine)?
            .unwrap_or(0.5),
        None => 0.5,
    };
    let price = Ledger::read(conn, row.crawl, policy.opening_price)?.price();
    Ok(Around { beliefs, lastmod: lastmod_of(&host.trust, &all.trust), mean, price })
}

fn tell(
    row: &UrlRow,
    around: &Around,
    worth: &Worth,
    model: Option<&Model>,
    due: Timestamp,
    now: Timestamp,
) -> Explanation {
    let Around { lastmod, mean, price, .. } = *around;
    Explanation::new(row.reason, now, due, worth, model, lastmod, mean, price)
}

/// Adds how far the signals of a source, and of its host, are believed.
pub(super) fn add_trust(conn: &Connection, view: &mut SourceView) -> Result<(), StoreError> {
    let host: Option<i64> = conn
        .prepare_cached("SELECT host_id FROM sources WHERE id = ?1 /*pg: AND part = (?1 & 255) */")
        .and_then(|mut query| query.query_row([view.id.0], |row| row.get(0)).optional())
        .map_err(engine)?;
    let Some(host) = host else { return Ok(()) };
    let host = learn::read(conn, Scope::Host(HostId(host)))?;
    let (source, all) =
        (learn::read(conn, Scope::Source(view.id))?, learn::read(conn, Scope::All)?);
    let of = |own: &Trust| signals(own, &Trust::weights(own, &host.trust, &all.trust));
    view.trust = source.moves.map(|moves| Trusted {
        habit: source.habits.habit(),
        moves,
        signals: of(&source.trust),
        host: of(&host.trust),
    });
    Ok(())
}

fn signals(
    own: &Trust,
    weights: &crate::recrawl::signal::PerSignal<f64>,
) -> Vec<(Signal, SignalView)> {
    let pulls = trust::pulls(weights);
    let of = |signal: Signal| {
        let record = own.record(signal, weights[signal]);
        (signal, SignalView { record, is_believed: pulls[signal] > 0.0 })
    };
    Signal::ALL.into_iter().map(of).collect()
}
