//! What keeps a URL from being leased though its row has it in the queue: an
//! operator's block on what lies about it, a pause, or robots.txt, by which a URL is
//! judged when its turn comes.

use std::sync::Arc;

use jiff::Timestamp;

use super::hosts::{Ruling, read_ruling};
use super::policy::Policy;
use super::sql::{Connection, OptionalExtension, params};
use super::views::{UrlState, UrlView};
use super::{StoreError, engine, timestamp};
use crate::bounded::Bounded;
use crate::model::HostId;
use crate::model::span::when;

/// Hosts whose rules are kept from one URL to the next.
const REMEMBERED: usize = 64;
/// Memory that they may take: that of thousands of ordinary ones.
const REMEMBERED_BYTES: usize = 8 << 20;

/// Asks for one URL after another.
pub(super) struct Hindrances<'c> {
    conn: &'c Connection,
    policy: &'c Policy,
    /// Steady time, by which pauses go.
    now: Timestamp,
    /// By the wall clock, by which a robots.txt holds.
    wall: Timestamp,
    has_blocks: bool,
    rules: Bounded<(HostId, Arc<str>), Option<Ruling>>,
}

/// What is kept of where a URL belongs.
struct Place {
    crawl: i64,
    is_crawl_paused: bool,
    /// 0 active, 1 paused, 2 has left the configuration.
    site: i64,
    host: HostId,
    /// Version of robots.txt; 0 unknown.
    robots: i64,
    paused_until: Timestamp,
    pause_reason: Option<String>,
    path: super::abbreviations::PathText,
}

impl<'c> Hindrances<'c> {
    /// None known yet.
    pub(super) fn new(
        conn: &'c Connection,
        policy: &'c Policy,
        (now, wall): (Timestamp, Timestamp),
    ) -> Result<Self, StoreError> {
        let has_blocks = conn
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM blocks)")
            .and_then(|mut query| query.query_row((), |row| row.get(0)))
            .map_err(engine)?;
        let rules = Bounded::new(REMEMBERED, REMEMBERED_BYTES);
        Ok(Self { conn, policy, now, wall, has_blocks, rules })
    }

    /// The first of what keeps a URL that is in the queue from being leased, if
    /// anything does.
    pub(super) fn of(&mut self, view: &UrlView) -> Result<Option<String>, StoreError> {
        if view.state != UrlState::Queued {
            return Ok(None);
        }
        let place = self.place(view)?;
        if let Some(block) = self.block(place.crawl, &view.url)? {
            return Ok(Some(block));
        }
        if place.is_crawl_paused {
            return Ok(Some("its crawl is paused".to_owned()));
        }
        match place.site {
            0 => {}
            1 => return Ok(Some("its site is paused".to_owned())),
            _ => return Ok(Some("its site has left the configuration".to_owned())),
        }
        if let Some(robots) = self.robots(view, &place)? {
            return Ok(Some(robots.to_owned()));
        }
        let is_resting = place.paused_until > view.due_at.map_or(self.now, |due| due.max(self.now));
        Ok(is_resting.then(|| {
            let until = when(place.paused_until, self.now);
            let why = place.pause_reason.map_or_else(String::new, |why| format!(" ({why})"));
            format!("its host is left alone{why}, which ends {until}")
        }))
    }

    fn place(&self, view: &UrlView) -> Result<Place, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT u.crawl_id, c.paused, coalesce(n.state, 0), u.host_id, h.robots,
                     h.paused_until, h.pause_reason, u.path
                 FROM urls u JOIN hosts h ON h.id = u.host_id /*pg: AND h.part = u.part */
                 JOIN crawls c ON c.id = u.crawl_id LEFT JOIN sites n ON n.id = u.site_id
                 WHERE u.id = ?1 /*pg: AND u.part = (?1 & 255) */",
            )
            .and_then(|mut query| {
                query.query_row([view.id.0], |row| {
                    Ok(Place {
                        crawl: row.get(0)?,
                        is_crawl_paused: row.get(1)?,
                        site: row.get(2)?,
                        host: HostId(row.get(3)?),
                        robots: row.get(4)?,
                        paused_until: timestamp(row.get(5)?),
                        pause_reason: row.get(6)?,
                        path: row.get(7)?,
                    })
                })
            })
            .map_err(engine)
    }

    fn block(&self, crawl: i64, url: &str) -> Result<Option<String>, StoreError> {
        if !self.has_blocks {
            return Ok(None);
        }
        let found: Option<(String, bool)> = self
            .conn
            .prepare_cached(
                "SELECT pattern, prefix FROM blocks WHERE crawl_id = ?1
                     AND (prefix = ?3 AND substr(CAST(?2 AS TEXT), 1, length(pattern)) = pattern
                         OR prefix = ?4 AND pattern = ?2)
                 ORDER BY length(pattern) DESC LIMIT 1",
            )
            .and_then(|mut query| {
                query
                    .query_row(params![crawl, url, true, false], |row| {
                        Ok((row.get(0)?, row.get(1)?))
                    })
                    .optional()
            })
            .map_err(engine)?;
        Ok(found.map(|(pattern, prefix)| {
            let what =
                if prefix { format!(" on all that begins with {pattern}") } else { String::new() };
            format!("an operator's block{what} holds it until lifted")
        }))
    }

    fn robots(
        &mut self,
        view: &UrlView,
        place: &Place,
    ) -> Result<Option<&'static str>, StoreError> {
        let Some(agent) = &self.policy.named(view.site.as_deref()).robots_agent else {
            return Ok(None);
        };
        let key = (place.host, Arc::clone(agent));
        if self.rules.get(&key).is_none() {
            let read = match place.robots {
                0 => None,
                _ => read_ruling(self.conn, place.host, agent)?.map(|(ruling, _)| ruling),
            };
            let bytes = read.as_ref().map_or(0, Ruling::bytes);
            self.rules.insert(key.clone(), read, bytes);
        }
        let ruling = self.rules.get(&key).and_then(Option::as_ref);
        Ok(match ruling.and_then(|ruling| ruling.at(self.wall.as_millisecond())) {
            None => {
                Some("robots.txt of its host has not been read, or was not asked for in two days")
            }
            Some(rules) if rules.is_unreachable() => {
                Some("robots.txt of its host cannot be reached")
            }
            Some(rules) if !rules.allows(&place.path.0) => Some("robots.txt forbids it"),
            Some(_) => None,
        })
    }
}
