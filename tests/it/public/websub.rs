//! A whole daemon as subscriber of hubs that we script: what it asks of them,
//! what it believes them, and that a silent hub costs nothing but a day.

use std::collections::HashMap;

use jiff::Timestamp;
use sitemapd::store::views::PushView;

use super::*;
use crate::support::daemon::{DAY, HOUR, MINUTE, World};
use crate::support::{Origin, Reply};

mod hostile;
mod pushes;
mod shared;
mod subscribing;

/// Where the daemon says that its public listener is reached.
const REACHED: &str = "http://push.example";
const DATE: &str = "Sat, 21 Nov 2026 11:59:00 GMT";

/// Pages of the feed that are as old as it is.
const OLDER: usize = 99;

/// A publisher, a hub, and a daemon between them.
struct Stage {
    world: World,
    daemon: Daemon,
    origin: Origin,
    hub: Origin,
}

/// What a hub was asked for.
type Form = HashMap<String, String>;

/// A feed at `/feed` of this origin that names these hubs, and lists these pages before
/// so many older ones that it does not run through in a day.
fn feed(origin: &Origin, hubs: &[String], paths: &[&str]) -> Reply {
    let older: Vec<_> = (0..OLDER).map(|n| format!("/older/{n}")).collect();
    let all: Vec<_> = paths.iter().copied().chain(older.iter().map(String::as_str)).collect();
    Reply::xml(feed_text(&origin.base(), hubs, &all))
}

fn feed_text(base: &str, hubs: &[String], paths: &[&str]) -> String {
    let mut xml = format!(
        "<rss version=\"2.0\" xmlns:atom=\"http://www.w3.org/2005/Atom\"><channel>\
         <title>t</title><link>{base}/</link><atom:link rel=\"self\" href=\"{base}/feed\"/>"
    );
    for hub in hubs {
        let link = format!("<atom:link rel=\"hub\" href=\"{hub}\"/>");
        xml += &link;
    }
    for path in paths {
        let item = format!(
            "<item><title>{path}</title><link>{base}{path}</link><pubDate>{DATE}</pubDate></item>"
        );
        xml += &item;
    }
    xml + "</channel></rss>"
}

fn config(origin: &Origin, keys: &str) -> String {
    let base = origin.base();
    format!(
        "[listen]\npublic = \"127.0.0.1:0\"\npublic_url = \"{REACHED}\"\n[poll]\nfirst = \"1h\"\n\
         jitter = 0.0\n[[site]]\nname = \"a\"\nurl = \"{base}/\"\nsitemaps = []\n\
         feeds = [\"{base}/feed\"]\n{keys}\n"
    )
}

impl Stage {
    /// The feed has been polled once, with `/1` in it, and names the hub.
    async fn set() -> Self {
        Self::set_with("sitemaps = []").await
    }

    /// The same with these keys of the site; `BASE` is where it is.
    async fn set_with(keys: &str) -> Self {
        let (origin, hub) = (Origin::start().await, Origin::start().await);
        origin.set("/robots.txt", Reply::text("User-agent: *\n"));
        origin.set("/feed", feed(&origin, &[format!("{}/hub", hub.base())], &["/1"]));
        hub.set("/hub", Reply::status(202));
        let world = World::new(&[&origin, &hub]);
        let keys = keys.replace("BASE", &origin.base());
        let daemon = world.start(&config(&origin, "").replace("sitemaps = []", &keys)).await;
        daemon.polled("/feed", 1).await;
        Self { world, daemon, origin, hub }
    }

    /// The same, and the hub has promised to push for ten days.
    async fn subscribed() -> (Self, String) {
        Self::subscribed_with("sitemaps = []").await
    }

    async fn subscribed_with(keys: &str) -> (Self, String) {
        let stage = Self::set_with(keys).await;
        let callback = stage.asked(1).await["hub.callback"].clone();
        assert_eq!(stage.verify(&callback, "subscribe", 864_000).await.status, 200);
        (stage, callback)
    }

    fn topic(&self) -> String {
        format!("{}/feed", self.origin.base())
    }

    fn hubs(&self) -> Vec<String> {
        vec![format!("{}/hub", self.hub.base())]
    }

    /// What the hub was asked for the `nth` time, counted from 1.
    async fn asked(&self, nth: usize) -> Form {
        asked_of(&self.daemon, &self.hub, "/hub", nth).await
    }

    async fn verify(&self, callback: &str, mode: &str, lease: u64) -> Answer {
        verify(&self.daemon, callback, mode, &self.topic(), lease).await
    }

    /// Pushes a feed with these items.
    async fn push(&self, callback: &str, paths: &[&str]) -> u16 {
        let text = feed_text(&self.origin.base(), &self.hubs(), paths);
        push(&self.daemon, callback, "", &text).await.status
    }

    async fn view(&self) -> Option<PushView> {
        self.daemon.source("/feed").await.push
    }

    /// Waits until no hub is being asked: to whom time passes then, it seems not to verify.
    async fn until_answered(&self) {
        let asked = "SELECT count(*) FROM callbacks WHERE state = 0";
        let is_answered = async || {
            let view = self.view().await;
            let is_due = view.is_some_and(|view| view.next_request_at <= self.daemon.now());
            (!is_due && self.world.look().number(asked) == 0).then_some(())
        };
        self.daemon.wait("the hub's answer", is_answered).await;
    }

    async fn state(&self) -> &'static str {
        self.view().await.expect("it names a hub").state
    }

    async fn until_state(&self, wanted: &str) {
        let what = format!("push to be {wanted}");
        self.daemon.wait(&what, async || (self.state().await == wanted).then_some(())).await;
    }

    /// Waits until so many pushes were read.
    async fn until_read(&self, times: u64) {
        let what = format!("push {times}");
        self.daemon
            .wait(&what, async || {
                let push = self.view().await?;
                (push.pushes >= times).then_some(())
            })
            .await;
    }

    async fn next_poll(&self) -> Timestamp {
        self.daemon.source("/feed").await.next_poll_at.expect("it is polled")
    }

    async fn knows(&self, path: &str) -> bool {
        self.daemon.knows(&format!("{}{path}", self.origin.base())).await
    }
}

async fn asked_of(daemon: &Daemon, hub: &Origin, path: &str, nth: usize) -> Form {
    let what = format!("request {nth} to the hub");
    let seen = daemon.wait(&what, async || hub.requests(path).into_iter().nth(nth - 1)).await;
    assert_eq!(seen.method, "POST");
    assert_eq!(seen.header("content-type"), Some("application/x-www-form-urlencoded"));
    url::form_urlencoded::parse(&seen.body).into_owned().collect()
}

/// Where a callback is behind what the hub was told.
fn path_of(callback: &str) -> &str {
    callback.strip_prefix(REACHED).expect("a callback below public_url")
}

async fn verify(daemon: &Daemon, callback: &str, mode: &str, topic: &str, lease: u64) -> Answer {
    let target = format!(
        "{}?hub.mode={mode}&hub.topic={}&hub.challenge=ch%2Ballenge&hub.lease_seconds={lease}",
        path_of(callback),
        encoded(topic)
    );
    get(daemon, &target).await
}

/// Pushes this body, with further header lines.
async fn push(daemon: &Daemon, callback: &str, headers: &str, body: &str) -> Answer {
    let head = format!(
        "POST {} HTTP/1.1\r\nContent-Type: application/rss+xml{headers}",
        path_of(callback)
    );
    send(daemon.public.unwrap(), &head, body).await
}
