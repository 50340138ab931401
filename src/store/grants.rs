//! Cross-submits: a robots.txt grants its host to a sitemap on another one.
//!
//! Such a sitemap is a source of the site for as long as the line stands. When
//! it is gone the source, and what it named as an index, is retired; when it
//! comes back so do they. What they held is let go after the usual grace.

use std::collections::HashSet;

use super::sql::params;
use url::Url;

use super::state::State;
use super::writer::Lane;
use super::{Store, StoreError, engine};
use crate::model::{SiteId, SourceId};
use crate::url::SiteRules;

/// Why a source is retired whose grant is gone.
pub(super) const REVOKED: &str = "robots.txt of the site does not name it any more";

impl Store {
    /// Takes over which sitemaps on other hosts the robots.txt of a site names
    /// now; says how many lost their grant.
    pub async fn revise_grants(
        &self,
        site: SiteId,
        rules: SiteRules,
        named: Vec<Url>,
    ) -> Result<u64, StoreError> {
        self.write(Lane::Bulk, move |state| state.revise_grants(site, &rules, &named)).await
    }
}

impl State {
    fn revise_grants(
        &mut self,
        site: SiteId,
        rules: &SiteRules,
        named: &[Url],
    ) -> Result<u64, StoreError> {
        let named: HashSet<&str> = named.iter().map(Url::as_str).collect();
        let mut revoked = 0;
        for (id, url, is_revoked) in self.granted(site)? {
            let is_named = named.contains(url.as_str());
            let is_right = is_named != is_revoked;
            if is_right || !is_named && !rules.is_foreign(&url) {
                continue;
            }
            revoked += u64::from(!is_named);
            if is_named {
                // Only what was retired for the grant comes back with it.
                self.revive_below(id, REVOKED)?;
            } else {
                self.retire_below(id, REVOKED)?;
            }
        }
        Ok(revoked)
    }

    /// Sources that robots.txt named: polled, or retired because it does no more.
    fn granted(&self, site: SiteId) -> Result<Vec<(SourceId, Url, bool)>, StoreError> {
        let mut query = self
            .conn
            .prepare_cached(
                "SELECT id, url, state = 2 FROM sources WHERE site_id = ?1 AND named_by = 'robots.txt'
                 AND parent_id IS NULL AND role <> 0 AND (state <> 2 OR retired_why = ?2)",
            )
            .map_err(engine)?;
        let rows: Vec<(i64, String, bool)> = query
            .query_map(params![site.0, REVOKED], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .and_then(Iterator::collect)
            .map_err(engine)?;
        let parsed = rows.into_iter().filter_map(|(id, url, is_revoked)| {
            Some((SourceId(id), Url::parse(&url).ok()?, is_revoked))
        });
        Ok(parsed.collect())
    }
}
