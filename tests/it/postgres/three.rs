//! Three real daemons on one database, each over a line of its own that the test
//! holds in its hands, behind a balancer. Who ends is started again.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use url::Url;

use crate::support::PATIENCE;
use crate::support::disk::Disk;
use crate::support::engine::Look;
use crate::support::lease_history::Dice;
use crate::support::process::{Daemon, write_config_at};
use crate::support::relay::Relay;

/// Daemons.
pub(super) const COUNT: usize = 3;
const HOUR: i64 = 3_600;

/// A daemon, or the place of one.
pub(super) struct Node {
    config: PathBuf,
    /// To the database.
    pub(super) line: Relay,
    /// Its wall clock, where that can be stepped.
    clock: Option<Disk>,
    pub(super) daemon: Option<Daemon>,
    /// Does the balancer leave it out?
    is_out: bool,
    _dir: TempDir,
}

/// All of them.
pub(super) struct Three {
    pub(super) nodes: Vec<Node>,
    pub(super) balancer: Relay,
    pub(super) look: Look,
    /// How often one ended that nobody had killed.
    pub(super) ended: u32,
    pub(super) clock_steps: u32,
    pub(super) slowest_start: Duration,
    /// The longest until all had their shares again.
    pub(super) slowest_deal: Duration,
    /// The most that one of them had, in bytes.
    pub(super) most_memory: u64,
}

impl Three {
    /// Daemons of this config on a store that is there; none is started.
    pub(super) fn on(text: &str, look: Look) -> Self {
        let Look::Server(url) = &look else { panic!("it is not on a server") };
        let url = Url::parse(url).unwrap();
        let server = url.socket_addrs(|| Some(5_432)).unwrap()[0];
        let node = |_| {
            let dir = TempDir::new().unwrap();
            let line = Relay::to(vec![server]);
            let mut through = url.clone();
            through.set_host(Some("127.0.0.1")).unwrap();
            through.set_port(Some(line.addr.port())).unwrap();
            let config = write_config_at(dir.path(), text, Some(through));
            let clock = Disk::for_clock(&dir.path().join("data"));
            Node { config, line, clock, daemon: None, is_out: false, _dir: dir }
        };
        Self {
            nodes: (0..COUNT).map(node).collect(),
            balancer: Relay::to(Vec::new()),
            look,
            ended: 0,
            clock_steps: 0,
            slowest_start: Duration::ZERO,
            slowest_deal: Duration::ZERO,
            most_memory: 0,
        }
    }

    /// Sets the wall clock of one, running or not, to the right time, or an hour
    /// before or after it.
    pub(super) fn step_clock(&mut self, place: usize, dice: &mut Dice) {
        if let Some(clock) = &self.nodes[place].clock {
            clock.step_clock([0, HOUR, -HOUR][dice.below(3) as usize]);
            self.clock_steps += 1;
        }
    }

    pub(super) fn start(&mut self, place: usize) {
        let began = Instant::now();
        let node = &mut self.nodes[place];
        node.daemon = Some(Daemon::start_on(&node.config, node.clock.as_ref()));
        node.is_out = false;
        self.slowest_start = self.slowest_start.max(began.elapsed());
        self.balance();
    }

    pub(super) fn start_all(&mut self) {
        for place in 0..COUNT {
            if self.nodes[place].daemon.is_none() {
                self.start(place);
            }
        }
    }

    pub(super) fn daemon(&self, place: usize) -> &Daemon {
        self.nodes[place].daemon.as_ref().expect("a daemon")
    }

    pub(super) fn kill(&mut self, place: usize) {
        self.note_memory();
        if let Some(mut daemon) = self.nodes[place].daemon.take() {
            daemon.kill();
        }
        self.balance();
    }

    /// Kills all, and waits until the server has ended what they were at.
    pub(super) fn kill_all(&mut self) {
        (0..COUNT).for_each(|place| self.kill(place));
        self.look.let_go();
    }

    /// Has the balancer leave one out, or not any more.
    pub(super) fn leave_out(&mut self, place: usize, is_out: bool) {
        self.nodes[place].is_out = is_out;
        self.balance();
    }

    fn balance(&self) {
        let up = self.nodes.iter().filter(|node| !node.is_out);
        self.balancer.lead_to(
            up.filter_map(|node| Some(node.daemon.as_ref()?.addr)).collect::<Vec<SocketAddr>>(),
        );
    }

    /// Starts again what has ended by itself.
    pub(super) fn tend(&mut self) {
        for place in 0..COUNT {
            let Some(daemon) = &mut self.nodes[place].daemon else { continue };
            let Some(status) = daemon.has_ended() else { continue };
            println!("daemon {place} ended by itself: {status}, {:?}", daemon.complaints());
            self.ended += 1;
            self.start(place);
        }
    }

    /// Waits until each has its share; what they did meanwhile went on.
    pub(super) async fn wait_for_shares(&mut self) {
        let even = "SELECT count(*) = 3 AND min(n) >= 85 AND sum(n) = 256 FROM
             (SELECT count(*) AS n FROM partitions p JOIN nodes d ON d.name = p.node GROUP BY p.node)
             AS shares";
        let began = Instant::now();
        while self.look.text(even).as_deref() != Some("t") {
            if began.elapsed() > PATIENCE {
                let who = "SELECT name, until - clock_timestamp(),
                     (SELECT count(*) FROM partitions WHERE node = name) FROM nodes";
                panic!("the shares are not even: {:?}", self.look.rows(who));
            }
            self.tend();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.slowest_deal = self.slowest_deal.max(began.elapsed());
    }

    /// The server ends connections of theirs: all, or half of them.
    pub(super) fn terminate(&self, half: bool) {
        let ports: Vec<String> = self
            .nodes
            .iter()
            .flat_map(|node| node.line.ports())
            .filter(|port| !half || port % 2 == 0)
            .map(|port| port.to_string())
            .collect();
        if !ports.is_empty() {
            let which = format!("client_port IN ({})", ports.join(", "));
            self.look.rows(&format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {which}"
            ));
        }
    }

    pub(super) fn note_memory(&mut self) {
        let daemons = self.nodes.iter().filter_map(|node| node.daemon.as_ref());
        let most = daemons.filter_map(Daemon::most_memory).max().unwrap_or_default();
        self.most_memory = self.most_memory.max(most);
    }
}
