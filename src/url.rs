//! Which listed URLs are a site's, and what their identity is.
//!
//! A URL is parsed the WHATWG way, normalised by documented steps and judged
//! by the site's rules. Identity is the exact normalised text: two spellings
//! that RFC 3986 section 6.2.2 calls equivalent are one page, anything else is
//! two. Pure; the outcome for one raw spelling depends on [`SiteRules`] alone,
//! so [`SiteRules::epoch`] tells when old outcomes no longer hold.
//!
//! Steps, in order, each with its switch in [`Steps`]: userinfo is refused;
//! the fragment goes; the host loses a trailing dot; escapes of unreserved
//! characters are decoded and the others written in upper case; an empty query
//! goes; tracking parameters (`strip_params`) go; twins are folded into the
//! form that the site itself redirects to.

mod plain;

use std::sync::Arc;

pub use plain::Judge;
use url::{Host, Url};
use xxhash_rust::xxh3::xxh3_64;

use crate::config::glob::{ParamSet, UrlFilter};
use crate::config::{Scope, Site, Steps, Twins};
pub use crate::diff::snapshot::Rejection;

/// Grows whenever a parser or a rule of this file reads the same bytes
/// differently, so that every source is read anew and in full.
pub const READER_VERSION: u32 = 14;

/// Longest name of a host: 253 characters (RFC 1035, 2.3.4, as text), and a dot.
const MAX_HOST: usize = 254;

/// What one site's sources may list, compiled.
#[derive(Debug, Clone)]
pub struct SiteRules {
    origin: Url,
    /// Does the config name the site by https?
    is_secure: bool,
    twins: Twins,
    hosts: Vec<String>,
    scope: Scope,
    domain: Option<String>,
    filter: UrlFilter,
    strip: Arc<ParamSet>,
    steps: Steps,
    max_url_chars: usize,
    /// By whose folder a document on a foreign host is judged.
    led_from: Option<Url>,
    /// Stands for all of them, whatever reads by them.
    digest: i64,
}

/// A URL that belongs to the site, as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Admitted {
    /// `scheme://host[:port]`, the default port left out.
    pub authority: Arc<str>,
    /// From the first slash on, query included.
    pub path: String,
    /// Does the identity differ from the spelling that was listed?
    pub respelled: bool,
}

impl SiteRules {
    /// Compiles the rules of a site; `origin` is the form its home page
    /// redirects to, once that is known.
    pub fn new(site: &Site, origin: Option<&Url>) -> Self {
        let learned = origin.filter(|_| site.twins == Twins::Merge);
        let origin = learned.unwrap_or(&site.url).clone();
        let domain = origin.domain().and_then(psl::domain_str).map(str::to_owned);
        let mut rules = Self {
            is_secure: site.url.scheme() == "https",
            twins: site.twins,
            hosts: site.hosts.iter().map(|h| h.to_ascii_lowercase()).collect(),
            scope: site.scope,
            domain,
            filter: UrlFilter::new(&site.include, &site.exclude),
            strip: Arc::clone(&site.strip_params),
            steps: site.normalise,
            max_url_chars: site.limits.max_url_chars,
            led_from: None,
            origin,
            digest: 0,
        };
        rules.digest = rules.digest_of(site);
        rules
    }

    /// The same for a document on a foreign host that only another one of the site has
    /// led to: it may list no more than that one may, which lies at `place`.
    #[must_use]
    pub fn led_from(mut self, place: Url) -> Self {
        let text = format!("led from {place}");
        self.digest ^= i64::from_le_bytes(xxh3_64(text.as_bytes()).to_le_bytes());
        self.led_from = Some(place);
        self
    }

    /// Stands for the reader and these rules: when it differs from the epoch a
    /// source was read with, the next read must be unconditional and full.
    pub fn epoch(&self) -> i64 {
        self.epoch_of(READER_VERSION)
    }

    /// Was a source with this epoch read by these rules, by whichever reader?
    pub fn were_those_of(&self, epoch: i64) -> bool {
        (1..=READER_VERSION).any(|version| self.epoch_of(version) == epoch)
    }

    fn epoch_of(&self, version: u32) -> i64 {
        self.digest ^ i64::from(version)
    }

    /// The form that the site's twins are folded into.
    pub fn origin(&self) -> &Url {
        &self.origin
    }

    /// Judges one listed URL; `source` is where the document came from.
    pub fn admit(&self, raw: &str, source: &Url) -> Result<Admitted, Rejection> {
        // Characters, not bytes: the limit of the protocol is on text.
        if raw.len() > self.max_url_chars && raw.chars().count() > self.max_url_chars {
            return Err(Rejection::TooLong);
        }
        let mut url = Url::parse(raw).map_err(|_| Rejection::Invalid)?;
        normalise(&mut url, self.steps, &self.strip)?;
        self.fold_twin(&mut url);
        if !self.in_scope(&url, source) {
            return Err(Rejection::OutOfScope);
        }
        let text = url.as_str();
        if !self.filter.admits(text) {
            return Err(Rejection::Excluded);
        }
        let authority = authority(&url).into();
        let path = url[url::Position::BeforePath..].to_owned();
        let respelled = text != raw;
        Ok(Admitted { authority, path, respelled })
    }

    /// Is a document the site's by its host and the scope? What else the rules
    /// ask is asked of what is listed.
    pub fn claims(&self, document: &Url) -> bool {
        let mut url = document.clone();
        if normalise(&mut url, self.steps, &self.strip).is_err() {
            return false;
        }
        self.fold_twin(&mut url);
        self.in_scope(&url, &url)
    }

    /// http and https, www and bare are one page where twins are merged.
    fn fold_twin(&self, url: &mut Url) {
        if self.twins == Twins::Separate || !are_twins(url, &self.origin) {
            return;
        }
        // Both are special schemes with a host, for which neither setter fails.
        let _ = url.set_scheme(self.origin.scheme());
        let _ = url.set_host(self.origin.host_str());
    }

    fn in_scope(&self, url: &Url, source: &Url) -> bool {
        match self.scope {
            Scope::Any => true,
            Scope::Host => self.is_own_host(url),
            Scope::Directory => self.is_own_host(url) && self.may_list(url, source),
            Scope::Domain => {
                self.is_own_host(url)
                    || self.domain.is_some()
                        && url.domain().and_then(psl::domain_str) == self.domain.as_deref()
            }
        }
    }

    /// By the directory of the document; one on a host that is not the site's
    /// has none there. It was granted the site's hosts by who named it, the
    /// site's robots.txt above all (Sitemaps protocol, "Sitemaps & Cross Submits"),
    /// or else has the directory of who led to it.
    fn may_list(&self, url: &Url, source: &Url) -> bool {
        let place = if self.is_foreign(source) { self.led_from.as_ref() } else { Some(source) };
        place.is_none_or(|place| is_below(url, place, self.steps))
    }

    /// Does this document lie on a host that is none of the site's?
    pub fn is_foreign(&self, source: &Url) -> bool {
        !self.is_own_host(source) && !are_twins(source, &self.origin)
    }

    /// May what is meant for the site be told there: on a host of its own, and not
    /// without https where the site has it? That the home page redirects to http takes
    /// nothing from what the config says.
    pub fn is_confidant(&self, url: &Url) -> bool {
        let has_https = self.is_secure || self.origin.scheme() == "https";
        let is_open = url.scheme() != "https" && has_https;
        !self.is_foreign(url) && !is_open
    }

    fn is_own_host(&self, url: &Url) -> bool {
        url.origin() == self.origin.origin() || is_listed_host(&self.hosts, url)
    }

    fn digest_of(&self, site: &Site) -> i64 {
        // Debug text of plain data: stable for one build of the program, and a
        // new build that prints it differently only costs one full read.
        let facts = format!(
            "{}|{:?}|{:?}|{:?}|{:?}|{:?}|{:?}|{:?}|{}|{}|{}|{:?}",
            self.origin,
            self.twins,
            self.hosts,
            self.scope,
            site.include,
            site.exclude,
            site.strip_params.listed(),
            self.steps,
            self.max_url_chars,
            site.max_urls,
            site.max_sources,
            site.follow,
        );
        i64::from_le_bytes(xxh3_64(facts.as_bytes()).to_le_bytes())
    }
}

/// Where a document is fetched: the same, whatever part of it is named (RFC 3986
/// section 3.5).
pub fn without_fragment(mut url: Url) -> Url {
    url.set_fragment(None);
    url
}

/// `scheme://host[:port]` with the default port left out: the key of
/// politeness, robots.txt and turns.
pub fn authority(url: &Url) -> String {
    url[..url::Position::BeforePath].to_owned()
}

/// Is its host one of these, which may name a port? That of a scheme is named
/// by the scheme, too.
pub fn is_listed_host(hosts: &[String], url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let with_port = url.port_or_known_default().map(|port| format!("{host}:{port}"));
    hosts.iter().any(|own| {
        let is = |text: &str| own.eq_ignore_ascii_case(text);
        is(host) || with_port.as_deref().is_some_and(is)
    })
}

/// Is it the same page under http/https or www/bare? Both on the default port
/// of their schemes, or, with one scheme, on one port.
pub fn are_twins(url: &Url, origin: &Url) -> bool {
    let one_port = url.port() == origin.port();
    if !one_port || url.port().is_some() && url.scheme() != origin.scheme() {
        return false;
    }
    let (Some(Host::Domain(a)), Some(Host::Domain(b))) = (url.host(), origin.host()) else {
        return false;
    };
    let bare = |host: &str| host.strip_prefix("www.").unwrap_or(host).to_owned();
    matches!(url.scheme(), "http" | "https") && bare(a) == bare(b)
}

/// Applies the documented steps; [`Rejection::Invalid`] for what is no page of
/// the web at all.
pub fn normalise(url: &mut Url, steps: Steps, strip: &ParamSet) -> Result<(), Rejection> {
    let is_host = |host: &str| !host.is_empty() && host.len() <= MAX_HOST;
    if !matches!(url.scheme(), "http" | "https") || !url.host_str().is_some_and(is_host) {
        return Err(Rejection::Invalid);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Rejection::Invalid);
    }
    if steps.fragment {
        url.set_fragment(None);
    }
    if steps.trailing_dot {
        drop_trailing_dot(url);
    }
    if steps.escapes {
        let path = respell_escapes(url.path());
        if path != url.path() {
            url.set_path(&path);
        }
        if let Some(query) = url.query() {
            let respelled = respell_escapes(query);
            if respelled != query {
                url.set_query(Some(&respelled));
            }
        }
    }
    if let Some(query) = url.query() {
        let kept = strip_params(query, strip);
        if kept != query {
            url.set_query((!kept.is_empty()).then_some(kept.as_str()));
        }
    }
    if steps.empty_query && url.query() == Some("") {
        url.set_query(None);
    }
    Ok(())
}

/// The query without the parameters that do not change the page.
fn strip_params(query: &str, strip: &ParamSet) -> String {
    let name = |part: &&str| part.split('=').next().is_some_and(|name| !strip.contains(name));
    query.split('&').filter(name).collect::<Vec<_>>().join("&")
}

/// What a URL that someone wrote by hand may be known as: as it stands, for
/// sites that leave steps out, and then with every step taken. In this order,
/// as a site may list both: what is said of one page may not hit another.
pub fn identities(url: &Url) -> Vec<Url> {
    let mut found = Vec::with_capacity(2);
    for steps in [Steps::NONE, Steps::default()] {
        let mut identity = url.clone();
        if normalise(&mut identity, steps, &ParamSet::default()).is_ok()
            && !found.contains(&identity)
        {
            found.push(identity);
        }
    }
    found
}

/// The same, and then without the parameters that only say where a visitor came
/// from: so most sites' pages are known, whoever names one as it was listed.
pub fn likely_identities(url: &Url) -> Vec<Url> {
    let mut found = identities(url);
    let mut stripped = url.clone();
    if normalise(&mut stripped, Steps::default(), ParamSet::of_tracking()).is_ok()
        && !found.contains(&stripped)
    {
        found.push(stripped);
    }
    found
}

/// `example.org.` names the same host as `example.org`.
fn drop_trailing_dot(url: &mut Url) {
    let Some(bare) = url.domain().and_then(|d| d.strip_suffix('.')).map(str::to_owned) else {
        return;
    };
    // Two dots are an empty label, and no other spelling of any host.
    if !bare.is_empty() && !bare.ends_with('.') {
        // A domain without its last dot stays a domain; were it refused, the
        // URL would merely keep its dot.
        let _ = url.set_host(Some(&bare));
    }
}

/// Decodes escapes of unreserved characters and writes the others in upper
/// case (RFC 3986 sections 6.2.2.1 and 6.2.2.2). `%2E` stays: decoding it
/// would make dot segments that the parser has already resolved.
fn respell_escapes(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut rest = 0;
    for (at, _) in text.match_indices('%') {
        let Some(value) = bytes.get(at + 1..at + 3).and_then(hex_pair) else { continue };
        if at < rest {
            continue;
        }
        out.push_str(&text[rest..at]);
        let unreserved =
            matches!(value, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~');
        if unreserved && !would_complete_escape(&out, value) {
            out.push(char::from(value));
        } else {
            out.push_str(&text[at..at + 3].to_ascii_uppercase());
        }
        rest = at + 3;
    }
    out.push_str(&text[rest..]);
    out
}

/// Would the digit make an escape of a stray `%` before it? `%%34A` is not `%4A`.
fn would_complete_escape(before: &str, value: u8) -> bool {
    let ends = match before.as_bytes() {
        // A whole escape ends in two digits, so here the `%` is a stray one.
        [.., b'%'] => true,
        [.., b'%', digit] => digit.is_ascii_hexdigit(),
        _ => false,
    };
    ends && value.is_ascii_hexdigit()
}

fn hex_pair(pair: &[u8]) -> Option<u8> {
    let [high, low] = pair else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

/// Is the URL in the folder of the document, or deeper (Sitemaps protocol,
/// "Sitemap file location")? The query of the document does not count. The URL
/// was normalised, so its folder must be spelled by the same steps.
fn is_below(url: &Url, source: &Url, steps: Steps) -> bool {
    let path = source.path();
    let folder = path.rfind('/').map_or("/", |slash| &path[..=slash]);
    if steps.escapes && folder.contains('%') {
        return url.path().starts_with(&respell_escapes(folder));
    }
    url.path().starts_with(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use proptest::prelude::*;

    fn site(extra: &str) -> Site {
        let text = format!("[[site]]\nname = \"s\"\nurl = \"https://www.example.org/\"\n{extra}");
        let config = Config::from_toml_str(&text).expect("a config");
        (*config.sites["s"]).clone()
    }

    fn admit(extra: &str, raw: &str) -> Result<String, Rejection> {
        let source = Url::parse("https://www.example.org/maps/sitemap.xml?p=2").expect("a URL");
        SiteRules::new(&site(extra), None)
            .admit(raw, &source)
            .map(|a| format!("{}{}", a.authority, a.path))
    }

    #[test]
    fn what_is_meant_for_a_site_with_https_is_told_nowhere_without() {
        let url = |text: &str| Url::parse(text).expect("a URL");
        let open = url("http://www.example.org/");
        for origin in [None, Some(&open)] {
            let rules = SiteRules::new(&site(""), origin);
            for (at, expected) in [
                ("https://www.example.org/s.xml", true),
                ("https://example.org/s.xml", true),
                ("http://www.example.org/s.xml", false),
                ("https://other.example/s.xml", false),
            ] {
                assert_eq!(rules.is_confidant(&url(at)), expected, "{origin:?}: {at}");
            }
        }
    }

    #[test]
    fn spellings_of_one_page_get_one_identity() {
        let one = Ok("https://www.example.org/a~b/%E6%97%A5".to_owned());
        for raw in [
            "https://www.example.org/a~b/%e6%97%a5",
            "HTTPS://WWW.EXAMPLE.ORG:443/a%7Eb/%E6%97%A5#top",
            "http://example.org/a%7eb/日",
            "https://www.example.org./a~b/%E6%97%A5?",
            "https://www.example.org/x/../a~b/%E6%97%A5?utm_source=feed&utm_medium=rss",
        ] {
            assert_eq!(admit("", raw), one, "{raw}");
        }
    }

    #[test]
    fn what_could_be_two_pages_stays_two() {
        for (a, b) in [
            ("https://www.example.org/a", "https://www.example.org/a/"),
            ("https://www.example.org/a", "https://www.example.org/A"),
            ("https://www.example.org/a", "https://www.example.org../a"),
            ("https://www.example.org/?a=1&b=2", "https://www.example.org/?b=2&a=1"),
            ("https://www.example.org/a%2Fb", "https://www.example.org/a/b"),
            ("https://www.example.org/%%34A", "https://www.example.org/J"),
            ("https://www.example.org/%%34A", "https://www.example.org/%4A"),
            ("https://www.example.org/%4%31", "https://www.example.org/A"),
        ] {
            assert_ne!(admit("", a), admit("", b), "{a} {b}");
        }
    }

    #[test]
    fn a_step_that_is_left_out_keeps_its_spellings_apart() {
        let steps = ["fragment", "trailing-dot", "escapes", "empty-query"];
        let pairs = [
            ("https://www.example.org/a#x", "https://www.example.org/a"),
            ("https://www.example.org./a", "https://www.example.org/a"),
            ("https://www.example.org/%7Ea", "https://www.example.org/~a"),
            ("https://www.example.org/a?", "https://www.example.org/a"),
        ];
        for (left_out, (one, other)) in steps.into_iter().zip(pairs) {
            let kept: Vec<_> = steps.into_iter().filter(|step| *step != left_out).collect();
            let apart = format!("hosts = [\"www.example.org.\"]\nnormalise = {kept:?}");
            assert_ne!(admit(&apart, one), admit(&apart, other), "{left_out}");
            assert_eq!(admit("", one), admit("", other), "{left_out}");
        }
        // What the parser settles is no step.
        let none = "normalise = []";
        assert_eq!(
            admit(none, "HTTPS://WWW.Example.ORG:443/x/../a b"),
            admit(none, "https://www.example.org/a%20b")
        );
    }

    #[test]
    fn separate_twins_are_other_hosts() {
        let extra = "twins = \"separate\"";
        assert_eq!(admit(extra, "http://www.example.org/"), Err(Rejection::OutOfScope));
        assert_eq!(admit(extra, "https://example.org/"), Err(Rejection::OutOfScope));
        assert!(admit(extra, "https://www.example.org/").is_ok());
    }

    #[test]
    fn separate_twins_do_not_follow_where_the_home_page_went() {
        let site = site("twins = \"separate\"");
        let learned = Url::parse("https://example.org/").expect("a URL");
        let rules = SiteRules::new(&site, Some(&learned));
        let own = "https://www.example.org/p";
        assert!(rules.admit(own, &learned).is_ok());
        assert_eq!(rules.admit("https://example.org/p", &learned), Err(Rejection::OutOfScope));
    }

    #[test]
    fn twins_have_one_port() {
        let url = |text: &str| Url::parse(text).expect("a URL");
        let cases = [
            ("http://example.org/", "https://www.example.org/", true),
            ("http://example.org:8080/", "http://www.example.org:8080/", true),
            ("http://example.org:8080/", "http://www.example.org:8081/", false),
            ("http://example.org:8080/", "http://www.example.org/", false),
            // Two schemes cannot both be spoken on one port.
            ("http://example.org:8080/", "https://example.org:8080/", false),
            ("https://example.org/", "https://example.com/", false),
            ("http://127.0.0.1/", "http://127.0.0.1/", false),
        ];
        for (a, b, twins) in cases {
            assert_eq!(are_twins(&url(a), &url(b)), twins, "{a} {b}");
            assert_eq!(are_twins(&url(b), &url(a)), twins, "{b} {a}");
        }
    }

    #[test]
    fn scope_decides_what_a_source_may_list() {
        let cases = [
            ("", "https://www.example.org/p", true),
            ("", "https://blog.example.org/p", false),
            ("", "https://www.example.org:8443/p", false),
            ("hosts = [\"blog.example.org\"]", "https://blog.example.org/p", true),
            ("hosts = [\"www.example.org:8443\"]", "https://www.example.org:8443/p", true),
            ("hosts = [\"b.example.org:443\"]", "https://b.example.org/p", true),
            ("hosts = [\"b.example.org:443\"]", "http://b.example.org/p", false),
            ("hosts = [\"b.example.org:80\"]", "http://b.example.org/p", true),
            ("hosts = [\"b.example.org:80\"]", "https://b.example.org/p", false),
            ("scope = \"domain\"", "https://blog.example.org/p", true),
            ("scope = \"domain\"", "https://example.com/p", false),
            ("scope = \"directory\"", "https://www.example.org/maps/p", true),
            ("scope = \"directory\"", "https://www.example.org/p", false),
            ("scope = \"any\"", "https://example.com/p", true),
            ("exclude = [\"*/private/*\"]", "https://www.example.org/private/p", false),
            ("include = [\"*/news/*\"]", "https://www.example.org/news/p", true),
            ("include = [\"*/news/*\"]", "https://www.example.org/p", false),
        ];
        for (extra, raw, allowed) in cases {
            assert_eq!(admit(extra, raw).is_ok(), allowed, "{extra} {raw}");
        }
    }

    #[test]
    fn a_folder_is_one_in_all_its_spellings() {
        let below = |extra: &str, source: &str, page: &str| {
            let rules = SiteRules::new(&site(&format!("scope = \"directory\"\n{extra}")), None);
            let url = |path: &str| Url::parse(&format!("https://www.example.org{path}"));
            let source = url(source).expect("a URL");
            let page = url(page).expect("a URL");
            let plain = rules.admit(page.as_str(), &source).is_ok();
            assert_eq!(Judge::new(&rules, &source).admit(page.as_str()).is_ok(), plain);
            plain
        };
        let cafes = ["/caf%c3%a9/", "/caf%C3%A9/", "/café/"];
        let users = ["/%7Euser/", "/%7euser/", "/~user/"];
        for spellings in [cafes, users] {
            for folder in spellings {
                for page in spellings {
                    let (source, page) = (format!("{folder}s.xml"), format!("{page}p"));
                    assert!(below("", &source, &page), "{source} {page}");
                    assert!(!below("", &source, "/other/p"), "{source}");
                }
            }
            let [one, other, _] = spellings.map(|folder| format!("{folder}p"));
            assert!(below("normalise = []", &one, &one), "{one}");
            assert!(!below("normalise = []", &one, &other), "{one} {other}");
        }
    }

    #[test]
    fn a_document_on_a_foreign_host_has_no_directory_here() {
        let rules = SiteRules::new(&site("scope = \"directory\""), None);
        let url = |text: &str| Url::parse(text).expect("a URL");
        let page = "https://www.example.org/p";
        for (source, foreign, allowed) in [
            ("https://www.example.org/maps/s.xml", false, false),
            ("http://example.org/maps/s.xml", false, false),
            ("https://www.example.org/s.xml", false, true),
            ("https://cdn.example.net/maps/s.xml", true, true),
            ("https://www.example.org:8443/maps/s.xml", true, true),
        ] {
            assert_eq!(rules.is_foreign(&url(source)), foreign, "{source}");
            assert_eq!(rules.admit(page, &url(source)).is_ok(), allowed, "{source}");
            // Its own host it may not list.
            let own = format!("{source}/page");
            assert_eq!(rules.admit(&own, &url(source)).is_ok(), !foreign, "{source}");
        }
    }

    #[test]
    fn what_is_no_page_of_the_web_is_invalid() {
        let longest = "label.".repeat(41) + "longest";
        for host in [format!("{longest}."), longest.clone()] {
            assert!(admit("scope = \"any\"", &format!("https://{host}/")).is_ok(), "{host}");
        }
        for raw in [
            &format!("https://{longest}er/"),
            // As it is sent it is longer than it looks.
            &format!("https://{}.org/", "é".repeat(250)),
            "ftp://www.example.org/",
            "https://user:secret@www.example.org/",
            "https://",
            "/relative",
            "https://exa mple.org/",
        ] {
            assert_eq!(admit("", raw), Err(Rejection::Invalid), "{raw}");
        }
    }

    #[test]
    fn a_changed_rule_is_another_epoch() {
        let rules = SiteRules::new(&site(""), None);
        let plain = rules.epoch();
        assert_eq!(plain, SiteRules::new(&site(""), None).epoch());
        // Another reader reads it all again, by the same rules.
        let of_before = rules.epoch_of(1);
        assert!(of_before != plain && rules.were_those_of(of_before));
        for extra in [
            "scope = \"any\"",
            "exclude = [\"*x\"]",
            "twins = \"separate\"",
            "max_urls = 5",
            "max_sources = 5",
        ] {
            assert_ne!(plain, SiteRules::new(&site(extra), None).epoch(), "{extra}");
        }
        let moved = Url::parse("https://example.org/").expect("a URL");
        assert_ne!(plain, SiteRules::new(&site(""), Some(&moved)).epoch());
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(tail in "[a-zA-Z0-9%~./?&=#_é-]{0,40}") {
            let raw = format!("https://www.example.org/{tail}");
            if let Ok(once) = admit("", &raw) {
                prop_assert_eq!(admit("", &once), Ok(once));
            }
        }
    }
}
