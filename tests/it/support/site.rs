//! A site that lists many URLs and changes all the time, and its polls as
//! clients see them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;
use sitemapd::clock::Clock;
use sitemapd::fetch::api::ApiClient;
use tempfile::TempDir;

use super::door::Door;
use super::engine::Look;
use super::lease_history::Dice;
use super::ledger::Ledger;
use super::process::DEADLINE;
use super::queue_daemon::{Entry, Queue, entry};
use super::{Origin, Reply};

const URLS: u32 = 1_000;
const DAY: i64 = 24 * 3_600;

/// The site: what it lists, and as of when.
pub struct Site {
    pub origin: Origin,
    pub listed: BTreeMap<String, Timestamp>,
    pub version: i64,
}

impl Site {
    pub fn new(origin: Origin) -> Self {
        let mut site = Self { origin, listed: BTreeMap::new(), version: 0 };
        for number in 0..URLS {
            site.list(number);
        }
        site.publish();
        site
    }

    /// A config for it, and a store that has read it two days ago, so that a
    /// clock set back holds none of it up. It is polled every second.
    pub async fn filled(&self) -> (String, TempDir, Look) {
        let base = self.origin.base();
        let text = format!(
            "[fetch]\nallow = [\"{}\"]\n[politeness]\nhost_delay = \"0s\"\n\
             [queue]\norder = \"protocol\"\n[store]\nmin_free_disk = \"0\"\n\
             [[site]]\nname = \"a\"\nurl = \"{base}/\"\nsitemaps = [\"{base}/sitemap.xml\"]\n\
             feeds = []\nobey_robots = false\nscope = \"any\"\npoll = \"1s\"\n",
            self.origin.addr(),
        );
        let then = Timestamp::from_second(Clock::system().now().as_second() - 2 * DAY).unwrap();
        let queue = Queue::open_on(&text, Clock::manual(then)).await;
        let entries: Vec<Entry> =
            self.listed.iter().map(|(url, lastmod)| entry(url).lastmod(*lastmod)).collect();
        queue.list("a", &entries).await;
        queue.look().set_hints(7);
        let (dir, look) = queue.into_folder();
        look.change("UPDATE sources SET next_poll_at = 0 WHERE role <> 0");
        (text, dir, look)
    }

    /// As of the version that is being made.
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_793_500_000 + self.version).unwrap()
    }

    fn list(&mut self, number: u32) {
        self.listed.insert(format!("http://h{}.test/{number}", number % 20), self.now());
    }

    /// The next version: some URLs changed, a few are new.
    pub fn change(&mut self, dice: &mut Dice) {
        self.version += 1;
        let now = self.now();
        let count = u32::try_from(self.listed.len()).unwrap();
        for _ in 0..=dice.below(count / 25) {
            let index = dice.below(count) as usize;
            *self.listed.values_mut().nth(index).unwrap() = now;
        }
        for number in count..count + dice.below(3) {
            self.list(number);
        }
        self.publish();
    }

    fn publish(&self) {
        let mut xml =
            String::from("<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n");
        for (url, lastmod) in &self.listed {
            // Never due again by time.
            let date = format!("<lastmod>{lastmod}</lastmod><changefreq>never</changefreq>");
            writeln!(xml, "<url><loc>{url}</loc>{date}</url>").unwrap();
        }
        self.origin.set("/sitemap.xml", Reply::xml(xml + "</urlset>\n"));
    }
}

/// Notes each poll that is listed.
pub async fn watch_polls(door: Door, ledger: Arc<Ledger>) {
    let mut after = 0;
    while !door.is_shut() {
        match door.get(&format!("/v1/polls?after={after}&limit=1000")).await {
            Some(answer) => {
                after = answer["next"].as_i64().unwrap();
                ledger.polled(after);
            }
            None if door.opens_again().await => {}
            None => return,
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// Waits until a source was polled once more.
pub async fn polled(api: &ApiClient, url: &str) {
    let mut after = 0;
    let mut is_new = false;
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline {
        let text = after.to_string();
        let query = [("after", text.as_str()), ("limit", "1000")];
        let answer: Value = api.get("/v1/polls", &query).await.unwrap();
        let polls = answer["polls"].as_array().unwrap();
        if is_new && polls.iter().any(|poll| poll["url"] == url && poll["error"].is_null()) {
            return;
        }
        // All that there were before.
        is_new |= polls.is_empty();
        after = answer["next"].as_i64().unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{url} was not polled");
}
