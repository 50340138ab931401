//! What a document lists and the site's rules have to judge: new URLs, and those
//! judged by other rules before.
//!
//! Effects are made a chunk at a time, from the texts that the first reading
//! kept, or where it did not keep them all from a second reading. Both yield the
//! same effects, from the texts host by host: a chunk of many hosts costs the store
//! more than one of few does, and the pages of a host lie together then.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use url::Url;

use super::again::{Again, HandOn};
use super::document::Poll;
use super::effects::take_over;
use crate::diff::Document;
use crate::diff::document::{Listed, Texts, each_followed, loc_key};
use crate::diff::snapshot::{Rejection, Row, SnapshotEntry};
use crate::model::CrawlId;
use crate::parse::Item;
use crate::store::views::Counts;
use crate::store::{BATCH, Effect, Origin, Prepared, Preparer, StoreError};
use crate::url::{Judge, SiteRules};

/// Text of the effects of one chunk, after which it is handed on.
const MAX_BYTES: usize = 1024 * 1024;

/// The entries to be judged, and their texts.
#[derive(Debug)]
pub(super) struct Admissions {
    texts: Texts,
    /// In the order of the document until they are sorted.
    wanted: Vec<Listed>,
}

/// A chunk of judgements.
#[derive(Debug, Default)]
pub(super) struct Judged {
    effects: Vec<Effect>,
    refused: Vec<(u32, Rejection)>,
    bytes: usize,
}

/// The same, prepared for the store.
struct Ready {
    effects: Prepared,
    refused: Vec<(u32, Rejection)>,
}

impl Admissions {
    /// What is wanted of a document: indexes of entries, and their slots.
    pub(super) fn new(document: Document, wanted: Vec<(u32, u32)>) -> Self {
        let (texts, wanted) = document.into_listed(wanted);
        Self { texts, wanted }
    }

    fn has_all_texts(&self) -> bool {
        self.wanted.iter().all(|listed| self.texts.loc(listed).is_some())
    }

    /// Host by host, those in the order of their first entries: of each host in the
    /// order of the document, so that of two spellings of a page the first is taken
    /// first. Where a host may have more than one spelling nothing moves.
    pub(super) fn sort_by_host(&mut self) {
        let mut hosts: HashMap<&str, u32> = HashMap::new();
        let mut last = None;
        let mut order: Vec<(u32, u32)> = Vec::with_capacity(self.wanted.len());
        for (at, listed) in (0..).zip(&self.wanted) {
            let Some(host) = self.texts.loc(listed).and_then(host_of) else { return };
            let number = match last {
                Some((same, number)) if same == host => number,
                _ => {
                    let next = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
                    *hosts.entry(host).or_insert(next)
                }
            };
            last = Some((host, number));
            order.push((number, at));
        }
        if hosts.len() > 1 {
            order.sort_unstable();
            let mut sorted = Vec::with_capacity(order.len());
            sorted.extend(order.iter().filter_map(|(_, at)| self.wanted.get(*at as usize)));
            self.wanted = sorted;
        }
    }

    /// Judges from the texts that were kept, from an entry on; says which one
    /// is next.
    fn judge_from(&self, from: usize, rules: &SiteRules, source: &Url) -> (Judged, usize) {
        let (mut judged, mut at) = (Judged::default(), from);
        let mut judge = Judge::new(rules, source);
        while let Some(listed) = self.wanted.get(at).filter(|_| !judged.is_full()) {
            if let Some(loc) = self.texts.loc(listed) {
                judged.add(listed, loc, &mut judge);
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
        by_key.extend(self.wanted.iter().zip(0..).map(|(listed, at)| (listed.key, at)));
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
            let Some(listed) = at.and_then(|at| self.wanted.get(at)) else {
                return ControlFlow::Continue(());
            };
            if !done.insert(listed.slot) {
                return ControlFlow::Continue(());
            }
            judged.add(listed, loc, &mut judge);
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

/// The host of a URL, without `www.`: pages of twins may be one. `None` where it may
/// be spelled in another way too.
fn host_of(loc: &str) -> Option<&str> {
    let rest = loc.strip_prefix("https://").or_else(|| loc.strip_prefix("http://"))?;
    let bytes = rest.as_bytes();
    let end = memchr::memchr3(b'/', b'?', b'#', bytes).unwrap_or(bytes.len());
    let authority = rest.get(..end)?;
    let host = match memchr::memchr(b':', authority.as_bytes()) {
        Some(colon) => authority.get(..colon)?,
        None => authority,
    };
    let usual = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    // Whether the last label begins with a letter: else it is a number or nothing.
    let mut begins = true;
    let mut is_name = false;
    for byte in host.bytes() {
        if begins {
            is_name = byte.is_ascii_lowercase();
        }
        begins = byte == b'.';
        if !begins && !usual(byte) {
            return None;
        }
    }
    (is_name && !begins).then(|| host.strip_prefix("www.").unwrap_or(host))
}

impl Judged {
    fn add(&mut self, listed: &Listed, loc: &str, judge: &mut Judge<'_>) {
        let Listed { slot, hints, kind, .. } = *listed;
        match judge.admit(loc) {
            Ok(url) => {
                let raw = url.respelled.then(|| loc.to_owned());
                self.bytes += url.path.len() + raw.as_ref().map_or(0, String::len);
                let lastmod = listed.lastmod();
                self.effects.push(Effect::Admit { slot, url, raw, lastmod, hints, kind });
            }
            Err(why) => self.refused.push((slot, why)),
        }
    }

    fn is_full(&self) -> bool {
        self.effects.len() + self.refused.len() >= BATCH || self.bytes >= MAX_BYTES
    }

    fn ready(self, preparer: &Preparer, crawl: CrawlId) -> Ready {
        Ready { effects: preparer.prepare(crawl, self.effects), refused: self.refused }
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
        let (preparer, crawl) = (self.poller.store.preparer(), origin.crawl);
        match again {
            Some(again) if !admissions.has_all_texts() => {
                let again = again.clone();
                let reading = self.in_parts(move |hand_on| {
                    let mut ready = |judged: Judged| hand_on(judged.ready(&preparer, crawl));
                    admissions.judge_again(&again, &rules, &source, &mut ready);
                });
                let mut parts = reading.await;
                while let Some(ready) = parts.next().await {
                    self.apply_ready(ready, origin, next, counts).await?;
                }
                parts.end().await
            }
            _ => {
                let (shared, mut from) = (Arc::new((admissions, rules, source)), 0);
                while from < shared.0.wanted.len() {
                    let shared = Arc::clone(&shared);
                    let preparer = preparer.clone();
                    let judging = self.on_cpu(move || {
                        let (judged, then) = shared.0.judge_from(from, &shared.1, &shared.2);
                        (judged.ready(&preparer, crawl), then)
                    });
                    let (ready, then) = judging.await.map_err(StoreError::Engine)?;
                    self.apply_ready(ready, origin, next, counts).await?;
                    from = then;
                }
                Ok(())
            }
        }
    }

    async fn apply_ready(
        &self,
        ready: Ready,
        origin: Origin,
        next: &mut [SnapshotEntry],
        counts: &mut Counts,
    ) -> Result<(), StoreError> {
        for (slot, why) in ready.refused {
            if let Some(entry) = next.get_mut(slot as usize) {
                entry.row = Row::Rejected(why);
            }
        }
        if !ready.effects.is_empty() {
            let applied = self.poller.store.apply_prepared(origin, ready.effects).await?;
            take_over(applied, next, counts);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::*;
    use crate::config::Config;
    use crate::diff::document::Collector;
    use crate::model::{Lastmod, Precision};
    use crate::parse::Entry;

    /// What is listed, with a second that tells each apart.
    fn admissions(locs: &[String]) -> Admissions {
        let mut collector = Collector::new(7, Timestamp::MAX);
        for (second, loc) in (1..).zip(locs) {
            let at = Timestamp::from_second(second).unwrap();
            let lastmod = Some(Lastmod { at, precision: Precision::Second });
            collector.push(&Entry { loc, lastmod, ..Entry::default() });
        }
        let document = collector.finish();
        // Slots are those of the entries, and what is wanted comes in document order.
        let mut wanted: Vec<_> = (0..).zip(document.entries()).collect();
        wanted.sort_by_key(|(_, entry)| entry.position);
        let wanted = wanted.into_iter().map(|(at, _)| (at, at)).collect();
        Admissions::new(document, wanted)
    }

    fn locs(admissions: &Admissions) -> Vec<&str> {
        let locs = admissions.wanted.iter().map(|listed| admissions.texts.loc(listed));
        locs.map(Option::unwrap).collect()
    }

    fn sorted(listed: &[&str]) -> Vec<String> {
        let listed: Vec<String> = listed.iter().map(|loc| (*loc).to_owned()).collect();
        let mut admissions = admissions(&listed);
        admissions.sort_by_host();
        locs(&admissions).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn hosts_come_in_the_order_of_their_first_entries_and_entries_in_that_of_the_document() {
        let listed = [
            "https://b.test/2",
            "https://a.test/1",
            "http://c.test/9",
            "https://b.test/1",
            "https://a.test/0",
            "https://b.test",
            "https://c.test?q=/x:y",
        ];
        let expected = [
            "https://b.test/2",
            "https://b.test/1",
            "https://b.test",
            "https://a.test/1",
            "https://a.test/0",
            "http://c.test/9",
            "https://c.test?q=/x:y",
        ];
        assert_eq!(sorted(&listed), expected);
    }

    #[test]
    fn what_may_be_one_page_in_two_spellings_stays_in_the_order_of_the_document() {
        // Twins are one host.
        let listed = ["https://b.test/q", "http://www.b.test:80/p", "https://b.test/p"];
        assert_eq!(sorted(&listed), listed);
        for odd in [
            "https://A.test/p",
            "https://a.test./p",
            "https://%61.test/p",
            "//a.test/p",
            "https://ａ.test/p",
            "https://u@a.test/p",
            "HTTPS://a.test/p",
            "https://0x7f.1/p",
            "https://[::1]/p",
            "/p",
            "https://",
            "https://a..7/",
        ] {
            let listed = ["https://a.test/1", "https://b.test/1", odd, "https://a.test/2"];
            assert_eq!(sorted(&listed), listed, "{odd}");
        }
    }

    #[test]
    fn a_document_of_one_host_stays_as_it_is() {
        let listed: Vec<String> =
            (0..300).rev().map(|n| format!("https://a.test/{n}//x")).collect();
        let mut admissions = admissions(&listed);
        admissions.sort_by_host();
        assert_eq!(locs(&admissions), listed);
    }

    #[test]
    fn each_entry_is_judged_once_with_what_it_says() {
        let text = "[[site]]\nname = \"a\"\nurl = \"https://a.test/\"\nscope = \"any\"\n";
        let config = Config::from_toml_str(text).unwrap();
        let rules = SiteRules::new(config.sites.get("a").unwrap(), None);
        let source = Url::parse("https://a.test/sitemap.xml").unwrap();
        // Three hosts by turns, and more than one batch.
        let listed: Vec<String> =
            (0..BATCH + 100).map(|n| format!("https://{}.test/{n}", n % 3)).collect();
        let mut sorted = admissions(&listed);
        sorted.sort_by_host();
        let (mut said, mut hosts, mut from, mut batches) = (BTreeMap::new(), Vec::new(), 0, 0);
        while from < listed.len() {
            let (judged, next) = sorted.judge_from(from, &rules, &source);
            assert!(judged.refused.is_empty());
            for effect in judged.effects {
                let Effect::Admit { slot, url, lastmod, .. } = effect else { panic!("{effect:?}") };
                hosts.push(url.authority.to_string());
                let url = format!("{}{}", url.authority, url.path);
                assert_eq!(said.insert(url, (lastmod.unwrap().at.as_second(), slot)), None);
            }
            (from, batches) = (next, batches + 1);
        }
        assert_eq!(batches, 2);
        hosts.dedup();
        assert_eq!(hosts, ["https://0.test", "https://1.test", "https://2.test"]);
        let slots: HashSet<u32> = said.values().map(|(_, slot)| *slot).collect();
        assert_eq!(slots.len(), listed.len());
        for (second, url) in (1..).zip(&listed) {
            assert_eq!(said[url].0, second, "{url}");
        }
    }
}
