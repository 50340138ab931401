//! A TCP relay in the hands of a test: a balancer before daemons, or the line
//! between one of them and its database, which can be cut, be dead for a while,
//! and hold back what goes over it. On threads of its own.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How soon what was held back goes on.
const TICK: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
struct Inner {
    targets: Mutex<Vec<SocketAddr>>,
    turn: AtomicUsize,
    is_dead: AtomicBool,
    is_held: AtomicBool,
    /// Both ends of each connection: the client's, and ours to the target.
    pairs: Mutex<Vec<(TcpStream, TcpStream)>>,
}

/// The relay; it takes connections until the process ends.
#[derive(Debug, Clone)]
pub struct Relay {
    pub addr: SocketAddr,
    inner: Arc<Inner>,
}

impl Relay {
    /// To these, each connection to the next that takes it.
    pub fn to(targets: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let inner = Arc::new(Inner { targets: Mutex::new(targets), ..Inner::default() });
        let relay = Self { addr, inner };
        let taking = relay.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let taking = taking.clone();
                std::thread::spawn(move || taking.take(client));
            }
        });
        relay
    }

    /// To these from now on.
    pub fn lead_to(&self, targets: Vec<SocketAddr>) {
        *lock(&self.inner.targets) = targets;
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for (client, target) in lock(&self.inner.pairs).drain(..) {
            end(&client, &target);
        }
    }

    /// Ends all connections and takes none, or takes them again.
    pub fn kill(&self, is_dead: bool) {
        self.inner.is_dead.store(is_dead, Ordering::SeqCst);
        if is_dead {
            self.cut();
        }
    }

    /// Holds back all that is sent either way, or lets it go on.
    pub fn hold(&self, is_held: bool) {
        self.inner.is_held.store(is_held, Ordering::SeqCst);
    }

    /// From which ports the target is spoken to just now.
    pub fn ports(&self) -> Vec<u16> {
        let pairs = lock(&self.inner.pairs);
        pairs.iter().filter_map(|(_, target)| Some(target.local_addr().ok()?.port())).collect()
    }

    // Whoever takes a connection ends it.
    #[allow(clippy::needless_pass_by_value)]
    fn take(self, client: TcpStream) {
        let Some(target) = self.connect() else { return };
        // Where it has ended already, so does the copying.
        let _ = (client.set_nodelay(true), target.set_nodelay(true));
        let Ok(pair) = client.try_clone().and_then(|one| Ok((one, target.try_clone()?))) else {
            return;
        };
        let port = target.local_addr().map(|addr| addr.port()).unwrap_or_default();
        lock(&self.inner.pairs).push(pair);
        if self.inner.is_dead.load(Ordering::SeqCst) {
            self.cut();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| self.carry(&target, &client));
            self.carry(&client, &target);
        });
        let is_other = |(_, target): &(TcpStream, TcpStream)| {
            target.local_addr().is_ok_and(|addr| addr.port() != port)
        };
        lock(&self.inner.pairs).retain(is_other);
    }

    fn connect(&self) -> Option<TcpStream> {
        if self.inner.is_dead.load(Ordering::SeqCst) {
            return None;
        }
        let mut targets = lock(&self.inner.targets).clone();
        let turn = self.inner.turn.fetch_add(1, Ordering::SeqCst);
        let count = targets.len().max(1);
        targets.rotate_left(turn % count);
        targets.into_iter().find_map(|target| TcpStream::connect(target).ok())
    }

    /// One way, until it ends; then both do.
    fn carry(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut bytes = [0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            while self.inner.is_held.load(Ordering::SeqCst) {
                std::thread::sleep(TICK);
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        end(from, to);
    }
}

fn end(client: &TcpStream, target: &TcpStream) {
    // Either may have ended already.
    let _ = (client.shutdown(Shutdown::Both), target.shutdown(Shutdown::Both));
}

fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
