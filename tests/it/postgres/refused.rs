//! What the server will not write: those who shared the transaction hear so, and
//! who comes again is not drawn in once more.

use sitemapd::queue::{LeaseRequest, Leased};
use sitemapd::store::StoreError;

use crate::support::daemon::{World, index, sitemap};
use crate::support::engine::{self, Look};
use crate::support::queue_daemon::{Queue, ask};
use crate::support::{Origin, Reply};

/// Has the server refuse leases of one worker.
const REFUSE: &str = "
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON leases
        FOR EACH ROW WHEN (NEW.worker = 'poison') EXECUTE FUNCTION refuse()";

const URLS: usize = 200;

async fn lease(queue: &Queue, worker: &str) -> Result<Vec<Leased>, StoreError> {
    let request = LeaseRequest { worker: Some(worker.to_owned()), ..ask(5) };
    queue.store.lease(request).await.map(|batch| batch.urls)
}

#[tokio::test]
async fn a_lease_that_the_server_will_not_write_fails_alone_when_it_comes_again() {
    let queue = Queue::simple().await;
    if engine::server_for(queue.folder()).is_none() {
        eprintln!("SKIPPED: refused leases need a server, which SITEMAPD_POSTGRES names");
        return;
    }
    queue.list_urls("a", (0..URLS).map(|n| format!("http://h{}.test/{n}", n % 20))).await;
    queue.look().change(REFUSE);
    let mut leased = Vec::new();
    for _ in 0..10 {
        let (one, refused, two) =
            tokio::join!(lease(&queue, "one"), lease(&queue, "poison"), lease(&queue, "two"));
        assert!(refused.is_err(), "the server wrote what it refuses");
        for (worker, given) in [("one", one), ("two", two)] {
            leased.extend(if let Ok(urls) = given {
                urls
            } else {
                // It shared a transaction with what was refused.
                let (again, refused) = tokio::join!(lease(&queue, worker), lease(&queue, "poison"));
                assert!(refused.is_err(), "the server wrote what it refuses");
                again.expect("a lease failed with another's a second time")
            });
        }
    }
    assert_eq!(leased.len(), 100);
    let mut urls: Vec<_> = leased.iter().map(|leased| leased.id).collect();
    urls.sort_unstable();
    urls.dedup();
    assert_eq!(urls.len(), leased.len(), "one URL is with two fetchers");
    let look = queue.look();
    assert_eq!(look.number("SELECT count(*) FROM leases"), 100);
    assert_eq!(look.number("SELECT count(*) FROM queue"), 100);
    look.change("DROP TRIGGER refuse ON leases");
    let mut rest = 0;
    loop {
        match lease(&queue, "poison").await.unwrap().len() {
            0 => break,
            some => rest += some,
        }
    }
    assert_eq!(rest, 100, "what was refused is not in the queue any more");
}

/// Keeps a source from being made, as one does that another daemon makes just then.
const TAKE: &str = "
    CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
    CREATE TRIGGER take BEFORE INSERT ON sources
        FOR EACH ROW WHEN (NEW.url LIKE '%/taken.xml') EXECUTE FUNCTION take()";

#[tokio::test]
async fn a_source_that_another_daemon_makes_is_not_counted_twice() {
    let origin = Origin::start().await;
    let base = origin.base();
    origin.set("/index.xml", Reply::xml(index(&base, &[])));
    let world = World::new(&[&origin]);
    let look = world.look();
    if matches!(look, Look::File(_)) {
        eprintln!("SKIPPED: two daemons need a server, which SITEMAPD_POSTGRES names");
        return;
    }
    let site = format!(
        "[[site]]\nname = \"a\"\nurl = \"{base}/\"\nsitemaps = [\"{base}/index.xml\"]\n\
         feeds = []\nobey_robots = false\n"
    );
    let daemon = world.start(&site).await;
    daemon.polled("/index.xml", 1).await;
    look.change(TAKE);
    origin.set("/mine.xml", Reply::xml(sitemap(&base, &[])));
    let children = [("/taken.xml", ""), ("/mine.xml", "")];
    origin.set("/index.xml", Reply::xml(index(&base, &children)));
    daemon.poll("/index.xml").await;
    let rows = look.number("SELECT count(*) FROM sources WHERE role <> 0");
    assert_eq!(rows, 3, "home page, index and the one that was made");
    assert_eq!(look.number("SELECT sources FROM sites"), rows);
    daemon.stop().await;
}
