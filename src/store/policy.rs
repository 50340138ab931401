//! The part of the config that effects depend on, by site.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::state::State;
use crate::by_id::ById;
use crate::config::glob::ParamSet;
use crate::config::{Budget, Config, Order, Site, Twins};
use crate::model::{SiteId, product_token};
use crate::recrawl::Bounds;
use crate::url::authority;

/// An index is asked for a sitemap that misses URLs, or that another index has dropped, no
/// sooner after its last read, and no sooner than `poll.min`.
pub(crate) const INDEX_SPACING: Duration = Duration::from_secs(3_600);

/// What holds for URLs and sources of one site.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SitePolicy {
    /// Intervals and attempts.
    pub(super) bounds: Arc<Bounds>,
    /// Its share of the turns.
    pub(super) weight: f64,
    /// Least time between two requests to one of its hosts.
    pub(super) host_delay: Duration,
    /// Product token that listed pages are judged for; `None`: not judged.
    pub(super) robots_agent: Option<Arc<str>>,
    /// Are its twins one page?
    pub(super) merges_twins: bool,
    /// What its URLs lose of their query.
    pub(super) strip: Arc<ParamSet>,
    /// Most rows of urls.
    pub(super) max_urls: u64,
    /// Most rows of sources.
    pub(super) max_sources: u64,
}

/// What holds for everything, and where a site differs.
#[derive(Debug, Clone)]
pub(super) struct Policy {
    /// For URLs without a site, and sites that left the config.
    pub(super) default: SitePolicy,
    /// By the name of the site, until its row is known.
    pub(super) by_name: HashMap<String, Arc<SitePolicy>>,
    /// By row.
    pub(super) by_site: ById<SiteId, Arc<SitePolicy>>,
    /// Least time between two requests to hosts where sites have their home: of
    /// several the longest. Whoever else asks such a host keeps to it.
    delays: HashMap<String, Duration>,
    /// Product token that we poll by.
    pub(super) own_agent: String,
    /// Product tokens that pages are judged for, each once, but for that one.
    pub(super) agents: BTreeSet<String>,
    /// What is leased first.
    pub(super) order: Order,
    /// What fetches of known pages are shared out.
    pub(super) budget: Budget,
    /// What a fetch must be worth before anything has moved the price.
    pub(super) opening_price: f64,
    /// Complete reads without a URL before it counts as removed.
    pub(super) removal_polls: u32,
    /// Are the dates of clients of the frontier obeyed?
    pub(super) trust_dates: bool,
    /// Room on the disk below which nothing new is taken in, in bytes.
    pub(super) min_free_disk: u64,
    /// How long change events are kept.
    pub(super) keep_changes: Duration,
    /// How long the history of polls is kept.
    pub(super) keep_polls: Duration,
    /// Least time between two polls of an index that another one brings about.
    pub(super) index_spacing: Duration,
}

/// What the policy was before a reload that is not committed yet.
#[derive(Default)]
pub(super) struct Policies {
    /// Before the job that runs.
    job: Option<Policy>,
    /// Before the transaction.
    transaction: Option<Policy>,
    /// Who is to hear of the reload once it is committed.
    taken: Option<Taken>,
}

/// Hears that a reload holds, before anybody is woken by what came with it.
pub(super) type Taken = Box<dyn FnOnce() + Send>;

impl Policies {
    /// That before the job that runs, where it has brought another.
    pub(super) fn before(&self) -> Option<&Policy> {
        self.job.as_ref()
    }

    /// The job that ran stays.
    pub(super) fn keep(&mut self) {
        if let Some(before) = self.job.take() {
            self.transaction.get_or_insert(before);
        }
    }

    /// The job that ran is taken back.
    pub(super) fn take_back(&mut self, policy: &mut Policy) {
        if let Some(before) = self.job.take() {
            *policy = before;
            self.taken = None;
        }
    }

    /// The transaction is committed.
    pub(super) fn committed(&mut self) {
        if let Some(taken) = std::mem::take(self).taken {
            taken();
        }
    }

    /// The transaction is taken back.
    pub(super) fn give_up(&mut self, policy: &mut Policy) {
        self.take_back(policy);
        self.taken = None;
        if let Some(before) = self.transaction.take() {
            *policy = before;
        }
    }
}

impl State {
    /// Another policy holds from now on, if what comes with it is committed, which
    /// `taken` hears then.
    pub(super) fn replace_policy(&mut self, policy: Policy, taken: Taken) {
        let before = std::mem::replace(&mut self.policy, policy);
        self.policies.job.get_or_insert(before);
        self.policies.taken = Some(taken);
    }
}

impl Policy {
    /// Takes what the store needs from a config.
    pub(super) fn new(config: &Config) -> Self {
        let common = SitePolicy {
            bounds: Arc::new(Bounds {
                min: config.recrawl.min,
                max: config.recrawl.max,
                changefreq: config.recrawl.changefreq,
                timezone: config.daemon.timezone.clone(),
                max_attempts: config.queue.max_attempts,
            }),
            weight: 1.0,
            host_delay: config.politeness.host_delay,
            robots_agent: None,
            merges_twins: true,
            strip: Arc::default(),
            max_urls: u64::MAX,
            max_sources: u64::MAX,
        };
        let of_site = |site: &Site| SitePolicy {
            bounds: Arc::new(Bounds {
                min: site.recrawl_min,
                max: site.recrawl_max,
                timezone: site.timezone.clone(),
                ..(*common.bounds).clone()
            }),
            weight: site.weight,
            host_delay: site.host_delay,
            robots_agent: site.obey_robots.then(|| site.robots_agent.as_str().into()),
            merges_twins: site.twins == Twins::Merge,
            strip: Arc::clone(&site.strip_params),
            max_urls: site.max_urls,
            max_sources: site.max_sources,
        };
        // Very many sites say nothing of their own, and share what holds for them.
        let mut last = Arc::new(common.clone());
        let mut by_name = HashMap::with_capacity(config.sites.len());
        for (name, site) in &config.sites {
            let policy = of_site(site);
            if policy != *last {
                last = Arc::new(policy);
            }
            by_name.insert(name.clone(), Arc::clone(&last));
        }
        let mut delays: HashMap<String, Duration> = HashMap::new();
        for site in config.sites.values() {
            let delay = delays.entry(authority(&site.url)).or_default();
            *delay = (*delay).max(site.host_delay);
        }
        let own_agent = config.daemon.user_agent.clone();
        let is_another = |agent: &&String| {
            let (own, other) = (product_token(&own_agent), product_token(agent));
            !other.eq_ignore_ascii_case(own)
        };
        let judged = config.sites.values().filter(|site| site.obey_robots);
        let agents = judged.map(|site| &site.robots_agent).filter(is_another);
        let agents = agents.cloned().collect();
        Self {
            delays,
            own_agent,
            agents,
            by_name,
            by_site: ById::default(),
            order: config.queue.order,
            budget: config.recrawl.budget,
            opening_price: config.recrawl.price,
            removal_polls: config.poll.removal_polls,
            trust_dates: config.urlfrontier.trust_dates,
            min_free_disk: config.store.min_free_disk,
            keep_changes: config.store.keep_changes,
            keep_polls: config.store.keep_polls,
            index_spacing: config.poll.min.max(INDEX_SPACING),
            default: common,
        }
    }

    /// Is the order learned?
    pub(super) fn learns(&self) -> bool {
        self.order == Order::Learned
    }

    /// The delay of a host where a site has its home.
    pub(super) fn delay_at(&self, authority: &str) -> Option<Duration> {
        self.delays.get(authority).copied()
    }

    /// Is what is worth less than the price not said to be due? With a budget that was
    /// named, it is leased only as far as that leaves room.
    pub(super) fn is_capped(&self) -> bool {
        self.learns() && self.budget != Budget::Auto
    }

    /// What holds for a site by its name, or for none.
    pub(super) fn named(&self, site: Option<&str>) -> &SitePolicy {
        site.and_then(|name| self.by_name.get(name)).map_or(&self.default, |policy| policy)
    }

    /// What holds for a site, or for none.
    pub(super) fn of(&self, site: Option<SiteId>) -> &SitePolicy {
        site.and_then(|site| self.by_site.get(&site)).map_or(&self.default, |policy| policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_of_which_the_same_holds_share_it() {
        let site = |name: &str, more: &str| {
            format!("[[site]]\nname = \"{name}\"\nurl = \"https://{name}.example/\"\n{more}\n")
        };
        let text = [site("a", ""), site("b", ""), site("c", "weight = 2"), site("d", "weight = 2")];
        let config = Config::from_toml_str(&text.concat()).unwrap();
        let policy = Policy::new(&config);
        let of = |name: &str| &policy.by_name[name];
        assert!(Arc::ptr_eq(of("a"), of("b")) && Arc::ptr_eq(of("c"), of("d")));
        assert!(of("a").weight < of("c").weight);
        // Or a hundred thousand sites would have as many lists of tracking parameters.
        assert!(Arc::ptr_eq(&of("a").strip, &of("c").strip));
        assert!(Arc::ptr_eq(&config.sites["a"].strip_params, &of("a").strip));
    }
}
