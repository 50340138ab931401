//! Listed URLs that robots.txt forbids to fetch, counted while a document is read.
//!
//! They are taken in all the same: what holds them back is judged when their turn
//! comes, by the rules of that hour. This only tells the webmaster. It goes by the
//! text of a URL, so that an entry costs no parsing, and by the hosts that nearly all
//! are on: that of the site and that of the document. A document on which too many
//! rules bear is counted in part.

use std::sync::Arc;

use url::{Host, Url};

use super::document::Poll;
use crate::config::Twins;
use crate::parse::robots::Rules;
use crate::store::StoreError;
use crate::url::{are_twins, authority};

/// Octets looked at for one document ([`Rules::work`]): 50,000 URLs of 64 octets by a
/// thousand rules, which takes a second or two.
const WORK: usize = 1 << 32;

/// What URLs begin with, and the rules of their host, where it has any for us.
#[derive(Debug, Clone)]
pub(super) struct Barred {
    hosts: Vec<(String, Arc<Rules>)>,
    /// What is left of [`WORK`].
    work: usize,
}

impl Default for Barred {
    fn default() -> Self {
        Self { hosts: Vec::new(), work: WORK }
    }
}

impl Barred {
    /// Is this URL, as it is listed, one that its host forbids?
    pub(super) fn has(&mut self, loc: &str) -> bool {
        let Self { hosts, work } = self;
        hosts.iter().any(|(host, rules)| {
            let path = loc.strip_prefix(host.as_str());
            let path = path.filter(|path| path.is_empty() || path.starts_with(['/', '?', '#']));
            path.is_some_and(|path| {
                let Some(left) = work.checked_sub(rules.work(path.len())) else { return false };
                *work = left;
                !rules.allows(path)
            })
        })
    }

    fn add(&mut self, host: String, rules: &Arc<Rules>) {
        if !self.hosts.iter().any(|(known, _)| *known == host) {
            self.hosts.push((host, Arc::clone(rules)));
        }
    }
}

impl Poll<'_> {
    /// What robots.txt forbids of what a document may list, as far as it is known.
    pub(super) async fn barred(&self, document: &Url) -> Result<Barred, StoreError> {
        let mut barred = Barred::default();
        if !self.site.obey_robots {
            return Ok(barred);
        }
        let home = self.rules.origin();
        // The home of the site first: its twins are judged by its rules.
        for of in [home, document] {
            if of != home && authority(of) == authority(home) {
                continue;
            }
            let agent = &self.site.robots_agent;
            let Some(rules) = self.poller.rules_for_pages(&authority(of), agent).await? else {
                continue;
            };
            if rules.is_empty() {
                continue;
            }
            barred.add(authority(of), &rules);
            if of == home && self.site.twins == Twins::Merge {
                for host in spellings(home) {
                    barred.add(host, &rules);
                }
            }
        }
        Ok(barred)
    }
}

/// What URLs of a site begin with: http or https, with or without `www.`.
fn spellings(home: &Url) -> Vec<String> {
    let Some(Host::Domain(host)) = home.host() else { return Vec::new() };
    let bare = host.strip_prefix("www.").unwrap_or(host);
    let mut all = Vec::new();
    for scheme in ["https", "http"] {
        for host in [bare.to_owned(), format!("www.{bare}")] {
            let mut twin = home.clone();
            let is_set = twin.set_scheme(scheme).is_ok() && twin.set_host(Some(&host)).is_ok();
            if is_set && are_twins(&twin, home) {
                all.push(authority(&twin));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::robots::Robots;

    #[test]
    fn a_url_is_barred_by_the_rules_of_its_own_host_only() {
        let rules = Robots::parse(b"User-agent: *\nDisallow: /p\nDisallow: /*?q\n");
        let rules = Arc::new(rules.rules_for("bot"));
        let home = Url::parse("https://www.a.example/").expect("a URL");
        let mut barred = Barred::default();
        for host in spellings(&home) {
            barred.add(host, &rules);
        }
        assert_eq!(barred.hosts.len(), 4);
        for (loc, expected) in [
            ("https://www.a.example/p", true),
            ("http://a.example/p/2", true),
            ("https://a.example?q=1", true),
            ("https://a.example", false),
            ("https://a.example/#/p", false),
            ("https://a.example.org/p", false),
            ("https://b.example/p", false),
        ] {
            assert_eq!(barred.has(loc), expected, "{loc}");
        }
        barred.work = rules.work("/p".len());
        assert!(barred.has("http://a.example/p"), "there is time for one");
        assert!(!barred.has("http://a.example/p"), "and for no other");
        let with_port = Url::parse("http://a.example:8080/").expect("a URL");
        assert_eq!(spellings(&with_port), ["http://a.example:8080", "http://www.a.example:8080"]);
    }
}
