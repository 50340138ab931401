//! What operators ask of the queue: block, lift, replay, submit, pause.

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;

use super::sql::{Connection, params};
use url::Url;

use super::hosts::page_text;
use super::orders::{START, Spot};
use super::packed::HELD_BEHIND;
use super::rows::{UrlRow, held};
use super::state::State;
use super::{StoreError, engine};
use crate::config::Steps;
use crate::config::glob::ParamSet;
use crate::model::{CrawlId, Reason, UrlId};

/// URLs named in one call at most.
pub const MAX_NAMED: usize = 10_000;
/// Rows put back in one job at most.
const BATCH: i64 = 2_000;

/// The blocks of a crawl, as the gate of leasing looks for them: what one URL costs
/// does not grow with their number.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    urls: HashSet<String>,
    prefixes: BTreeSet<String>,
}

/// What lifting a block came to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lifted {
    pub(super) was_there: bool,
    /// How many URLs came back, where that is known at once.
    pub(super) back: Option<u64>,
}

impl Blocks {
    fn add(&mut self, pattern: String, prefix: bool) {
        if prefix {
            self.prefixes.insert(pattern)
        } else {
            self.urls.insert(pattern)
        };
    }

    fn remove(&mut self, pattern: &str, prefix: bool) {
        if prefix {
            self.prefixes.remove(pattern)
        } else {
            self.urls.remove(pattern)
        };
    }

    /// Those of a crawl that are in force.
    pub(super) fn of_crawl(conn: &Connection, crawl: CrawlId) -> Result<Self, StoreError> {
        let mut blocks = Self::default();
        let mut query = conn
            .prepare_cached("SELECT pattern, prefix FROM blocks WHERE crawl_id = ?1")
            .map_err(engine)?;
        let mut rows = query.query([crawl.0]).map_err(engine)?;
        while let Some(row) = rows.next().map_err(engine)? {
            blocks.add(row.get(0).map_err(engine)?, row.get(1).map_err(engine)?);
        }
        Ok(blocks)
    }

    /// Is a URL held by one of them?
    pub(super) fn hold(&self, url: &str) -> bool {
        self.urls.contains(url) || self.has_prefix_of(url)
    }

    /// Of the patterns up to what may still begin the URL, the last one begins it, or
    /// shares less with it: only what it shares may begin it then.
    fn has_prefix_of(&self, url: &str) -> bool {
        let mut shared = url;
        while let Some(last) =
            self.prefixes.range::<str, _>((Bound::Unbounded, Bound::Included(shared))).next_back()
        {
            let alike = last.bytes().zip(url.bytes()).take_while(|(a, b)| a == b).count();
            if alike == last.len() {
                return true;
            }
            let cut = (0..=alike).rev().find(|at| url.is_char_boundary(*at));
            shared = &url[..cut.unwrap_or(0)];
        }
        false
    }
}

impl State {
    /// Is a URL held back by an operator?
    pub(super) fn is_blocked(&mut self, row: &UrlRow) -> Result<bool, StoreError> {
        if !self.blocks.contains_key(&row.crawl) {
            return Ok(false);
        }
        let url = page_text(&self.host(row.host)?.authority, &row.path);
        Ok(self.blocks.get(&row.crawl).is_some_and(|blocks| blocks.hold(&url)))
    }

    /// Reads the blocks in force.
    pub(super) fn read_blocks(&mut self) -> Result<(), StoreError> {
        self.blocks.clear();
        let mut query = self
            .conn
            .prepare_cached("SELECT crawl_id, pattern, prefix FROM blocks")
            .map_err(engine)?;
        let rows = query
            .query_map((), |row| Ok((CrawlId(row.get(0)?), row.get(1)?, row.get(2)?)))
            .map_err(engine)?;
        for row in rows {
            let (crawl, pattern, prefix) = row.map_err(engine)?;
            self.blocks.entry(crawl).or_default().add(pattern, prefix);
        }
        Ok(())
    }

    /// Blocks a URL, or all below a prefix. Those that are due are held when
    /// their turn comes, so a block costs nothing however many it holds; says
    /// how many are held at once (1 for a known URL).
    pub(super) fn block(
        &mut self,
        crawl: &str,
        pattern: &str,
        prefix: bool,
    ) -> Result<u64, StoreError> {
        let crawl = self.known_crawl(crawl)?;
        let row = if prefix { None } else { self.named_row(crawl, pattern)? };
        let pattern = match &row {
            Some(row) => page_text(&self.host(row.host)?.authority, &row.path),
            None => respell(pattern, prefix)?,
        };
        let now = self.now_ms();
        self.keep_block(crawl, &pattern, prefix, now)?;
        self.blocks.entry(crawl).or_default().add(pattern, prefix);
        let Some(row) = row.filter(UrlRow::is_queued) else { return Ok(0) };
        self.place_url(&row, held::BLOCKED, row.reason, row.band, row.due_s, row.attempt)?;
        Ok(1)
    }

    /// Blocks of one authority hold the same of another one from now on.
    pub(super) fn copy_blocks(
        &mut self,
        crawl: CrawlId,
        from: &str,
        to: &str,
    ) -> Result<(), StoreError> {
        let mut query = self
            .conn
            .prepare_cached("SELECT pattern, prefix, since_at FROM blocks WHERE crawl_id = ?1")
            .map_err(engine)?;
        let blocks: Vec<(String, bool, i64)> = query
            .query_map([crawl.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .and_then(Iterator::collect)
            .map_err(engine)?;
        drop(query);
        let mut copied = 0;
        for (pattern, prefix, since) in blocks {
            let path = pattern.strip_prefix(from).filter(|path| path.starts_with('/'));
            let Some(path) = path else { continue };
            let pattern = format!("{to}{path}");
            copied += self.keep_block(crawl, &pattern, prefix, since)?;
            self.blocks.entry(crawl).or_default().add(pattern, prefix);
        }
        if copied > 0 {
            self.note_settings()?;
        }
        Ok(())
    }

    /// Writes a block; says how many are new.
    fn keep_block(
        &self,
        crawl: CrawlId,
        pattern: &str,
        prefix: bool,
        since: i64,
    ) -> Result<usize, StoreError> {
        self.conn
            .prepare_cached(
                "INSERT INTO blocks (crawl_id, pattern, prefix, since_at) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (crawl_id, /*lite*/ pattern /*end*/ /*pg: key */, prefix) DO NOTHING",
            )
            .and_then(|mut insert| insert.execute(params![crawl.0, pattern, prefix, since]))
            .map_err(engine)
    }

    /// Lifts a block; says whether there was one, and whether a single URL that it held
    /// has been dealt with. What others held comes back by [`State::release_blocked`].
    pub(super) fn unblock(
        &mut self,
        crawl: &str,
        pattern: &str,
        prefix: bool,
    ) -> Result<Lifted, StoreError> {
        let crawl = self.known_crawl(crawl)?;
        let url = parse(pattern)?;
        // As it stands, whether or not there is such a row by now; as another
        // spelling only where that is no page of its own.
        let row = if prefix { None } else { self.find_normalised(crawl, &url)? };
        let other = match &row {
            Some(row) => page_text(&self.host(row.host)?.authority, &row.path),
            None => respell(pattern, prefix)?,
        };
        let mut lifted = Lifted::default();
        for text in [url.as_str(), &other] {
            if lifted.was_there {
                break;
            }
            let gone = self
                .conn
                .execute(
                    "DELETE FROM blocks WHERE crawl_id = ?1 AND pattern = ?2 AND prefix = ?3",
                    params![crawl.0, text, prefix],
                )
                .map_err(engine)?;
            if let Some(blocks) = self.blocks.get_mut(&crawl) {
                blocks.remove(text, prefix);
            }
            lifted.was_there = gone > 0;
            // It has held this one and no other; of a shared store its owner puts it back.
            let held = row.as_ref().filter(|_| lifted.was_there && text == other);
            if let Some(row) = held.filter(|_| !self.is_shared()) {
                lifted.back = Some(u64::from(self.unhold(row)?));
            }
        }
        Ok(lifted)
    }

    /// Puts back what no block holds any more, a part at a time: how many came
    /// back, and where it goes on.
    pub(super) fn release_blocked(
        &mut self,
        crawl: &str,
        behind: Spot,
    ) -> Result<(u64, Option<Spot>), StoreError> {
        let crawl = self.known_crawl(crawl)?;
        if behind == START && self.is_shared() {
            // Somebody else may have lifted the block a moment ago.
            self.read_blocks()?;
        }
        self.held_of(crawl, held::BLOCKED, behind, Self::unhold)
    }

    /// Says whether it is in the queue again.
    fn unhold(&mut self, row: &UrlRow) -> Result<bool, StoreError> {
        if row.state != held::BLOCKED || self.is_blocked(row)? {
            return Ok(false);
        }
        self.place_url(row, held::QUEUED, row.reason, row.band, row.due_s, row.attempt)?;
        Ok(true)
    }

    /// Does something to a part of what is out of the queue of a crawl: for how many it
    /// did, and where it goes on.
    fn held_of(
        &mut self,
        crawl: CrawlId,
        state: i64,
        behind: Spot,
        each: impl Fn(&mut Self, &UrlRow) -> Result<bool, StoreError>,
    ) -> Result<(u64, Option<Spot>), StoreError> {
        let rows = self.held_rows(state, behind)?;
        let last = rows.last().map(|row| (*row, 0));
        let done = self.gathering(|this| {
            this.read_rows_ahead(rows.iter().copied().map(UrlId))?;
            let mut done = 0;
            for id in rows {
                if let Some(row) = this.url_row(UrlId(id))?.filter(|row| row.crawl == crawl) {
                    done += u64::from(each(this, &row)?);
                }
            }
            Ok(done)
        })?;
        Ok((done, last))
    }

    fn held_rows(&self, state: i64, behind: Spot) -> Result<Vec<i64>, StoreError> {
        self.column(&HELD_BEHIND, params![state, behind.0, BATCH])
    }

    /// Puts the dead letters back that are named.
    pub(super) fn replay(&mut self, crawl: &str, urls: &[Url]) -> Result<u64, StoreError> {
        self.named_rows(crawl, urls, Self::revive_dead)
    }

    /// Puts all dead letters of a crawl back, a part at a time: how many came
    /// back, and where it goes on.
    pub(super) fn replay_all(
        &mut self,
        crawl: &str,
        behind: Spot,
    ) -> Result<(u64, Option<Spot>), StoreError> {
        let crawl = self.known_crawl(crawl)?;
        self.held_of(crawl, held::DEAD, behind, Self::revive_dead)
    }

    /// Says whether it is in the queue again: not if what it was about has ended.
    fn revive_dead(&mut self, row: &UrlRow) -> Result<bool, StoreError> {
        if row.state != held::DEAD {
            return Ok(false);
        }
        // Whoever asks for it again does not wait for what a fetcher has said.
        self.pull_to(row, row.reason, self.steady_ms().div_euclid(1000))
    }

    /// Makes known URLs due now because someone asked, but for those that are held, for
    /// which it is noted.
    pub(super) fn requeue(&mut self, crawl: &str, urls: &[Url]) -> Result<u64, StoreError> {
        self.named_rows(crawl, urls, |state, row| {
            state.pull_forward(row, Reason::Submitted)?;
            Ok(row.leased || !matches!(row.state, held::BLOCKED | held::FORBIDDEN))
        })
    }

    /// Does something to the rows of these URLs, those that there are; says for how many
    /// it did.
    fn named_rows(
        &mut self,
        crawl: &str,
        urls: &[Url],
        each: impl Fn(&mut Self, &UrlRow) -> Result<bool, StoreError>,
    ) -> Result<u64, StoreError> {
        let crawl = self.known_crawl(crawl)?;
        self.gathering(|state| {
            state.look_up_ahead(crawl, urls)?;
            let mut done = 0;
            for url in urls {
                let Some(row) = state.find_normalised(crawl, url)? else { continue };
                state.must_own(row.host.0)?;
                done += u64::from(each(state, &row)?);
            }
            Ok(done)
        })
    }

    /// Stops, or starts again, leasing from a crawl.
    pub(super) fn pause_crawl(&mut self, crawl: &str, paused: bool) -> Result<(), StoreError> {
        let id = self.known_crawl(crawl)?;
        self.conn
            .execute("UPDATE crawls SET paused = ?2 WHERE id = ?1", params![id.0, paused])
            .map_err(engine)?;
        if let Some(crawl) = self.crawls.get_mut(&id) {
            crawl.paused = paused;
        }
        Ok(())
    }

    fn named_row(&mut self, crawl: CrawlId, url: &str) -> Result<Option<UrlRow>, StoreError> {
        let row = self.find_normalised(crawl, &parse(url)?)?;
        row.as_ref().map_or(Ok(()), |row| self.must_own(row.host.0))?;
        Ok(row)
    }
}

/// A URL that somebody names.
pub(super) fn parse(text: &str) -> Result<Url, StoreError> {
    Url::parse(text)
        .map_err(|e| StoreError::Refused(format!("{text:?} is not an absolute URL: {e}")))
}

/// A pattern as the gate compares it where no row has its text: the normalised
/// text of a URL. A prefix keeps its end, without which it would hold more.
fn respell(pattern: &str, prefix: bool) -> Result<String, StoreError> {
    let mut url = parse(pattern)?;
    let all = Steps::default();
    let steps = if prefix { Steps { fragment: false, empty_query: false, ..all } } else { all };
    crate::url::normalise(&mut url, steps, &ParamSet::default())
        .map_err(|_| StoreError::Refused(format!("{pattern:?} is not a URL of the web")))?;
    Ok(url.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_hold_what_is_named_and_what_begins_so(
            blocks in prop::collection::vec(("[aä/]{0,5}", any::<bool>()), 0..12),
            lifted in prop::collection::vec(0_usize..12, 0..4),
            url in "[aä/]{0,8}",
        ) {
            let mut held = Blocks::default();
            let mut named: HashSet<(String, bool)> = HashSet::new();
            for (pattern, prefix) in &blocks {
                held.add(pattern.clone(), *prefix);
                named.insert((pattern.clone(), *prefix));
            }
            for (pattern, prefix) in lifted.iter().filter_map(|at| blocks.get(*at)) {
                held.remove(pattern, *prefix);
                named.remove(&(pattern.clone(), *prefix));
            }
            let is_held = |(pattern, prefix): &(String, bool)| {
                if *prefix { url.starts_with(pattern) } else { url == *pattern }
            };
            prop_assert_eq!(held.hold(&url), named.iter().any(is_held));
        }
    }
}
