//! What a document lists and the site's rules have to judge: new URLs, and those
//! judged by other rules before.
//!
//! Effects are made a chunk at a time, from the texts that the first reading
//! kept, or where it did not keep them all from a second reading. Both yield the
//! same effects in the same order.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use url::Url;

use super::again::{Again, HandOn};
use super::document::Poll;
use crate::diff::Document;
use crate::diff::document::{DocumentEntry, each_followed, loc_key};
use crate::diff::snapshot::{Rejection, Row, SnapshotEntry};
use crate::parse::Item;
use crate::store::views::Counts;
use crate::store::{BATCH, Effect, Origin, StoreError};
use crate::url::{Judge, SiteRules};

/// Text of the effects of one chunk, after which it is handed on.
const MAX_BYTES: usize = 1024 * 1024;

/// The entries to be judged, and where their texts are.
#[derive(Debug)]
pub(super) struct Admissions {
    document: Document,
    /// Entries of the document and their slots in the next snapshot, in the
    /// order of the document.
    wanted: Vec<(u32, u32)>,
}

/// A chunk of judgements.
#[derive(Debug, Default)]
pub(super) struct Judged {
    effects: Vec<Effect>,
    refused: Vec<(u32, Rejection)>,
    bytes: usize,
}

impl Admissions {
    pub(super) fn new(document: Document, wanted: Vec<(u32, u32)>) -> Self {
        Self { document, wanted }
    }

    fn entry(&self, at: usize) -> Option<(&DocumentEntry, u32)> {
        let (entry, slot) = self.wanted.get(at)?;
        Some((self.document.entries().get(*entry as usize)?, *slot))
    }

    fn has_all_texts(&self) -> bool {
        let mut entries = (0..self.wanted.len()).filter_map(|at| self.entry(at));
        entries.all(|(entry, _)| self.document.loc(entry).is_some())
    }

    /// Judges from the texts that were kept, from an entry on; says which one
    /// is next.
    fn judge_from(&self, from: usize, rules: &SiteRules, source: &Url) -> (Judged, usize) {
        let (mut judged, mut at) = (Judged::default(), from);
        let mut judge = Judge::new(rules, source);
        while let Some((entry, slot)) = self.entry(at).filter(|_| !judged.is_full()) {
            if let Some(loc) = self.document.loc(entry) {
                judged.add(entry, slot, loc, &mut judge);
            }
            at += 1;
        }
        (judged, at)
    }

    /// Judges while the document is read once more; of two spellings with one
    /// key the first counts, as in the first reading.
    fn judge_again(
        &self,
        again: &Again,
        rules: &SiteRules,
        source: &Url,
        hand_on: &mut HandOn<'_, Judged>,
    ) {
        let mut by_key: Vec<(u64, usize)> = Vec::with_capacity(self.wanted.len());
        by_key.extend((0..self.wanted.len()).filter_map(|at| Some((self.entry(at)?.0.key, at))));
        by_key.sort_unstable();
        let mut done = HashSet::new();
        let mut judged = Judged::default();
        let mut judge = Judge::new(rules, source);
        let mut take = |loc: &str| {
            let key = loc_key(again.manner().seed, loc);
            let Ok(place) = by_key.binary_search_by_key(&key, |(key, _)| *key) else {
                return ControlFlow::Continue(());
            };
            let at = by_key.get(place).map(|(_, at)| *at);
            let Some((entry, slot)) = at.and_then(|at| self.entry(at)) else {
                return ControlFlow::Continue(());
            };
            if !done.insert(slot) {
                return ControlFlow::Continue(());
            }
            judged.add(entry, slot, loc, &mut judge);
            if judged.is_full() {
                hand_on(std::mem::take(&mut judged))
            } else {
                ControlFlow::Continue(())
            }
        };
        again.read(&mut |item, base| {
            let Item::Entry(entry) = item else { return ControlFlow::Continue(()) };
            take(entry.loc)?;
            let Some(extensions) = entry.extensions else { return ControlFlow::Continue(()) };
            let mut flow = ControlFlow::Continue(());
            each_followed(again.manner().follow, base, extensions, &mut |_, url| {
                if flow.is_continue() {
                    flow = take(url);
                }
            });
            flow
        });
        // Whether anybody takes the last one is their business.
        let _ = hand_on(judged);
    }
}

impl Judged {
    fn add(&mut self, entry: &DocumentEntry, slot: u32, loc: &str, judge: &mut Judge<'_>) {
        match judge.admit(loc) {
            Ok(url) => {
                let raw = url.respelled.then(|| loc.to_owned());
                self.bytes += url.path.len() + raw.as_ref().map_or(0, String::len);
                let DocumentEntry { lastmod, hints, kind, .. } = *entry;
                self.effects.push(Effect::Admit { slot, url, raw, lastmod, hints, kind });
            }
            Err(why) => self.refused.push((slot, why)),
        }
    }

    fn is_full(&self) -> bool {
        self.effects.len() + self.refused.len() >= BATCH || self.bytes >= MAX_BYTES
    }
}

impl Poll<'_> {
    /// Applies admissions chunk by chunk, and fills in what became of them.
    /// What has no text, and no document to take it from, stays as it was.
    pub(super) async fn admit_all(
        &self,
        admissions: Admissions,
        again: Option<&Again>,
        origin: Origin,
        next: &mut [SnapshotEntry],
        counts: &mut Counts,
    ) -> Result<(), StoreError> {
        if admissions.wanted.is_empty() {
            return Ok(());
        }
        let (rules, source) = (self.rules.clone(), self.target.url.clone());
        match again {
            Some(again) if !admissions.has_all_texts() => {
                let again = again.clone();
                let reading = self.in_parts(move |hand_on| {
                    admissions.judge_again(&again, &rules, &source, hand_on);
                });
                let mut parts = reading.await;
                while let Some(judged) = parts.next().await {
                    self.apply_judged(judged, origin, next, counts).await?;
                }
                parts.end().await
            }
            _ => {
                let (shared, mut from) = (Arc::new((admissions, rules, source)), 0);
                while from < shared.0.wanted.len() {
                    let shared = Arc::clone(&shared);
                    let judging =
                        self.on_cpu(move || shared.0.judge_from(from, &shared.1, &shared.2));
                    let (judged, then) = judging.await.map_err(StoreError::Engine)?;
                    self.apply_judged(judged, origin, next, counts).await?;
                    from = then;
                }
                Ok(())
            }
        }
    }

    async fn apply_judged(
        &self,
        judged: Judged,
        origin: Origin,
        next: &mut [SnapshotEntry],
        counts: &mut Counts,
    ) -> Result<(), StoreError> {
        for (slot, why) in judged.refused {
            if let Some(entry) = next.get_mut(slot as usize) {
                entry.row = Row::Rejected(why);
            }
        }
        self.apply_chunk(judged.effects, origin, next, counts).await
    }
}
