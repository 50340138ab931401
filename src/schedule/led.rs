//! How many hosts that nobody knew the redirects of one site may lead to.
//!
//! Each leaves a row behind, and a robots.txt where the site obeys it, and whoever owns
//! a domain has as many hosts as he likes. What a site may not be led to today its polls
//! come back for tomorrow, which is no failure. Kept in memory: a restart begins anew.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use xxhash_rust::xxh3::xxh3_64;

use crate::recrawl::later;

/// Hosts that redirects of one site may newly lead to in a day. Twins (http and https,
/// www and bare) and what is known already are none of these.
const MOST: usize = 100;
/// For so long.
const DAY: Duration = Duration::from_secs(86_400);

/// What the redirects of sites have led to lately, by the name of the site.
#[derive(Debug, Default)]
pub(super) struct Led {
    by_site: Mutex<HashMap<String, Hosts>>,
}

#[derive(Debug)]
struct Hosts {
    since: Timestamp,
    /// Hashes of their authorities.
    seen: HashSet<u64>,
}

impl Led {
    /// Redirects of a site lead to a host that nobody knows: may it be asked? `Err` says
    /// when it may.
    pub(super) fn may_lead(
        &self,
        site: &str,
        authority: &str,
        now: Timestamp,
    ) -> Result<(), Timestamp> {
        // Nothing that panics is done while this lock is held.
        let mut all = self.by_site.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(site) {
            // Of sites that have done so lately, as a rule none.
            all.retain(|_, hosts| later(hosts.since, DAY) > now);
        }
        let hosts = all
            .entry(site.to_owned())
            .or_insert_with(|| Hosts { since: now, seen: HashSet::new() });
        if later(hosts.since, DAY) <= now {
            *hosts = Hosts { since: now, seen: HashSet::new() };
        }
        let host = xxh3_64(authority.as_bytes());
        if hosts.seen.len() >= MOST && !hosts.seen.contains(&host) {
            return Err(later(hosts.since, DAY));
        }
        hosts.seen.insert(host);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_leads_to_so_many_new_hosts_a_day_and_takes_nothing_of_others() {
        let (led, start) = (Led::default(), Timestamp::UNIX_EPOCH);
        let may =
            |site: &str, host: usize, now| led.may_lead(site, &format!("http://h{host}"), now);
        for host in 0..MOST {
            assert_eq!(may("a", host, start), Ok(()));
        }
        let end = later(start, DAY);
        assert_eq!(may("a", MOST, start), Err(end));
        assert_eq!(may("a", 0, start), Ok(()), "it is one of them");
        assert_eq!(may("b", MOST, start), Ok(()));
        assert_eq!(may("a", MOST, end), Ok(()), "that was yesterday");
        assert_eq!(led.by_site.lock().unwrap()["a"].seen.len(), 1);
        may("c", 0, later(end, DAY)).unwrap();
        assert_eq!(led.by_site.lock().unwrap().len(), 1, "who leads nowhere is forgotten");
    }
}
