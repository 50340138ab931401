//! Hubs that lie, hubs that fail, and strangers who play hub.

use std::cell::Cell;
use std::time::Duration;

use super::*;
use crate::support::Canary;

/// Signs what hubs push, as after a subscription over https.
fn agree_on_secret(stage: &Stage, secret: &str) {
    stage.world.look().change(&format!("UPDATE callbacks SET secret = '{secret}'"));
}

fn signature(method: &str, secret: &str, body: &str) -> String {
    use ring::hmac;
    let algorithm = match method {
        "sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        "sha256" => hmac::HMAC_SHA256,
        "sha384" => hmac::HMAC_SHA384,
        _ => hmac::HMAC_SHA512,
    };
    let key = hmac::Key::new(algorithm, secret.as_bytes());
    let tag = hmac::sign(&key, body.as_bytes());
    tag.as_ref().iter().fold(format!("{method}="), |hex, byte| format!("{hex}{byte:02x}"))
}

#[tokio::test]
async fn only_what_was_asked_for_is_confirmed_and_only_once() {
    let stage = Stage::set().await;
    let callback = stage.asked(1).await["hub.callback"].clone();
    let topic = stage.topic();
    let unknown = format!("{REACHED}/websub/{}", "0".repeat(32));
    for (place, query, expected) in [
        (&callback, format!("hub.mode=subscribe&hub.topic={topic}x&hub.challenge=c"), 404),
        (&callback, format!("hub.mode=unsubscribe&hub.topic={topic}&hub.challenge=c"), 404),
        (&callback, format!("hub.mode=denied&hub.topic={topic}x"), 404),
        (&callback, format!("hub.mode=publish&hub.topic={topic}&hub.challenge=c"), 400),
        (&callback, format!("hub.mode=subscribe&hub.topic={topic}"), 400),
        (&callback, "hub.mode=subscribe&hub.challenge=c".to_owned(), 400),
        (&callback, String::new(), 400),
        (&unknown, format!("hub.mode=subscribe&hub.topic={topic}&hub.challenge=c"), 404),
        (&format!("{REACHED}/websub/nonsense"), "hub.mode=denied".to_owned(), 410),
        (&format!("{callback}0"), format!("hub.mode=denied&hub.topic={topic}"), 410),
    ] {
        let answer = get(&stage.daemon, &format!("{}?{query}", path_of(place))).await;
        assert_eq!(answer.status, expected, "{place} {query}");
        assert_eq!(stage.state().await, "asked", "{query}");
    }
    // Before it is verified nothing that is pushed counts.
    assert_eq!(stage.push(&callback, &["/2"]).await, 202);
    assert_eq!(stage.verify(&callback, "subscribe", 864_000).await.status, 200);
    let until = stage.view().await.unwrap().lease_until;
    // The hub has missed our answer: it may ask again, and gains nothing.
    stage.daemon.clock.advance(MINUTE);
    assert_eq!(stage.verify(&callback, "subscribe", 999_999).await.status, 200);
    stage.daemon.clock.advance(5 * MINUTE);
    assert_eq!(stage.verify(&callback, "subscribe", 999_999).await.status, 404, "replayed");
    assert_eq!(stage.verify(&callback, "unsubscribe", 0).await.status, 404);
    assert_eq!(stage.view().await.unwrap().lease_until, until);
    assert!(!stage.knows("/2").await);
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_denial_ends_it_for_a_week_and_brings_polling_back() {
    let (stage, callback) = Stage::subscribed().await;
    assert_eq!(stage.push(&callback, &["/2"]).await, 202);
    stage.until_state("healthy").await;
    stage.origin.set("/feed", feed(&stage.origin, &stage.hubs(), &["/2", "/1"]));
    stage.daemon.poll("/feed").await;
    assert_eq!(stage.next_poll().await, stage.daemon.now() + DAY);
    let target = format!(
        "{}?hub.mode=denied&hub.topic={}&hub.reason=no%20more%20%3Cb%3E",
        path_of(&callback),
        encoded(&stage.topic())
    );
    let answer = get(&stage.daemon, &target).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    let view = stage.view().await.unwrap();
    assert_eq!(
        (view.state, view.error.as_deref()),
        ("denied", Some("the hub has denied it: no more <b>"))
    );
    assert!(stage.next_poll().await < stage.daemon.now() + 12 * HOUR);
    assert_eq!(stage.push(&callback, &["/3"]).await, 410);
    for _ in 0..6 {
        stage.daemon.pass(DAY).await;
    }
    assert_eq!(stage.hub.requests("/hub").len(), 1);
    stage.daemon.pass(DAY + HOUR).await;
    assert_eq!(stage.asked(2).await["hub.mode"], "subscribe");
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_push_with_a_wrong_signature_is_answered_and_ignored() {
    let (stage, callback) = Stage::subscribed().await;
    agree_on_secret(&stage, "secret");
    let text = feed_text(&stage.origin.base(), &[], &["/9"]);
    let right = signature("sha256", "secret", &text);
    for headers in [
        String::new(),
        format!("\r\nX-Hub-Signature: {}", signature("sha256", "another", &text)),
        format!("\r\nX-Hub-Signature: {}", signature("sha256", "secret", "another")),
        format!("\r\nX-Hub-Signature: {}", right.replace("sha256", "md5")),
        format!("\r\nX-Hub-Signature: {}", &right[..right.len() - 2]),
        format!("\r\nX-Hub-Signature: {right}\r\nX-Hub-Signature: {right}"),
        "\r\nX-Hub-Signature: sha512".to_owned(),
    ] {
        assert_eq!(push(&stage.daemon, &callback, &headers, &text).await.status, 202, "{headers}");
    }
    for (n, method) in ["sha1", "sha256", "sha384", "sha512"].into_iter().enumerate() {
        let text = feed_text(&stage.origin.base(), &[], &[&format!("/{method}")]);
        let headers = format!("\r\nX-Hub-Signature: {}", signature(method, "secret", &text));
        assert_eq!(push(&stage.daemon, &callback, &headers, &text).await.status, 202);
        stage.until_read(n as u64 + 1).await;
        assert!(stage.knows(&format!("/{method}")).await);
    }
    assert!(!stage.knows("/9").await);
    assert_eq!(stage.view().await.unwrap().pushes, 4);
    stage.daemon.stop().await;
}

#[tokio::test]
async fn what_is_pushed_keeps_to_the_scope_of_its_site() {
    let (stage, callback) = Stage::subscribed().await;
    let text = feed_text("http://elsewhere.example", &[], &["/2"]);
    assert_eq!(push(&stage.daemon, &callback, "", &text).await.status, 202);
    stage.until_read(1).await;
    assert!(!stage.daemon.knows("http://elsewhere.example/2").await);
    stage.daemon.stop().await;
}

#[tokio::test]
async fn hubs_that_fail_are_asked_less_and_less_and_others_in_turn() {
    let (origin, hub) = (Origin::start().await, Origin::start().await);
    origin.set("/robots.txt", Reply::text("User-agent: *\n"));
    let hubs: Vec<_> =
        ["refuses", "fails", "silent"].map(|path| format!("{}/{path}", hub.base())).to_vec();
    origin.set("/feed", feed(&origin, &hubs, &["/1"]));
    hub.set("/refuses", Reply::status(403));
    hub.set("/fails", Reply::status(503).header("Retry-After", "7200"));
    hub.set("/silent", Reply::status(202));
    let world = World::new(&[&origin, &hub]);
    let daemon = world.start(&config(&origin, "")).await;
    let asked = || ["/refuses", "/fails", "/silent"].map(|path| hub.requests(path).len());
    let mut state = String::new();
    for (error_says, expected) in
        [("403: status 403", [1, 0, 0]), ("503", [1, 1, 0]), ("did not verify", [1, 1, 1])]
    {
        let what = format!("{expected:?} and {error_says}");
        let is_silent = Cell::new(error_says == "did not verify");
        state = daemon
            .wait(&what, async || {
                // In this order: what comes between the two is not waited for.
                let push = daemon.source("/feed").await.push;
                let is_asked = world.look().number("SELECT count(*) FROM callbacks") > 0;
                // Before more time passes: then the next of them is asked.
                let says = |error: &String| error.contains(error_says);
                if asked() == expected
                    && let Some(push) =
                        push.as_ref().filter(|push| push.error.as_ref().is_some_and(says))
                {
                    return Some(push.state.to_string());
                }
                let now = daemon.now();
                let next = push.map(|push| push.next_request_at).filter(|at| *at > now);
                match (is_asked, asked() == expected) {
                    // Just until a hub is asked: to whom more time passes, however slowly
                    // that is written down, it would seem not to have verified.
                    (false, _) => {
                        let until = next.map(|at| at.duration_since(now).unsigned_abs());
                        daemon.clock.advance(until.unwrap_or_default());
                    }
                    // What is on its way comes by a clock that goes on, within its hour.
                    (true, false) => daemon.clock.advance(Duration::from_secs(1)),
                    // What the silent one does not do takes time again.
                    (true, true) if is_silent.replace(false) => {
                        daemon.clock.advance(HOUR + 2 * MINUTE);
                    }
                    (true, true) => {}
                }
                None
            })
            .await;
    }
    assert_eq!(state, "failed");
    daemon.stop().await;
}

#[tokio::test]
async fn no_hub_leads_to_an_inner_address() {
    let (origin, hub) = (Origin::start().await, Origin::start().await);
    let mut canary = Canary::start();
    origin.set("/robots.txt", Reply::text("User-agent: *\n"));
    let inner = format!("http://127.0.0.1:{}/hub", canary.port());
    let leads = format!("{}/leads", hub.base());
    hub.set("/leads", Reply::redirect(307, &inner));
    let hubs = [
        inner.clone(),
        "http://169.254.169.254/latest".to_owned(),
        "http://user:pw@127.0.0.1/".to_owned(),
        leads,
    ];
    origin.set("/feed", feed(&origin, &hubs, &["/1"]));
    let world = World::new(&[&origin, &hub]);
    let daemon = world.start(&config(&origin, "")).await;
    // Only the one that may be asked is; where it leads is refused.
    assert_eq!(asked_of(&daemon, &hub, "/leads", 1).await["hub.mode"], "subscribe");
    daemon
        .wait("the refusal", async || {
            let error = daemon.source("/feed").await.push?.error?;
            error.contains("blocked").then_some(())
        })
        .await;
    assert_eq!(canary.touched(), 0);
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_open_to_polls_is_open_to_hubs_at_the_host_of_their_source_only() {
    let (origin, hub) = (Origin::start().await, Origin::start().await);
    origin.set("/robots.txt", Reply::text("User-agent: *\n"));
    hub.route(|_| Some(Reply::status(202)));
    let at = |name: &str, path: &str| format!("http://{name}:{}{path}", hub.port());
    let others = [at("127.0.0.1", "/address"), at("other.test", "/name")];
    origin.set("/feed", feed(&origin, &others, &["/1"]));
    let world = World::with_names(&[&origin, &hub]);
    let named = format!("http://feeds.test:{}", origin.port());
    let daemon = world.start(&config(&origin, "").replace(&origin.base(), &named)).await;
    daemon
        .wait("the refusal", async || {
            let error = daemon.source("/feed").await.push?.error?;
            error.contains("sources of its own host").then_some(())
        })
        .await;
    for path in ["/address", "/name"] {
        assert!(hub.requests(path).is_empty(), "{path}");
    }
    origin.set("/feed", feed(&origin, &[at("feeds.test", "/own")], &["/1"]));
    daemon.poll("/feed").await;
    // Not before: the other one would be asked again, and this one an hour later.
    daemon.clock.advance(HOUR);
    assert_eq!(asked_of(&daemon, &hub, "/own", 1).await["hub.mode"], "subscribe");
    daemon.stop().await;
}

#[tokio::test]
async fn a_hub_that_moved_is_followed() {
    let (stage, moved) = (Stage::set().await, Origin::start().await);
    drop(moved);
    stage.asked(1).await;
    stage.hub.set("/new", Reply::status(202));
    let to = format!("{}/new", stage.hub.base());
    stage.hub.set("/old", Reply::redirect(308, &to));
    let old = format!("{}/old", stage.hub.base());
    stage.daemon.clock.advance(HOUR);
    stage.origin.set("/feed", feed(&stage.origin, &[old], &["/1"]));
    stage.daemon.poll("/feed").await;
    let form = asked_of(&stage.daemon, &stage.hub, "/new", 1).await;
    assert_eq!(form["hub.topic"], stage.topic());
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_huge_push_is_refused_before_it_is_read_and_is_a_hint() {
    let (stage, callback) = Stage::subscribed().await;
    stage.daemon.settled().await;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 6000000\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
        path_of(&callback)
    );
    let mut stream = TcpStream::connect(stage.daemon.public.unwrap()).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.starts_with(b"HTTP/1.1 413"), "{:?}", String::from_utf8_lossy(&answer));
    stage.daemon.polled("/feed", 2).await;
    stage.daemon.stop().await;
}

#[tokio::test]
async fn strangers_cost_little_and_have_a_share() {
    let (stage, callback) = Stage::subscribed().await;
    let mut statuses = Vec::new();
    for n in 0..70 {
        let callback = format!("{REACHED}/websub/{n:032x}");
        statuses.push(push(&stage.daemon, &callback, "", "x").await.status);
    }
    assert_eq!(statuses.iter().filter(|status| **status == 410).count(), 60);
    assert_eq!(statuses.last(), Some(&429));
    // The hub's own is not touched by that, but has one too.
    let mut last = 0;
    for _ in 0..61 {
        last = push(&stage.daemon, &callback, "", "x").await.status;
    }
    assert_eq!(last, 429);
    let kept = stage.world.look().number("SELECT count(*) FROM deliveries");
    assert!(kept <= 4, "{kept}");
    stage.daemon.stop().await;
}

#[tokio::test]
async fn strangers_who_ask_as_hubs_do_have_no_more() {
    let (stage, callback) = Stage::subscribed().await;
    let mut statuses = Vec::new();
    for n in 0..70 {
        let callback = format!("{REACHED}/websub/{n:032x}");
        statuses.push(stage.verify(&callback, "denied", 9_999).await.status);
    }
    assert_eq!(statuses.iter().filter(|status| **status == 404).count(), 60);
    assert_eq!(statuses.last(), Some(&429));
    // Who has a callback is answered all the same.
    assert_eq!(stage.verify(&callback, "subscribe", 9_999).await.status, 200);
    let whole = format!("GET http://{}/metrics HTTP/1.1", stage.daemon.api);
    let told = send(stage.daemon.api, &whole, "").await.body;
    assert!(told.contains("sitemapd_hub_pushes_total{result=\"unknown\"} 70"), "{told}");
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_push_that_is_refused_at_the_door_is_a_hint_while_its_sender_has_a_share() {
    let (stage, callback) = Stage::subscribed().await;
    let hints = async || {
        let whole = format!("GET http://{}/metrics HTTP/1.1", stage.daemon.api);
        let told = send(stage.daemon.api, &whole, "").await.body;
        let line = "sitemapd_hub_pushes_total{result=\"hint\"} ";
        let rest = told.split(line).nth(1).unwrap_or("0");
        rest.lines().next().unwrap().parse::<u64>().unwrap()
    };
    for _ in 0..600 {
        push(&stage.daemon, &callback, "", "x").await;
    }
    // Those that were taken are hints too, once they are found to be no feed.
    let waiting = || stage.world.look().number("SELECT count(*) FROM deliveries");
    stage.daemon.wait("what was taken", async || (waiting() == 0).then_some(())).await;
    let before = hints().await;
    for _ in 0..70 {
        assert_eq!(push(&stage.daemon, &callback, "", "x").await.status, 429);
    }
    assert_eq!(hints().await, before + 60);
    stage.daemon.stop().await;
}
