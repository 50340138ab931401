//! What a feed says was deleted, as an effect on rows and queue.
//!
//! A tombstone makes no row and ends no lease. A URL that no full source holds
//! is removed as if its last source had dropped it; one that a sitemap still
//! lists is only looked at once, unless a fetcher was there since the deletion.
//! Applied twice it changes nothing the second time.

use jiff::Timestamp;

use super::apply::LIST;
use super::changes::ChangeLog;
use super::effect::Origin;
use super::hosts::partition;
use super::orders::Order;
use super::rows::{UrlRow, held, url_key};
use super::sql::params;
use super::state::State;
use super::writer::Lane;
use super::{Store, StoreError, engine};
use crate::model::{ChangeKind, Reason};
use crate::url::Admitted;

/// A page that its feed says was deleted.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Deletion {
    /// Its identity.
    pub url: Admitted,
    /// When, if the feed says so.
    pub when: Option<Timestamp>,
}

impl Store {
    /// Takes over what a read of a feed says was deleted; says how many URLs no
    /// source lists any more for it.
    pub async fn bury(&self, origin: Origin, deleted: Vec<Deletion>) -> Result<u64, StoreError> {
        let part = |deletion: &Deletion| partition(&deletion.url.authority);
        let order = |deleted| Order::Bury(origin, deleted);
        let told = self.spread(deleted, part, order).await?;
        told.into_iter().map(|(_, reply)| reply.count()).sum()
    }

    pub(super) async fn bury_here(
        &self,
        origin: Origin,
        deleted: Vec<Deletion>,
    ) -> Result<u64, StoreError> {
        self.write(Lane::Bulk, move |state| {
            state.must_hold(origin.source, origin.tenure)?;
            state.bury(origin, &deleted)
        })
        .await
    }
}

impl State {
    fn bury(&mut self, origin: Origin, deleted: &[Deletion]) -> Result<u64, StoreError> {
        let mut log = ChangeLog::default();
        let mut removed = 0;
        for deletion in deleted {
            self.must_own(partition(&deletion.url.authority))?;
            let Some(row) = self.find_admitted(origin, &deletion.url)? else { continue };
            // Nobody needs to be told that it is gone, or to try once more.
            let is_over = matches!(row.state, held::PARKED | held::DEAD);
            let came_back = row.lastmod.is_some_and(|date| Some(date.at) > deletion.when)
                && deletion.when.is_some();
            if !row.listed || came_back {
                continue;
            }
            let is_held = self.remove_holder(origin.source, &row)?;
            if is_held {
                // It may be another site's now.
                let row = self.url_row(row.id)?.unwrap_or(row);
                if !is_over && is_worth_a_look(&row, deletion.when) {
                    self.pull_forward_removed(&row)?;
                }
                continue;
            }
            self.conn
                .prepare_cached(&LIST)
                .and_then(|mut update| update.execute(params![row.id.0, false]))
                .map_err(engine)?;
            if let Some(site) = row.site {
                self.count_unlisted(site, 1)?;
            }
            log.push(ChangeKind::Removed, row.id);
            removed += 1;
            if !is_over {
                self.pull_forward_removed(&UrlRow { listed: false, ..row })?;
            }
        }
        let Origin { crawl, source, generation, .. } = origin;
        self.changes_moved |= log.write(&self.conn, self.now_ms(), crawl, source, generation)?;
        Ok(removed)
    }

    fn find_admitted(
        &mut self,
        origin: Origin,
        url: &Admitted,
    ) -> Result<Option<UrlRow>, StoreError> {
        let Some(host) = self.find_host(&url.authority)? else { return Ok(None) };
        let key = url_key(self.seed, origin.crawl, &url.authority, &url.path);
        self.find_url(origin.crawl, host, &url.path, key)
    }
}

/// Has nobody been there since, and was nobody sent? Without a date of the
/// deletion that cannot be told.
fn is_worth_a_look(row: &UrlRow, when: Option<Timestamp>) -> bool {
    let Some(when) = when.filter(|_| row.reason != Reason::Removed) else { return false };
    row.record.fetched.as_ref().is_none_or(|fetched| fetched.time() < when)
}
