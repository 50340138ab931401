//! Feeds whose window overflowed: noticed, and repaired from their older pages.
//!
//! When a feed lists nothing of what it listed last time, entries may have come
//! and gone unseen. Then its older pages (RFC 5005 `prev-archive` or `next`, JSON
//! Feed `next_url`) are read, through the same gate and a page at a time, until
//! one shows something known. What cannot be had stays a gap, and is reported.

use std::collections::HashSet;
use std::sync::Arc;

use url::Url;

use super::again::Again;
use super::barred::Barred;
use super::document::{Poll, headers_for};
use super::gate::PollGate;
use super::read::{self, ReadDocument};
use crate::diff::Document;
use crate::diff::snapshot::Snapshot;
use crate::fetch::{Answer, Fetched, Request, Validators};
use crate::parse::{Issue, IssueCode, Report};
use crate::url::authority;

/// Older pages read for one gap.
const MAX_PAGES: usize = 10;

impl Poll<'_> {
    /// The document with what its older pages add, given that it overflowed;
    /// that it did is noted in the report.
    pub(super) async fn bridge(
        &self,
        before: &Arc<Snapshot>,
        document: Document,
        report: &mut Report,
        again: &mut Again,
    ) -> Document {
        let mut whole = document;
        let mut next = report.hints.next_page.clone();
        // Where redirects led to, if any did.
        let place = again.own().head.final_url.clone();
        let mut seen = HashSet::from([self.target.url.to_string(), place.to_string()]);
        let (mut pages, mut is_closed) = (0_usize, false);
        while let Some(url) = next.take().and_then(|url| Url::parse(&url).ok()) {
            // A page of the feed is where the feed is, and none of them twice.
            let is_own = authority(&url) == authority(&place);
            if pages >= MAX_PAGES || !is_own || !seen.insert(url.to_string()) {
                break;
            }
            let Some((body, page)) = self.page(url, Arc::clone(before)).await else { break };
            pages += 1;
            is_closed = !is_gap(before, &page.document);
            again.add(body);
            whole = whole.with(page.document);
            if is_closed || whole.entries().len() >= self.site.limits.max_urls {
                break;
            }
            next = page.report.hints.next_page;
        }
        let sample = match (is_closed, pages) {
            (true, 1) => "what was missed was read from an older page".to_owned(),
            (true, _) => format!("what was missed was read from {pages} older pages"),
            (false, 0) => "there is no older page to read".to_owned(),
            (false, 1) => "one older page was read, and still nothing is known".to_owned(),
            (false, _) => format!("{pages} older pages were read, and still nothing is known"),
        };
        report.issues.push(Issue { sample, ..Issue::of_whole(IssueCode::FeedGap) });
        whole
    }

    /// One older page, as it came and as it was read.
    async fn page(&self, url: Url, before: Arc<Snapshot>) -> Option<(Arc<Fetched>, ReadDocument)> {
        // The page before was asked just now: a host with a long delay is waited for, or
        // none of its gaps would ever be closed.
        let gate = PollGate::after_another(self.poller, self.site, &self.target.url);
        let request = Request {
            headers: headers_for(self.site, &self.rules, self.target, &url),
            url,
            validators: Validators::default(),
            known: None,
            max_wire_bytes: self.site.limits.max_wire_bytes,
            max_redirects: self.poller.config.borrow().fetch.max_redirects,
        };
        let answer = self.poller.fetcher.fetch(request, &gate).await;
        drop(gate);
        let fetched = match answer {
            Ok(Answer::Document(fetched)) => Arc::new(fetched),
            Ok(Answer::Same(head) | Answer::NotModified(head) | Answer::Refused(head)) => {
                // A 429 is meant for the host, whatever was asked for.
                if let Err(error) = self.poller.heed(&head).await {
                    tracing::error!(%error, "a pause was not kept");
                }
                return None;
            }
            Err(error) => {
                tracing::debug!(source = %self.target.id, %error, "an older page was not read");
                return None;
            }
        };
        let manner = self.manner();
        let body = Arc::clone(&fetched);
        // What robots.txt forbids is told of the feed itself.
        let read = self.on_cpu(move || read::read(&body, &manner, &before, &mut Barred::default()));
        let read = read.await.ok()?;
        read.report.kind.is_feed().then_some((fetched, read))
    }
}

/// Does the document list nothing of what there was?
pub(super) fn is_gap(before: &Snapshot, document: &Document) -> bool {
    !before.is_empty()
        && !document.entries().is_empty()
        && !before.entries().iter().any(|entry| document.contains(entry.key))
}
