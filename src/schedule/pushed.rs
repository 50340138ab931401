//! What a hub has pushed, read as a poll of its source would read it.
//!
//! The very same path: decode, parse, compare with what the source listed,
//! judge, apply in chunks, one commit at the end. But a push proves no absence:
//! it is read as part of the document, whatever it holds, so that it adds and
//! changes and never removes. What cannot be read, or may not be believed,
//! brings the next poll forward instead. Reading twice does nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use url::Url;

use super::again::Again;
use super::barred::Barred;
use super::document::Poll;
use super::interval::PollEvent;
use super::outcome::{Ended, kept_hints};
use super::read::{self, ReadDocument};
use super::texts::Wanted;
use super::{Poller, STORE_PAUSE};
use crate::diff::Rules;
use crate::diff::snapshot::Snapshot;
use crate::fetch::{Fetched, Head, Validators};
use crate::metrics::{PollFigures, PushPart, Pushed};
use crate::model::{DocumentKind, Precision, SourceId};
use crate::parse::Report;
use crate::store::hubs::{Delivery, MAX_HUBS, MAX_URL, Named, PushEnd};
use crate::store::views::Counts;
use crate::store::{PollTarget, ROBOTS_UNREADABLE, StoreError};

/// The word of such a read in tables and metrics.
const PUSHED: &str = "pushed";

impl Poller {
    /// Reads one push; nobody polls its source meanwhile, who is `alone` with it.
    pub(super) async fn take_delivery(
        &self,
        row: i64,
        source: SourceId,
        alone: OwnedMutexGuard<()>,
    ) {
        if let Err(error) = self.read_delivery(row).await
            && error != StoreError::Closed
        {
            tracing::error!(%source, %error, "a push is not read yet");
            tokio::time::sleep(STORE_PAUSE).await;
        }
        drop(alone);
    }

    async fn read_delivery(&self, row: i64) -> Result<(), StoreError> {
        let Some(delivery) = self.store.begin_delivery(row).await? else { return Ok(()) };
        let source = delivery.source;
        match self.ingest(delivery).await? {
            Ok(()) => self.metrics.pushed(Pushed::Read),
            Err(why) => {
                tracing::info!(%source, why, "a push only brings the next poll forward");
                self.metrics.pushed(Pushed::Hint);
                self.store.delivery_is_hint(row, source).await?;
            }
        }
        Ok(())
    }

    /// Takes over what was pushed; the inner error says why it cannot be.
    async fn ingest(&self, delivery: Delivery) -> Result<Result<(), &'static str>, StoreError> {
        let target = self.store.poll_target(delivery.source).await?;
        let (Some(site), Some(id)) = (self.site_of(&target), target.site) else {
            return Ok(Err("its site is polled no more"));
        };
        if !delivery.trusted {
            return Ok(Err("it is not signed, and what it tells of is only told over https"));
        }
        if matches!(target.failing.as_deref(), Some("forbidden" | ROBOTS_UNREADABLE)) {
            return Ok(Err("robots.txt forbids its source"));
        }
        let rules = self.rules_for(&target, &site, id).await?;
        let began = self.clock.now();
        let target = &target;
        let poll = Poll {
            poller: self,
            target,
            site: &site,
            id,
            rules,
            began,
            read_in_full: false,
            elsewhere: None,
        };
        poll.pushed(delivery).await
    }
}

impl Poll<'_> {
    async fn pushed(&self, delivery: Delivery) -> Result<Result<(), &'static str>, StoreError> {
        let Delivery { row, at: came_at, body, content_type, coding, .. } = delivery;
        let bytes = body.len() as u64;
        let fetched = as_fetched(self.target, body, content_type, coding.as_deref());
        let room = self.room_for(&fetched).await?;
        let (before, siblings) = self.snapshot().await?;
        let again = Again::new(Arc::new(fetched), self.manner());
        let reading = self.on_cpu({
            let (again, before) = (again.clone(), Arc::clone(&before));
            move || read::read(again.own(), again.manner(), &before, &mut Barred::default())
        });
        let Ok(read) = reading.await else { return Ok(Err("reading it panicked")) };
        if let Err(why) = readable(&read, &before, self.site.limits.max_urls) {
            return Ok(Err(why));
        }
        let newest = read.document.entries().iter().filter_map(|entry| entry.lastmod);
        let newest = newest.filter(|date| date.precision >= Precision::Minute);
        let published_at = newest.map(|date| date.at).max();
        let ReadDocument { report, document, deleted, .. } = read;
        let has_extensions = document.has_extensions;
        let window = report.window || self.target.window > 0;
        // Part of the document, whatever it is: nothing that it leaves out is gone.
        let rules = Rules { part: true, ..self.diff_rules(false, window, siblings, false) };
        let compared = self.compare(before, document, rules).await;
        let Ok(mut verdict) = compared else { return Ok(Err("comparing it panicked")) };
        let same = verdict.same;
        let restated = std::mem::take(&mut verdict.restated);
        let (newer, _) = self
            .poller
            .store
            .newer_of(self.target.id, self.target.host, verdict.dates.clone())
            .await?;
        let origin = self.origin(window).with(newer);
        let (next, counts) = self.apply(verdict, Some(&again), origin).await?;
        let talking = has_extensions.then(|| again.clone());
        self.take_texts(talking, Wanted::of(&restated, &next), origin).await?;
        let sums = self.sum_up(next, same).await?;
        drop(room);
        let entries = report.entries_total as u64;
        self.end_push(row, came_at, bytes, entries, counts, sums.data).await?;
        if counts.new + counts.changed > 0 {
            let since = |at: jiff::Timestamp, until: jiff::Timestamp| {
                Duration::try_from(until.duration_since(at)).unwrap_or_default()
            };
            if let Some(at) = published_at {
                self.poller.metrics.push_took(PushPart::PublishedToPushed, since(at, came_at));
            }
            let now = self.poller.clock.now();
            self.poller.metrics.push_took(PushPart::PushedToQueued, since(came_at, now));
        }
        if deleted > 0 {
            // What is said to be gone is heard by a poll, which asks the source itself.
            self.poller.store.hint_source(self.target.id).await?;
        }
        Ok(Ok(()))
    }

    async fn end_push(
        &self,
        delivery: i64,
        came_at: jiff::Timestamp,
        bytes: u64,
        entries: u64,
        counts: Counts,
        snapshot: Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        let (new, changed) = (counts.new, counts.changed + counts.touched);
        let event = if new + changed == 0 {
            PollEvent::Unchanged
        } else {
            PollEvent::Changed { new, changed }
        };
        // The source has the rhythm that it has, whoever brings its news.
        let hints = kept_hints(self.target.hints.as_deref());
        let next = self.poller.next(self.target, &Ended::good(event, PUSHED), &hints);
        let took = self.poller.clock.now().duration_since(self.began);
        let took = Duration::try_from(took).unwrap_or_default();
        let wire_bytes = bytes;
        self.poller
            .store
            .finish_push(PushEnd {
                delivery,
                source: self.target.id,
                tenure: self.target.tenure,
                came_at,
                at: self.began,
                took_ms: i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
                bytes,
                entries,
                counts,
                snapshot,
                changed: new + changed > 0,
                rhythm: next.rhythm,
                interval_ms: next.interval_ms,
            })
            .await?;
        let body_bytes = bytes;
        let figures = PollFigures { result: PUSHED, took, wire_bytes, body_bytes, entries, counts };
        self.poller.metrics.poll_done(&figures);
        tracing::info!(
            site = self.target.site_name.as_deref().unwrap_or("-"),
            source = %self.target.id,
            url = crate::log::redact(&self.target.url),
            bytes,
            entries,
            new,
            changed,
            "a hub pushed"
        );
        Ok(())
    }

    /// What a document says of hubs, as far as they may be asked.
    pub(super) async fn hubs_of(&self, report: &Report, head: &Head) -> Result<Named, StoreError> {
        if !report.complete {
            return Ok(Named::Unknown);
        }
        let fetcher = &self.poller.fetcher;
        let hubs = report.hints.hubs.iter().filter_map(|hub| Url::parse(hub).ok());
        let hubs = hubs.filter(|hub| fetcher.check_hub(hub, &self.target.url).is_ok());
        let hubs = preferred(hubs);
        // One that does not name itself is taken for what was asked for.
        let own = report.hints.self_url.as_deref().filter(|own| own.len() <= MAX_URL);
        let topic = own.unwrap_or(head.final_url.as_str()).to_owned();
        if hubs.is_empty() {
            return Ok(Named::Nothing);
        }
        // Known also where it is not wanted, so that wanting it later finds it.
        let is_own = self.poller.config.borrow().listen.public_url.is_some();
        let is_reached = is_own || self.poller.store.hub_base().await?.is_some();
        let wanted = is_reached && self.site.websub;
        Ok(Named::Hubs { topic, hubs, wanted })
    }
}

/// Hubs in the order in which they are asked: over https a push can be signed,
/// so that form of a hub goes before the one that is named.
fn preferred(named: impl Iterator<Item = Url>) -> Vec<String> {
    let mut hubs: Vec<String> = Vec::new();
    for hub in named {
        let mut secure = hub.clone();
        let is_upgraded = hub.port().is_none() && secure.set_scheme("https").is_ok();
        for form in is_upgraded.then_some(secure).into_iter().chain([hub]) {
            let form = String::from(form);
            if form.len() <= MAX_URL && !hubs.contains(&form) {
                hubs.push(form);
            }
        }
    }
    hubs.sort_by_key(|hub| !hub.starts_with("https:"));
    hubs.truncate(MAX_HUBS);
    hubs
}

/// Can this be taken over as part of its source? The merged snapshot is not to
/// grow beyond what one document may have.
fn readable(read: &ReadDocument, before: &Snapshot, max_urls: usize) -> Result<(), &'static str> {
    let ReadDocument { report, document, children, .. } = read;
    if matches!(report.kind, DocumentKind::Unsupported | DocumentKind::Robots) {
        return Err("it is neither a feed nor a sitemap");
    }
    if !children.is_empty() {
        return Err("an index is read as a whole");
    }
    if !report.complete {
        return Err("it is broken or cut short");
    }
    let fresh = document.entries().iter().filter(|entry| !before.contains(entry.key)).count();
    if fresh > 0 && before.len() + fresh > max_urls {
        return Err("with it the source would list too much");
    }
    Ok(())
}

/// A push as if it had been fetched from its source: from where that has moved, as far
/// as polls have been led there, since it is what stands there that is pushed.
fn as_fetched(
    target: &PollTarget,
    body: Vec<u8>,
    content_type: Option<String>,
    coding: Option<&str>,
) -> Fetched {
    let codings = coding.unwrap_or_default().split(',').map(|c| c.trim().to_ascii_lowercase());
    let content_encoding =
        codings.filter(|coding| !coding.is_empty() && coding != "identity").take(8).collect();
    let head = Head {
        status: 200,
        final_url: target.moved.as_ref().map_or(&target.url, |moved| &moved.to).clone(),
        redirects: Vec::new(),
        validators: Validators::default(),
        retry_after: None,
        max_age: None,
        content_type,
        links: Vec::new(),
        wire_bytes: body.len() as u64,
        took: Duration::ZERO,
    };
    Fetched { head, content_encoding, body: body.into(), cut: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hubs_are_asked_over_https_first() {
        let named = ["http://a.example/", "https://b.example/hub", "http://127.0.0.1:8080/"];
        let urls = named.iter().filter_map(|hub| Url::parse(hub).ok());
        let expected = [
            "https://a.example/",
            "https://b.example/hub",
            "http://a.example/",
            "http://127.0.0.1:8080/",
        ];
        assert_eq!(preferred(urls), expected);
        let many = (0..99).filter_map(|n| Url::parse(&format!("https://{n}.example/")).ok());
        assert_eq!(preferred(many).len(), MAX_HUBS);
        let long = Url::parse(&format!("https://a.example/{}", "a".repeat(MAX_URL)));
        assert!(preferred(long.into_iter()).is_empty());
    }
}
