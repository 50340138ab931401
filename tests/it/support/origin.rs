//! A small HTTP/1.1 origin on raw sockets that answers what the test says.
//!
//! It runs on a thread and a runtime of its own, so that a test may block, pause
//! its clock or kill a daemon without the origin noticing. Every request is
//! recorded. It ends when it is dropped.
//!
//! ```ignore
//! let origin = Origin::start().await;
//! origin.set("/robots.txt", Reply::text("User-agent: *\nDisallow:\n"));
//! origin.set_sequence("/sitemap.xml", [Reply::xml(first), Reply::xml(second).etag("\"2\"")]);
//! assert_eq!(origin.requests("/sitemap.xml")[1].header("if-none-match"), None);
//! ```

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use url::Url;

use super::PATIENCE;
use super::reply::{Ending, Framing, Reply};

/// Bytes of a request's head read at most.
const MAX_HEAD: usize = 64 * 1024;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `GET`, `POST`, …
    pub method: String,
    /// Path and query, or whatever stood there.
    pub path: String,
    /// In the order sent, names as sent.
    pub headers: Vec<(String, String)>,
    /// When its head was read.
    pub at: Instant,
    /// Number of its connection, counted from 1.
    pub connection: usize,
    /// What came with it.
    pub body: Vec<u8>,
    sent: Arc<AtomicU64>,
}

impl Seen {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    /// Bytes sent in answer so far, head included, as the socket took them.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

type Route = Box<dyn Fn(&Seen) -> Option<Reply> + Send + Sync>;

#[derive(Default)]
struct Shared {
    replies: Mutex<HashMap<String, VecDeque<Reply>>>,
    route: Mutex<Option<Route>>,
    log: Mutex<Vec<Seen>>,
    logged: watch::Sender<usize>,
    connections: AtomicUsize,
    open: AtomicUsize,
}

/// The origin. Paths without a reply answer 404.
pub struct Origin {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Origin {
    /// Listens on a free port of 127.0.0.1.
    #[allow(clippy::unused_async, reason = "may need to wait one day; callers are async anyway")]
    pub async fn start() -> Self {
        Self::start_blocking()
    }

    /// The same where there is no runtime.
    pub fn start_blocking() -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn({
            let shared = shared.clone();
            move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async move {
                    let listener = TcpListener::from_std(listener).unwrap();
                    tokio::select! {
                        () = accept(listener, shared) => {}
                        _ = stopped => {}
                    }
                });
            }
        });
        Self { addr, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// `http://127.0.0.1:PORT` without a slash at the end, for documents.
    pub fn base(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A URL of it; `path` begins with a slash.
    pub fn url(&self, path: &str) -> Url {
        Url::parse(&format!("{}{path}", self.base())).unwrap()
    }

    /// From now on this path (with its query, if any) answers so.
    pub fn set(&self, path: &str, reply: Reply) {
        self.set_sequence(path, [reply]);
    }

    /// From now on this path answers these, one after the other; the last stays.
    pub fn set_sequence(&self, path: &str, replies: impl IntoIterator<Item = Reply>) {
        lock(&self.shared.replies).insert(path.to_owned(), replies.into_iter().collect());
    }

    /// From now on this path answers 404.
    pub fn unset(&self, path: &str) {
        lock(&self.shared.replies).remove(path);
    }

    /// Asked for every path that has no reply set.
    pub fn route(&self, route: impl Fn(&Seen) -> Option<Reply> + Send + Sync + 'static) {
        *lock(&self.shared.route) = Some(Box::new(route));
    }

    /// The requests for this path so far.
    pub fn requests(&self, path: &str) -> Vec<Seen> {
        lock(&self.shared.log).iter().filter(|seen| seen.path == path).cloned().collect()
    }

    /// All requests so far, in the order they came.
    pub fn all_requests(&self) -> Vec<Seen> {
        lock(&self.shared.log).clone()
    }

    /// Forgets the requests so far.
    pub fn clear_log(&self) {
        lock(&self.shared.log).clear();
    }

    /// Returns when this path has been asked for so many times (since the log
    /// was cleared); fails after half a minute.
    pub async fn wait_for(&self, path: &str, times: usize) {
        let mut logged = self.shared.logged.subscribe();
        let enough = async {
            while self.requests(path).len() < times {
                logged.changed().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(PATIENCE, enough).await;
        let found = self.requests(path).len();
        assert!(waited.is_ok(), "{path} was asked for {found} times, not {times}");
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Connections open now.
    pub fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Fails only when the thread has ended already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the test origin panicked");
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let connection = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
        let shared = shared.clone();
        tokio::spawn(async move {
            shared.open.fetch_add(1, Ordering::SeqCst);
            // An error is the client going away, which is its right.
            let _ = serve(stream, connection, &shared).await;
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn serve(mut stream: TcpStream, connection: usize, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    while let Some(head) = read_head(&mut stream, &mut buffer).await? {
        let Some(mut seen) = parse(&head, connection) else { return Ok(()) };
        let body: usize = seen.header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
        while buffer.len() < body {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        seen.body = buffer.drain(..body).collect();
        let reply = choose(shared, &seen).to(&seen);
        lock(&shared.log).push(seen.clone());
        shared.logged.send_modify(|n| *n += 1);
        if !answer(&mut stream, &reply, &seen.sent).await? {
            return Ok(());
        }
    }
    Ok(())
}

fn choose(shared: &Shared, seen: &Seen) -> Reply {
    if let Some(queue) = lock(&shared.replies).get_mut(&seen.path) {
        let next = if queue.len() > 1 { queue.pop_front() } else { queue.front().cloned() };
        return next.unwrap_or_else(|| Reply::status(404));
    }
    let routed = lock(&shared.route).as_ref().and_then(|route| route(seen));
    routed.unwrap_or_else(|| Reply::status(404))
}

/// Sends an answer; says whether the connection goes on.
async fn answer(stream: &mut TcpStream, reply: &Reply, sent: &AtomicU64) -> io::Result<bool> {
    if let Some(hold) = &reply.before {
        hold.pass().await;
    }
    if !matches!(reply.framing, Framing::Raw) {
        send(stream, &reply.head(), sent).await?;
    }
    let body = reply.wire_body();
    let whole = match reply.end {
        Ending::Cut(n) | Ending::Reset(n) => &body[..n.min(body.len())],
        _ => &body[..],
    };
    match &reply.pieces {
        Some((piece, hold)) => {
            for part in whole.chunks((*piece).max(1)) {
                hold.pass().await;
                send(stream, part, sent).await?;
            }
        }
        None => send(stream, whole, sent).await?,
    }
    match &reply.end {
        Ending::Keep => return Ok(true),
        Ending::Close | Ending::Cut(_) => stream.shutdown().await?,
        Ending::Reset(_) => stream.set_zero_linger()?,
        Ending::Endless(tail) => loop {
            send(stream, tail, sent).await?;
            tokio::task::yield_now().await;
        },
    }
    Ok(false)
}

async fn send(stream: &mut TcpStream, bytes: &[u8], sent: &AtomicU64) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        let n = stream.write(left).await?;
        sent.fetch_add(n as u64, Ordering::SeqCst);
        left = &left[n..];
    }
    stream.flush().await
}

/// Reads up to and with the empty line; what follows stays in the buffer.
async fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            return Ok(Some(buffer.drain(..end + 4).collect()));
        }
        // TLS and other noise: refused as real servers refuse it.
        if buffer.first().is_some_and(|first| !first.is_ascii_alphabetic()) {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await?;
            return Ok(None);
        }
        if buffer.len() > MAX_HEAD || stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

fn parse(head: &[u8], connection: usize) -> Option<Seen> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines();
    let mut request_line = lines.next()?.split(' ');
    let method = request_line.next()?.to_owned();
    let path = request_line.next()?.to_owned();
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let (at, body, sent) = (Instant::now(), Vec::new(), Arc::default());
    Some(Seen { method, path, headers, at, connection, body, sent })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
