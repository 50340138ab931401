//! The daemons that share a store on a server: who has which partition, and how
//! one of them asks another to do what is that one's to do.
//!
//! They ask over HTTP/1.1, one order a request, in JSON, with a secret that
//! stands in the store: whoever may read that may ask. What is asked is done
//! once it is answered; an order whose answer is lost may have been done, and
//! each can be given again without harm.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;

use super::StoreError;
use super::orders::{Order, Reply};
use crate::fetch::peers::PeerClient;

/// Partitions that hosts are dealt to.
pub(super) const PARTITIONS: usize = 256;
/// Whether a daemon that has yet to answer is still up is looked at this often.
const LOOK: Duration = Duration::from_secs(1);
/// Where orders are posted to.
pub(crate) const PATH: &str = "/order";

/// A daemon that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Of this start and of no other.
    pub name: String,
    /// `host:port` where others reach it.
    pub address: Option<String>,
    /// When it joined.
    pub since: Timestamp,
    /// How many partitions it has.
    pub partitions: u32,
}

/// Who has what, as last seen.
#[derive(Debug, Clone)]
pub(super) struct Deal {
    /// Those who are up.
    pub(super) nodes: Vec<Node>,
    /// By partition: which of them has it.
    pub(super) owners: [Option<usize>; PARTITIONS],
}

impl Default for Deal {
    fn default() -> Self {
        Self { nodes: Vec::new(), owners: [None; PARTITIONS] }
    }
}

/// Who has a partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Owner {
    /// We have.
    Us,
    /// The daemon at this address has.
    At(String),
    /// Nobody has, as far as we know.
    Nobody,
}

/// Those who share the store with us.
pub(super) struct Peers {
    pub(super) name: String,
    /// Where others reach us.
    address: OnceLock<String>,
    deal: RwLock<Arc<Deal>>,
    /// Others are up that were not.
    joined: Notify,
    secret: RwLock<String>,
    client: PeerClient,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Peers {
    /// Us, under a name that no other start ever had.
    pub(super) fn new() -> Result<Self, StoreError> {
        let random =
            getrandom::u64().map_err(|e| StoreError::Engine(format!("no randomness: {e}")))?;
        let client = PeerClient::new()
            .map_err(|e| StoreError::Engine(format!("no client for other daemons: {e}")))?;
        Ok(Self {
            name: format!("{}-{random:016x}", whereabouts()),
            address: OnceLock::new(),
            deal: RwLock::default(),
            joined: Notify::new(),
            secret: RwLock::default(),
            client,
        })
    }

    /// Where others reach us, from now on.
    pub(super) fn reached_at(&self, address: String) {
        // It is told once.
        let _ = self.address.set(address);
    }

    /// The same; nothing where nobody can.
    pub(super) fn address(&self) -> Option<&str> {
        self.address.get().map(String::as_str)
    }

    /// Who has what, as last seen.
    pub(super) fn deal(&self) -> Arc<Deal> {
        Arc::clone(&self.deal.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set(&self, deal: Deal) {
        let known = self.deal();
        let is_new = |node: &Node| {
            node.name != self.name && !known.nodes.iter().any(|old| old.name == node.name)
        };
        let has_joined = deal.nodes.iter().any(is_new);
        *self.deal.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(deal);
        if has_joined {
            self.joined.notify_one();
        }
    }

    /// Resolves when others are seen to be up that were not when this was last
    /// waited for. Safe to drop and to wait for again.
    pub(super) async fn joined(&self) {
        self.joined.notified().await;
    }

    pub(super) fn set_secret(&self, secret: String) {
        *self.secret.write().unwrap_or_else(PoisonError::into_inner) = secret;
    }

    /// Does somebody who gives this secret share the store?
    pub(super) fn knows(&self, secret: &str) -> bool {
        let ours = self.secret.read().unwrap_or_else(PoisonError::into_inner);
        // As long for every secret of the length of ours.
        let same = ours.len() == secret.len()
            && ours.bytes().zip(secret.bytes()).fold(0, |rest, (a, b)| rest | (a ^ b)) == 0;
        same && !ours.is_empty()
    }

    /// Who has a partition, as last seen.
    pub(super) fn owner(&self, part: i64) -> Owner {
        let deal = self.deal();
        let place = usize::try_from(part).ok();
        let owner = place.and_then(|place| *deal.owners.get(place)?);
        match owner.and_then(|owner| deal.nodes.get(owner)) {
            Some(node) if node.name == self.name => Owner::Us,
            Some(Node { address: Some(address), .. }) => Owner::At(address.clone()),
            _ => Owner::Nobody,
        }
    }

    /// Where the others are.
    pub(super) fn others(&self) -> Vec<String> {
        let deal = self.deal();
        let others = deal.nodes.iter().filter(|node| node.name != self.name);
        others.filter_map(|node| node.address.clone()).collect()
    }

    /// Resolves when the daemon at an address is up no more.
    async fn is_gone(&self, address: &str) {
        loop {
            tokio::time::sleep(LOOK).await;
            if !self.others().iter().any(|other| other == address) {
                return;
            }
        }
    }

    /// Has another daemon do something.
    pub(super) async fn ask(&self, address: &str, order: &Order) -> Result<Reply, StoreError> {
        let away = |error: &dyn std::fmt::Display| {
            StoreError::Unreached(format!("the daemon at {address} does not answer: {error}"))
        };
        let body = serde_json::to_vec(order).map_err(|e| StoreError::Engine(e.to_string()))?;
        let secret = self.secret.read().unwrap_or_else(PoisonError::into_inner).clone();
        let answered = tokio::select! {
            answered = self.client.post(address, PATH, &secret, body) => answered,
            // One that was stopped holds its connections open.
            () = self.is_gone(address) => Err("it was taken over".to_owned()),
        };
        let body = answered.map_err(|error| away(&error))?;
        let reply: Result<Reply, Told> =
            serde_json::from_slice(&body).map_err(|error| away(&error))?;
        reply.map_err(StoreError::from)
    }
}

/// An error on its way to another daemon.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) enum Told {
    Elsewhere,
    Busy,
    Full,
    Away(String),
    Unreached(String),
    NotFound(String),
    Gone(String),
    Refused(String),
    Engine(String),
}

impl From<StoreError> for Told {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Elsewhere => Self::Elsewhere,
            StoreError::Busy => Self::Busy,
            StoreError::Full => Self::Full,
            StoreError::NotFound(text) => Self::NotFound(text),
            StoreError::Gone(text) => Self::Gone(text),
            StoreError::Refused(text) | StoreError::Misconfigured(text) => Self::Refused(text),
            StoreError::Engine(text) => Self::Engine(text),
            // What ends that daemon does not end this one.
            StoreError::Closed => Self::Unreached("another daemon is stopping".to_owned()),
            StoreError::Unreached(text) | StoreError::Unusable(text) | StoreError::Failed(text) => {
                Self::Unreached(text)
            }
            StoreError::Away(text) => Self::Away(text),
        }
    }
}

impl From<Told> for StoreError {
    fn from(told: Told) -> Self {
        match told {
            Told::Elsewhere => Self::Elsewhere,
            Told::Busy => Self::Busy,
            Told::Full => Self::Full,
            Told::Away(text) => Self::Away(text),
            Told::Unreached(text) => Self::Unreached(text),
            Told::NotFound(text) => Self::NotFound(text),
            Told::Gone(text) => Self::Gone(text),
            Told::Refused(text) => Self::Refused(text),
            Told::Engine(text) => Self::Engine(text),
        }
    }
}

/// This machine and process, for people: letters, digits and dashes.
fn whereabouts() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    format!("{}-{}", name.chars().map(plain).take(64).collect::<String>(), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, address: Option<&str>) -> Node {
        let address = address.map(str::to_owned);
        Node { name: name.to_owned(), address, since: Timestamp::UNIX_EPOCH, partitions: 0 }
    }

    #[test]
    fn only_who_knows_the_secret_is_known() {
        let peers = Peers::new().unwrap();
        assert!(!peers.knows(""), "before there is one nobody is");
        peers.set_secret("abc".to_owned());
        assert!(peers.knows("abc"));
        for other in ["", "ab", "abd", "abcd", "ABC"] {
            assert!(!peers.knows(other), "{other:?}");
        }
    }

    #[tokio::test]
    async fn that_another_daemon_does_not_answer_is_not_said_of_the_database_server() {
        let peers = Peers::new().unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let nobody = taken.local_addr().unwrap().to_string();
        drop(taken);
        let order = Order::Release(Vec::new(), std::time::Duration::ZERO);
        let said = peers.ask(&nobody, &order).await.map(|_| ()).unwrap_err().to_string();
        let expected = format!("the daemon at {nobody} does not answer");
        assert!(said.starts_with(&expected), "{said}");
    }

    #[test]
    fn a_partition_is_ours_anothers_or_nobodys() {
        let peers = Peers::new().unwrap();
        assert_eq!(peers.owner(0), Owner::Nobody);
        let nodes = vec![
            node("a", Some("10.0.0.1:1")),
            node(&peers.name, Some("10.0.0.2:1")),
            node("silent", None),
        ];
        let mut owners = [None; PARTITIONS];
        (owners[0], owners[1], owners[2]) = (Some(0), Some(1), Some(2));
        peers.set(Deal { nodes, owners });
        assert_eq!(peers.owner(0), Owner::At("10.0.0.1:1".to_owned()));
        assert_eq!(peers.owner(1), Owner::Us);
        // One that cannot be asked is as good as nobody.
        assert_eq!(peers.owner(2), Owner::Nobody);
        assert_eq!(peers.owner(255), Owner::Nobody);
        assert_eq!(peers.owner(256), Owner::Nobody);
        assert_eq!(peers.others(), ["10.0.0.1:1"]);
    }

    #[tokio::test]
    async fn who_joins_is_noticed_once_also_in_the_place_of_one_that_has_left() {
        let peers = Peers::new().unwrap();
        let owners = [None; PARTITIONS];
        let us = node(&peers.name, Some("10.0.0.2:1"));
        let noticed = async || {
            tokio::select! {
                biased;
                () = peers.joined() => true,
                () = std::future::ready(()) => false,
            }
        };
        for (others, joins) in [(vec![], false), (vec!["a"], true), (vec!["a"], false)]
            .into_iter()
            .chain([(vec!["b"], true), (vec![], false), (vec!["b"], true)])
        {
            let nodes = others.iter().map(|name| node(name, Some("10.0.0.1:1")));
            peers.set(Deal { nodes: nodes.chain([us.clone()]).collect(), owners });
            assert_eq!(noticed().await, joins, "{others:?}");
            assert!(!noticed().await, "{others:?}");
        }
    }
}
