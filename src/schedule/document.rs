//! Polls of sitemaps and feeds, from the request to the commit.
//!
//! The steps before the last one may be repeated after a crash without harm:
//! chunks of a diff change only what does not say so already, and only
//! `finish_poll` moves the snapshot, the validators and the next poll.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use url::Url;

use super::Poller;
use super::again::Again;
use super::children::index_says_unchanged;
use super::gate::PollGate;
use super::interval::PollEvent;
use super::interval::hints::Hints;
use super::moves;
use super::outcome::{Ended, kept_hints};
use super::read::{self, Manner, ReadDocument, Verdict};
use super::takeover::Came;
use crate::config::Site;
use crate::diff::Rules;
use crate::fetch::{Answer, FetchError, Fetched, Request, Validators};
use crate::metrics::Saved;
use crate::model::{DocumentKind, SiteId};
use crate::parse::Limits;
use crate::recrawl::later;
use crate::recrawl::signal::Signal;
use crate::store::views::Counts;
use crate::store::{GUESS, Kept, Origin, PollTarget, Recounted, SeenAgain, StoreError};
use crate::url::{SiteRules, authority};

/// However often validators say that nothing has changed, a source is read in
/// full this often: some validators are stuck, and indexes lie.
pub(super) const FULL_READ: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A day that nothing new comes of is counted once.
const DAY_S: i64 = 24 * 3_600;

impl Poller {
    /// Polls a sitemap or a feed.
    pub(super) async fn poll_document(&self, target: &PollTarget) -> Result<(), StoreError> {
        let (Some(site), Some(id)) = (self.site_of(target), target.site) else {
            return self.leave_alone(target).await;
        };
        let rules = self.rules_for(target, &site, id).await?;
        let began = self.clock.now();
        let read_in_full = target.epoch != rules.epoch()
            || target.last_full_at.is_none_or(|at| later(at, FULL_READ) <= began);
        if !read_in_full && !target.asked && index_says_unchanged(target) {
            return self.skip(target).await;
        }
        let place = moves::place(target.moved.as_ref(), &target.url, began);
        let is_elsewhere = place != target.url;
        // Its own place is asked in full once a week: it may have come back. Where one of
        // the two throttles they are asked in turn, or the other would never be.
        let is_throttled = target.failing.as_deref() == Some("throttled");
        let is_tried = is_throttled && target.failures % 2 == 1;
        let (first, elsewhere) = match (read_in_full && !is_tried, is_elsewhere) {
            (true, true) => (target.url.clone(), Some(place)),
            _ => (place, None),
        };
        let poll =
            Poll { poller: self, target, site: &site, id, rules, began, read_in_full, elsewhere };
        let gate = PollGate::new(self, &site, &target.url);
        let answer = poll.ask(first, gate).await;
        Box::pin(poll.judge(answer)).await
    }

    /// The index says that the child is as we read it.
    async fn skip(&self, target: &PollTarget) -> Result<(), StoreError> {
        self.metrics.saved(Saved::SkippedChild, 1);
        let ended = Ended::good(PollEvent::Unchanged, "skipped");
        let next = self.next(target, &ended, &Hints::default());
        self.store.skip_poll(target.id, next).await
    }
}

/// One poll that got an answer.
pub(super) struct Poll<'p> {
    pub(super) poller: &'p Poller,
    pub(super) target: &'p PollTarget,
    pub(super) site: &'p Site,
    pub(super) id: SiteId,
    pub(super) rules: SiteRules,
    pub(super) began: Timestamp,
    /// Nothing known before may cut this read short.
    pub(super) read_in_full: bool,
    /// Where the source has moved to for good, while its own place is asked.
    pub(super) elsewhere: Option<Url>,
}

impl Poll<'_> {
    /// The gate goes with it: while it is there, it holds the lock of its host.
    async fn ask(&self, url: Url, gate: PollGate<'_>) -> Result<Answer, FetchError> {
        // What was denied may have been denied for its conditions: a 412, or a firewall.
        let is_plain = self.read_in_full || self.target.failing.as_deref() == Some("denied");
        let validators =
            if is_plain { Validators::default() } else { self.target.validators.clone() };
        let request = Request {
            validators,
            known: self.target.wire_hash.filter(|_| !self.read_in_full),
            headers: headers_for(self.site, &self.rules, self.target, &url),
            url,
            max_wire_bytes: self.site.limits.max_wire_bytes,
            max_redirects: self.poller.config.borrow().fetch.max_redirects,
        };
        self.poller.fetcher.fetch(request, &gate).await
    }

    async fn judge(&self, mut answer: Result<Answer, FetchError>) -> Result<(), StoreError> {
        if let Some(off) = self.poller.put_off(&answer, self.target.id.0) {
            return self.poller.defer(self.target, off).await;
        }
        let document = match &mut answer {
            Ok(Answer::Document(fetched)) => Some(take_body(fetched)),
            _ => None,
        };
        match (document, &answer) {
            (Some(fetched), _) => self.document(fetched, &answer).await,
            (None, Ok(Answer::Same(_))) => self.same_bytes(&answer).await,
            (None, Ok(Answer::NotModified(_))) => {
                self.poller.metrics.saved(Saved::NotModified, 1);
                let ended = Ended::good(PollEvent::Unchanged, "not-modified");
                self.nothing_new(ended, &answer).await
            }
            _ => self.nothing_here(Ended::of(&answer, &self.target.url), &answer).await,
        }
    }

    /// Nothing usable came. Of a source that has moved for good its new place
    /// decides then: the old one may have been taken down since.
    async fn nothing_here(
        &self,
        ended: Ended,
        answer: &Result<Answer, FetchError>,
    ) -> Result<(), StoreError> {
        let Some(place) = &self.elsewhere else { return self.failure(ended, answer).await };
        let is_throttled = matches!(ended.event, PollEvent::Throttled { .. });
        if is_throttled && authority(place) == authority(&self.target.url) {
            // The host wants to be left alone, at its new place too.
            return self.failure(ended, answer).await;
        }
        if let Ok(Answer::Refused(head)) = answer {
            self.poller.heed(head).await?;
        }
        let there = Poll { elsewhere: None, rules: self.rules.clone(), ..*self };
        let gate = PollGate::after_another(self.poller, self.site, &self.target.url);
        let answer = there.ask(place.clone(), gate).await;
        Box::pin(there.judge(answer)).await
    }

    async fn document(
        &self,
        fetched: Fetched,
        answer: &Result<Answer, FetchError>,
    ) -> Result<(), StoreError> {
        let wire = fetched.body.hash();
        let head = fetched.head.clone();
        let room = self.room_for(&fetched).await?;
        let (before, siblings) = self.snapshot().await?;
        let mut barred = self.barred(&head.final_url).await?;
        let again = Again::new(Arc::new(fetched), self.manner());
        let read = self.on_cpu({
            let (again, before) = (again.clone(), Arc::clone(&before));
            move || read::read(again.own(), again.manner(), &before, &mut barred)
        });
        let read = match read.await {
            Ok(read) => read,
            Err(why) => {
                return self.failure(Ended::bad(PollEvent::Failed, "failed", why), answer).await;
            }
        };
        if read.report.kind == DocumentKind::Unsupported || read.report.kind == DocumentKind::Robots
        {
            // What comes of it may ask for a share of its own.
            drop(room);
            return self.unsupported(&read, answer).await;
        }
        if !self.read_in_full
            && self.target.body_hash == Some(read.decoding.hash)
            && read.report.complete
        {
            drop(room);
            return self.same_bytes(answer).await;
        }
        let came = Came { before, siblings, wire, head, again, room };
        self.take_over(read, came, answer).await
    }

    /// How documents of the site are read.
    pub(super) fn manner(&self) -> Manner {
        let limits = self.site.limits;
        Manner {
            limits: Limits {
                max_urls: limits.max_urls,
                max_sitemaps: limits.max_sitemaps,
                max_url_chars: limits.max_url_chars,
            },
            max_body_bytes: limits.max_body_bytes,
            follow: self.site.follow,
            seed: self.poller.store.seed(),
            now: self.began,
        }
    }

    /// The bytes are those of the last read.
    async fn same_bytes(&self, answer: &Result<Answer, FetchError>) -> Result<(), StoreError> {
        self.poller.metrics.saved(Saved::EqualHash, 1);
        self.nothing_new(Ended::good(PollEvent::Unchanged, "unchanged"), answer).await
    }

    /// A read that found what was there before. Only entries that were missing
    /// have anything to hear of it: they are missing once more.
    async fn nothing_new(
        &self,
        mut ended: Ended,
        answer: &Result<Answer, FetchError>,
    ) -> Result<(), StoreError> {
        let mut counts = Counts { unchanged: self.target.entries, ..Counts::default() };
        let mut recounted = None;
        if self.target.pending > 0 {
            let (again, more, undecided) = self.missing_again().await?;
            if more.removed > 0 {
                // Nothing came, and something went.
                ended = Ended::good(PollEvent::Changed { new: 0, changed: 0 }, "changed");
            }
            ended.undecided = undecided;
            counts = more;
            recounted = Some(again);
        }
        let head = match answer {
            Ok(Answer::Document(fetched)) => Some(&fetched.head),
            Ok(Answer::Same(head) | Answer::NotModified(head)) => Some(head),
            _ => None,
        };
        // What the document said holds on; the freshness is the answer's own, but for a 304
        // that is silent of it (RFC 9111, 3.2: fields that it lacks stay as they were).
        let hints = kept_hints(self.target.hints.as_deref());
        let own = head.and_then(|head| head.max_age);
        let max_age = match answer {
            Ok(Answer::NotModified(_)) => own.or(hints.max_age),
            _ => own,
        };
        let hints = Hints { max_age, ..hints };
        let next = self.poller.next(self.target, &ended, &hints);
        let day = |at: Timestamp| at.as_second().div_euclid(DAY_S);
        let begins_day = self.target.last_success_at.map(day) != Some(day(self.began));
        let validators = self.validators_of(answer);
        let kept = Kept::Seen(SeenAgain { validators, begins_day, recounted });
        self.poller
            .finish(self.target, self.began, ended, answer, next, counts, kept)
            .await
            .map(|_| ())
    }

    /// The validators to send next time, after an answer that brought nothing
    /// new: a 304 refreshes those that it names, an equal body replaces all.
    fn validators_of(&self, answer: &Result<Answer, FetchError>) -> Validators {
        let known = &self.target.validators;
        match answer {
            Ok(Answer::NotModified(head)) => Validators {
                etag: head.validators.etag.clone().or_else(|| known.etag.clone()),
                last_modified: head
                    .validators
                    .last_modified
                    .clone()
                    .or_else(|| known.last_modified.clone()),
            },
            Ok(Answer::Document(Fetched { head, .. }) | Answer::Same(head))
                if head.redirects.is_empty() =>
            {
                head.validators.clone()
            }
            _ => Validators::default(),
        }
    }

    /// And whether further reads decide on any of it.
    async fn missing_again(&self) -> Result<(Recounted, Counts, bool), StoreError> {
        let _room = self.room_for_snapshot().await?;
        let (before, siblings) = self.snapshot().await?;
        let listed = Arc::clone(&before);
        let document = self.on_cpu(move || read::same_again(&listed)).await;
        let document = document.map_err(StoreError::Engine)?;
        let rules = self.diff_rules(true, self.target.window > 0, siblings, false);
        // An index that listed pages once lists none now, and that is no accident.
        let rules = Rules { has_children: self.target.kind == Some(DocumentKind::Index), ..rules };
        let verdict = self.compare(before, document, rules).await.map_err(StoreError::Engine)?;
        let (shrunk_at, is_held) = self.shrink(&verdict, &rules);
        let origin = self.origin(self.target.window > 0);
        let lets_go = verdict.lets_go();
        let (undecided, held_up_since) = (verdict.undecided, verdict.held_up_since);
        let (next, counts) = self.apply(verdict, None, origin).await?;
        self.ask_siblings(held_up_since).await?;
        let sums = self.sum_up(next, false).await?;
        let has_made_room = read::has_made_room(lets_go, &sums);
        let snapshot = sums.data.unwrap_or_default();
        let recounted =
            Recounted { pending: sums.pending, shrunk_at, held: is_held, has_made_room, snapshot };
        Ok((recounted, counts, undecided))
    }

    /// Since when the source has been less than half of what it was, and whether its
    /// removals are held for that. A read that does not tell, such as one that was cut,
    /// leaves it as it is: the days until it is believed are not counted anew.
    pub(super) fn shrink(&self, verdict: &Verdict, rules: &Rules) -> (Option<Timestamp>, bool) {
        let known = self.target.shrunk_at;
        match verdict.shrunk {
            Some(true) => (Some(known.unwrap_or(self.began)), verdict.held),
            Some(false) => (None, false),
            None => (known, known.is_some() && !rules.shrink_believed),
        }
    }

    /// Not a sitemap, not a feed: whatever it is, it changes no URL.
    async fn unsupported(
        &self,
        read: &ReadDocument,
        answer: &Result<Answer, FetchError>,
    ) -> Result<(), StoreError> {
        let what = if read.decoding.bytes == 0 {
            "the document is empty"
        } else {
            "not a sitemap and not a feed"
        };
        let error = format!("Unsupported format: {what}");
        let ended = Ended::bad(PollEvent::NotASource, "unsupported", error);
        self.nothing_here(ended, answer).await
    }

    /// Nothing usable came: previous URLs stay as they are.
    pub(super) async fn failure(
        &self,
        ended: Ended,
        answer: &Result<Answer, FetchError>,
    ) -> Result<(), StoreError> {
        let mut next = self.poller.next(self.target, &ended, &Hints::default());
        let was_a_guess = self.target.named_by == GUESS && self.target.last_full_at.is_none();
        let answered = !matches!(ended.event, PollEvent::Failed | PollEvent::Throttled { .. });
        if was_a_guess && answered {
            // Who forbids all for an hour says nothing of what is there.
            if !matches!(ended.event, PollEvent::Denied { .. } | PollEvent::RobotsForbidden) {
                next.at = None;
                "there is no sitemap at this well-known place".clone_into(&mut next.why);
            }
            self.poller
                .probe_well_known(self.id, self.site, Some(&self.target.url), self.target)
                .await?;
        }
        self.poller
            .finish(self.target, self.began, ended, answer, next, Counts::default(), Kept::Nothing)
            .await
            .map(|_| ())
    }

    pub(super) fn origin(&self, window: bool) -> Origin {
        Origin {
            source: self.target.id,
            site: self.id,
            crawl: self.target.crawl,
            window,
            generation: self.target.generation + 1,
            moves: Signal::Lastmod,
            stamped: None,
            tenure: self.target.tenure,
        }
    }

    /// Runs work on the threads for that; `Err` says that it panicked.
    pub(super) async fn on_cpu<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        self.poller.threads.start(work).await.await.map_err(|error| {
            tracing::error!(source = %self.target.id, %error, "reading a document panicked");
            "the document could not be read: an internal error, please report it".to_owned()
        })
    }
}

/// The site's own headers, where `url` is a place that may hear them: the site's,
/// or one that the configuration names for it. Strangers name places, too.
pub(super) fn headers_for(
    site: &Site,
    rules: &SiteRules,
    target: &PollTarget,
    url: &Url,
) -> Vec<(String, String)> {
    let is_named = target.named_by == "config" && url.origin() == target.url.origin();
    if is_named || rules.is_confidant(url) { site.headers.clone() } else { Vec::new() }
}

/// Moves the body out of an answer whose head is still needed.
fn take_body(fetched: &mut Fetched) -> Fetched {
    Fetched {
        head: fetched.head.clone(),
        content_encoding: std::mem::take(&mut fetched.content_encoding),
        body: std::mem::replace(&mut fetched.body, Vec::new().into()),
        cut: fetched.cut,
    }
}
