//! One `[[site]]`: what was typed, on top of the daemon-wide values.

use std::sync::Arc;
use std::time::Duration;

use toml::{Spanned, Value};
use url::Url;

use super::env::Env;
use super::glob::{Glob, ParamSet};
use super::raw::{Leaf, RawLimits, RawSite};
use super::read::{
    BARE, Reader, duration, flag, list, masked, number, one_of, size, string, strings, timezone,
    web_url, whole,
};
use super::resolve::{DELAYS, DOCUMENT_BYTES, ENTRIES, INTERVALS, URL_CHARS};
use super::units::parse_duration;
use super::{Config, FetchLimits, PollRule, Scope, Site, SourceList, Steps, Twins};
use crate::model::{Follow, product_token};
use crate::schedule::cron::CronSpec;

/// Longest name of a site or crawl, in characters.
const MAX_NAME: usize = 100;

/// Headers that are ours to set, or that would change what an answer means.
const RESERVED_HEADERS: [&str; 14] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "from",
    "host",
    "if-modified-since",
    "if-none-match",
    "keep-alive",
    "range",
    "te",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// The site that `raw` describes; `None` where it has no usable name or URL,
/// which is then noted.
pub(super) fn site(
    raw: &Spanned<RawSite>,
    config: &Config,
    env: &Env,
    reader: &mut Reader<'_>,
) -> Option<Site> {
    let at = raw.span();
    let raw = raw.get_ref();
    for (leaf, key) in [(&raw.name, "name"), (&raw.url, "url")] {
        if leaf.is_none() {
            reader.fault(&at, format!("a [[site]] needs {key}"));
        }
    }
    let name = reader.read(&raw.name, |v| identifier(string(v)?));
    let url = reader.read(&raw.url, |v| page_url(string(v)?));
    // A site without a usable name or URL is read all the same, for the rest
    // of its faults.
    let stand_in = Url::parse("http://site.invalid/").ok()?;
    let usable = name.is_some() && url.is_some();
    let mut site = with_defaults(name.unwrap_or_default(), url.unwrap_or(stand_in), config);
    identity(&mut site, raw, reader);
    sources(&mut site, raw, reader);
    selection(&mut site, raw, reader);
    limits(&mut site.limits, &raw.limits, reader);
    reader.set(&mut site.max_urls, &raw.max_urls, whole(1..=10_000_000_000));
    reader.set(&mut site.max_sources, &raw.max_sources, whole(1..=10_000_000));
    reader.set(&mut site.host_delay, &raw.host_delay, duration(DELAYS));
    let recrawl = &raw.recrawl;
    reader.set(&mut site.recrawl_min, &recrawl.min, duration(INTERVALS));
    reader.set(&mut site.recrawl_max, &recrawl.max, duration(INTERVALS));
    let (min, max) = ((&recrawl.min, site.recrawl_min), (&recrawl.max, site.recrawl_max));
    if recrawl.min.is_some() || recrawl.max.is_some() {
        reader.ordered(min, max, "recrawl");
    }
    site.headers = headers(&raw.headers, env, reader);
    usable.then_some(site)
}

impl Config {
    /// The site that a block with no more than this home page would be; `None` for a
    /// URL that no site can have.
    pub fn new_site(&self, home: &Url) -> Option<Site> {
        let url = web_url(home.as_str()).ok()?;
        Some(with_defaults("site".to_owned(), url, self))
    }
}

/// A site that says no more than its name and URL.
pub(super) fn with_defaults(name: String, url: Url, config: &Config) -> Site {
    Site {
        name,
        url,
        crawl: "default".to_owned(),
        hosts: Vec::new(),
        twins: Twins::Merge,
        sitemaps: SourceList::Auto,
        feeds: SourceList::Auto,
        poll: PollRule::Adaptive,
        timezone: config.daemon.timezone.clone(),
        weight: 1.0,
        scope: Scope::Host,
        include: Vec::new(),
        exclude: Vec::new(),
        normalise: Steps::default(),
        strip_params: Arc::clone(ParamSet::of_tracking()),
        follow: Follow::default(),
        max_urls: 1_000_000,
        max_sources: 10_000,
        obey_robots: true,
        websub: true,
        robots_agent: product_token(&config.daemon.user_agent).to_owned(),
        headers: Vec::new(),
        limits: config.fetch.limits,
        host_delay: config.politeness.host_delay,
        recrawl_min: config.recrawl.min,
        recrawl_max: config.recrawl.max,
    }
}

fn identity(site: &mut Site, raw: &RawSite, reader: &mut Reader<'_>) {
    let twins = one_of(&[("merge", Twins::Merge), ("separate", Twins::Separate)]);
    reader.set(&mut site.crawl, &raw.crawl, |v| identifier(string(v)?));
    reader.set(&mut site.hosts, &raw.hosts, list(host));
    reader.set(&mut site.twins, &raw.twins, twins);
    reader.set(&mut site.timezone, &raw.timezone, timezone);
    reader.set(&mut site.weight, &raw.weight, number(0.001..=1_000.0));
    reader.set(&mut site.obey_robots, &raw.obey_robots, flag);
    reader.set(&mut site.websub, &raw.websub, flag);
    reader.set(&mut site.robots_agent, &raw.robots_agent, |v| robots_agent(string(v)?));
}

fn sources(site: &mut Site, raw: &RawSite, reader: &mut Reader<'_>) {
    let base = site.url.clone();
    reader.set(&mut site.sitemaps, &raw.sitemaps, |v| source_list(v, &base));
    reader.set(&mut site.feeds, &raw.feeds, |v| source_list(v, &base));
    reader.set(&mut site.poll, &raw.poll, |v| poll_rule(string(v)?));
}

fn selection(site: &mut Site, raw: &RawSite, reader: &mut Reader<'_>) {
    let scope = one_of(&[
        ("host", Scope::Host),
        ("directory", Scope::Directory),
        ("domain", Scope::Domain),
        ("any", Scope::Any),
    ]);
    reader.set(&mut site.scope, &raw.scope, scope);
    reader.set(&mut site.include, &raw.include, list(url_glob));
    reader.set(&mut site.exclude, &raw.exclude, list(url_glob));
    reader.set(&mut site.normalise, &raw.normalise, steps);
    reader.set(&mut site.strip_params, &raw.strip_params, |v| {
        Ok(Arc::new(ParamSet::new(list(parameter)(v)?)))
    });
    reader.set(&mut site.follow, &raw.follow, follow);
}

/// `follow`: what is followed, of what there is.
fn follow(value: &Value) -> Result<Follow, String> {
    let words = list(|item: &str| Ok(item.to_owned()))(value)?;
    let mut follow = Follow::default();
    for word in words {
        match word.as_str() {
            "image" => follow.image = true,
            "video" => follow.video = true,
            "alternate" => follow.alternate = true,
            _ => return Err("allowed are \"image\", \"video\", \"alternate\"".to_owned()),
        }
    }
    Ok(follow)
}

/// `normalise`: the steps that are taken, of those there are.
fn steps(value: &Value) -> Result<Steps, String> {
    let words = list(|item: &str| Ok(item.to_owned()))(value)?;
    let mut steps =
        Steps { fragment: false, trailing_dot: false, escapes: false, empty_query: false };
    for word in words {
        match word.as_str() {
            "fragment" => steps.fragment = true,
            "trailing-dot" => steps.trailing_dot = true,
            "escapes" => steps.escapes = true,
            "empty-query" => steps.empty_query = true,
            _ => {
                return Err(
                    "allowed are \"fragment\", \"trailing-dot\", \"escapes\", \"empty-query\""
                        .to_owned(),
                );
            }
        }
    }
    Ok(steps)
}

fn limits(limits: &mut FetchLimits, raw: &RawLimits, reader: &mut Reader<'_>) {
    reader.set(&mut limits.max_wire_bytes, &raw.max_wire_bytes, size(DOCUMENT_BYTES));
    reader.set(&mut limits.max_body_bytes, &raw.max_body_bytes, size(DOCUMENT_BYTES));
    reader.set(&mut limits.max_urls, &raw.max_urls, whole(ENTRIES));
    reader.set(&mut limits.max_sitemaps, &raw.max_sitemaps, whole(ENTRIES));
    reader.set(&mut limits.max_url_chars, &raw.max_url_chars, whole(URL_CHARS));
}

/// The name of a site or a crawl.
fn identifier(text: &str) -> Result<String, String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    // In a path these two mean a folder.
    let is_folder = matches!(text, "." | "..");
    if text.is_empty() || text.len() > MAX_NAME || !text.bytes().all(plain) || is_folder {
        return Err(format!(
            "allowed are 1 to {MAX_NAME} of the characters A-Z a-z 0-9 . _ -, but not \".\" or \"..\""
        ));
    }
    Ok(text.to_owned())
}

/// A glob that some URL can match.
fn url_glob(text: &str) -> Result<String, String> {
    let glob = Glob::new(text)?;
    if !text.is_ascii() {
        return Err("allowed is a glob of ASCII characters; others are in URLs as their UTF-8 \
                    escaped: \"*/caf%C3%A9/*\""
            .to_owned());
    }
    if !glob.may_begin_with(&["http://", "https://"]) {
        let meant = match text.split_once("://") {
            Some((scheme, rest))
                if ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) =>
            {
                format!("{}://{rest}", scheme.to_ascii_lowercase())
            }
            Some((scheme, rest)) if !scheme.contains(['/', '*', '?']) => format!("*://{rest}"),
            _ => format!("*/{}", text.trim_start_matches('/')),
        };
        return Err(format!(
            "no URL begins so, and the whole of one is compared; allowed is a glob that begins \
             with *, ? or a scheme: {meant:?}"
        ));
    }
    Ok(text.to_owned())
}

/// `host` or `host:port`, in the form that URLs have it in.
fn host(text: &str) -> Result<String, String> {
    if text.contains(['*', '?']) {
        return Err(
            "allowed is a host without wildcards; scope = \"domain\" takes in all hosts of \
                    the site's domain"
                .to_owned(),
        );
    }
    let allowed = "allowed is a host with or without a port: \"blog.example.org\"";
    let url = Url::parse(&format!("http://{text}/")).map_err(|_| allowed)?;
    let bare = url.username().is_empty()
        && url.password().is_none()
        && url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none();
    let Some(host) = url.host_str().filter(|_| bare) else { return Err(allowed.to_owned()) };
    // The URL parser drops port 80, which says something beside https.
    let port = text.rsplit_once(':').map(|(_, port)| port).filter(|p| p.parse::<u16>().is_ok());
    match port {
        Some(port) if !text.ends_with(']') => Ok(format!("{host}:{port}")),
        _ => Ok(host.to_owned()),
    }
}

/// A URL that is asked with the headers of the site.
fn page_url(text: &str) -> Result<Url, String> {
    web_url(text)
        .map_err(|why| if why == BARE { format!("{why}; send them in site.headers") } else { why })
}

/// `"auto"`, or a list of URLs, which may be relative to the site's.
fn source_list(value: &Value, base: &Url) -> Result<SourceList, String> {
    let allowed = "allowed is \"auto\" or a list of http or https URLs";
    if value.as_str() == Some("auto") {
        return Ok(SourceList::Auto);
    }
    let mut urls = Vec::new();
    for text in strings(value).map_err(|_| allowed)? {
        let shown = masked(text);
        if text.trim().is_empty() {
            return Err(format!("{allowed}, of which none is empty"));
        }
        let joined = base.join(text).map_err(|e| format!("{allowed}; {shown}: {e}"))?;
        let mut url = page_url(joined.as_str()).map_err(|e| format!("of which {shown}: {e}"))?;
        // The whole document, whatever part of it is named.
        url.set_fragment(None);
        urls.push(url);
    }
    Ok(SourceList::Listed(urls))
}

/// `"15m"`, `"cron: */10 * * * *"`, or `"auto"`, which is the default.
fn poll_rule(text: &str) -> Result<PollRule, String> {
    if text == "auto" {
        return Ok(PollRule::Adaptive);
    }
    if let Some(line) = text.strip_prefix("cron:") {
        return CronSpec::parse(line).map(PollRule::Cron);
    }
    let allowed = "allowed is \"auto\", a duration from 1s such as \"15m\", \
                   or a line such as \"cron: */10 * * * *\"";
    let every = parse_duration(text).map_err(|e| format!("{allowed}: {e}"))?;
    let range = Duration::from_secs(1)..=*INTERVALS.end();
    if range.contains(&every) { Ok(PollRule::Every(every)) } else { Err(allowed.to_owned()) }
}

/// A query parameter; a `*` at the end stands for the rest of the name.
fn parameter(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('*').unwrap_or(text);
    let plain = !name.contains(['*', '&', '=', '#', '?', ' ']) && !name.contains(char::is_control);
    if name.is_empty() || name.len() > MAX_NAME || !plain {
        return Err("allowed is the name of a query parameter, or its start and a *".to_owned());
    }
    Ok(text.to_owned())
}

/// A product token of robots.txt.
fn robots_agent(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > MAX_NAME || product_token(text) != text {
        return Err("allowed are letters, digits, _ and -, as robots.txt names an agent".to_owned());
    }
    Ok(text.to_owned())
}

/// The headers with `${NAME}` filled in. Their values are never shown.
fn headers(leaf: &Leaf, env: &Env, reader: &mut Reader<'_>) -> Vec<(String, String)> {
    let Some(leaf) = leaf else { return Vec::new() };
    let Some(table) = leaf.get_ref().as_table() else {
        let example = "allowed is a table: { Authorization = \"Bearer ${TOKEN}\" }";
        reader.fault(&leaf.span(), example.to_owned());
        return Vec::new();
    };
    let mut headers = Vec::new();
    for (name, value) in table {
        match header(name, value, env) {
            Ok(value) => headers.extend(value.map(|value| (name.clone(), value))),
            Err(message) => reader.fault(&leaf.span(), format!("header {name:?}: {message}")),
        }
    }
    headers
}

/// The value of a header; `None` where a variable that is not set is no matter.
fn header(name: &str, value: &Value, env: &Env) -> Result<Option<String>, String> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return Err("allowed is the name of an HTTP header".to_owned());
    }
    let lower = name.to_ascii_lowercase();
    if RESERVED_HEADERS.contains(&lower.as_str()) {
        return Err("this header is set by sitemapd itself; allowed is any other".to_owned());
    }
    let text = value.as_str().ok_or("allowed is a string")?;
    let filled = match fill_in(text, env)? {
        Ok(filled) => filled,
        Err(_) if env.sends_nothing() => return Ok(None),
        Err(name) => return Err(format!("the environment variable {name} is not set")),
    };
    let visible = filled.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b));
    if visible { Ok(Some(filled)) } else { Err("allowed are visible ASCII characters".to_owned()) }
}

/// Replaces each `${NAME}` by the value of that variable; within, the name of the
/// first that is not set.
fn fill_in<'a>(text: &'a str, env: &Env) -> Result<Result<String, &'a str>, String> {
    let mut filled = String::new();
    let mut unset = None;
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or("a ${ has no }")?;
        filled.push_str(before);
        match env.get(name) {
            Some(value) => filled.push_str(value),
            None => unset = unset.or(Some(name)),
        }
        rest = after;
    }
    filled.push_str(rest);
    Ok(unset.map_or(Ok(filled), Err))
}
