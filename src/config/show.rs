//! The values in use, as TOML: for `sitemapd config check`, and for comparing
//! two configurations key by key.
//!
//! What is printed can be read back. Secrets are printed as `***`.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use toml::{Table, Value};

use super::resolve::MAX_BUDGET;
use super::units::{format_duration, format_size};
use super::{
    AllowedAddress, Budget, Config, Durability, Fetch, FetchLimits, LogFormat, Nats, Order,
    PollRule, Scope, Site, SourceList, Twins,
};
use crate::log::redact;
use crate::model::ChangeFreq;

/// Stands for every secret that is printed.
const MASK: &str = "***";

/// One key with its value in use.
pub(super) type Setting = (String, Value);

/// Are secrets written out, for comparing only, or masked?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Secrets {
    Compared,
    Masked,
}

/// The resolved values as TOML, sites included, in the order of the example.
pub fn resolved_toml(config: &Config) -> String {
    let mut text = String::new();
    let mut section = String::new();
    for (key, value) in settings(config, Secrets::Masked) {
        let (table, name) = key.rsplit_once('.').unwrap_or(("", &key));
        if table != section {
            let gap = if text.is_empty() { "" } else { "\n" };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{gap}[{table}]");
            table.clone_into(&mut section);
        }
        let _ = writeln!(text, "{name} = {value}");
    }
    for site in config.sites.values() {
        text.push_str("\n[[site]]\n");
        for (name, value) in site_settings(site, Secrets::Masked) {
            let _ = writeln!(text, "{name} = {value}");
        }
    }
    text
}

/// Every key outside the sites that has a value.
pub(super) fn settings(config: &Config, secrets: Secrets) -> Vec<Setting> {
    let mut list = List::default();
    daemon_and_listen(config, &mut list);
    fetch(&config.fetch, secrets, &mut list);
    schedule(config, &mut list);
    storage(config, secrets, &mut list);
    egress(&config.egress.nats, &mut list);
    list.0
}

impl fmt::Debug for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = List::default();
        fetch(self, Secrets::Masked, &mut list);
        f.debug_map().entries(list.0).finish()
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(site_settings(self, Secrets::Masked)).finish()
    }
}

fn daemon_and_listen(config: &Config, list: &mut List) {
    let daemon = &config.daemon;
    list.add("daemon.data_dir", path(&daemon.data_dir));
    list.add("daemon.user_agent", daemon.user_agent.clone());
    list.add("daemon.contact", daemon.contact.clone().unwrap_or_default());
    list.add("daemon.timezone", zone(&daemon.timezone));
    list.add("listen.api", config.listen.api.to_string());
    list.add_some("listen.token_file", config.listen.token_file.as_deref().map(path));
    list.add_some("listen.public", config.listen.public.map(|addr| addr.to_string()));
    list.add_some("listen.public_url", config.listen.public_url.as_ref().map(url::Url::to_string));
    list.add("listen.internal", config.listen.internal.to_string());
    list.add_some("listen.grpc", config.listen.grpc.map(|addr| addr.to_string()));
}

fn fetch(fetch: &Fetch, secrets: Secrets, list: &mut List) {
    list.add("fetch.concurrency", integer(fetch.concurrency));
    list.add("fetch.connect_timeout", duration(fetch.connect_timeout));
    list.add("fetch.total_timeout", duration(fetch.total_timeout));
    for (name, value) in limits(&fetch.limits) {
        list.add(&format!("fetch.{name}"), value);
    }
    list.add("fetch.max_index_depth", i64::from(fetch.max_index_depth));
    list.add("fetch.max_redirects", i64::from(fetch.max_redirects));
    let proxy = fetch.proxy.as_ref().map(|url| match secrets {
        Secrets::Compared => url.to_string(),
        Secrets::Masked => redact(url),
    });
    list.add_some("fetch.proxy", proxy);
    list.add_some("fetch.ca_file", fetch.ca_file.as_deref().map(path));
    list.add("fetch.allow", fetch.allow.iter().map(address).collect::<Vec<_>>());
}

fn schedule(config: &Config, list: &mut List) {
    let (politeness, poll, recrawl) = (&config.politeness, &config.poll, &config.recrawl);
    list.add("politeness.host_delay", duration(politeness.host_delay));
    list.add("politeness.per_host", i64::from(politeness.per_host));
    list.add("politeness.per_address", i64::from(politeness.per_address));
    list.add("poll.min", duration(poll.min));
    list.add("poll.max", duration(poll.max));
    list.add("poll.first", duration(poll.first));
    list.add("poll.jitter", poll.jitter);
    list.add("poll.removal_polls", i64::from(poll.removal_polls));
    list.add("poll.removal_after", duration(poll.removal_after));
    let budget = match recrawl.budget {
        Budget::Auto => "auto".to_owned(),
        // More a day than may be said so was said by the hour.
        Budget::Daily(fetches) if fetches > f64::from(MAX_BUDGET) => {
            format!("{}/hour", fetches / 24.0)
        }
        Budget::Daily(fetches) => format!("{fetches}/day"),
    };
    list.add("recrawl.budget", budget);
    list.add("recrawl.min", duration(recrawl.min));
    list.add("recrawl.max", duration(recrawl.max));
    for word in ChangeFreq::ALL {
        let key = format!("recrawl.changefreq.{}", word.as_str());
        list.add(&key, duration(recrawl.changefreq.of(Some(word))));
    }
    list.add("recrawl.changefreq.absent", duration(recrawl.changefreq.absent));
}

fn storage(config: &Config, secrets: Secrets, list: &mut List) {
    let (queue, store) = (&config.queue, &config.store);
    let order = match queue.order {
        Order::Learned => "learned",
        Order::Protocol => "protocol",
    };
    let durability = match store.durability {
        Durability::Full => "full",
        Durability::Normal => "normal",
    };
    let format = match config.log.format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    list.add("queue.order", order);
    list.add("queue.lease", duration(queue.lease));
    list.add("queue.max_attempts", i64::from(queue.max_attempts));
    list.add("urlfrontier.trust_dates", config.urlfrontier.trust_dates);
    let url = store.url.as_ref().map(|url| match secrets {
        Secrets::Compared => url.to_string(),
        Secrets::Masked => redact(url),
    });
    list.add_some("store.url", url);
    list.add("store.durability", durability);
    list.add("store.keep_changes", duration(store.keep_changes));
    list.add("store.keep_polls", duration(store.keep_polls));
    list.add("store.min_free_disk", format_size(store.min_free_disk));
    list.add("log.format", format);
    list.add("log.level", config.log.level.clone());
}

fn egress(nats: &Nats, list: &mut List) {
    let servers: Vec<_> = nats.servers.iter().map(url::Url::to_string).collect();
    let is_off = servers.is_empty();
    list.add("egress.nats.servers", servers);
    if is_off {
        return;
    }
    let Nats { credentials_file, token_file, ca_file, .. } = nats;
    list.add_some("egress.nats.credentials_file", credentials_file.as_deref().map(path));
    list.add_some("egress.nats.user", nats.user.clone());
    list.add_some("egress.nats.token_file", token_file.as_deref().map(path));
    list.add_some("egress.nats.ca_file", ca_file.as_deref().map(path));
    list.add("egress.nats.crawls", nats.crawls.clone());
    list.add("egress.nats.stream", nats.stream.clone());
    list.add("egress.nats.subject", nats.subject.to_string());
    list.add("egress.nats.results_stream", nats.results_stream.clone());
    list.add("egress.nats.results", nats.results.to_string());
    list.add("egress.nats.create", nats.create);
    list.add("egress.nats.batch", i64::from(nats.batch));
    list.add("egress.nats.in_flight", integer(nats.in_flight));
    list.add("egress.nats.lease", duration(nats.lease));
}

/// Every key of one site.
pub(super) fn site_settings(site: &Site, secrets: Secrets) -> Vec<Setting> {
    let mut list = List::default();
    list.add("name", site.name.clone());
    list.add("url", site.url.to_string());
    list.add("crawl", site.crawl.clone());
    list.add("hosts", site.hosts.clone());
    list.add("twins", if site.twins == Twins::Merge { "merge" } else { "separate" });
    list.add("sitemaps", sources(&site.sitemaps));
    list.add("feeds", sources(&site.feeds));
    list.add("poll", poll_rule(&site.poll));
    list.add("timezone", zone(&site.timezone));
    list.add("weight", site.weight);
    list.add("scope", scope(site.scope));
    list.add("include", site.include.clone());
    list.add("exclude", site.exclude.clone());
    list.add("normalise", site.normalise.words());
    list.add("strip_params", site.strip_params.listed().to_vec());
    list.add("follow", site.follow.words());
    list.add("max_urls", integer(site.max_urls));
    list.add("max_sources", integer(site.max_sources));
    list.add("obey_robots", site.obey_robots);
    list.add("websub", site.websub);
    list.add("robots_agent", site.robots_agent.clone());
    list.add("headers", headers(site, secrets));
    list.add("host_delay", duration(site.host_delay));
    list.add("limits", limits(&site.limits).into_iter().collect::<Table>());
    let bounds = [("min", site.recrawl_min), ("max", site.recrawl_max)];
    let bounds = bounds.map(|(name, value)| (name.to_owned(), duration(value).into()));
    list.add("recrawl", bounds.into_iter().collect::<Table>());
    list.0
}

/// Settings in the order they are added.
#[derive(Default)]
struct List(Vec<Setting>);

impl List {
    fn add(&mut self, key: &str, value: impl Into<Value>) {
        self.0.push((key.to_owned(), value.into()));
    }

    fn add_some(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }
}

fn limits(limits: &FetchLimits) -> Vec<Setting> {
    let FetchLimits { max_wire_bytes, max_body_bytes, max_urls, max_sitemaps, max_url_chars } =
        *limits;
    let mut list = List::default();
    list.add("max_wire_bytes", format_size(max_wire_bytes));
    list.add("max_body_bytes", format_size(max_body_bytes));
    list.add("max_urls", integer(max_urls));
    list.add("max_sitemaps", integer(max_sitemaps));
    list.add("max_url_chars", integer(max_url_chars));
    list.0
}

fn headers(site: &Site, secrets: Secrets) -> Table {
    let value = |value: &String| match secrets {
        Secrets::Compared => value.clone(),
        Secrets::Masked => MASK.to_owned(),
    };
    site.headers.iter().map(|(name, secret)| (name.clone(), value(secret).into())).collect()
}

fn sources(list: &SourceList) -> Value {
    match list {
        SourceList::Auto => "auto".into(),
        SourceList::Listed(urls) => urls.iter().map(url::Url::to_string).collect::<Vec<_>>().into(),
    }
}

fn poll_rule(rule: &PollRule) -> String {
    match rule {
        PollRule::Adaptive => "auto".to_owned(),
        PollRule::Every(every) => duration(*every),
        PollRule::Cron(line) => format!("cron: {line}"),
    }
}

fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Host => "host",
        Scope::Directory => "directory",
        Scope::Domain => "domain",
        Scope::Any => "any",
    }
}

/// As `fetch.allow` is written.
fn address(allowed: &AllowedAddress) -> String {
    let AllowedAddress { net, port } = allowed;
    let single = net.prefix_len() == net.max_prefix_len();
    match (single, port) {
        (true, Some(port)) => std::net::SocketAddr::new(net.addr(), *port).to_string(),
        (true, None) => net.addr().to_string(),
        (false, Some(port)) => format!("{net}:{port}"),
        (false, None) => net.to_string(),
    }
}

fn zone(zone: &jiff::tz::TimeZone) -> String {
    zone.iana_name().unwrap_or("UTC").to_owned()
}

fn duration(value: Duration) -> String {
    format_duration(value)
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// Limits are far below 2^63, which the readers of TOML end at.
fn integer(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}
