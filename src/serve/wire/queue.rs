//! What fetchers send and get: lease, settle, extend, release.
//!
//! Every limit of the API is checked here, before the store is asked, and each
//! refusal names the field and the limit. What the *web* said and a fetcher
//! only passes on (a canonical link, a redirect target, an error text) is never
//! a reason to refuse a batch: it is cut or dropped instead.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use crate::model::extension::Extensions;
use crate::model::{ChangeFreq, Lastmod, Outcome, Priority, Reason, UrlId, UrlKind};
use crate::queue::{
    LeaseBatch, LeaseRequest, Leased, MAX_LEASE, MAX_RESULTS, MAX_TTL, MAX_WAIT, Settlement, Token,
    TokenResult,
};
use crate::serve::LeaseDefaults;
use crate::serve::problem::Problem;
use crate::store::PastFetch;

use super::include::{Include, Lists};
use super::{
    Capped, MAX_NAME_CHARS, MAX_URL_CHARS, Span, Time, clip, crawl, grouped, name, web_url,
    web_url_within,
};

/// URLs leased where `max` is not given.
pub(crate) const DEFAULT_MAX: u32 = 100;
/// Shortest lease: below it a fetcher cannot keep any.
const MIN_TTL: Duration = Duration::from_secs(1);
/// Longest that a released URL waits.
const MAX_AFTER: Duration = Duration::from_secs(30 * 86_400);
/// Longest that a page's `Retry-After` pauses its host; the rest is cut off,
/// because the page decides it and it holds back the whole host.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);
/// Names in the `sites` of one lease.
const MAX_SITES: usize = 100;
/// Characters of a content hash; a SHA-512 in hexadecimal has as many.
const MAX_HASH_CHARS: usize = 128;
/// Characters of a canonical URL that is kept.
const MAX_CANONICAL: usize = 2_048;
/// Characters kept of a fetcher's error text.
const MAX_ERROR_CHARS: usize = 500;

/// Body of `POST /v1/lease`; every field may be left out.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LeaseBody {
    /// Most URLs; 100 where not said.
    #[schemars(range(min = 1, max = MAX_LEASE))]
    max: Option<u64>,
    /// How long the leases last, 1 s to 12 h; `queue.lease` where not said.
    ttl: Option<Span>,
    /// How long to wait for something to be due, up to 60 s.
    wait: Option<Span>,
    /// Most URLs of one host at a turn; `politeness.per_host` where not said. A host
    /// without a delay may have several turns in one lease.
    #[schemars(range(min = 1))]
    per_host: Option<u64>,
    /// Which queue; `default` where not said.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    crawl: Option<String>,
    /// Of these sites only; of all where empty.
    sites: Capped<String, MAX_SITES>,
    /// A name for who asks, to be shown to people.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    worker: Option<String>,
    /// What sources say of the URLs, to be given with them: `images`, `videos`, `news`, `alternates`.
    include: Capped<String, MAX_SITES>,
    /// The same call again, with the same worker, gets the same leases.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    request_id: Option<String>,
}

impl LeaseBody {
    /// The store's request, and how long to wait for it to yield something.
    /// What sources say of the URLs is not the queue's to give: it is read
    /// once they are leased.
    pub(crate) fn check(
        self,
        defaults: LeaseDefaults,
    ) -> Result<(LeaseRequest, Duration, Include), Problem> {
        let include = Include::read(&self.include.take("include")?)?;
        let wait = self.wait.map_or(Duration::ZERO, |span| span.0);
        if wait > MAX_WAIT {
            return Err(Problem::limit(format!(
                "wait is {}; a lease call waits {} at most.",
                Span(wait),
                Span(MAX_WAIT)
            )));
        }
        let sites = self.sites.take("sites")?;
        let request = LeaseRequest {
            max: lease_size(self.max)?,
            ttl: self.ttl.map_or(Ok(defaults.ttl), ttl)?,
            per_host: per_host(self.per_host, defaults.per_host)?,
            crawl: crawl(self.crawl)?,
            sites: sites.into_iter().map(|site| name("sites", site)).collect::<Result<_, _>>()?,
            worker: self.worker.map(|text| name("worker", text)).transpose()?,
            request_id: self.request_id.map(|text| name("request_id", text)).transpose()?,
        };
        Ok((request, wait, include))
    }
}

fn lease_size(max: Option<u64>) -> Result<u32, Problem> {
    let Some(max) = max else { return Ok(DEFAULT_MAX) };
    match u32::try_from(max) {
        Ok(0) => Err(Problem::field("max is 0; ask for at least 1 URL.")),
        Ok(urls) if urls <= MAX_LEASE => Ok(urls),
        _ => Err(Problem::limit(format!(
            "max is {}; at most {} URLs are leased in one call.",
            grouped(max),
            grouped(MAX_LEASE)
        ))),
    }
}

fn per_host(given: Option<u64>, default: u32) -> Result<u32, Problem> {
    match given {
        None => Ok(default),
        Some(0) => Err(Problem::field("per_host is 0; allow at least 1 URL of a host.")),
        // More of one host than of all is no limit, and no mistake either.
        Some(urls) => Ok(u32::try_from(urls).unwrap_or(MAX_LEASE).min(MAX_LEASE)),
    }
}

fn ttl(span: Span) -> Result<Duration, Problem> {
    if span.0 > MAX_TTL {
        return Err(Problem::limit(format!(
            "ttl is {span}; a lease lasts {} at most. Extend it while you work.",
            Span(MAX_TTL)
        )));
    }
    if span.0 < MIN_TTL {
        return Err(Problem::field(format!(
            "ttl is {span}; a lease lasts at least {}.",
            Span(MIN_TTL)
        )));
    }
    Ok(span.0)
}

/// Answer of `POST /v1/lease`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct LeaseAnswer {
    /// In no order over hosts; of one host in the order of `not_before`.
    urls: Vec<LeasedUrl>,
    /// When more may be leased, whatever is given here: now, where it is ready already;
    /// null where nothing waits, or leasing is paused.
    next_due_at: Option<Time>,
}

/// One leased URL.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct LeasedUrl {
    /// Names the lease; whoever has it may settle it.
    token: String,
    /// The row.
    id: UrlId,
    /// What it is; a page, unless the site follows more.
    kind: UrlKind,
    /// To be fetched, normalised.
    url: String,
    /// The site it belongs to; null of one that only a client has pushed.
    site: Option<Arc<str>>,
    /// URL of the source that lists it, of a URL that is removed of the last that did; null
    /// where none ever did, or is there.
    source: Option<Arc<str>>,
    /// Scheme, host and port: the key of politeness.
    host: Arc<str>,
    /// Its crawl.
    crawl: Arc<str>,
    /// Why it is due.
    reason: Reason,
    /// As listed, 0.5 where none is given.
    priority: Priority,
    /// What it was ordered by on its host, 0 to 1.02: it grows with what a fetch is worth.
    value: f64,
    /// As listed; null where none is.
    changefreq: Option<ChangeFreq>,
    /// The best evidence of when it changed; null without any.
    lastmod: Option<Lastmod>,
    /// The lastmod before that; null where it has not moved.
    previous_lastmod: Option<Lastmod>,
    /// As last settled; null where no report had one.
    content_hash: Option<String>,
    /// When it came due; ahead of now where it was worth a fetch before that, and nothing
    /// else was due.
    due_at: Time,
    /// Politeness: not to be fetched before.
    not_before: Time,
    /// 1 for the first delivery.
    attempt: u32,
    /// When the lease ends.
    expires_at: Time,
    /// Seconds until then.
    expires_in: f64,
    /// What the host's robots.txt says beside its rules, verbatim.
    robots: RobotsSays,
    #[serde(flatten)]
    lists: Lists,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
struct RobotsSays {
    /// `Content-Signal`; null where it says none.
    content_signal: Option<Arc<str>>,
    /// `Content-Usage`; null where it says none.
    content_usage: Option<Arc<str>>,
    /// `License`; null where it says none.
    license: Option<Arc<str>>,
}

impl LeaseAnswer {
    /// What was leased, with times as they are told.
    pub(crate) fn of(batch: LeaseBatch, shown: impl Fn(Timestamp) -> Timestamp) -> Self {
        let urls = batch.urls.into_iter().map(|leased| LeasedUrl::from(leased.shown(&shown)));
        Self { urls: urls.collect(), next_due_at: batch.next_due_at.map(&shown).map(Time) }
    }

    /// Adds what was asked for of each URL, in their order.
    pub(crate) fn include(&mut self, include: Include, said: Vec<Option<Extensions>>) {
        for (url, said) in self.urls.iter_mut().zip(said) {
            url.lists = Lists::asked(include, said);
        }
    }
}

impl From<Leased> for LeasedUrl {
    fn from(leased: Leased) -> Self {
        Self {
            token: leased.token.to_string(),
            id: leased.id,
            kind: leased.kind,
            url: leased.url,
            site: leased.site,
            source: leased.source,
            host: leased.host,
            crawl: leased.crawl,
            reason: leased.reason,
            priority: leased.priority,
            value: leased.value,
            changefreq: leased.changefreq,
            lastmod: leased.lastmod,
            previous_lastmod: leased.previous_lastmod,
            content_hash: leased.content_hash,
            due_at: Time(leased.due_at),
            not_before: Time(leased.not_before),
            attempt: leased.attempt,
            expires_at: Time(leased.expires_at),
            expires_in: leased.expires_in.as_secs_f64(),
            robots: RobotsSays {
                content_signal: leased.content_signal,
                content_usage: leased.content_usage,
                license: leased.license,
            },
            lists: Lists::default(),
        }
    }
}

/// Body of `POST /v1/settle`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleBody {
    /// What was seen, of each lease; at most 10,000, and 16 MiB of JSON.
    results: Capped<SettleItem, MAX_RESULTS>,
}

/// What was seen of one leased URL.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleItem {
    /// Of the lease.
    token: String,
    /// What was seen; may be left out where `content_hash` tells.
    outcome: Option<Outcome>,
    /// HTTP status of the page.
    #[schemars(range(min = 100, max = 999))]
    status: Option<u16>,
    /// Hash of the content in whatever form; an equal one is unchanged, another is changed.
    #[schemars(length(min = 1, max = MAX_HASH_CHARS))]
    content_hash: Option<String>,
    /// What the hash is over; another kind begins a new baseline.
    #[schemars(length(min = 1, max = MAX_HASH_CHARS))]
    hash_kind: Option<String>,
    /// How much of the page changed, 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    significance: Option<f64>,
    /// Where redirects ended.
    final_url: Option<String>,
    /// The canonical link of the page.
    canonical: Option<String>,
    /// Does the page ask not to be indexed?
    #[serde(default)]
    noindex: bool,
    /// The page's `Retry-After`: its host rests so long, for polls too.
    #[serde(default, deserialize_with = "said_wait")]
    retry_after: Option<Span>,
    /// Not to be fetched again before.
    not_before: Option<Time>,
    /// When it was fetched; now where not said.
    fetched_at: Option<Time>,
    /// What went wrong, for people; cut at 500 characters.
    error: Option<String>,
}

/// A page's `Retry-After`, which refuses nothing however long it is.
fn said_wait<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Span>, D::Error> {
    #[derive(Deserialize)]
    struct Said(#[serde(deserialize_with = "cut")] Span);
    fn cut<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        Span::at_most(deserializer, MAX_RETRY_AFTER)
    }
    Ok(Option::<Said>::deserialize(deserializer)?.map(|said| said.0))
}

impl SettleBody {
    /// The tokens as given, and what is to be settled.
    pub(crate) fn check(self) -> Result<(Tokens, Vec<Settlement>), Problem> {
        let items = self.results.take("results")?;
        let mut tokens = Tokens::with_capacity(items.len());
        let mut settlements = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            settlements.extend(item.settlement(index, &mut tokens)?);
        }
        Ok((tokens, settlements))
    }
}

impl SettleItem {
    /// What is to be settled, if the token is one, which is noted.
    pub(crate) fn settlement(
        mut self,
        index: usize,
        tokens: &mut Tokens,
    ) -> Result<Option<Settlement>, Problem> {
        let token = std::mem::take(&mut self.token);
        let settlement = self.check(index, token.parse().ok())?;
        tokens.push(token);
        Ok(settlement)
    }

    /// What is to be settled, if the token is one; the other fields are
    /// checked in any case, so that a client's mistake shows at once.
    fn check(self, index: usize, token: Option<Token>) -> Result<Option<Settlement>, Problem> {
        let field = |name: &str| format!("results[{index}].{name}");
        if self.outcome.is_none() && self.content_hash.is_none() {
            return Err(Problem::field(format!(
                "{} is missing; it may be left out only where content_hash is given.",
                field("outcome")
            )));
        }
        // Some servers answer 999; any three digits are a status (RFC 9112, 4).
        if self.status.is_some_and(|status| !(100..=999).contains(&status)) {
            return Err(Problem::field(format!(
                "{} is no HTTP status; it must be 100 to 999.",
                field("status")
            )));
        }
        if self.significance.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Err(Problem::field(format!("{} must be 0.0 to 1.0.", field("significance"))));
        }
        for (key, hash) in [("content_hash", &self.content_hash), ("hash_kind", &self.hash_kind)] {
            check_hash(&field(key), hash.as_deref())?;
        }
        let Some(token) = token else { return Ok(None) };
        Ok(Some(Settlement {
            token,
            outcome: self.outcome,
            status: self.status,
            content_hash: self.content_hash,
            hash_kind: self.hash_kind,
            significance: self.significance,
            final_url: self
                .final_url
                .as_deref()
                .and_then(|text| said_by_the_web(MAX_URL_CHARS, text)),
            // Only kept to be shown.
            canonical: self
                .canonical
                .as_deref()
                .and_then(|text| said_by_the_web(MAX_CANONICAL, text)),
            noindex: self.noindex,
            retry_after: self.retry_after.map(|span| span.0),
            not_before: self.not_before.map(|time| time.0),
            fetched_at: self.fetched_at.map(|time| time.0),
            error: self.error.map(|text| clip(text, MAX_ERROR_CHARS)),
        }))
    }
}

/// One fetch of the past.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PastFetchItem {
    /// Of the page.
    url: String,
    /// When it was fetched.
    time: Time,
    /// Was it another than at the fetch before?
    changed: Option<bool>,
    /// Hash of its content, in place of `changed`.
    #[schemars(length(min = 1, max = MAX_HASH_CHARS))]
    hash: Option<String>,
    /// What the hash is over.
    #[schemars(length(min = 1, max = MAX_HASH_CHARS))]
    hash_kind: Option<String>,
}

impl PastFetchItem {
    pub(crate) fn check(self, index: usize) -> Result<PastFetch, Problem> {
        let field = |name: &str| format!("fetches[{index}].{name}");
        let url = web_url(&field("url"), &self.url)?;
        for (key, hash) in [("hash", &self.hash), ("hash_kind", &self.hash_kind)] {
            check_hash(&field(key), hash.as_deref())?;
        }
        Ok(PastFetch {
            url,
            at: self.time.0,
            changed: self.changed,
            content_hash: self.hash,
            hash_kind: self.hash_kind,
        })
    }
}

/// Refuses a hash, or the name of one, that is empty or too long.
pub(crate) fn check_hash(field: &str, hash: Option<&str>) -> Result<(), Problem> {
    let Some(text) = hash else { return Ok(()) };
    if text.is_empty() {
        return Err(Problem::field(format!("{field} is empty; leave it out.")));
    }
    if text.chars().count() > MAX_HASH_CHARS {
        return Err(Problem::limit(format!("{field} is longer than {MAX_HASH_CHARS} characters.")));
    }
    Ok(())
}

/// A URL that a page or its server named; dropped where it is none of ours to
/// follow, or longer than that.
fn said_by_the_web(max: usize, text: &str) -> Option<String> {
    web_url_within(max, "url", text).ok().map(String::from)
}

/// Body of `POST /v1/extend`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtendBody {
    /// Of leases.
    tokens: Capped<String, MAX_RESULTS>,
    /// How long they last from now on.
    ttl: Option<Span>,
}

impl ExtendBody {
    /// The tokens as given, those that are tokens, and the new time to live.
    pub(crate) fn check(
        self,
        defaults: LeaseDefaults,
    ) -> Result<(Tokens, Vec<Token>, Duration), Problem> {
        let ttl = self.ttl.map_or(Ok(defaults.ttl), ttl)?;
        let (tokens, known) = read_tokens(self.tokens.take("tokens")?);
        Ok((tokens, known, ttl))
    }
}

/// Body of `POST /v1/release`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseBody {
    /// Of leases.
    tokens: Capped<String, MAX_RESULTS>,
    /// Due again after this, up to 30 days; at once where not said.
    after: Option<Span>,
}

impl ReleaseBody {
    /// The tokens as given, those that are tokens, and the delay (none where not given).
    pub(crate) fn check(self) -> Result<(Tokens, Vec<Token>, Duration), Problem> {
        let after = self.after.map_or(Duration::ZERO, |span| span.0);
        if after > MAX_AFTER {
            return Err(Problem::limit(format!(
                "after is {}; a released URL waits {} at most.",
                Span(after),
                Span(MAX_AFTER)
            )));
        }
        let (tokens, known) = read_tokens(self.tokens.take("tokens")?);
        Ok((tokens, known, after))
    }
}

fn read_tokens(texts: Vec<String>) -> (Tokens, Vec<Token>) {
    let mut tokens = Tokens::with_capacity(texts.len());
    let known = texts.into_iter().filter_map(|text| tokens.push(text)).collect();
    (tokens, known)
}

/// Tokens as a client wrote them, so that each gets an answer in its place.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Vec<(String, bool)>);

/// Answer of settle, extend and release.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct TokensAnswer {
    /// One for each token, in the order they were sent.
    results: Vec<TokenAnswer>,
}

/// What became of one token.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct TokenAnswer {
    /// As it was sent.
    token: String,
    /// What became of it.
    result: TokenResult,
}

impl Tokens {
    fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// Notes a text; gives the token if it is one.
    fn push(&mut self, text: String) -> Option<Token> {
        let token = text.parse().ok();
        self.0.push((text, token.is_some()));
        token
    }

    /// One result per text, in order: the store's for those that are tokens,
    /// `unknown` for all others.
    pub(crate) fn answer(self, results: Vec<TokenResult>) -> TokensAnswer {
        let mut results = results.into_iter();
        let answers = self.0.into_iter().map(|(token, is_token)| {
            let result = if is_token { results.next() } else { None };
            TokenAnswer { token, result: result.unwrap_or(TokenResult::Unknown) }
        });
        TokensAnswer { results: answers.collect() }
    }
}

impl TokensAnswer {
    /// What became of each token.
    pub(crate) fn results(&self) -> impl Iterator<Item = TokenResult> + '_ {
        self.results.iter().map(|answer| answer.result)
    }
}

#[cfg(test)]
mod tests;
