//! The home page: tells the form a site redirects to, its feeds and sitemaps.

use std::io::Read;
use std::time::Duration;

use url::Url;

use super::Poller;
use super::gate::PollGate;
use super::interval::PollEvent;
use super::moves;
use super::outcome::{Ended, home_of};
use super::robots::found;
use crate::config::{SourceList, Twins};
use crate::fetch::body::Decoded;
use crate::fetch::{Answer, Fetched, Request, Validators};
use crate::model::{Role, SiteId};
use crate::parse::html;
use crate::store::{PollTarget, StoreError};
use crate::url::{are_twins, authority};

/// Bytes of a home page that are fetched: its head is what matters.
const MAX_PAGE: u64 = 2 * 1024 * 1024;
/// Until the store has taken over a config that the polls know already.
const MOMENT: Duration = Duration::from_secs(10);
/// Feeds registered of one page.
const MAX_FEEDS: usize = 20;

impl Poller {
    /// Polls the home page of a site.
    pub(super) async fn poll_home(&self, target: &PollTarget) -> Result<(), StoreError> {
        let began = self.clock.now();
        let Some(site) = self.site_of(target) else { return self.leave_alone(target).await };
        let Some(id) = target.site else { return self.leave_alone(target).await };
        let gate = PollGate::new(self, &site, &target.url);
        let request = Request {
            url: site.url.clone(),
            // Always read: what is made of it depends on the config too.
            validators: Validators::default(),
            headers: site.headers.clone(),
            known: None,
            max_wire_bytes: MAX_PAGE,
            max_redirects: self.config.borrow().fetch.max_redirects,
        };
        let answer = self.fetcher.fetch(request, &gate).await;
        drop(gate);
        if let Some(off) = self.put_off(&answer, target.id.0) {
            return self.defer(target, off).await;
        }
        let mut ended = Ended::of(&answer, &site.url);
        if let Ok(Answer::Document(fetched)) = &answer {
            let landed = &fetched.head.final_url;
            let moved = moves::after_home(target.moved.as_ref(), home_of(target), landed, began);
            // Nothing is known by the other form before the first look.
            let is_first = target.last_success_at.is_none();
            if is_first || moved.is_some_and(|moved| moves::has_lasted(&moved, began)) {
                self.learn_origin(id, &site.url, site.twins, landed).await?;
            }
            let (feeds, sitemaps) = links_of(fetched);
            let mut sources = Vec::new();
            if site.feeds == SourceList::Auto {
                sources.extend(
                    feeds
                        .into_iter()
                        .take(MAX_FEEDS)
                        .map(|url| found(url, Role::Feed, "home page", target)),
                );
            }
            if site.sitemaps == SourceList::Auto {
                sources.extend(
                    sitemaps.into_iter().map(|url| found(url, Role::Sitemap, "home page", target)),
                );
            }
            let registered = self.store.register(id, sources).await?;
            Self::note_refused(&site.name, registered);
            ended.event = if registered.0 > 0 {
                PollEvent::Changed { new: registered.0, changed: 0 }
            } else {
                PollEvent::Unchanged
            };
            ended.result = if registered.0 > 0 { "changed" } else { "unchanged" };
            ended.status = "success";
        }
        self.finish_page(target, began, ended, &answer).await
    }

    /// A home page that redirects to its twin says which form is the real one.
    async fn learn_origin(
        &self,
        id: SiteId,
        home: &Url,
        twins: Twins,
        landed: &Url,
    ) -> Result<(), StoreError> {
        if twins == Twins::Separate || !are_twins(landed, home) {
            return Ok(());
        }
        if self.store.learn_origin(id, landed.clone()).await? {
            tracing::info!(
                site = home.as_str(),
                origin = authority(landed),
                "the site lives at its twin"
            );
            // Its robots.txt speaks for the site from now on.
            let delay = self.config.borrow().politeness.host_delay;
            self.store.poll_robots_for(id, authority(landed), delay).await?;
        }
        Ok(())
    }

    /// The form of its site that a source's URLs are judged by. Looks at the
    /// home page first where nobody has: before that nobody knows which twin
    /// they belong to.
    pub(super) async fn origin_for(
        &self,
        target: &PollTarget,
        site: SiteId,
    ) -> Result<Option<Url>, StoreError> {
        if target.home_unseen
            && let Some(home) = self.store.unseen_home(site).await?
        {
            self.poll_home(&home).await?;
            return self.store.origin_of(site).await;
        }
        Ok(target.site_origin.clone())
    }

    /// A source of a site that left the config while it was due.
    pub(super) async fn leave_alone(&self, target: &PollTarget) -> Result<(), StoreError> {
        // The store stops naming it in a moment; should the site return, it is due.
        let until = crate::recrawl::later(self.clock.now(), MOMENT);
        self.store.defer_poll(target.id, until, "its site has left the configuration").await
    }
}

fn links_of(fetched: &Fetched) -> (Vec<Url>, Vec<Url>) {
    let mut page = Vec::new();
    let decoded = Decoded::new(fetched.body.clone(), &fetched.content_encoding, MAX_PAGE);
    // The part that could be decoded holds the head more likely than not.
    let _ = decoded.take(MAX_PAGE).read_to_end(&mut page);
    let links = html::page_links(&fetched.head.links, &page, &fetched.head.final_url);
    (links.feeds, links.sitemaps)
}
