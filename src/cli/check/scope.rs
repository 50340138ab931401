//! Whose URLs a document may list: the rules of the site that it belongs to.
//!
//! That is the site of the configuration whose own URLs its host has, or else
//! a site with the defaults at the document's origin, as a new one would be.

use url::Url;

use crate::config::Config;
use crate::url::SiteRules;

/// The rules for what is listed at `document`.
pub fn rules_at(document: &Url, config: &Config) -> Option<SiteRules> {
    config
        .sites
        .values()
        .map(|site| SiteRules::new(site, None))
        .find(|rules| rules.admit(document.as_str(), document).is_ok())
        .or_else(|| default_rules(document))
}

/// The rules of a site with the defaults at the origin of `home`; `None` for a
/// URL that cannot be a site's.
pub fn default_rules(home: &Url) -> Option<SiteRules> {
    let home = home.join("/").ok()?;
    let url = toml::Value::String(home.into());
    let text = format!("[[site]]\nname = \"site\"\nurl = {url}\n");
    let config = Config::from_toml_str(&text).ok()?;
    config.sites.values().next().map(|site| SiteRules::new(site, None))
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
        let rules = rules_at(&document, &Config::default()).expect("rules");
        assert!(admits(&rules, "http://www.example.org/a", &document));
        assert!(!admits(&rules, "https://shop.example.org/a", &document));
    }

    #[test]
    fn the_rules_of_the_site_that_the_document_belongs_to_hold() {
        let text = "[[site]]\nname = \"a\"\nurl = \"https://example.org/\"\nscope = \"domain\"\n";
        let config = Config::from_toml_str(text).expect("a configuration");
        let document = url("https://example.org/sitemap.xml");
        let rules = rules_at(&document, &config).expect("rules");
        assert!(admits(&rules, "https://shop.example.org/a", &document));
        let other = url("https://example.com/sitemap.xml");
        let rules = rules_at(&other, &config).expect("rules");
        assert!(!admits(&rules, "https://shop.example.com/a", &other));
    }
}
