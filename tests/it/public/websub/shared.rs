//! Daemons on one store of which one is reached: it is reached for all.

use tempfile::TempDir;

use super::*;
use crate::support::engine;

/// Each on a host of its own, so that each daemon has some.
const FEEDS: usize = 16;

#[tokio::test]
async fn a_daemon_that_nobody_reaches_keeps_the_subscriptions_of_one_that_is() {
    let (origin, hub) = (Origin::start().await, Origin::start().await);
    let world = World::with_names(&[&origin, &hub]);
    let folder = TempDir::new().unwrap();
    if engine::server_for(folder.path()).is_none() {
        eprintln!("SKIPPED: daemons on one store need a server, which SITEMAPD_POSTGRES names");
        return;
    }
    let base = origin.base();
    origin.set("/robots.txt", Reply::text("User-agent: *\n"));
    hub.route(|_| Some(Reply::status(202)));
    let own = |n: usize| format!("http://h{n}.test:{}/feed{n}", origin.port());
    let text_of = |n: usize, paths: &[&str]| {
        let hubs = [format!("http://h{n}.test:{}/hub{n}", hub.port())];
        feed_text(&base, &hubs, paths).replace(&format!("{base}/feed\""), &format!("{}\"", own(n)))
    };
    let mut feeds = Vec::new();
    for n in 0..FEEDS {
        origin.set(&format!("/feed{n}"), Reply::xml(text_of(n, &[&format!("/{n}")])));
        feeds.push(format!("\"{}\"", own(n)));
    }
    let text = config(&origin, "").replace(&format!("\"{base}/feed\""), &feeds.join(", "));
    let look = world.look();
    let mut reached = world.config(&text);
    folder.path().clone_into(&mut reached.daemon.data_dir);
    let reached = world.start_with(reached).await;
    let mut callbacks = Vec::new();
    for n in 0..FEEDS {
        let form = asked_of(&reached, &hub, &format!("/hub{n}"), 1).await;
        let callback = form["hub.callback"].clone();
        let verified = verify(&reached, &callback, "subscribe", &own(n), 864_000).await;
        assert_eq!(verified.status, 200);
        callbacks.push(callback);
    }
    let silent = text.replace("public_url", "# public_url");
    let halves = "SELECT count(DISTINCT p.node) FROM partitions p JOIN sources s USING (part)
                  WHERE p.node IS NOT NULL AND s.url LIKE '%/feed%'";
    let has_some = async || (look.number(halves) == 2).then_some(());
    for _ in 0..2 {
        let other = world.start(&silent).await;
        other.wait("a half", has_some).await;
        other.reload(&silent.replace("jitter = 0.0", "jitter = 0.1")).await;
        other.settled().await;
        let kept = look.number("SELECT count(*) FROM callbacks WHERE state = 1");
        assert_eq!(kept, i64::try_from(FEEDS).unwrap());
        other.stop().await;
    }
    let other = world.start(&silent).await;
    other.wait("a half", has_some).await;
    for (n, callback) in callbacks.iter().enumerate() {
        let pushed = push(&reached, callback, "", &text_of(n, &[&format!("/new{n}")])).await;
        assert_eq!(pushed.status, 202);
    }
    for n in 0..FEEDS {
        let url = format!("{base}/new{n}");
        reached.wait(&url, async || reached.knows(&url).await.then_some(())).await;
    }
    // Whoever a source is with asks its hub, below where the one is reached.
    let before: Vec<_> = (0..FEEDS).map(|n| hub.requests(&format!("/hub{n}")).len()).collect();
    reached.clock.advance(9 * DAY);
    for (n, before) in before.into_iter().enumerate() {
        let path = format!("/hub{n}");
        let asked = async || hub.requests(&path).into_iter().nth(before);
        let seen = reached.wait(&path, asked).await;
        let form: Form = url::form_urlencoded::parse(&seen.body).into_owned().collect();
        assert_eq!((&form["hub.mode"], &form["hub.topic"]), (&"subscribe".to_owned(), &own(n)));
        assert!(form["hub.callback"].starts_with(REACHED));
    }
    reached.stop().await;
    // Whoever is reached is only away, as far as the other one knows.
    let alone = "SELECT count(DISTINCT node) FROM partitions WHERE node IS NOT NULL";
    other.wait("all of it", async || (look.number(alone) == 1).then_some(())).await;
    other.reload(&silent).await;
    other.settled().await;
    assert_ne!(look.number("SELECT count(*) FROM callbacks"), 0);
    // It comes back, and says itself that nobody reaches it any more.
    let mut gone = world.config(&silent);
    folder.path().clone_into(&mut gone.daemon.data_dir);
    let gone = world.start_with(gone).await;
    let said = "SELECT count(*) FROM meta WHERE key LIKE 'public_url%'";
    gone.wait("no place", async || (look.number(said) == 0).then_some(())).await;
    gone.stop().await;
    other.stop().await;
    // Alone, nobody may be reached any more.
    assert_ne!(look.number("SELECT count(*) FROM callbacks"), 0);
    let alone = world.start(&silent).await;
    let forgotten = async || (look.number("SELECT count(*) FROM callbacks") == 0).then_some(());
    alone.wait("no subscription", forgotten).await;
    alone.stop().await;
}
