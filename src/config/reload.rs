//! What a changed configuration will do, before it does it. Pure.
//!
//! The daemon logs the plan, tells what a change drops, and then swaps the
//! configuration; what needs a restart keeps its old value until then, for
//! those too that could read the new one: half of a change is neither of both.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use url::Origin;

use super::show::{Secrets, Setting, settings, site_settings};
use super::{Config, Daemon, Fetch, Log, Politeness, Site, Store, site};
use crate::model::product_token;

/// Keys that are read once, when the daemon starts: sockets, the data folder
/// and its locks, what the HTTP client and the log format are built from, and the
/// broker's session. [`until_restart`] keeps each of them.
pub(super) const RESTART: [&str; 33] = [
    "daemon.contact",
    "daemon.data_dir",
    "daemon.user_agent",
    "egress.nats.batch",
    "egress.nats.ca_file",
    "egress.nats.crawls",
    "egress.nats.create",
    "egress.nats.credentials_file",
    "egress.nats.in_flight",
    "egress.nats.lease",
    "egress.nats.results",
    "egress.nats.results_stream",
    "egress.nats.servers",
    "egress.nats.stream",
    "egress.nats.subject",
    "egress.nats.token_file",
    "egress.nats.user",
    "fetch.allow",
    "fetch.ca_file",
    "fetch.concurrency",
    "fetch.connect_timeout",
    "fetch.proxy",
    "fetch.total_timeout",
    "listen.api",
    "listen.grpc",
    "listen.internal",
    "listen.public",
    "listen.public_url",
    "listen.token_file",
    "log.format",
    "politeness.per_address",
    "store.durability",
    "store.url",
];

/// The difference between two configurations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReloadPlan {
    /// Keys that changed and hold only after a restart.
    pub restart_needed: Vec<String>,
    /// Keys outside the sites that changed and hold at once.
    pub live: Vec<String>,
    /// Names of new sites.
    pub sites_added: Vec<String>,
    /// Names of sites that are gone; their rows stay until they are forgotten.
    pub sites_removed: Vec<String>,
    /// Names of changed sites, with their keys that changed. A key that a
    /// site does not set and that changed daemon-wide is in `live` only.
    pub sites_changed: Vec<(String, Vec<String>)>,
}

impl ReloadPlan {
    /// Is there nothing to do?
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What going from `old` to `new` will do.
pub fn plan(old: &Config, new: &Config) -> ReloadPlan {
    let both = (settings(old, Secrets::Compared), settings(new, Secrets::Compared));
    let (restart_needed, live) =
        changed_keys(&both.0, &both.1).into_iter().partition(|key| RESTART.contains(&key.as_str()));
    let missing_in = |from: &Config, to: &Config| -> Vec<String> {
        from.sites.keys().filter(|name| !to.sites.contains_key(*name)).cloned().collect()
    };
    let kept = old.sites.values().filter_map(|site| Some((site, new.sites.get(&site.name)?)));
    let sites_changed = kept
        .map(|(was, is)| (is.name.clone(), changed_site_keys((old, was), (new, is))))
        .filter(|(_, keys)| !keys.is_empty())
        .collect();
    ReloadPlan {
        restart_needed,
        live,
        sites_added: missing_in(new, old),
        sites_removed: missing_in(old, new),
        sites_changed,
    }
}

/// Names of the sites of `new` that mean something else than in `old`: their own
/// keys, the keys that they take over, or who else has their home.
pub fn touched_sites(old: &Config, new: &Config) -> BTreeSet<String> {
    let bounds = |config: &Config| (config.poll.first, config.poll.max);
    if bounds(old) != bounds(new) {
        return new.sites.keys().cloned().collect();
    }
    let other = |from: &'_ Config, to: &Config| -> Vec<Origin> {
        let differ = |site: &&Arc<Site>| to.sites.get(&site.name) != Some(*site);
        from.sites.values().filter(differ).map(|site| site.url.origin()).collect()
    };
    let homes: HashSet<Origin> = other(old, new).into_iter().chain(other(new, old)).collect();
    let is_touched = |site: &&Arc<Site>| homes.contains(&site.url.origin());
    new.sites.values().filter(is_touched).map(|site| site.name.clone()).collect()
}

/// `new` as it holds until the next restart: with the old values of the keys
/// that need one, and of what sites take over from them.
pub fn until_restart(old: &Config, new: Config) -> Config {
    let defaults = (&old.daemon.user_agent, &new.daemon.user_agent);
    let defaults = (product_token(defaults.0).to_owned(), product_token(defaults.1).to_owned());
    let mut sites = new.sites;
    for site in sites.values_mut().filter(|site| site.robots_agent == defaults.1) {
        // One that had this name before has it of its own.
        let had = old.sites.get(&site.name).is_some_and(|it| it.robots_agent == defaults.1);
        if !had {
            Arc::make_mut(site).robots_agent.clone_from(&defaults.0);
        }
    }
    Config {
        daemon: Daemon { timezone: new.daemon.timezone, ..old.daemon.clone() },
        listen: old.listen.clone(),
        fetch: Fetch {
            limits: new.fetch.limits,
            max_index_depth: new.fetch.max_index_depth,
            max_redirects: new.fetch.max_redirects,
            ..old.fetch.clone()
        },
        politeness: Politeness { per_address: old.politeness.per_address, ..new.politeness },
        store: Store { url: old.store.url.clone(), durability: old.store.durability, ..new.store },
        log: Log { format: old.log.format, ..new.log },
        egress: old.egress.clone(),
        sites,
        ..new
    }
}

/// Keys whose values differ, or that only one of the two has.
fn changed_keys(old: &[Setting], new: &[Setting]) -> Vec<String> {
    let value = |list: &[Setting], key: &str| {
        list.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    };
    let mut keys: Vec<String> = old.iter().chain(new).map(|(key, _)| key.clone()).collect();
    keys.sort();
    keys.dedup();
    keys.retain(|key| value(old, key) != value(new, key));
    keys
}

fn changed_site_keys(old: (&Config, &Site), new: (&Config, &Site)) -> Vec<String> {
    if old.1 == new.1 {
        return Vec::new();
    }
    let own = |(config, it): (&Config, &Site)| {
        let inherited = site::with_defaults(it.name.clone(), it.url.clone(), config);
        let inherited = site_settings(&inherited, Secrets::Compared);
        let mut own = site_settings(it, Secrets::Compared);
        own.retain(|setting| !inherited.contains(setting) || setting.0 == "url");
        own
    };
    changed_keys(&own(old), &own(new))
}
