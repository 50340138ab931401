//! What is worth the price though its rows are not due, as far as it was looked for.
//!
//! Keeps: a URL is here once, best first is what is taken, and what has come due meanwhile
//! is given by nobody from here, since it is in line.

use std::cmp::Reverse;

use super::buffer::Key;
use crate::by_id::{ById, IdSet};
use crate::model::{HostId, SiteId, UrlId};
use crate::queue::Candidate;

/// Most URLs held over all hosts, about: 5 MiB.
const MOST: usize = 65_536;
/// Where there is no room for more, so many of a host are kept: hosts whose clocks let few
/// through would keep all others from being looked at.
const KEPT: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Early {
    /// Best last, each with its site.
    of_host: ById<HostId, Vec<(Key, Option<SiteId>)>>,
    /// URLs of all hosts.
    load: usize,
}

impl Early {
    /// Those that are held already stay as they are.
    pub(super) fn add(&mut self, host: HostId, found: &[(Candidate, Option<SiteId>)]) {
        let held = self.of_host.entry(host).or_default();
        let before = held.len();
        let known: IdSet<UrlId> = held.iter().map(|(key, _)| key.id).collect();
        let new = found.iter().filter(|(candidate, _)| !known.contains(&candidate.id));
        held.extend(new.map(|(candidate, site)| (Key::of(candidate), *site)));
        held.sort_unstable_by_key(|(key, _)| Reverse(*key));
        self.load += held.len() - before;
    }

    /// How many are held of a host.
    pub(super) fn of(&self, host: HostId) -> usize {
        self.of_host.get(&host).map_or(0, Vec::len)
    }

    /// How many of these are of some sites.
    pub(super) fn of_sites(&self, host: HostId, sites: &[SiteId]) -> usize {
        let held = self.of_host.get(&host).into_iter().flatten();
        held.filter(|(_, site)| is_of(*site, sites)).count()
    }

    /// Those of which any are held.
    pub(super) fn hosts(&self) -> impl Iterator<Item = HostId> + '_ {
        self.of_host.keys().copied()
    }

    /// Is there room for more? Those that are worth least may have to make it; the next
    /// round finds them again.
    pub(super) fn make_room(&mut self) -> bool {
        if self.load >= MOST {
            for held in self.of_host.values_mut() {
                let excess = held.len().saturating_sub(KEPT);
                self.load -= held.drain(..excess).len();
            }
        }
        self.load < MOST
    }

    /// The best `n` of a host, and of these sites where any are named.
    pub(super) fn take(
        &mut self,
        host: HostId,
        n: usize,
        now_ms: i64,
        of: &[SiteId],
    ) -> Vec<Candidate> {
        let now = now_ms.div_euclid(1000);
        let mut taken = Vec::new();
        self.change(host, |held| {
            held.retain(|(key, _)| key.due_at > now);
            let theirs = held.iter().enumerate().rev().filter(|(_, (_, site))| is_of(*site, of));
            let Some((last, _)) = theirs.take(n).last() else { return };
            let mut rest = held.split_off(last);
            rest.retain(|(key, site)| {
                let is_taken = is_of(*site, of);
                if is_taken {
                    taken.push(key.of_host(host));
                }
                !is_taken
            });
            held.append(&mut rest);
        });
        taken.reverse();
        taken
    }

    pub(super) fn remove(&mut self, host: HostId, url: UrlId) {
        self.change(host, |held| held.retain(|(key, _)| key.id != url));
    }

    /// Forgets those of a host, and of these sites where any are named.
    pub(super) fn forget(&mut self, host: HostId, of: &[SiteId]) {
        self.change(host, |held| held.retain(|(_, site)| !is_of(*site, of)));
    }

    fn change(&mut self, host: HostId, change: impl FnOnce(&mut Vec<(Key, Option<SiteId>)>)) {
        let Some(held) = self.of_host.get_mut(&host) else { return };
        let before = held.len();
        change(held);
        self.load -= before - held.len();
        if held.is_empty() {
            self.of_host.remove(&host);
        }
    }
}

/// Is something of these sites? Where none are named, it is.
fn is_of(site: Option<SiteId>, sites: &[SiteId]) -> bool {
    sites.is_empty() || site.is_some_and(|site| sites.contains(&site))
}
