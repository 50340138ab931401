//! Why a URL is due when it is, and how far sources and hosts are believed: read
//! models of what was learned.
//!
//! Taken from the tables by the functions that the queue orders by, so that
//! what is told is what decides.

use super::sql::{Connection, OptionalExtension};
use jiff::Timestamp;

use super::learn::{self, Lessons, Scope};
use super::ledger::Ledger;
use super::policy::Policy;
use super::rows::{self, UrlRow};
use super::views::{Learned, SignalView, SourceView, Trusted, UrlState, UrlView};
use super::worth::{MEAN_PRIORITY, worth};
use super::{StoreError, engine};
use crate::model::{HostId, Reason};
use crate::recrawl;
use crate::recrawl::explain::Explanation;
use crate::recrawl::model::{Beliefs, UrlState as Model};
use crate::recrawl::prior::Bucket;
use crate::recrawl::signal::Signal;
use crate::recrawl::trust::{self, Trust};
use crate::recrawl::value::{REFERENCE, Worth};

/// What is learned around one URL.
struct Around {
    beliefs: Beliefs,
    host: Lessons,
    all: Lessons,
    mean: f64,
    price: f64,
}

/// Adds to a view what was learned of the URL, and to its reason what of that
/// decides when it is due.
pub(super) fn explain(
    conn: &Connection,
    policy: &Policy,
    view: &mut UrlView,
    now: Timestamp,
) -> Result<(), StoreError> {
    if !policy.learns() {
        return Ok(());
    }
    let Some(row) = rows::read_url(conn, view.id)? else { return Ok(()) };
    let site = policy.named(view.site.as_deref());
    let around = around(conn, policy, &row)?;
    // What nobody has seen is judged as if it had been when it was first listed.
    let model = row.learned();
    let state = model.unwrap_or_else(|| Model::first(view.first_seen));
    let worth = worth(&row, &state, &around.beliefs, site, around.mean, now);
    let decides = view.state == UrlState::Queued
        && model.is_some()
        && row.listed
        && row.attempt == 0
        && !row.is_fresh(now.as_second())
        && matches!(row.reason, Reason::Recrawl | Reason::Changed)
        && worth.proof() > 0.0;
    if decides && let Some(due) = view.due_at.filter(|due| *due > now) {
        // The row may be looked at sooner, to see whether more is known by then, but
        // for a look that is owed whatever it is worth: then its time is that.
        let end = recrawl::day_end_after(row.lastmod, worth.seen, &site.bounds.timezone);
        let soonest = recrawl::later(worth.seen, site.bounds.min);
        let is_day_end = end.is_some_and(|end| due.as_second() <= end.max(soonest).as_second());
        if row.record.gone == 0 && !is_day_end {
            view.due_at = Some(due.max(worth.due(around.price * REFERENCE)));
        }
    }
    let due = view.due_at.unwrap_or(now);
    let told = tell(&row, &around, &worth, model.as_ref(), due, now);
    if decides {
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

fn around(conn: &Connection, policy: &Policy, row: &UrlRow) -> Result<Around, StoreError> {
    let assumed = policy.default.bounds.changefreq.of(row.hints.changefreq);
    let (host, all) = (learn::read(conn, Scope::Host(row.host))?, learn::read(conn, Scope::All)?);
    let source = match row.source {
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
    let price = Ledger::read(conn, row.crawl, policy.opening_price)?.price.get();
    Ok(Around { beliefs, host, all, mean, price })
}

fn tell(
    row: &UrlRow,
    around: &Around,
    worth: &Worth,
    model: Option<&Model>,
    due: Timestamp,
    now: Timestamp,
) -> Explanation {
    let host = &around.host.trust;
    let weights = Trust::weights(host, host, &around.all.trust);
    let lastmod = host.record(Signal::Lastmod, weights[Signal::Lastmod]);
    Explanation::new(row.reason, now, due, worth, model, lastmod, around.mean, around.price)
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
