//! robots.txt: polled for what it names, kept for what it forbids.
//!
//! RFC 9309: 24 hours in the cache, no file means that everything is allowed,
//! a server that does not answer means the last good copy and, without one,
//! that nothing is (429 counts as no answer, as Google has it).

use std::collections::HashMap;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinError;
use url::Url;

use super::document::FULL_READ;
use super::gate::ClockGate;
use super::interval::PollEvent;
use super::issues::{self, Beside};
use super::outcome::{Ended, PutOff, RobotsPoll};
use super::{Poller, STORE_PAUSE};
use crate::bounded::Bounded;
use crate::config::{Site, SourceList};
use crate::fetch::body::{Decoded, End};
use crate::fetch::{Answer, FetchError, Fetched, Refusal, Request, Validators, Wait};
use crate::model::{DocumentKind, Role, SiteId, SourceId, product_token};
use crate::parse::robots::{Robots, Rules, WELL_KNOWN};
use crate::parse::{self, Context, Limits};
use crate::recrawl::later;
use crate::store::{GUESS, KeptRobots, NewSource, PlaceInLine, PollTarget, RobotsRead, StoreError};
use crate::url::{SiteRules, authority, without_fragment};

/// How long a copy holds (RFC 9309 section 2.4).
const FRESH: Duration = Duration::from_secs(24 * 3_600);
/// A copy that could not be refreshed is not asked for again for this long
/// by those who only want to be judged by it.
const RETRY: Duration = Duration::from_secs(300);
/// A poll comes back after this when the robots.txt that it needs could not
/// even be asked for, because the turn of its host is too far off.
const UNKNOWN: Duration = Duration::from_secs(30);
/// Bytes of a robots.txt that are kept (RFC 9309 section 2.5).
const MAX_BODY: usize = 500 * 1024;
/// Redirects followed (RFC 9309 section 2.3.1.2).
const REDIRECTS: u32 = 5;
/// `Sitemap` lines registered of one file.
const MAX_SITEMAPS: usize = 2_000;
/// Files whose rules are compiled and remembered.
const REMEMBERED: usize = 10_000;
/// Memory that these may take: enough for so many ordinary ones, and for several
/// of the largest.
const REMEMBERED_BYTES: usize = 32 << 20;

/// What polls need of a robots.txt that was read, by authority: whoever asks
/// for one that holds asks memory only.
pub(super) struct RobotsCache {
    files: Mutex<Bounded<String, HostRules>>,
    /// Who is being asked just now.
    asked: Mutex<HashMap<SourceId, Weak<Asked>>>,
}

/// One robots.txt: its own turn and a poll that needs it may come at once, and
/// one request is enough for both.
#[derive(Default)]
struct Asked {
    times: AtomicU64,
    /// Holds what the last one had to wait for, if it could not be asked.
    turn: tokio::sync::Mutex<Option<PutOff>>,
}

/// The copy of one host.
#[derive(Clone)]
struct HostRules {
    version: i64,
    /// No answer and no good copy: nothing is allowed.
    unreachable: bool,
    read_at: Timestamp,
    expires_at: Timestamp,
    /// Those that bind us.
    rules: Arc<Rules>,
}

/// What a poll of a robots.txt brought.
struct ReadFile {
    read: RobotsRead,
    /// Did all of it come, and is it one?
    is_whole: bool,
    /// Its defects, as they are kept with its source; `None`: those that are known.
    issues: Option<String>,
}

/// Of a host without a robots.txt.
const NO_ISSUES: &str = "[]";

impl ReadFile {
    /// Nobody can tell what it forbids: it is like no answer.
    fn broken() -> Self {
        Self { read: RobotsRead::Unreachable { status: 0 }, is_whole: false, issues: None }
    }
}

/// Reads a robots.txt for the product token `agent`.
fn read_file(fetched: &Fetched, url: &Url, agent: &str, max_url_chars: usize) -> ReadFile {
    let mut body = Vec::new();
    let coding = &fetched.content_encoding;
    let mut decoded = Decoded::new(fetched.body.clone(), coding, 4 * MAX_BODY as u64);
    // One byte more than is read tells that there is more.
    let _ = decoded.by_ref().take(MAX_BODY as u64 + 1).read_to_end(&mut body);
    let end = decoded.outcome().end;
    let is_broken = matches!(end, End::Truncated | End::Corrupt(_));
    if is_broken && !fetched.cut && body.len() <= MAX_BODY {
        return ReadFile::broken();
    }
    let robots = Robots::parse(&body);
    let is_whole = !fetched.cut && end == End::Whole && robots.is_one();
    let crawl_delay = robots.crawl_delay(agent);
    // Where its sitemaps are looked for, whatever it was redirected to.
    let limits = Limits { max_sitemaps: MAX_SITEMAPS, max_url_chars, ..Limits::default() };
    let content_type = fetched.head.content_type.as_deref();
    let context = Context { base: url, content_type, limits };
    let report = parse::parse(&mut &body[..], &context, &mut |_| ControlFlow::Continue(()));
    let is_one = report.kind == DocumentKind::Robots;
    let issues =
        if is_one { issues::as_json(&report, &Beside::default()) } else { NO_ISSUES.to_owned() };
    let read = RobotsRead::Rules { body, status: fetched.head.status, crawl_delay };
    ReadFile { read, is_whole, issues: Some(issues) }
}

impl HostRules {
    /// Is it to be asked for again only later? One that was read by a clock ahead of
    /// this one would hold for too long.
    fn holds(&self, now: Timestamp) -> bool {
        let is_of_late = self.read_at <= later(now, RETRY);
        is_of_late && (self.expires_at > now || later(self.read_at, RETRY) > now)
    }
}

impl Default for RobotsCache {
    fn default() -> Self {
        let files = Mutex::new(Bounded::new(REMEMBERED, REMEMBERED_BYTES));
        Self { files, asked: Mutex::default() }
    }
}

impl RobotsCache {
    fn get(&self, authority: &str) -> Option<HostRules> {
        self.guard().get(authority).cloned()
    }

    /// Takes over what the store keeps, unless something newer is there.
    fn put(&self, authority: &str, kept: &KeptRobots, agent: &str) -> HostRules {
        let known = self.get(authority);
        if let Some(copy) = known.filter(|copy| copy.version > kept.version) {
            return copy;
        }
        let copy = HostRules {
            version: kept.version,
            unreachable: kept.unreachable,
            read_at: kept.read_at,
            expires_at: kept.expires_at,
            rules: Arc::new(Robots::parse(&kept.body).rules_for(agent)),
        };
        self.guard().insert(authority.to_owned(), copy.clone(), copy.rules.bytes());
        copy
    }

    fn asked(&self, source: SourceId) -> Arc<Asked> {
        let mut all = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asked) = all.get(&source).and_then(Weak::upgrade) {
            return asked;
        }
        // Those whom nobody asks any more.
        all.retain(|_, asked| asked.strong_count() > 0);
        let asked = Arc::<Asked>::default();
        all.insert(source, Arc::downgrade(&asked));
        asked
    }

    /// Nothing that panics is done while this lock is held.
    fn guard(&self) -> MutexGuard<'_, Bounded<String, HostRules>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Poller {
    /// May we fetch this URL, says the robots.txt of its authority? `led_by` names the
    /// site where another place was asked before, and would be again.
    pub(super) async fn judge(
        &self,
        url: &Url,
        authority: &str,
        delay: Duration,
        led_by: Option<&str>,
    ) -> Result<(), Refusal> {
        let not_yet = |pause| {
            let until = later(self.clock.steady(), pause);
            Err(Refusal::Later { until, wait: Wait::Robots })
        };
        let copy = match self.fresh_robots(authority, delay, led_by).await {
            Ok(Ok(copy)) if !copy.unreachable => copy,
            // Put off rather than failed: whatever it says is not known yet.
            Ok(Err(None)) => return not_yet(UNKNOWN),
            Ok(Err(Some(PutOff { until, wait }))) => {
                let soonest = later(self.clock.steady(), UNKNOWN);
                // Who comes back sooner would only be led here again.
                let is_far = led_by.is_some() || wait == Wait::NewHosts;
                let until = if is_far { until.max(soonest) } else { soonest };
                return Err(Refusal::Later { until, wait });
            }
            Err(error) => return not_yet(if error.passes() { STORE_PAUSE } else { UNKNOWN }),
            Ok(Ok(_)) => {
                return Err(Refusal::Unreadable { authority: authority.to_owned() });
            }
        };
        let path = &url[url::Position::BeforePath..];
        if copy.rules.allows(path) {
            Ok(())
        } else {
            Err(Refusal::Robots { authority: authority.to_owned() })
        }
    }

    /// By which rules of a host's robots.txt pages are fetched under that token; `None`
    /// where nothing of it is known.
    pub(super) async fn rules_for_pages(
        &self,
        authority: &str,
        agent: &str,
    ) -> Result<Option<Arc<Rules>>, StoreError> {
        if agent == product_token(&self.own_token())
            && let Some(copy) = self.robots.get(authority)
        {
            return Ok((!copy.unreachable).then_some(copy.rules));
        }
        let kept = self.store.kept_robots(authority.to_owned()).await?;
        let known = kept.filter(|kept| !kept.unreachable);
        Ok(known.map(|kept| Arc::new(Robots::parse(&kept.body).rules_for(agent))))
    }

    /// Our product token, as robots.txt may name it.
    fn own_token(&self) -> String {
        self.config.borrow().daemon.user_agent.clone()
    }

    /// The kept copy, fetched first when there is none or it is old. `Err` in the
    /// result where there is none, with what its poll waits for.
    async fn fresh_robots(
        &self,
        authority: &str,
        delay: Duration,
        led_by: Option<&str>,
    ) -> Result<Result<HostRules, Option<PutOff>>, StoreError> {
        let now = self.clock.now();
        if let Some(copy) = self.robots.get(authority).filter(|copy| copy.holds(now)) {
            return Ok(Ok(copy));
        }
        let (source, kept) = self.store.robots(authority.to_owned(), delay).await?;
        if let Some(copy) = kept.map(|kept| self.robots.put(authority, &kept, &self.own_token()))
            && copy.holds(now)
        {
            return Ok(Ok(copy));
        }
        if !self.store.may_ask_robots(authority.to_owned()).await? {
            // Its owner asks for it; whoever waits for it comes back.
            return Ok(Err(None));
        }
        let asked = self.robots.asked(source);
        let before = asked.times.load(Ordering::Relaxed);
        let mut turn = asked.turn.lock().await;
        if let Some(copy) = self.robots.get(authority).filter(|copy| copy.holds(now)) {
            return Ok(Ok(copy));
        }
        // Whoever was put off has waited for all who stand here.
        if asked.times.load(Ordering::Relaxed) == before || turn.is_none() {
            let target = self.store.poll_target(source).await?;
            *turn = self.ask_robots(&target, led_by).await?;
            asked.times.fetch_add(1, Ordering::Relaxed);
        }
        let put_off = *turn;
        drop(turn);
        let (_, kept) = self.store.robots(authority.to_owned(), delay).await?;
        let kept = kept.map(|kept| self.robots.put(authority, &kept, &self.own_token()));
        Ok(kept.ok_or(put_off))
    }

    /// Polls a robots.txt whose turn has come, unless it is being asked already.
    pub(super) async fn poll_robots(&self, target: &PollTarget) -> Result<(), StoreError> {
        let asked = self.robots.asked(target.id);
        let before = asked.times.load(Ordering::Relaxed);
        let mut turn = asked.turn.lock().await;
        if asked.times.load(Ordering::Relaxed) != before {
            return Ok(());
        }
        *turn = self.ask_robots(target, None).await?;
        asked.times.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Asks for a robots.txt: keeps its rules, registers the sitemaps it names. Says
    /// what it waits for, if it could not be asked. Where it leads to further hosts
    /// counts for its site, else for that by which somebody was led to it.
    async fn ask_robots(
        &self,
        target: &PollTarget,
        led_by: Option<&str>,
    ) -> Result<Option<PutOff>, StoreError> {
        let began = self.clock.now();
        let config = Arc::clone(&self.config.borrow());
        let site = self.site_of(target);
        // Hosts on which the site only has a sitemap have a robots.txt, too.
        let is_confidant = |site: &Arc<Site>| {
            SiteRules::new(site, target.site_origin.as_ref()).is_confidant(&target.url)
        };
        let own_delay = site.as_ref().map(|site| site.host_delay);
        let delay = own_delay.unwrap_or(config.politeness.host_delay);
        let site_name = target.site_name.as_deref().or(led_by);
        let gate = ClockGate::of_source(self, own_delay, &target.url, site_name);
        let gate = if led_by.is_some() { gate.led() } else { gate };
        let validators = validators_for(target, began);
        let is_conditional = validators != Validators::default();
        let request = Request {
            url: target.url.clone(),
            validators,
            headers: site.filter(is_confidant).map_or_else(Vec::new, |site| site.headers.clone()),
            known: None,
            max_wire_bytes: config.fetch.limits.max_wire_bytes.min(2 * MAX_BODY as u64),
            max_redirects: REDIRECTS,
        };
        let answer = self.fetcher.fetch(request, &gate).await;
        drop(gate);
        if let Some(off) = self.put_off(&answer, target.id.0) {
            self.defer(target, off).await?;
            return Ok(Some(off));
        }
        let mut ended = Ended::of(&answer, &target.url);
        let file =
            self.robots_read(target, &answer, is_conditional).await.unwrap_or_else(|error| {
                tracing::error!(source = %target.id, %error, "reading a robots.txt panicked");
                ReadFile::broken()
            });
        let ReadFile { read, is_whole, issues } = file;
        let is_unreachable = matches!(read, RobotsRead::Unreachable { .. });
        if is_unreachable && !ended.failed() {
            let why = "robots.txt: its compressed data is broken".to_owned();
            ended = Ended::bad(PollEvent::Failed, "failed", why);
        }
        // A file that is away for a day takes back no grant, nor does one that broke off,
        // or a page that stands where it should be.
        let is_file = is_whole
            && matches!(read, RobotsRead::Same | RobotsRead::Rules { status: 200..=299, .. });
        let expires_at = later(began, FRESH);
        let saved = self.store.save_robots(target.host, read, expires_at).await?;
        let kept = self.keep_copy(target, delay).await?;
        // A site may have come to the host since its rules were last read.
        let rules = kept.filter(|kept| !is_unreachable && !kept.unreachable);
        // No robots.txt is an answer, and a good one.
        if rules.is_some() {
            ended.event = if saved.changed {
                PollEvent::Changed { new: 0, changed: 1 }
            } else {
                PollEvent::Unchanged
            };
            ended.result = if saved.changed { "changed" } else { "unchanged" };
            ended.status = "success";
            ended.error = None;
        }
        if let Some(kept) = rules {
            self.register_sitemaps(target, &Robots::parse(&kept.body), is_file).await?;
        }
        if !saved.subjects.is_empty() {
            let subjects: Vec<_> = saved.subjects.iter().map(|subject| subject.as_str()).collect();
            let (host, what) = (authority(&target.url), subjects.join(", "));
            tracing::info!(host, what, "robots.txt says something else than before");
        }
        let read = RobotsPoll { ended, answer: &answer, expires_at, is_whole, issues };
        self.finish_robots(target, began, read, saved.version).await?;
        if target.site.is_some() {
            self.store.leave_if_deserted(target.id, target.host).await?;
        }
        Ok(None)
    }

    /// What holds from now on, remembered.
    async fn keep_copy(
        &self,
        target: &PollTarget,
        delay: Duration,
    ) -> Result<Option<KeptRobots>, StoreError> {
        let authority = authority(&target.url);
        let (_, kept) = self.store.robots(authority.clone(), delay).await?;
        if let Some(kept) = &kept {
            self.robots.put(&authority, kept, &self.own_token());
        }
        Ok(kept)
    }

    /// What was read of an answer to a request that was conditional, or not.
    async fn robots_read(
        &self,
        target: &PollTarget,
        answer: &Result<Answer, FetchError>,
        is_conditional: bool,
    ) -> Result<ReadFile, JoinError> {
        let rules = |status| ReadFile {
            read: RobotsRead::Rules { body: Vec::new(), status, crawl_delay: None },
            is_whole: true,
            issues: Some(NO_ISSUES.to_owned()),
        };
        let known = |read| ReadFile { read, is_whole: true, issues: None };
        Ok(match answer {
            Ok(Answer::Same(_) | Answer::NotModified(_)) => known(RobotsRead::Same),
            Ok(Answer::Document(fetched)) => {
                let (fetched, url) = (fetched.clone(), target.url.clone());
                let agent = self.own_token();
                let most = self.config.borrow().fetch.limits.max_url_chars;
                // Ten thousands of lines take milliseconds, which the others do not wait.
                let reading = move || read_file(&fetched, &url, &agent, most);
                self.threads.start(reading).await.await?
            }
            // By our validators, which are left out next time: of the file it says nothing.
            Ok(Answer::Refused(head)) if head.status == 412 && is_conditional => {
                known(RobotsRead::Unreachable { status: head.status })
            }
            Ok(Answer::Refused(head)) if head.status == 429 || head.status >= 500 => {
                known(RobotsRead::Unreachable { status: head.status })
            }
            Ok(Answer::Refused(head)) => rules(head.status),
            // Too many redirects count as no file (RFC 9309 section 2.3.1.2).
            Err(FetchError::Redirects(_)) => rules(302),
            Err(_) => known(RobotsRead::Unreachable { status: 0 }),
        })
    }

    /// Registers what a robots.txt names for the sites it speaks for, or where
    /// to look when it names nothing.
    async fn register_sitemaps(
        &self,
        target: &PollTarget,
        robots: &Robots,
        is_file: bool,
    ) -> Result<(), StoreError> {
        let config = Arc::clone(&self.config.borrow());
        for (id, name) in self.store.sites_at(target.host).await? {
            let Some(site) = config.sites.get(&name) else { continue };
            if site.sitemaps != SourceList::Auto {
                continue;
            }
            let named: Vec<Url> = robots.sitemap_urls(&target.url).collect();
            if is_file && !robots.is_too_large() {
                self.revise_grants(target, id, site, &named).await?;
            }
            if named.is_empty() {
                self.probe_well_known(id, site, None, target).await?;
                continue;
            }
            let sources = named
                .into_iter()
                .take(MAX_SITEMAPS)
                .map(|url| found(url, Role::Sitemap, "robots.txt", target))
                .collect();
            Self::note_refused(&name, self.store.register(id, sources).await?);
        }
        Ok(())
    }

    /// Sitemaps on other hosts have the site's for as long as its robots.txt
    /// names them: that of the origin, since the twin's may be another file.
    async fn revise_grants(
        &self,
        target: &PollTarget,
        id: SiteId,
        site: &Site,
        named: &[Url],
    ) -> Result<(), StoreError> {
        let origin = self.store.origin_of(id).await?;
        let rules = SiteRules::new(site, origin.as_ref());
        if authority(rules.origin()) != authority(&target.url) {
            return Ok(());
        }
        let revoked = self.store.revise_grants(id, rules, named.to_vec()).await?;
        if revoked > 0 {
            tracing::info!(
                site = site.name,
                revoked,
                "robots.txt names sitemaps of other hosts no more"
            );
        }
        Ok(())
    }

    /// Looks at the next well-known place after `missed`, or the first.
    pub(super) async fn probe_well_known(
        &self,
        id: SiteId,
        site: &Site,
        missed: Option<&Url>,
        by: &PollTarget,
    ) -> Result<(), StoreError> {
        let next = match missed {
            None => 0,
            Some(url) => match WELL_KNOWN.iter().position(|path| *path == url.path()) {
                Some(position) => position + 1,
                None => return Ok(()),
            },
        };
        let Some(path) = WELL_KNOWN.get(next) else {
            tracing::info!(
                site = site.name,
                "no sitemap: robots.txt names none, the well-known places have none"
            );
            return Ok(());
        };
        let base = self.store.origin_of(id).await?.unwrap_or_else(|| site.url.clone());
        let Ok(url) = base.join(path) else { return Ok(()) };
        Self::note_refused(
            &site.name,
            self.store.register(id, vec![found(url, Role::Sitemap, GUESS, by)]).await?,
        );
        Ok(())
    }

    pub(super) fn note_refused(site: &str, (added, refused): (u64, u64)) {
        if added > 0 {
            tracing::info!(site, added, "sources registered");
        }
        if refused > 0 {
            // At every poll again; the source's own issues say it for good.
            tracing::info!(
                site,
                refused,
                "sources refused: the site has its max_sources, they name a password, or their \
                 URLs are longer than 2,048 bytes"
            );
        }
    }
}

/// What a robots.txt is asked with. However often a server says that it is as it was, it
/// is read in full as documents are, and whenever somebody asks for it: rules that were
/// eased, or tightened, may stand behind a validator that is stuck.
fn validators_for(target: &PollTarget, now: Timestamp) -> Validators {
    let is_old = target.last_full_at.is_none_or(|at| later(at, FULL_READ) <= now);
    // What has failed may have failed for its conditions.
    let is_plain = is_old || target.asked || target.failing.is_some();
    if is_plain { Validators::default() } else { target.validators.clone() }
}

/// A source that was found, not configured.
pub(super) fn found(url: Url, role: Role, named_by: &'static str, by: &PollTarget) -> NewSource {
    let url = without_fragment(url);
    NewSource { url, role, named_by, parent: None, lastmod: None, place: place_by(by, 0) }
}

/// The place of what the poll of a source names, after so many others.
pub(super) fn place_by(by: &PollTarget, turn: u32) -> PlaceInLine {
    // What is asked for only when it is needed has no time.
    let since = Some(by.due_at).filter(|due| *due > Timestamp::UNIX_EPOCH);
    PlaceInLine { since, turn }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::HostId;

    #[test]
    fn files_as_large_as_may_be_take_no_more_memory_than_is_set_aside_for_them() {
        let cache = RobotsCache::default();
        let put = |authority: &str, body: &str| {
            let kept = KeptRobots {
                host: HostId(1),
                version: 1,
                body: body.as_bytes().to_vec(),
                unreachable: false,
                read_at: Timestamp::UNIX_EPOCH,
                expires_at: Timestamp::UNIX_EPOCH,
            };
            cache.put(authority, &kept, "examplebot");
            cache.guard().bytes()
        };
        let rules = "Allow:/\n".repeat(MAX_BODY / 8);
        // What binds others only is not kept.
        assert_eq!(put("http://other.test", &format!("User-agent: other\n{rules}")), 0);
        let large = format!("User-agent: *\n{rules}");
        let mut most = 0;
        for host in 0..8 {
            most = most.max(put(&format!("http://{host}.test"), &large));
        }
        assert!((REMEMBERED_BYTES / 2..=REMEMBERED_BYTES).contains(&most), "{most}");
        assert!(cache.get("http://7.test").is_some());
        // As many ordinary ones as are remembered have room.
        let ordinary = "User-agent: *\n".to_owned() + &"Disallow: /private/\n".repeat(20);
        let one = Robots::parse(ordinary.as_bytes()).rules_for("examplebot").bytes();
        assert!(one * REMEMBERED <= REMEMBERED_BYTES, "{one}");
    }
}
