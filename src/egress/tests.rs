//! What is in flight, and what goes back, by a store that is there.

use super::*;
use crate::config::Config;
use crate::egress::book::Held;
use crate::queue::{Leased, Token};
use crate::store::frontier::Put;

/// A store of ten URLs of one host, and its clock.
struct Setup {
    config: Config,
    clock: Clock,
    store: Store,
    _folder: tempfile::TempDir,
}

impl Setup {
    async fn new(host_delay: Duration) -> Self {
        let folder = tempfile::TempDir::new().expect("a folder");
        let mut config = Config::from_toml_str("").expect("the defaults");
        config.daemon.data_dir = folder.path().join("data");
        config.politeness.host_delay = host_delay;
        let clock = Clock::manual("2026-11-21T00:00:00Z".parse().expect("a time"));
        let store = open(&config, &clock);
        let put = |n| Put {
            crawl: "default".to_owned(),
            key: None,
            url: format!("http://a.test/{n}"),
            metadata: std::collections::BTreeMap::new(),
            created: None,
            known: None,
        };
        store.frontier_put((0..10).map(put).collect()).await.expect("kept");
        Self { config, clock, store, _folder: folder }
    }

    /// Publishes to that stream.
    fn egress(&self, stream: &str) -> Egress {
        let config = Nats { stream: stream.to_owned(), ..Nats::default() };
        let defaults = LeaseDefaults { ttl: Duration::from_secs(300), per_host: 100 };
        let (_, defaults) = watch::channel(defaults);
        let (store, clock) = (self.store.clone(), self.clock.clone());
        let metrics = Arc::new(Metrics::new());
        Egress::new(config, store, clock, metrics, defaults).expect("no secrets")
    }
}

fn open(config: &Config, clock: &Clock) -> Store {
    Store::open(config, clock.clone(), Arc::new(Metrics::new())).expect("opened")
}

async fn lease(egress: &Egress) -> Vec<Leased> {
    egress.store.lease(egress.request("default", 10)).await.expect("leased").urls
}

fn tokens(leased: &[Leased]) -> Vec<Token> {
    leased.iter().map(|leased| leased.token).collect()
}

async fn count(egress: &Egress) -> usize {
    egress.store.leases_of(&egress.worker()).await.expect("read").len()
}

#[tokio::test]
async fn what_one_stream_has_is_in_no_book_of_another() {
    let setup = Setup::new(Duration::ZERO).await;
    let (one, other) = (setup.egress("ONE"), setup.egress("OTHER"));
    assert_eq!(lease(&one).await.len(), 10);
    for (egress, held) in [(&one, 10), (&other, 0)] {
        egress.take_stock(&Held::default()).await.expect("read");
        assert_eq!(egress.unsettled.len(), held);
    }
    setup.store.close();
}

#[tokio::test]
async fn what_a_killed_process_held_and_never_published_is_given_back_at_once() {
    let setup = Setup::new(Duration::from_secs(5)).await;
    let killed = setup.egress("ONE");
    let leased = lease(&killed).await;
    assert_eq!(leased.len(), 10);
    drop(killed);
    setup.clock.advance(Duration::from_secs(7));
    let next = setup.egress("ONE");
    next.take_stock(&Held::default()).await.expect("read");
    // Two may have been published.
    let left = setup.store.leases_of(&next.worker()).await.expect("read");
    let left: Vec<_> = left.iter().map(|lease| lease.token).collect();
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|token| tokens(&leased[..2]).contains(token)), "{left:?}");
    assert_eq!(next.unsettled.len(), 2);
    setup.store.close();
}

#[tokio::test]
async fn what_came_due_while_nobody_published_is_given_back_as_well() {
    let setup = Setup::new(Duration::from_secs(5)).await;
    let killed = setup.egress("ONE");
    let leased = lease(&killed).await;
    // It would have noted that again before it published the fourth.
    let noted = leased[1].not_before;
    setup.store.note_published(&killed.worker(), noted).await.expect("noted");
    drop(killed);
    setup.clock.advance(Duration::from_secs(60));
    let next = setup.egress("ONE");
    next.take_stock(&Held::default()).await.expect("read");
    let left = setup.store.leases_of(&next.worker()).await.expect("read");
    let left: Vec<_> = left.iter().map(|lease| lease.token).collect();
    assert_eq!(left.len(), 3);
    assert!(left.iter().all(|token| tokens(&leased[..3]).contains(token)), "{left:?}");
    // From then on it goes by what is held here.
    let again = lease(&next).await;
    assert!(!again.is_empty());
    setup.clock.advance(Duration::from_secs(600));
    next.take_stock(&Held::default()).await.expect("read");
    assert_eq!(count(&next).await, 3 + again.len(), "published, for all that it knows");
    setup.store.close();
}

#[tokio::test]
async fn what_a_call_without_an_answer_has_leased_is_given_back_at_once() {
    let setup = Setup::new(Duration::ZERO).await;
    let egress = setup.egress("ONE");
    egress.take_stock(&Held::default()).await.expect("read");
    let known = egress.store.lease(egress.request("default", 3)).await.expect("leased").urls;
    egress.unsettled.add(&known, setup.clock.steady());
    setup.clock.advance(Duration::from_secs(7));
    egress.not_answered(setup.clock.steady());
    assert_eq!(lease(&egress).await.len(), 7);
    egress.take_stock(&Held::default()).await.expect("read");
    assert_eq!((count(&egress).await, egress.unsettled.len()), (3, 3));
    // What is leased after that is known, or another's.
    assert_eq!(lease(&egress).await.len(), 7);
    egress.take_stock(&Held::default()).await.expect("read");
    assert_eq!(count(&egress).await, 10);
    setup.store.close();
}

#[tokio::test]
async fn what_is_held_here_stays_when_stock_is_taken() {
    let setup = Setup::new(Duration::from_secs(5)).await;
    let egress = setup.egress("ONE");
    let mut held = Held::default();
    held.add(lease(&egress).await);
    egress.take_stock(&held).await.expect("read");
    assert_eq!(count(&egress).await, 10);
    assert_eq!(egress.unsettled.len(), 10);
    setup.store.close();
}

#[tokio::test]
async fn what_the_store_could_not_take_back_is_owed_until_it_does() {
    let setup = Setup::new(Duration::ZERO).await;
    let mut egress = setup.egress("ONE");
    let leased = lease(&egress).await;
    egress.owed.add(tokens(&leased[..3]), Duration::from_secs(3_600));
    egress.owed.add(tokens(&leased[3..]), Duration::ZERO);
    setup.store.close();
    egress.give_back().await.expect_err("it is closed");
    // It is held until nobody has it.
    let other = Setup::new(Duration::ZERO).await;
    egress.store = other.store.clone();
    let Setup { config, clock, store, _folder } = setup;
    drop(store);
    egress.store = open(&config, &clock);
    assert_eq!(count(&egress).await, 10);
    egress.take_stock(&Held::default()).await.expect("taken");
    assert_eq!(count(&egress).await, 0);
    assert_eq!(egress.unsettled.len(), 0);
    // Those that are to wait do.
    assert_eq!(lease(&egress).await.len(), 7);
    egress.store.close();
    other.store.close();
}
