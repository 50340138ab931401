//! Pushes of owners: the key is checked on the host itself, then the URLs count.
//!
//! The key file is fetched by the same door as all else: the guard, the host's
//! clock, one request at a time, [`MAX_FILE`] bytes, no redirect. What was found
//! is remembered for a day, what was not for [`DEBOUNCE`]; only hosts of sites
//! are ever asked, each [`CHECKS`] times in [`DEBOUNCE`] at most. Where a host
//! does not answer now, the push waits in the store.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Read as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use url::Url;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Poller;
use super::gate::ClockGate;
use super::owners::names_port;
use crate::fetch::body::Decoded;
use crate::fetch::{Answer, FetchError, Request, Validators};
use crate::model::SiteId;
use crate::recrawl::later;
use crate::store::StoreError;
use crate::store::pushes::{Heeded, Push, Pushed, PushedUrl, SiteRow, key_scope};
use crate::url::SiteRules;

/// Pushes of one URL that come closer count as one; so long a wrong key is
/// remembered (`IndexNow` asks for no more than a push a URL in ten minutes).
const DEBOUNCE: Duration = Duration::from_secs(600);
/// How long a key that was found holds.
const KEY_HOLDS: Duration = Duration::from_secs(24 * 3_600);
/// Key files asked of one host within [`DEBOUNCE`].
const CHECKS: u32 = 10;
/// And of all hosts of one site: whoever has a domain has as many hosts as they like.
const CHECKS_OF_SITE: u32 = 40;
/// And for one client, so that a stranger cannot use up all of a host's.
const CHECKS_OF_CLIENT: u32 = 3;
/// Hosts, keys and URLs that are remembered.
const REMEMBERED: usize = 10_000;
const REMEMBERED_URLS: usize = 200_000;
/// Bytes of a key file: the longest key, and white space.
const MAX_FILE: u64 = 4 << 10;
/// Longest that a push waits for the check of its key before it is put off.
const PATIENCE: Duration = Duration::from_secs(10);
/// And of one that was answered: the clock of a host that fetchers lease is minutes ahead.
const PATIENCE_ANSWERED: Duration = Duration::from_secs(180);
/// Keys checked at once.
const AT_ONCE: usize = 8;
/// Sites of one host that hear of a push at most.
const MOST_SITES: usize = 256;
/// URLs judged before others get their turn.
const JUDGED_AT_ONCE: usize = 64;
/// Pushes that wait are looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The latest of something, by a hash; the oldest goes first.
struct Latest<T> {
    most: usize,
    known: HashMap<u64, (Timestamp, T)>,
    order: VecDeque<u64>,
}

impl<T: Copy> Latest<T> {
    fn new(most: usize) -> Self {
        Self { most, known: HashMap::new(), order: VecDeque::new() }
    }

    /// What is known and still holds.
    fn get(&self, key: u64, now: Timestamp) -> Option<T> {
        self.known.get(&key).filter(|(until, _)| *until > now).map(|(_, value)| *value)
    }

    fn put(&mut self, key: u64, until: Timestamp, value: T) {
        if self.known.insert(key, (until, value)).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// What is remembered of pushes.
pub(super) struct PushMemory {
    recent: Mutex<Recent>,
    turns: Semaphore,
}

struct Recent {
    keys: Latest<bool>,
    checks: Latest<u32>,
    urls: Latest<()>,
}

impl Default for PushMemory {
    fn default() -> Self {
        let recent = Recent {
            keys: Latest::new(REMEMBERED),
            checks: Latest::new(REMEMBERED),
            urls: Latest::new(REMEMBERED_URLS),
        };
        Self { recent: Mutex::new(recent), turns: Semaphore::new(AT_ONCE) }
    }
}

impl PushMemory {
    /// Nothing that panics is done while this lock is held.
    fn guard(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the host says of a key.
enum Verdict {
    Right,
    Wrong(String),
    /// It did not say.
    Unknown,
}

/// A site that has the host of a push.
struct Owner {
    row: SiteRow,
    rules: SiteRules,
    home: Url,
}

impl Poller {
    /// Takes in a push of a client, if its key is that of its host.
    pub(crate) async fn take_push(&self, push: Push, client: u128) -> Result<Pushed, StoreError> {
        // One is enough to ask its host: who has no key makes us read no more.
        let sites = self.sites_with(&push.key_url).await?;
        let Some(owner) = self.owners(sites, &push.key_url, 1).await?.pop() else {
            return Ok(Pushed::InvalidKey("no site here has this host".to_owned()));
        };
        if !self.is_known_key(&push) && !self.may_check(&push.host, owner.row.id, client) {
            return Ok(Pushed::TooMany(DEBOUNCE));
        }
        match self.verdict(&push, false).await {
            Verdict::Right => self.note(push).await.map(Pushed::Taken),
            Verdict::Wrong(why) => Ok(Pushed::InvalidKey(why)),
            Verdict::Unknown => {
                let is_kept = self.store.keep_push(push).await?;
                Ok(if is_kept { Pushed::Waiting } else { Pushed::TooMany(DEBOUNCE) })
            }
        }
    }

    /// Checks the keys of pushes that wait, until told to stop.
    pub(crate) async fn mind_pushes(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let looked = self.clock.steady();
            // Let go half done nothing is lost: what was not dropped is tried again.
            let tried = tokio::select! {
                () = stop.cancelled() => return,
                tried = self.retry_pushes() => tried,
            };
            if let Err(error) = tried
                && !matches!(error, StoreError::Closed)
            {
                tracing::error!(%error, "pushes that wait are put off");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep_until(later(looked, LOOK_AGAIN)) => {}
            }
        }
    }

    async fn retry_pushes(&self) -> Result<(), StoreError> {
        // A host that is slow keeps few others waiting, and none that are pushed just now.
        let waiting = stream::iter(self.store.waiting_pushes().await?);
        let tried =
            waiting.map(|(row, push)| self.retry_push(row, push)).buffer_unordered(AT_ONCE / 2);
        tried.try_collect().await
    }

    async fn retry_push(&self, row: i64, push: Push) -> Result<(), StoreError> {
        let sites = self.sites_with(&push.key_url).await?;
        let verdict = if sites.is_empty() {
            Verdict::Wrong("the site is gone".to_owned())
        } else if self.owners(sites, &push.key_url, 1).await?.is_empty() {
            // What is paused goes on, and the push was answered.
            return Ok(());
        } else {
            self.verdict(&push, true).await
        };
        match verdict {
            Verdict::Right => {
                self.note(push).await?;
            }
            Verdict::Wrong(why) => tracing::info!(host = push.host, why, "push dropped"),
            Verdict::Unknown => return Ok(()),
        }
        self.store.drop_push(row).await
    }

    /// The active ones of these sites, so many at most, of which strangers may have a
    /// request sent to this place: on the port of a scheme, or one that the config names.
    async fn owners(
        &self,
        sites: Vec<String>,
        at: &Url,
        most: usize,
    ) -> Result<Vec<Owner>, StoreError> {
        let config = Arc::clone(&self.config.borrow());
        let mut owners = Vec::new();
        for name in sites {
            let Some(site) = config.sites.get(&name) else { continue };
            if !names_port(site, at) {
                continue;
            }
            let Some(row) = self.store.site_row(name).await? else { continue };
            let rules = SiteRules::new(site, row.origin.as_ref());
            owners.push(Owner { row, rules, home: site.url.clone() });
            if owners.len() >= most {
                break;
            }
        }
        Ok(owners)
    }

    fn key_hash(&self, push: &Push) -> u64 {
        let text = format!("{} {}", push.key_url, push.key);
        xxh3_64_with_seed(text.as_bytes(), self.store.seed())
    }

    fn is_known_key(&self, push: &Push) -> bool {
        let (key, now) = (self.key_hash(push), self.clock.steady());
        self.pushes.guard().keys.get(key, now).is_some()
    }

    /// One more of the checks that a host, and its site, may be asked for, for this client?
    fn may_check(&self, host: &str, site: SiteId, client: u128) -> bool {
        let now = self.clock.steady();
        let of_host = xxh3_64_with_seed(host.as_bytes(), self.store.seed());
        let of_site = xxh3_64_with_seed(&site.0.to_le_bytes(), !self.store.seed());
        let of_client = xxh3_64_with_seed(&client.to_le_bytes(), of_host);
        let mut recent = self.pushes.guard();
        let counted = [(of_host, CHECKS), (of_site, CHECKS_OF_SITE), (of_client, CHECKS_OF_CLIENT)];
        let made = counted.map(|(whose, _)| recent.checks.get(whose, now).unwrap_or(0));
        if made.iter().zip(counted).any(|(made, (_, most))| *made >= most) {
            return false;
        }
        for (made, (whose, _)) in made.into_iter().zip(counted) {
            let until = match recent.checks.known.get(&whose) {
                Some((until, _)) if made > 0 => *until,
                _ => later(now, DEBOUNCE),
            };
            recent.checks.put(whose, until, made + 1);
        }
        true
    }

    fn page_hash(&self, page: &PushedUrl) -> u64 {
        let text = format!("{} {}{}", page.crawl.0, page.url.authority, page.url.path);
        xxh3_64_with_seed(text.as_bytes(), self.store.seed())
    }

    /// `was_answered` where nobody waits: then the host's clock may be far ahead.
    async fn verdict(&self, push: &Push, was_answered: bool) -> Verdict {
        let (key, now) = (self.key_hash(push), self.clock.steady());
        match self.pushes.guard().keys.get(key, now) {
            Some(true) => return Verdict::Right,
            Some(false) => return Verdict::Wrong("it was not found a moment ago".to_owned()),
            None => {}
        }
        let gate = ClockGate::new(self, None);
        // As long as one that is led somewhere waits.
        let gate = if was_answered { gate.led() } else { gate };
        let asking = async {
            let _turn = self.pushes.turns.acquire().await;
            self.ask_for_key(push, &gate).await
        };
        let patience = if was_answered { PATIENCE_ANSWERED } else { PATIENCE };
        let verdict = if let Ok(verdict) = tokio::time::timeout(patience, asking).await {
            verdict
        } else {
            gate.has_not_begun(&push.key_url).await;
            Verdict::Unknown
        };
        let (holds, is_right) = match verdict {
            Verdict::Right => (KEY_HOLDS, true),
            Verdict::Wrong(_) => (DEBOUNCE, false),
            Verdict::Unknown => return verdict,
        };
        self.pushes.guard().keys.put(key, later(now, holds), is_right);
        verdict
    }

    async fn ask_for_key(&self, push: &Push, gate: &ClockGate<'_>) -> Verdict {
        if let Err(why) = key_scope(&push.key_url) {
            return Verdict::Wrong(format!("keyLocation: {why}"));
        }
        let request = Request {
            url: push.key_url.clone(),
            validators: Validators::default(),
            headers: Vec::new(),
            known: None,
            max_wire_bytes: MAX_FILE,
            max_redirects: 0,
        };
        match self.fetcher.fetch(request, gate).await {
            Ok(Answer::Document(fetched)) => {
                let mut text = Vec::new();
                let decoded = Decoded::new(fetched.body, &fetched.content_encoding, 4 * MAX_FILE);
                // What cannot be decoded is not the key.
                let _ = decoded.take(MAX_FILE).read_to_end(&mut text);
                let bare = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&text);
                if !fetched.cut && bare.trim_ascii() == push.key.as_bytes() {
                    Verdict::Right
                } else {
                    Verdict::Wrong("the key file holds something else".to_owned())
                }
            }
            Ok(Answer::Refused(head)) if head.status == 429 || head.status >= 500 => {
                // Meant for the host, whatever was asked for.
                if let Err(error) = self.heed(&head).await {
                    tracing::error!(%error, "a pause was not kept");
                }
                Verdict::Unknown
            }
            Ok(Answer::Refused(head)) => {
                Verdict::Wrong(format!("the key file answers with HTTP status {}", head.status))
            }
            Ok(Answer::Same(_) | Answer::NotModified(_)) | Err(FetchError::Redirects(_)) => {
                Verdict::Wrong("the key file must answer by itself, without a redirect".to_owned())
            }
            Err(FetchError::Blocked(_)) => {
                Verdict::Wrong("the key file is at an address that is never fetched".to_owned())
            }
            Err(_) => Verdict::Unknown,
        }
    }

    /// The URLs of a push whose key is right, each for every site that admits it.
    async fn note(&self, push: Push) -> Result<Heeded, StoreError> {
        let sites = self.sites_with(&push.key_url).await?;
        let owners = self.owners(sites, &push.key_url, MOST_SITES).await?;
        let now = self.clock.steady();
        let mut heeded = Heeded::default();
        // Which of the URLs that are neither repeated nor outside each one is.
        let (mut fresh, mut urls_of, mut urls) = (Vec::new(), Vec::new(), 0);
        let mut keys = HashSet::new();
        for (at, url) in push.urls.iter().enumerate() {
            if at % JUDGED_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
            let mut pages = pages_of(url, &owners);
            if pages.is_empty() {
                heeded.outside += 1;
                continue;
            }
            pages.retain(|page| {
                let key = self.page_hash(page);
                self.pushes.guard().urls.get(key, now).is_none() && keys.insert(key)
            });
            if pages.is_empty() {
                heeded.repeated += 1;
                continue;
            }
            urls_of.extend(pages.iter().map(|_| urls));
            fresh.append(&mut pages);
            urls += 1;
        }
        let known = self.store.heed(fresh).await?;
        let known = known.into_iter().zip(&urls_of).filter(|(is_known, _)| *is_known);
        heeded.known = known.map(|(_, url)| url).collect::<HashSet<_>>().len() as u64;
        heeded.unknown = urls - heeded.known;
        let mut recent = self.pushes.guard();
        for key in keys {
            recent.urls.put(key, later(now, DEBOUNCE), ());
        }
        drop(recent);
        tracing::info!(
            host = push.host,
            known = heeded.known,
            unknown = heeded.unknown,
            repeated = heeded.repeated,
            outside = heeded.outside,
            "pushed"
        );
        Ok(heeded)
    }
}

/// What a URL is for the sites that admit it: one page a crawl and identity.
fn pages_of(url: &Url, owners: &[Owner]) -> Vec<PushedUrl> {
    let mut pages: Vec<PushedUrl> = Vec::new();
    for Owner { row, rules, home } in owners {
        let Ok(url) = rules.admit(url.as_str(), home) else { continue };
        let is_it = |page: &&mut PushedUrl| {
            let known = (&page.url.authority, &page.url.path);
            page.crawl == row.crawl && known == (&url.authority, &url.path)
        };
        match pages.iter_mut().find(is_it) {
            Some(page) => page.sites.push(row.id),
            None => pages.push(PushedUrl { sites: vec![row.id], crawl: row.crawl, url }),
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_is_remembered_and_only_for_its_time() {
        let at = |second| Timestamp::from_second(second).expect("a timestamp");
        let mut latest = Latest::new(3);
        for key in 0..100_000 {
            latest.put(key, at(100), ());
        }
        assert_eq!((latest.known.len(), latest.order.len()), (3, 3));
        assert!(latest.get(99_999, at(99)).is_some());
        assert!(latest.get(99_999, at(100)).is_none(), "its time is over");
        assert!(latest.get(5, at(0)).is_none(), "the oldest go first");
    }
}
