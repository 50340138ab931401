//! Whose URLs a document may list: the rules of the site that it belongs to.
//!
//! That is the site of the configuration that names the document, or whose own
//! its host is, or whose scope takes it in; or else a site with the defaults at
//! the document's origin, as a new one would be.

use url::Url;

use crate::config::{Config, Site, SourceList};
use crate::url::SiteRules;

/// The site that a document belongs to.
pub(super) fn site_at<'a>(document: &Url, config: &'a Config) -> Option<&'a Site> {
    let sites = config.sites.values().map(|site| (&**site, SiteRules::new(site, None)));
    sites
        .filter(|(site, rules)| names(site, document) || rules.claims(document))
        // Who names it, then whose home page is there, then whose host it is.
        .min_by_key(|(site, rules)| {
            let is_home = site.url.origin() == document.origin();
            (!names(site, document), !is_home, rules.is_foreign(document))
        })
        .map(|(site, _)| site)
}

/// Does the configuration name the document as a source of the site?
fn names(site: &Site, document: &Url) -> bool {
    [&site.sitemaps, &site.feeds].into_iter().any(|list| match list {
        SourceList::Listed(urls) => urls.contains(document),
        SourceList::Auto => false,
    })
}

/// The headers that a poll would send with a request for this document: to what
/// the site names, and to places that may hear what is meant for it.
pub(super) fn headers_for(site: &Site, document: &Url) -> Vec<(String, String)> {
    let is_own = SiteRules::new(site, None).is_confidant(document);
    if is_own || names(site, document) { site.headers.clone() } else { Vec::new() }
}

/// The rules for what is listed at `document`, which belongs to `site`.
pub(super) fn rules_at(document: &Url, site: Option<&Site>, config: &Config) -> Option<SiteRules> {
    match site {
        Some(site) => Some(SiteRules::new(site, None)),
        None => default_rules(document, config),
    }
}

/// The rules of a new site at the origin of `home` that says nothing but its URL;
/// `None` for a URL that cannot be a site's.
pub fn default_rules(home: &Url, config: &Config) -> Option<SiteRules> {
    let site = config.new_site(&home.join("/").ok()?)?;
    Some(SiteRules::new(&site, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    fn admits(rules: &SiteRules, text: &str, document: &Url) -> bool {
        rules.admit(text, document).is_ok()
    }

    #[test]
    fn without_a_site_the_host_and_its_twins_are_in_scope() {
        let document = url("https://example.org/sitemap.xml");
        let rules = rules_at(&document, None, &Config::default()).expect("rules");
        assert!(admits(&rules, "http://www.example.org/a", &document));
        assert!(!admits(&rules, "https://shop.example.org/a", &document));
    }

    #[test]
    fn a_site_that_is_not_there_yet_would_be_one_of_this_configuration() {
        let config = Config::from_toml_str("[fetch]\nmax_url_chars = 8000\n").expect("valid");
        let document = url("https://example.org/sitemap.xml");
        let rules = rules_at(&document, None, &config).expect("rules");
        for (chars, admitted) in [(3_000, true), (9_000, false)] {
            let long = format!("https://example.org/{}", "x".repeat(chars));
            assert_eq!(admits(&rules, &long, &document), admitted, "{chars}");
        }
    }

    #[test]
    fn the_rules_of_the_site_that_the_document_belongs_to_hold() {
        let text = "[[site]]\nname = \"a\"\nurl = \"https://example.org/\"\nscope = \"domain\"\n";
        let config = Config::from_toml_str(text).expect("a configuration");
        let document = url("https://example.org/sitemap.xml");
        let rules = rules_at(&document, site_at(&document, &config), &config).expect("rules");
        assert!(admits(&rules, "https://shop.example.org/a", &document));
        let other = url("https://example.com/sitemap.xml");
        let rules = rules_at(&other, site_at(&other, &config), &config).expect("rules");
        assert!(!admits(&rules, "https://shop.example.com/a", &other));
    }

    /// Sites of these names, URLs and further keys.
    fn sites(list: &[(&str, &str, &str)]) -> Config {
        let block = |(name, url, keys): &(&str, &str, &str)| {
            format!("[[site]]\nname = \"{name}\"\nurl = \"{url}\"\n{keys}\n")
        };
        let text: String = list.iter().map(block).collect();
        Config::from_toml_str(&text).expect(&text)
    }

    #[test]
    fn a_document_need_not_be_what_its_site_includes() {
        let config = sites(&[("a", "https://example.org/", "include = [\"*/products/*\"]")]);
        let document = url("https://example.org/sitemap.xml");
        let rules = rules_at(&document, site_at(&document, &config), &config).expect("rules");
        assert!(admits(&rules, "https://example.org/products/1", &document));
        assert!(!admits(&rules, "https://example.org/about", &document));
    }

    #[test]
    fn of_several_sites_the_nearest_has_the_document() {
        let named = "sitemaps = [\"https://cdn.example/b.xml\"]";
        let config = sites(&[
            ("a", "https://any.example/", "scope = \"any\""),
            ("b", "https://www.b.example/", named),
            ("c", "https://b.example/", ""),
        ]);
        let site = |text: &str| site_at(&url(text), &config).map(|site| site.name.as_str());
        assert_eq!(site("https://www.b.example/s.xml"), Some("b"));
        assert_eq!(site("https://b.example/s.xml"), Some("c"));
        assert_eq!(site("https://cdn.example/b.xml"), Some("b"));
        assert_eq!(site("https://cdn.example/c.xml"), Some("a"));
    }

    #[test]
    fn headers_go_to_hosts_of_the_site_only_and_not_in_clear() {
        let keys = "scope = \"any\"\nhosts = [\"cdn.example\"]\nheaders = { A = \"1\" }\n\
                    sitemaps = [\"https://other.example/s.xml\"]";
        let config = sites(&[("a", "https://a.example/", keys)]);
        let table = [
            ("https://a.example/s.xml", true),
            ("https://www.a.example/s.xml", true),
            ("http://a.example/s.xml", false),
            ("https://cdn.example/s.xml", true),
            ("https://other.example/s.xml", true),
            ("https://other.example/t.xml", false),
            ("https://shop.a.example/s.xml", false),
        ];
        for (document, are_sent) in table {
            let document = url(document);
            let site = site_at(&document, &config).expect("any is in scope");
            assert_eq!(!headers_for(site, &document).is_empty(), are_sent, "{document}");
        }
    }
}
