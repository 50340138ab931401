//! What a document on a foreign host may list, where a site goes by directories.
//!
//! The site's robots.txt, or an operator, grants it the whole site. Who is only led
//! there by an index inherits what the index may list: else whoever has a folder could
//! list the whole host, by an index of one line (Sitemaps protocol, "Sitemap file
//! location" and "Sitemaps & Cross Submits").

use url::Url;

use super::Poller;
use crate::config::{Scope, Site};
use crate::model::SiteId;
use crate::parse::robots::Robots;
use crate::store::{PollTarget, StoreError};
use crate::url::{SiteRules, authority};

/// Indexes that lead from one to the next, more than are ever followed.
const LEVELS: usize = 32;

impl Poller {
    /// The rules for what a source of a site lists.
    pub(super) async fn rules_for(
        &self,
        target: &PollTarget,
        site: &Site,
        id: SiteId,
    ) -> Result<SiteRules, StoreError> {
        let origin = self.origin_for(target, id).await?;
        let rules = SiteRules::new(site, origin.as_ref());
        if site.scope != Scope::Directory || !rules.is_foreign(&target.url) {
            return Ok(rules);
        }
        Ok(match self.led_from(target, site, &rules).await? {
            Some(place) => rules.led_from(place),
            None => rules,
        })
    }

    /// The place on a host of the site that led to a source on a foreign one; `None`
    /// where that was named by who may grant it all.
    async fn led_from(
        &self,
        target: &PollTarget,
        site: &Site,
        rules: &SiteRules,
    ) -> Result<Option<Url>, StoreError> {
        if is_granted(&target.named_by) || self.robots_grants(target, rules).await? {
            return Ok(None);
        }
        let mut parent = target.parent;
        for _ in 0..LEVELS {
            let Some(id) = parent else { break };
            let index = match self.store.poll_target(id).await {
                Ok(index) => index,
                Err(StoreError::NotFound(_)) => break,
                Err(error) => return Err(error),
            };
            if !rules.is_foreign(&index.url) {
                return Ok(Some(index.url));
            }
            if is_granted(&index.named_by) {
                return Ok(None);
            }
            parent = index.parent;
        }
        // From the home page, or nobody knows any more from where.
        Ok(Some(site.url.clone()))
    }

    /// Does the site's own robots.txt name it, though an index did so first? A file that
    /// is away takes back no grant, nor does one that is cut off, or a page in its place:
    /// what was read under one is read on under it.
    async fn robots_grants(
        &self,
        target: &PollTarget,
        rules: &SiteRules,
    ) -> Result<bool, StoreError> {
        let home = rules.origin();
        let Some(kept) = self.store.kept_robots(authority(home)).await? else {
            return Ok(false);
        };
        let robots = Robots::parse(&kept.body);
        if robots.sitemap_urls(home).any(|named| named == target.url) {
            return Ok(true);
        }
        let is_whole = !kept.body.is_empty() && robots.is_one() && !robots.is_too_large();
        Ok(!is_whole && rules.were_those_of(target.epoch))
    }
}

/// Is it named by who may say that it speaks for the whole site?
fn is_granted(named_by: &str) -> bool {
    matches!(named_by, "config" | "robots.txt" | "submitted")
}
