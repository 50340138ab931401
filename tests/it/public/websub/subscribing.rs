//! Subscriptions: asked for, verified, renewed, replaced, given up.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn a_source_that_names_a_hub_is_subscribed_to() {
    let stage = Stage::set().await;
    let form = stage.asked(1).await;
    assert_eq!(form["hub.mode"], "subscribe");
    assert_eq!(form["hub.topic"], stage.topic());
    assert_eq!(form["hub.lease_seconds"], "864000");
    assert!(!form.contains_key("hub.secret"), "a secret is for https only");
    let callback = &form["hub.callback"];
    let id = callback.strip_prefix(&format!("{REACHED}/websub/")).expect("below public_url");
    assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    assert_eq!(stage.state().await, "asked");
    let answer = stage.verify(callback, "subscribe", 864_000).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "ch+allenge"));
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    let view = stage.view().await.unwrap();
    assert_eq!(view.state, "unproven");
    assert_eq!(view.lease_until, Some(stage.daemon.now() + 10 * DAY));
    let renewal = Duration::try_from(view.next_request_at.duration_since(stage.daemon.now()));
    let renewal = renewal.unwrap();
    assert!(renewal >= 5 * DAY && renewal <= 8 * DAY, "{renewal:?}");
    stage.daemon.stop().await;
}

#[tokio::test]
async fn hubs_are_named_by_headers_first_of_sitemaps_too_and_by_json() {
    let (origin, hub) = (Origin::start().await, Origin::start().await);
    hub.route(|_| Some(Reply::status(202)));
    let (base, hubs) = (origin.base(), hub.base());
    origin.set("/robots.txt", Reply::text("User-agent: *\n"));
    let link = format!("<{hubs}/of-header>; rel=hub, <{base}/own>; rel=self");
    let named = feed(&origin, &[format!("{hubs}/of-feed")], &["/1"]).header("Link", &link);
    origin.set("/feed", named);
    let link = format!("<{hubs}/of-sitemap>; rel=\"hub\"");
    let sitemap = crate::support::daemon::sitemap(&base, &[("/2", "")]);
    origin.set("/sitemap.xml", Reply::xml(sitemap).header("Link", &link));
    let json = format!(
        "{{\"version\": \"https://jsonfeed.org/version/1.1\", \"title\": \"t\",
          \"feed_url\": \"{base}/feed.json\", \"hubs\": [{{\"type\": \"WebSub\",
          \"url\": \"{hubs}/of-json\"}}], \"items\": [{{\"id\": \"1\", \"url\": \"{base}/3\"}}]}}"
    );
    origin.set("/feed.json", Reply::json(json));
    let world = World::new(&[&origin, &hub]);
    let keys = config(&origin, "")
        .replace("sitemaps = []", &format!("sitemaps = [\"{base}/sitemap.xml\"]"))
        .replace("/feed\"]", &format!("/feed\", \"{base}/feed.json\"]"));
    let daemon = world.start(&keys).await;
    for (path, topic) in [
        ("/of-header", format!("{base}/own")),
        ("/of-sitemap", format!("{base}/sitemap.xml")),
        ("/of-json", format!("{base}/feed.json")),
    ] {
        let form = asked_of(&daemon, &hub, path, 1).await;
        assert_eq!(form["hub.topic"], topic, "{path}");
    }
    assert!(hub.requests("/of-feed").is_empty(), "the header goes before the document");
    daemon.stop().await;
}

#[tokio::test]
async fn a_lease_is_renewed_by_a_new_callback_and_the_old_one_holds_until_then() {
    let (stage, old) = Stage::subscribed().await;
    assert_eq!(stage.push(&old, &["/2"]).await, 202);
    stage.until_state("healthy").await;
    stage.daemon.pass(8 * DAY).await;
    let form = stage.asked(2).await;
    let new = form["hub.callback"].clone();
    assert_eq!(form["hub.mode"], "subscribe");
    assert_ne!(new, old);
    // Not verified yet: the old one pushes on.
    assert_eq!(stage.state().await, "healthy");
    assert_eq!(stage.push(&old, &["/3"]).await, 202);
    stage.until_read(2).await;
    assert_eq!(stage.verify(&new, "subscribe", 864_000).await.status, 200);
    assert_eq!(stage.state().await, "healthy", "what it has proved holds");
    let farewell = stage.asked(3).await;
    assert_eq!((&*farewell["hub.mode"], &farewell["hub.callback"]), ("unsubscribe", &old));
    assert_eq!(farewell["hub.topic"], stage.topic());
    // Until the hub knows, it may push to either.
    assert_eq!(stage.push(&old, &["/4"]).await, 202);
    assert_eq!(stage.verify(&old, "unsubscribe", 0).await.body, "ch+allenge");
    assert_eq!(stage.push(&old, &["/5"]).await, 410);
    assert_eq!(stage.push(&new, &["/6"]).await, 202);
    stage.until_read(4).await;
    assert!(stage.knows("/6").await && !stage.knows("/5").await);
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_hub_that_does_not_renew_leaves_the_source_to_its_own_rhythm() {
    let (stage, callback) = Stage::subscribed().await;
    assert_eq!(stage.push(&callback, &["/2"]).await, 202);
    stage.until_state("healthy").await;
    stage.hub.set("/hub", Reply::status(500));
    for _ in 0..11 {
        stage.daemon.pass(DAY).await;
        stage.until_answered().await;
    }
    stage.until_state("failed").await;
    let view = stage.view().await.unwrap();
    assert!(view.error.unwrap().contains("HTTP status 500"));
    assert_eq!(stage.push(&callback, &["/3"]).await, 410, "the lease is over");
    let (_, why) = (stage.next_poll().await, stage.daemon.source("/feed").await.why);
    assert!(!why.contains("a hub pushes"), "{why}");
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_hub_that_repeats_its_callback_has_nobody_else_told_where_it_is() {
    let (origin, hub) = (Origin::start().await, Origin::start().await);
    origin.set("/robots.txt", Reply::text("User-agent: *\n"));
    origin.set("/feed", feed(&origin, &[format!("{}/hub", hub.base())], &["/1"]));
    hub.route(|seen| {
        let form: Form = url::form_urlencoded::parse(&seen.body).into_owned().collect();
        let said = format!("cannot reach {}, sorry", form.get("hub.callback")?);
        Some(Reply::text(said).with_status(400))
    });
    let world = World::new(&[&origin, &hub]);
    let daemon = world.start(&config(&origin, "")).await;
    let callback = asked_of(&daemon, &hub, "/hub", 1).await["hub.callback"].clone();
    let told =
        daemon.wait("what the hub says", async || daemon.source("/feed").await.push?.error).await;
    assert!(told.contains(&format!("cannot reach {REACHED}/websub/***, sorry")), "{told}");
    assert!(!told.contains(callback.rsplit('/').next().unwrap()), "{told}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_config_that_is_refused_ends_no_subscription() {
    let (stage, callback) = Stage::subscribed().await;
    let refused = config(&stage.origin, "crawl = \"other\"\nwebsub = false");
    assert!(stage.daemon.try_reload(&refused).await.is_err());
    // One that is taken comes after it: whoever minds hubs has looked by then.
    stage.daemon.reload(&config(&stage.origin, "weight = 2")).await;
    assert_eq!(stage.push(&callback, &["/2"]).await, 202);
    stage.until_read(1).await;
    assert_eq!(stage.hub.requests("/hub").len(), 1, "it has heard no farewell");
    stage.daemon.stop().await;
}

#[tokio::test]
async fn another_hub_replaces_the_one_before_and_none_ends_it() {
    let (stage, old) = Stage::subscribed().await;
    stage.daemon.clock.advance(HOUR);
    stage.hub.set("/hub2", Reply::status(202));
    let second = format!("{}/hub2", stage.hub.base());
    stage.origin.set("/feed", feed(&stage.origin, &[second], &["/1"]));
    stage.daemon.poll("/feed").await;
    let form = asked_of(&stage.daemon, &stage.hub, "/hub2", 1).await;
    assert_eq!(stage.push(&old, &["/2"]).await, 202, "until the new one is verified");
    stage.until_read(1).await;
    stage.daemon.clock.advance(MINUTE);
    assert_eq!(stage.verify(&form["hub.callback"], "subscribe", 864_000).await.status, 200);
    assert_eq!(stage.asked(2).await["hub.mode"], "unsubscribe");
    assert_eq!(stage.state().await, "unproven", "the new one has proved nothing");
    stage.origin.set("/feed", feed(&stage.origin, &[], &["/1"]));
    stage.daemon.poll("/feed").await;
    let farewell = asked_of(&stage.daemon, &stage.hub, "/hub2", 2).await;
    assert_eq!(farewell["hub.mode"], "unsubscribe");
    assert!(stage.view().await.is_none());
    // Three times is enough for a hub that does not listen.
    for nth in 3..=4 {
        stage.daemon.pass(HOUR).await;
        asked_of(&stage.daemon, &stage.hub, "/hub2", nth).await;
    }
    for _ in 0..7 {
        stage.daemon.pass(HOUR).await;
    }
    assert_eq!(stage.hub.requests("/hub2").len(), 1 + 3);
    assert_eq!(stage.push(&old, &["/7"]).await, 410);
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_hub_that_is_named_beside_the_one_that_pushes_changes_nothing() {
    let (stage, _) = Stage::subscribed().await;
    stage.daemon.clock.advance(HOUR);
    let mut hubs = vec![format!("{}/other", stage.hub.base())];
    hubs.extend(stage.hubs());
    stage.origin.set("/feed", feed(&stage.origin, &hubs, &["/1"]));
    stage.daemon.poll("/feed").await;
    stage.daemon.pass(3 * HOUR).await;
    assert_eq!(stage.hub.all_requests().len(), 1);
    assert_eq!(stage.view().await.unwrap().hub, Some(stage.hubs().remove(0)));
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_topic_that_changes_and_changes_back_stays_subscribed() {
    let (stage, mut callback) = Stage::subscribed().await;
    let (base, topic) = (stage.origin.base(), stage.topic());
    let listing = |tail: &str| {
        let text = feed_text(&base, &stage.hubs(), &["/1"]) + tail;
        let own = format!("<atom:link rel=\"self\" href=\"{topic}\"/>");
        assert!(text.contains(&own));
        Reply::xml(text.replace(&own, ""))
    };
    let requests = || {
        let forms = stage
            .hub
            .requests("/hub")
            .into_iter()
            .map(|seen| url::form_urlencoded::parse(&seen.body).into_owned().collect::<Form>());
        forms.filter(|form| form["hub.mode"] == "subscribe").collect::<Vec<_>>()
    };
    let request = async |nth: usize| {
        let what = format!("subscription {nth}");
        stage.daemon.wait(&what, async || requests().into_iter().nth(nth - 1)).await
    };
    // The same bytes are found at both places, and others.
    for (round, (hub_says, tail)) in [(202, ""), (404, "<!-- -->")].into_iter().enumerate() {
        stage.daemon.clock.advance(HOUR);
        stage.hub.set("/hub", Reply::status(hub_says));
        stage.origin.set("/elsewhere", listing(tail));
        stage.origin.set("/feed", Reply::redirect(302, "/elsewhere"));
        stage.daemon.poll("/feed").await;
        let other = request(2 * round + 2).await;
        assert_eq!(other["hub.topic"], format!("{base}/elsewhere"));
        if hub_says == 404 {
            stage
                .daemon
                .wait("its answer", async || stage.view().await.unwrap().error.map(drop))
                .await;
        }
        stage.origin.set("/feed", listing(""));
        stage.daemon.poll("/feed").await;
        // What the feed is not any more does not take the place of what it is.
        let late = &other["hub.callback"];
        assert_eq!(
            verify(&stage.daemon, late, "subscribe", &other["hub.topic"], 9_999).await.status,
            404
        );
        let view = stage.view().await.unwrap();
        assert_eq!((view.state, &view.topic, view.error), ("unproven", &topic, None));
        stage.hub.set("/hub", Reply::status(202));
        stage.daemon.pass(HOUR).await;
        let renewal = request(2 * round + 3).await;
        assert_eq!(renewal["hub.topic"], topic);
        callback = renewal["hub.callback"].clone();
        assert_eq!(stage.verify(&callback, "subscribe", 864_000).await.status, 200);
    }
    assert_eq!(stage.push(&callback, &["/2"]).await, 202);
    stage.until_state("healthy").await;
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_site_that_wants_no_push_or_leaves_is_unsubscribed() {
    let (stage, _) = Stage::subscribed().await;
    let polls = stage.origin.requests("/feed").len();
    stage.daemon.reload(&config(&stage.origin, "websub = false")).await;
    assert_eq!(stage.asked(2).await["hub.mode"], "unsubscribe");
    assert!(stage.view().await.is_none());
    // Wanted again, the hub is known without another read.
    stage.daemon.reload(&config(&stage.origin, "")).await;
    assert_eq!(stage.asked(3).await["hub.mode"], "subscribe");
    assert_eq!(stage.origin.requests("/feed").len(), polls);
    stage.daemon.stop().await;

    let (stage, callback) = Stage::subscribed().await;
    let none = format!(
        "[listen]\npublic = \"127.0.0.1:0\"\npublic_url = \"{REACHED}\"\n[[site]]\nname = \"b\"\n\
         url = \"{}/\"\nsitemaps = []\nfeeds = []\n",
        stage.hub.base()
    );
    stage.daemon.reload(&none).await;
    assert_eq!(stage.push(&callback, &["/2"]).await, 410);
    stage.daemon.clock.advance(2 * MINUTE);
    assert_eq!(stage.asked(2).await["hub.mode"], "unsubscribe");
    assert!(!stage.knows("/2").await);
    stage.daemon.stop().await;
}

#[tokio::test]
async fn a_source_that_is_polled_again_is_subscribed_to_though_it_has_not_changed() {
    let (stage, _) = Stage::subscribed().await;
    let text = config(&stage.origin, "");
    let feeds = format!("feeds = [\"{}/feed\"]", stage.origin.base());
    stage.daemon.reload(&text.replace(&feeds, "feeds = []")).await;
    stage.daemon.clock.advance(2 * MINUTE);
    assert_eq!(stage.asked(2).await["hub.mode"], "unsubscribe");
    stage.daemon.reload(&text).await;
    assert_eq!(stage.daemon.polled("/feed", 2).await.result, "unchanged");
    let again = stage.asked(3).await;
    assert_eq!((again["hub.mode"].as_str(), &again["hub.topic"]), ("subscribe", &stage.topic()));
    stage.daemon.stop().await;
}

#[tokio::test]
async fn subscriptions_outlive_a_restart_and_move_with_the_listener() {
    let (stage, old) = Stage::subscribed().await;
    let Stage { world, daemon, origin, hub } = stage;
    daemon.stop().await;
    let daemon = world.start(&config(&origin, "")).await;
    let stage = Stage { world, daemon, origin, hub };
    assert_eq!(stage.push(&old, &["/2"]).await, 202);
    stage.until_read(1).await;
    assert!(stage.knows("/2").await);
    assert_eq!(stage.hub.requests("/hub").len(), 1, "nothing was asked anew");
    let Stage { world, daemon, origin, hub } = stage;
    daemon.stop().await;
    // Reached elsewhere: a callback there replaces the one here.
    let moved = config(&origin, "").replace(REACHED, "https://other.example/x");
    let daemon = world.start(&moved).await;
    let form = asked_of(&daemon, &hub, "/hub", 2).await;
    assert!(form["hub.callback"].starts_with("https://other.example/x/websub/"));
    daemon.stop().await;
    // Reached nowhere: nobody can push.
    let silent = config(&origin, "").replace("public_url", "# public_url");
    let daemon = world.start(&silent).await;
    daemon
        .wait("no push", async || daemon.source("/feed").await.push.is_none().then_some(()))
        .await;
    assert_eq!(push(&daemon, &old, "", "x").await.status, 410);
    daemon.stop().await;
}

#[tokio::test]
async fn a_hub_with_too_much_to_do_is_left_alone_and_has_not_failed() {
    for (status, state) in [(429, "wanted"), (503, "failed")] {
        let (origin, hub) = (Origin::start().await, Origin::start().await);
        origin.set("/robots.txt", Reply::text("User-agent: *\n"));
        let hubs = [format!("{}/hub", hub.base())];
        let other = feed_text(&origin.base(), &hubs, &["/2"]).replace("/feed\"", "/other\"");
        origin.set("/feed", feed(&origin, &hubs, &["/1"]));
        origin.set("/other", Reply::status(404));
        hub.set("/hub", Reply::status(status).header("Retry-After", "7200"));
        let world = World::new(&[&origin, &hub]);
        let text = config(&origin, "").replace(
            &format!("feeds = [\"{}/feed\"]", origin.base()),
            &format!("feeds = [\"{0}/feed\", \"{0}/other\"]", origin.base()),
        );
        let daemon = world.start(&text).await;
        let push = async |path: &str| daemon.source(path).await.push.expect("it names a hub");
        asked_of(&daemon, &hub, "/hub", 1).await;
        daemon
            .wait("its answer", async || (push("/feed").await.state == state).then_some(()))
            .await;
        assert_eq!(push("/feed").await.error.is_none(), status == 429, "{status}");
        // Nobody asks that host before its time, whatever for.
        origin.set("/other", Reply::xml(other));
        daemon.poll("/other").await;
        // Not while the hub is being asked: to whom two hours have passed then, it would
        // seem not to have verified what it was asked for.
        let is_put_off = async || {
            let view = push("/other").await;
            let waits = view.state == "wanted" && view.next_request_at > daemon.now() + HOUR;
            waits.then_some(())
        };
        daemon.wait("the other source to be put off", is_put_off).await;
        daemon.pass(118 * MINUTE).await;
        assert_eq!(hub.requests("/hub").len(), 1, "{status}");
        hub.set("/hub", Reply::status(202));
        daemon.pass(5 * MINUTE).await;
        let what = "the other source to be asked for";
        // Both sources ask one host: who finds it busy comes back, by a clock that goes on.
        let is_asked = async || {
            daemon.clock.advance(Duration::from_secs(1));
            (push("/other").await.state == "asked").then_some(())
        };
        daemon.wait(what, is_asked).await;
        daemon.stop().await;
    }
}
