//! Which sites have a host: looked up, not searched for among all of them.
//!
//! Strangers name hosts, and there may be a hundred thousand sites. The table is made
//! once for each configuration, beside the async workers, by whoever asks first; it
//! names candidates, and the exact rule decides.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::Mutex;
use url::Url;

use super::Poller;
use crate::config::{Config, Scope, Site};
use crate::store::StoreError;
use crate::url::{are_twins, is_listed_host};

/// The table of the configuration that was asked last.
pub(super) type KnownOwners = Mutex<Option<Arc<Owners>>>;

/// Sites by what tells their hosts.
pub(super) struct Owners {
    /// Whose they are. It is not kept alive for this.
    of: Weak<Config>,
    /// In the order of the configuration.
    names: Vec<String>,
    /// By the host without `www.` and port, as it stands in URLs.
    by_host: HashMap<String, Vec<u32>>,
    /// By the registrable domain, those whose scope that is.
    by_domain: HashMap<String, Vec<u32>>,
}

impl Owners {
    pub(super) fn new(config: &Arc<Config>) -> Self {
        let (mut by_host, mut by_domain) = (HashMap::new(), HashMap::new());
        let mut names = Vec::with_capacity(config.sites.len());
        for (number, site) in (0..).zip(config.sites.values()) {
            names.push(site.name.clone());
            let listed = site.hosts.iter().map(|host| without_port(host).to_ascii_lowercase());
            let own = site.url.host_str().map(str::to_owned);
            for host in own.into_iter().chain(listed) {
                enter(&mut by_host, bare(&host), number);
            }
            if site.scope == Scope::Domain
                && let Some(domain) = domain_of(&site.url)
            {
                enter(&mut by_domain, domain, number);
            }
        }
        Self { of: Arc::downgrade(config), names, by_host, by_domain }
    }

    fn is_of(&self, config: &Arc<Config>) -> bool {
        std::ptr::eq(self.of.as_ptr(), Arc::as_ptr(config))
    }

    /// Names of the sites that have the host of a URL, the one with that home first.
    pub(super) fn of(&self, at: &Url, config: &Config) -> Vec<String> {
        let of_host = at.host_str().and_then(|host| self.by_host.get(bare(host)));
        let of_domain = domain_of(at).and_then(|domain| self.by_domain.get(domain));
        let mut found: Vec<u32> = of_host.into_iter().chain(of_domain).flatten().copied().collect();
        found.sort_unstable();
        found.dedup();
        let names = found.into_iter().filter_map(|number| self.names.get(number as usize));
        let sites = names.filter_map(|name| config.sites.get(name));
        let mut sites: Vec<&Site> =
            sites.map(Arc::as_ref).filter(|site| has_host(site, at)).collect();
        sites.sort_by_key(|site| site.url.host() != at.host());
        sites.into_iter().map(|site| site.name.clone()).collect()
    }
}

impl Poller {
    /// Names of the sites that have the host of a URL, the one with that home first.
    pub(super) async fn sites_with(&self, at: &Url) -> Result<Vec<String>, StoreError> {
        let config = Arc::clone(&self.config.borrow());
        let owners = {
            // Whoever comes meanwhile waits, and need not make another one.
            let mut known = self.owners.lock().await;
            let made = known.as_ref().filter(|owners| owners.is_of(&config)).cloned();
            if let Some(owners) = made {
                owners
            } else {
                let of = Arc::clone(&config);
                let making = tokio::task::spawn_blocking(move || Owners::new(&of)).await;
                let made = making.map_err(|error| StoreError::Engine(error.to_string()))?;
                Arc::clone(known.insert(Arc::new(made)))
            }
        };
        Ok(owners.of(at, &config))
    }
}

fn enter(table: &mut HashMap<String, Vec<u32>>, key: &str, number: u32) {
    match table.get_mut(key) {
        Some(sites) if sites.last() == Some(&number) => {}
        Some(sites) => sites.push(number),
        None => {
            table.insert(key.to_owned(), vec![number]);
        }
    }
}

fn bare(host: &str) -> &str {
    host.strip_prefix("www.").unwrap_or(host)
}

/// A host as it is listed, which may name a port.
fn without_port(host: &str) -> &str {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match host.rsplit_once(':') {
        // Not a part of an address of IPv6, which stands in brackets.
        Some((name, port)) if is_port(port) && (!name.contains('[') || name.ends_with(']')) => name,
        _ => host,
    }
}

fn domain_of(url: &Url) -> Option<&str> {
    url.domain().and_then(psl::domain_str)
}

/// Is it a host of the site? A scope of "any" makes no host the site's own.
fn has_host(site: &Site, at: &Url) -> bool {
    (site.url.host() == at.host() && site.url.port() == at.port())
        || are_twins(at, &site.url)
        || is_listed_host(&site.hosts, at)
        || site.scope == Scope::Domain
            && domain_of(at).is_some_and(|own| domain_of(&site.url) == Some(own))
}

/// Does the config name the port of a URL for this site, or is it that of its scheme?
pub(super) fn names_port(site: &Site, at: &Url) -> bool {
    let Some(port) = at.port() else { return true };
    let end = format!(":{port}");
    site.url.port() == Some(port)
        || site.hosts.iter().any(|host| host.ends_with(&end) && without_port(host) != host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Arc<Config> {
        Arc::new(Config::from_toml_str(text).expect("a config"))
    }

    #[test]
    fn strangers_have_a_request_sent_to_ports_of_schemes_and_of_the_config_only() {
        let text = "[[site]]\nname = \"a\"\nurl = \"https://a.example:8443/\"\nscope = \"domain\"\n\
                    hosts = [\"b.example:8080\", \"c.example\", \"[::1]\"]\n";
        let config = config(text);
        let site = config.sites.values().next().expect("a site");
        for (at, expected) in [
            ("https://c.example/k", true),
            ("http://c.example/k", true),
            ("https://a.example:8443/k", true),
            ("http://b.example:8080/k", true),
            ("http://c.example:6379/k", false),
            ("http://x.a.example:81/k", false),
            ("http://[::1]:1/k", false),
        ] {
            let at = Url::parse(at).expect("a URL");
            assert_eq!(names_port(site, &at), expected, "{at}");
        }
    }

    #[test]
    fn a_host_is_that_of_a_site_by_the_port_of_its_scheme_too() {
        let text = "[[site]]\nname = \"a\"\nurl = \"https://a.example/\"\n\
                    hosts = [\"shop.example.org:443\", \"b.example:8080\", \"C.example\", \"www.e.example\"]\n";
        let config = config(text);
        let owners = Owners::new(&config);
        for (at, expected) in [
            ("https://a.example/k", true),
            ("http://www.a.example/k", true),
            ("https://a.example:8443/k", false),
            ("https://shop.example.org/k", true),
            ("http://shop.example.org/k", false),
            ("http://b.example:8080/k", true),
            ("http://b.example/k", false),
            ("http://c.example:99/k", true),
            ("https://d.example/k", false),
            ("https://www.e.example/k", true),
            ("https://e.example/k", false),
        ] {
            let at = Url::parse(at).expect("a URL");
            assert_eq!(!owners.of(&at, &config).is_empty(), expected, "{at}");
        }
    }

    #[test]
    fn the_table_names_the_sites_that_a_look_at_each_would_find_in_the_same_order() {
        let mut text = String::new();
        for (name, url, more) in [
            ("b", "https://www.a.example/", ""),
            ("a", "https://a.example/", "scope = \"domain\""),
            ("c", "http://shop.a.example/", "hosts = [\"a.example\", \"[2001:db8::1]:8080\"]"),
            ("d", "http://192.0.2.1:8080/", "hosts = [\"192.0.2.1\"]"),
            ("e", "https://other.co.uk/", "scope = \"domain\"\nhosts = [\"x.a.example:443\"]"),
            ("f", "https://f.example/", "scope = \"any\""),
        ] {
            let site = format!("[[site]]\nname = \"{name}\"\nurl = \"{url}\"\n{more}\n");
            text += &site;
        }
        let config = config(&text);
        let owners = Owners::new(&config);
        let mut found = 0;
        for at in [
            "https://a.example/k",
            "http://www.a.example/k",
            "https://shop.a.example/k",
            "https://x.a.example/k",
            "http://x.a.example:81/k",
            "http://[2001:db8::1]:8080/k",
            "http://[2001:db8::1]/k",
            "http://192.0.2.1:8080/k",
            "http://192.0.2.1/k",
            "https://deep.other.co.uk/k",
            "https://co.uk/k",
            "https://g.example/k",
        ] {
            let at = Url::parse(at).expect("a URL");
            let mut sites: Vec<_> =
                config.sites.values().filter(|site| has_host(site, &at)).collect();
            sites.sort_by_key(|site| site.url.host() != at.host());
            let names: Vec<_> = sites.iter().map(|site| site.name.clone()).collect();
            found += names.len();
            assert_eq!(owners.of(&at, &config), names, "{at}");
        }
        assert!(found > 10, "{found}");
        assert!(owners.is_of(&config) && !owners.is_of(&Arc::new(Config::clone(&config))));
    }
}
