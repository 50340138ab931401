//! Reads about URLs: what is known of one, and why it stands where it stands.

use std::collections::HashMap;
use std::sync::Arc;

use super::sql::{self, Connection, OptionalExtension, Row, params};
use jiff::Timestamp;
use url::{Position, Url};

use super::abbreviations::PathText;
use super::explain::Around;
use super::hindrance::Hindrances;
use super::hosts::{page_text, partition};
use super::known::find_on_disk;
use super::packed::{Listing, SAID, place};
use super::policy::Policy;
use super::record::{Fetched, Record};
use super::rows::{at_precision, held, read_page, reason, url_key};
use super::views::{UrlState, UrlView};
use super::why::{Past, why};
use super::{StoreError, engine, explain, extensions, poll_reads, timestamp};
use crate::config::Steps;
use crate::model::extension::Extensions;
use crate::model::{CrawlId, SourceId, UrlId};
use crate::recrawl;
use crate::url::{are_twins, authority, likely_identities};

/// The text of a URL.
pub(super) fn url_text(conn: &Connection, id: UrlId) -> Result<Option<String>, StoreError> {
    conn.prepare_cached(
        "SELECT h.authority, u.path FROM urls u JOIN hosts h ON h.id = u.host_id /*pg: AND h.part = u.part */
         WHERE u.id = ?1 /*pg: AND u.part = (?1 & 255) */",
    )
    .and_then(|mut query| query.query_row([id.0], |row| read_page(row, 0)).optional())
    .map_err(engine)
}

/// The crawls in which a URL is looked for.
fn crawls_of(conn: &Connection, crawl: Option<&str>) -> Result<Vec<(CrawlId, String)>, StoreError> {
    match crawl {
        Some(name) => Ok(vec![(crawl_id(conn, name)?, name.to_owned())]),
        None => all_crawls(conn),
    }
}

/// The row of a URL under any spelling that could be it, and its crawl.
fn row_of(
    conn: &Connection,
    seed: u64,
    crawls: &[(CrawlId, String)],
    spellings: &[Url],
) -> Result<Option<(UrlId, CrawlId)>, StoreError> {
    for spelling in spellings {
        for (crawl, _) in crawls {
            if let Some(id) = find(conn, seed, *crawl, spelling)? {
                return Ok(Some((id, *crawl)));
            }
        }
    }
    Ok(None)
}

/// The same by the name of a crawl, if anything is known of it.
pub(super) fn row_named(
    conn: &Connection,
    seed: u64,
    crawl: Option<&str>,
    url: &Url,
) -> Result<Option<UrlId>, StoreError> {
    let found = row_of(conn, seed, &crawls_of(conn, crawl)?, &spellings(url))?;
    Ok(found.map(|(id, _)| id))
}

/// Everything known of a URL, under any spelling that could be it, with what is
/// remembered around that row.
pub(super) fn url(
    conn: &Connection,
    seed: u64,
    (crawl, url): (Option<&str>, &Url),
    policy: &Policy,
    remembered: Option<(UrlId, Around)>,
    (now, wall): (Timestamp, Timestamp),
) -> Result<UrlView, StoreError> {
    let (crawls, spellings) = (crawls_of(conn, crawl)?, spellings(url));
    if let Some((id, crawl)) = row_of(conn, seed, &crawls, &spellings)? {
        let hindrances = &mut Hindrances::new(conn, policy, (now, wall))?;
        let around = remembered.filter(|(of, _)| *of == id).map(|(_, around)| around);
        let (mut view, _) = view(conn, id, policy, hindrances, (now, around.as_ref()))?;
        for (other, name) in crawls.iter().filter(|(other, _)| *other != crawl) {
            if has_any(conn, seed, *other, &spellings)? {
                view.other_crawls.push(name.clone());
            }
        }
        return Ok(view);
    }
    let asked = crawls.first().filter(|_| crawl.is_some());
    if let Some((asked, name)) = asked {
        for (other, there) in all_crawls(conn)?.into_iter().filter(|(other, _)| other != asked) {
            if has_any(conn, seed, other, &spellings)? {
                let told =
                    format!("{url} is not known in crawl {name:?}; in crawl {there:?} it is");
                return Err(StoreError::NotFound(told));
            }
        }
    }
    Err(StoreError::NotFound(format!("{url} is not known: no source of this store has listed it")))
}

/// Has a crawl the URL under any of these spellings?
fn has_any(
    conn: &Connection,
    seed: u64,
    crawl: CrawlId,
    spellings: &[Url],
) -> Result<bool, StoreError> {
    for spelling in spellings {
        if find(conn, seed, crawl, spelling)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// URLs of a crawl that somebody names.
pub(super) struct Named<'c> {
    pub(super) conn: &'c Connection,
    pub(super) seed: u64,
    pub(super) crawl: CrawlId,
    pub(super) policy: Arc<Policy>,
    /// Authorities, and whether anything is known of them.
    pub(super) hosts: HashMap<String, bool>,
}

impl Named<'_> {
    /// The text that the page is known by, if it is. Of a site whose twins are pages
    /// of their own none stands for another.
    pub(super) fn text_known(&mut self, url: &Url) -> Result<Option<String>, StoreError> {
        let named = authority(url);
        for spelling in spellings(url) {
            let of = authority(&spelling);
            if !self.has_host(&of)? {
                continue;
            }
            let Some(id) = find(self.conn, self.seed, self.crawl, &spelling)? else { continue };
            if of == named || self.merges_twins(id)? {
                return url_text(self.conn, id);
            }
        }
        Ok(None)
    }

    /// The same, for what is to be done with the page from now on: where its site was
    /// found at its twin since and lists it there, what it was known by before is on
    /// its way out.
    pub(super) fn text_in_force(&mut self, url: &Url) -> Result<Option<String>, StoreError> {
        let Some(known) = self.text_known(url)? else { return Ok(None) };
        let Ok(page) = Url::parse(&known) else { return Ok(Some(known)) };
        let Some(id) = find(self.conn, self.seed, self.crawl, &page)? else {
            return Ok(Some(known));
        };
        let Some((site, origin)) = self.site_of(id)? else { return Ok(Some(known)) };
        let is_twin = Url::parse(&origin).is_ok_and(|origin| are_twins(&page, &origin));
        if origin == authority(&page) || !is_twin || !self.policy.named(Some(&site)).merges_twins {
            return Ok(Some(known));
        }
        let moved = origin + &page[Position::BeforePath..];
        let Ok(twin) = Url::parse(&moved) else { return Ok(Some(known)) };
        let heir = find(self.conn, self.seed, self.crawl, &twin)?;
        let has_heir = heir.map_or(Ok(false), |heir| self.is_listed(heir))?;
        Ok(Some(if has_heir { moved } else { known }))
    }

    fn is_listed(&self, url: UrlId) -> Result<bool, StoreError> {
        self.conn
            .prepare_cached(&format!(
                "SELECT {} FROM urls u WHERE u.id = ?1 /*pg: AND u.part = (?1 & 255) */",
                *SAID
            ))
            .and_then(|mut query| query.query_row([url.0], |row| row.get(0)))
            .map(|said| Listing::unpack(said).listed)
            .map_err(engine)
    }

    fn has_host(&mut self, authority: &str) -> Result<bool, StoreError> {
        if let Some(known) = self.hosts.get(authority) {
            return Ok(*known);
        }
        let known = poll_reads::knows_host(self.conn, authority)?;
        self.hosts.insert(authority.to_owned(), known);
        Ok(known)
    }

    /// Does the site of a URL take its twins for one page?
    fn merges_twins(&self, url: UrlId) -> Result<bool, StoreError> {
        let site = self.site_of(url)?;
        Ok(self.policy.named(site.as_ref().map(|(name, _)| name.as_str())).merges_twins)
    }

    /// The site of a URL, and the form that it folds its twins into.
    fn site_of(&self, url: UrlId) -> Result<Option<(String, String)>, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT n.name, n.origin FROM urls u JOIN sites n ON n.id = u.site_id
                 WHERE u.id = ?1 /*pg: AND u.part = (?1 & 255) */",
            )
            .and_then(|mut query| {
                query.query_row([url.0], |row| Ok((row.get(0)?, row.get(1)?))).optional()
            })
            .map_err(engine)
    }
}

/// The form that the sites of a crawl fold their twins into.
pub(super) struct Home {
    origin: String,
    site: String,
}

/// The form of a URL that somebody names, and its twins, with a site that has it; `None`
/// where no one site says.
pub(super) fn home_of(
    conn: &Connection,
    policy: &Policy,
    crawl: CrawlId,
    url: &Url,
) -> Result<Option<Home>, StoreError> {
    let mut query = conn
        .prepare_cached("SELECT name, origin FROM sites WHERE crawl_id = ?1 ORDER BY name")
        .map_err(engine)?;
    let sites: Vec<(String, String)> = query
        .query_map([crawl.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .and_then(Iterator::collect)
        .map_err(engine)?;
    let (named, mut home) = (authority(url), None);
    for (site, origin) in sites {
        let Some(origin) = Url::parse(&origin).ok().filter(|origin| are_twins(url, origin)) else {
            continue;
        };
        let origin = authority(&origin);
        if origin == named {
            return Ok(Some(Home { origin, site }));
        }
        if policy.named(Some(&site)).merges_twins
            && home.get_or_insert_with(|| Home { origin: origin.clone(), site }).origin != origin
        {
            return Ok(None);
        }
    }
    Ok(home)
}

impl Home {
    /// A prefix as the site has it. A single URL loses what the site takes off its query,
    /// too.
    pub(super) fn fold(&self, policy: &Policy, url: &Url, prefix: bool) -> String {
        let mut url = url.clone();
        if !prefix {
            // The steps of its identity are the gate's matter; what is no page stays.
            let strip = &policy.named(Some(&self.site)).strip;
            let _ = crate::url::normalise(&mut url, Steps::NONE, strip);
        }
        self.origin.clone() + &url[Position::BeforePath..]
    }

    /// What is one with a page that is known: as the site has it, and at the host that
    /// it was named by.
    pub(super) fn twins_of(&self, policy: &Policy, known: &str, named: &Url) -> Vec<String> {
        let merges = policy.named(Some(&self.site)).merges_twins;
        let Some(page) = Url::parse(known).ok().filter(|_| merges) else { return Vec::new() };
        let path = &page[Position::BeforePath..];
        let mut all = vec![self.origin.clone() + path, authority(named) + path];
        all.dedup();
        all.retain(|twin| twin != known);
        all
    }

    /// All that is one with a URL for the site.
    pub(super) fn forms(&self, policy: &Policy, url: Url) -> Vec<Url> {
        let merges = policy.named(Some(&self.site)).merges_twins;
        let twins = if merges { twins(&url) } else { Vec::new() };
        let others: Vec<_> = twins.into_iter().filter(|twin| *twin != url).collect();
        [url].into_iter().chain(others).collect()
    }
}

/// The URL as it stands and as it is likely to be kept, then the twins of these: a
/// site keeps one form of them.
fn spellings(url: &Url) -> Vec<Url> {
    let mut all = likely_identities(url);
    for twin in all.clone().iter().flat_map(twins) {
        if !all.contains(&twin) {
            all.push(twin);
        }
    }
    all
}

/// A URL and its twins; none of what has none.
fn twins(url: &Url) -> Vec<Url> {
    let Some(host) = url.domain() else { return Vec::new() };
    let bare = host.strip_prefix("www.").unwrap_or(host).to_owned();
    let mut all = Vec::new();
    for scheme in ["https", "http"] {
        for name in [format!("www.{bare}"), bare.clone()] {
            let mut twin = url.clone();
            if twin.set_scheme(scheme).is_ok()
                && twin.set_host(Some(&name)).is_ok()
                && are_twins(&twin, url)
            {
                all.push(twin);
            }
        }
    }
    all
}

fn find(
    conn: &Connection,
    seed: u64,
    crawl: CrawlId,
    url: &Url,
) -> Result<Option<UrlId>, StoreError> {
    let (authority, path) = (authority(url), &url[Position::BeforePath..]);
    let key = url_key(seed, crawl, &authority, path);
    for id in find_on_disk(conn, partition(&authority), key).map_err(engine)? {
        let found: Option<String> = conn
            .prepare_cached(
                "SELECT u.path FROM urls u JOIN hosts h ON h.id = u.host_id /*pg: AND h.part = u.part */
                 WHERE u.id = ?1 /*pg: AND u.part = (?1 & 255) */ AND u.crawl_id = ?2 AND h.authority = ?3",
            )
            .and_then(|mut query| {
                let text = |row: &Row<'_>| row.get(0).map(|PathText(path)| path);
                query.query_row(params![id.0, crawl.0, authority], text).optional()
            })
            .map_err(engine)?;
        if found.as_deref() == Some(path) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

pub(super) fn crawl_id(conn: &Connection, name: &str) -> Result<CrawlId, StoreError> {
    conn.prepare_cached("SELECT id FROM crawls WHERE name = ?1")
        .and_then(|mut query| query.query_row([name], |row| row.get(0)).optional())
        .map_err(engine)?
        .map(CrawlId)
        .ok_or_else(|| StoreError::NotFound(format!("no crawl is named {name:?}")))
}

/// All crawls and their names, the eldest first.
fn all_crawls(conn: &Connection) -> Result<Vec<(CrawlId, String)>, StoreError> {
    let mut query =
        conn.prepare_cached("SELECT id, name FROM crawls ORDER BY id").map_err(engine)?;
    query
        .query_map((), |row| Ok((CrawlId(row.get(0)?), row.get(1)?)))
        .and_then(Iterator::collect)
        .map_err(engine)
}

/// Everything known of the URL of a row, and how many bytes of it are what sources
/// say of its images, videos, news and alternates.
pub(super) fn view(
    conn: &Connection,
    id: UrlId,
    policy: &Policy,
    hindrances: &mut Hindrances<'_>,
    (now, around): (Timestamp, Option<&Around>),
) -> Result<(UrlView, usize), StoreError> {
    let (mut view, mut past) = conn
        .prepare_cached(&format!(
            "SELECT u.id, h.authority, u.path, u.raw, c.name, n.name, {SAID}, u.lastmod_s,
                 {reason}, {due}, coalesce({attempt}, 0), coalesce({state}, 0),
                 l.expires_at, l.worker, l.url_id IS NOT NULL, l.reason, u.expires_s,
                 u.fresh_s, f.record, p.completed
             FROM urls u JOIN hosts h ON h.id = u.host_id /*pg: AND h.part = u.part */
             JOIN crawls c ON c.id = u.crawl_id LEFT JOIN sites n ON n.id = u.site_id
             LEFT JOIN feedback f ON f.url_id = u.id /*pg: AND f.part = u.part */
             LEFT JOIN leases l ON l.url_id = u.id /*pg: AND l.part = u.part */
             LEFT JOIN frontier_urls p ON p.url_id = u.id /*pg: AND p.part = u.part */
             WHERE u.id = ?1 /*pg: AND u.part = (?1 & 255) */",
            SAID = *SAID,
            reason = place::REASON.of("f"),
            due = place::DUE.of("f"),
            attempt = place::ATTEMPT.of("f"),
            state = place::STATE.of("f"),
        ))
        .and_then(|mut query| query.query_row([id.0], read_view))
        .map_err(engine)?;
    view.sources = sources_of(conn, id)?;
    let (said, bytes) = extensions::of_url(conn, id)?;
    view.extensions = said;
    past.day_end = day_end(&view, policy);
    let why = why(&view, &past, now);
    view.why = why.text;
    explain::explain(conn, policy, &mut view, (why.is_open, around), now)?;
    if let Some(hindrance) = hindrances.of(&view)? {
        view.why = format!("not handed out: {hindrance}; {}", view.why);
    }
    Ok((view, bytes))
}

/// When a look at a URL is owed since its lastmod names the day of the last one.
fn day_end(view: &UrlView, policy: &Policy) -> Option<Timestamp> {
    let (fetched_at, bounds) = (view.fetched_at?, &policy.named(view.site.as_deref()).bounds);
    let end = recrawl::day_end_after(view.lastmod, fetched_at, &bounds.timezone)?;
    Some(end.max(recrawl::later(fetched_at, bounds.min)))
}

fn read_view(row: &Row<'_>) -> sql::Result<(UrlView, Past)> {
    let host: String = row.get(1)?;
    let PathText(path) = row.get(2)?;
    let said = Listing::unpack(row.get(6)?);
    let leased: bool = row.get(14)?;
    let state = match row.get(11)? {
        _ if leased => UrlState::Leased,
        held::PARKED => UrlState::Parked,
        held::DEAD => UrlState::Dead,
        held::BLOCKED => UrlState::Blocked,
        held::FORBIDDEN => UrlState::Forbidden,
        _ => UrlState::Queued,
    };
    let due = row.get::<Option<i64>>(9)?.unwrap_or(said.first_seen_s);
    let kept_for: Option<i64> = row.get(8)?;
    let leased_for: Option<i64> = row.get(15)?;
    let why = leased_for.or(kept_for).map_or(said.reason, reason);
    let second = |column| -> sql::Result<Option<Timestamp>> {
        let second: Option<i64> = row.get(column)?;
        Ok(second.map(|second| timestamp(second.saturating_mul(1000))))
    };
    let record = row.get_ref(18)?.as_blob_or_null()?.map_or_else(Record::default, Record::unpack);
    let (fetched, rare) = (record.fetched.as_ref(), record.rare());
    let view = UrlView {
        id: UrlId(row.get(0)?),
        url: page_text(&host, &path),
        raw: row.get(3)?,
        crawl: row.get(4)?,
        other_crawls: Vec::new(),
        site: row.get(5)?,
        host,
        state,
        listed: said.listed,
        sources: Vec::new(),
        first_seen: timestamp(said.first_seen_s.saturating_mul(1000)),
        lastmod: at_precision(row.get(7)?, said.precision),
        previous_lastmod: record.previous,
        changefreq: said.hints.changefreq,
        priority: said.hints.priority,
        reason: why,
        due_at: (state == UrlState::Queued).then(|| timestamp(due.saturating_mul(1000))),
        attempt: row.get(10)?,
        leased_until: row.get::<Option<i64>>(12)?.map(timestamp),
        worker: row.get(13)?,
        fetched_at: fetched.map(Fetched::time),
        outcome: fetched.map(|fetched| fetched.outcome),
        status: fetched.and_then(|fetched| fetched.status),
        content_hash: record.content_hash().map(str::to_owned),
        hash_kind: record.hash_kind().map(str::to_owned),
        error: rare.and_then(|rare| rare.error.clone()),
        canonical: rare.and_then(|rare| rare.canonical.clone()),
        noindex: fetched.is_some_and(|fetched| fetched.noindex),
        fetches: fetched.map_or(0, |fetched| fetched.fetches),
        changes: fetched.map_or(0, |fetched| fetched.changes),
        kind: said.kind,
        extensions: Extensions::default(),
        expires_at: second(16)?,
        fresh_until: second(17)?,
        why: String::new(),
        learned: None,
    };
    let is_completed = row.get::<Option<bool>>(19)?.unwrap_or(false);
    Ok((view, Past { record, is_completed, day_end: None }))
}

fn sources_of(conn: &Connection, id: UrlId) -> Result<Vec<(SourceId, String)>, StoreError> {
    let mut query = conn
        .prepare_cached(
            "SELECT s.id, s.url FROM sources s WHERE s.id = (SELECT source_id FROM urls
                 WHERE id = ?1 /*pg: AND part = (?1 & 255) */
                     AND /*lite*/ said & 1 /*end*/ /*pg: listed = 1 */)
             UNION ALL
             SELECT s.id, s.url FROM url_sources x JOIN sources s ON s.id = x.source_id
                 /*pg: AND s.part = (x.source_id & 255) */
             WHERE x.url_id = ?1 /*pg: AND x.part = (?1 & 255) */",
        )
        .map_err(engine)?;
    query
        .query_map([id.0], |row| Ok((SourceId(row.get(0)?), row.get(1)?)))
        .and_then(Iterator::collect)
        .map_err(engine)
}
