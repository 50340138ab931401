//! What a test origin answers: a proper answer, or one broken on purpose.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use super::origin::Seen;
use super::pack;

/// One scripted answer. Build it with a constructor, then bend it.
#[derive(Clone)]
pub struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    pub(super) framing: Framing,
    pub(super) before: Option<Hold>,
    pub(super) pieces: Option<(usize, Hold)>,
    pub(super) end: Ending,
    conditional: bool,
}

/// How the body is delimited.
#[derive(Clone)]
pub(super) enum Framing {
    /// `Content-Length`, true.
    Length,
    /// `Content-Length`, as claimed.
    Claimed(u64),
    /// Chunked, in pieces of this size.
    Chunked(usize),
    /// By the end of the connection.
    Close,
    /// The body is the whole answer, status line included.
    Raw,
}

/// What happens after the body, or in its middle.
#[derive(Clone)]
pub(super) enum Ending {
    /// The connection is kept.
    Keep,
    /// The connection is closed in good order.
    Close,
    /// After so many bytes of the body the connection is closed.
    Cut(usize),
    /// After so many bytes of the body the connection is reset.
    Reset(usize),
    /// After the body this is sent again and again until the client goes away.
    Endless(Vec<u8>),
}

impl Reply {
    /// 200 with a body of this type.
    pub fn bytes(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let reply = Self {
            status: 200,
            headers: Vec::new(),
            body: body.into(),
            framing: Framing::Length,
            before: None,
            pieces: None,
            end: Ending::Keep,
            conditional: true,
        };
        if content_type.is_empty() { reply } else { reply.header("Content-Type", content_type) }
    }

    /// 200 `text/plain`.
    pub fn text(body: impl Into<String>) -> Self {
        Self::bytes("text/plain", body.into())
    }

    /// 200 `application/xml`.
    pub fn xml(body: impl Into<String>) -> Self {
        Self::bytes("application/xml", body.into())
    }

    /// 200 `text/html`.
    pub fn html(body: impl Into<String>) -> Self {
        Self::bytes("text/html; charset=utf-8", body.into())
    }

    /// 200 `application/feed+json`.
    pub fn json(body: impl Into<String>) -> Self {
        Self::bytes("application/feed+json", body.into())
    }

    /// A status with a short body.
    pub fn status(status: u16) -> Self {
        let mut reply = Self::text(format!("status {status}\n"));
        reply.status = status;
        reply
    }

    /// A redirect.
    pub fn redirect(status: u16, location: impl AsRef<str>) -> Self {
        Self::status(status).header("Location", location.as_ref())
    }

    /// These bytes, status line and all, then the connection is closed.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        let mut reply = Self::bytes("", bytes);
        reply.framing = Framing::Raw;
        reply.end = Ending::Close;
        reply
    }

    /// With this status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Bytes of the body as it goes over the wire, chunk sizes included.
    pub fn wire_len(&self) -> usize {
        self.wire_body().len()
    }

    /// A further header; not checked, so that it may be as wrong as it likes.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// An `ETag`, and 304 to those who send it back.
    pub fn etag(self, etag: &str) -> Self {
        self.header("ETag", etag)
    }

    /// A `Last-Modified`, and 304 to those who send it back without a tag.
    pub fn last_modified(self, date: &str) -> Self {
        self.header("Last-Modified", date)
    }

    /// Never 304, whatever the client sends.
    pub fn unconditional(mut self) -> Self {
        self.conditional = false;
        self
    }

    /// Packed, and `Content-Encoding: gzip` says so.
    pub fn gzip(mut self) -> Self {
        self.body = pack::gzip(&self.body);
        self.header("Content-Encoding", "gzip")
    }

    /// Packed, and only the first half of that: the answer itself is whole.
    pub fn half_of_gzip(self) -> Self {
        let mut reply = self.gzip();
        reply.body.truncate(reply.body.len() / 2);
        reply
    }

    /// Packed as a file is: nothing says so but the bytes.
    pub fn gz_file(mut self) -> Self {
        self.body = pack::gzip(&self.body);
        self
    }

    /// With this `Content-Length` instead of the true one.
    pub fn claim_length(mut self, length: u64) -> Self {
        self.framing = Framing::Claimed(length);
        self.end = Ending::Close;
        self
    }

    /// Chunked, in pieces of this size.
    pub fn chunked(mut self, piece: usize) -> Self {
        self.framing = Framing::Chunked(piece);
        self
    }

    /// Without a length: the body ends with the connection.
    pub fn until_close(mut self) -> Self {
        self.framing = Framing::Close;
        self.end = Ending::Close;
        self
    }

    /// The connection is closed after the answer.
    pub fn close(mut self) -> Self {
        self.end = Ending::Close;
        self.header("Connection", "close")
    }

    /// The connection is closed after so many bytes of the body.
    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.end = Ending::Cut(bytes);
        self
    }

    /// The connection is reset after so many bytes of the body.
    pub fn reset_after(mut self, bytes: usize) -> Self {
        self.end = Ending::Reset(bytes);
        self
    }

    /// The body is repeated until the client goes away.
    pub fn endless(mut self) -> Self {
        self.framing = Framing::Close;
        let tail = self.body.clone();
        self.then_endless(tail)
    }

    /// After the body this is repeated until the client goes away.
    pub fn then_endless(mut self, tail: impl Into<Vec<u8>>) -> Self {
        self.end = Ending::Endless(tail.into());
        self
    }

    /// The connection is kept, whatever was said before.
    pub fn keep_open(mut self) -> Self {
        self.end = Ending::Keep;
        self
    }

    /// Nothing is sent until the test releases it.
    pub fn hang(mut self, hold: &Hold) -> Self {
        self.before = Some(hold.clone());
        self
    }

    /// The body goes out in pieces; each waits for a release.
    pub fn drip(mut self, piece: usize, hold: &Hold) -> Self {
        self.pieces = Some((piece, hold.clone()));
        self
    }

    /// What this request gets: the answer, or 304 where it earns one.
    pub(super) fn to(&self, seen: &Seen) -> Self {
        if !self.conditional || self.status != 200 || !self.matches(seen) {
            return self.clone();
        }
        let mut not_modified = Self::bytes("", "");
        not_modified.status = 304;
        not_modified.before.clone_from(&self.before);
        not_modified.headers.clone_from(&self.headers);
        not_modified.headers.retain(|(name, _)| !name.to_ascii_lowercase().starts_with("content-"));
        not_modified
    }

    /// RFC 9110 section 13.2.2: If-None-Match decides where it is sent.
    fn matches(&self, seen: &Seen) -> bool {
        let weak = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
        if let Some(asked) = seen.header("if-none-match") {
            return self
                .own_header("etag")
                .is_some_and(|own| asked.split(',').any(|tag| weak(tag) == weak(&own)));
        }
        let asked = seen.header("if-modified-since");
        asked.is_some() && asked.map(str::to_owned) == self.own_header("last-modified")
    }

    fn own_header(&self, name: &str) -> Option<String> {
        let (_, value) = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    /// Status line, headers, empty line.
    pub(super) fn head(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        }
        let bodiless = matches!(self.status, 204 | 304);
        match self.framing {
            Framing::Length if bodiless => {}
            Framing::Length => {
                head.extend_from_slice(
                    format!("Content-Length: {}\r\n", self.body.len()).as_bytes(),
                );
            }
            Framing::Claimed(n) => {
                head.extend_from_slice(format!("Content-Length: {n}\r\n").as_bytes());
            }
            Framing::Chunked(_) => head.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Framing::Close | Framing::Raw => {}
        }
        head.extend_from_slice(b"\r\n");
        head
    }

    /// The body as it goes over the wire.
    pub(super) fn wire_body(&self) -> Vec<u8> {
        let Framing::Chunked(piece) = self.framing else { return self.body.clone() };
        let mut wire = Vec::new();
        for chunk in self.body.chunks(piece.max(1)) {
            wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0\r\n\r\n");
        wire
    }
}

/// A place where the origin waits for the test. Cheap to clone.
#[derive(Clone)]
pub struct Hold {
    permits: Arc<Semaphore>,
    arrived: watch::Sender<usize>,
}

impl Hold {
    /// Closed.
    pub fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(0)), arrived: watch::Sender::new(0) }
    }

    /// Lets so many waits pass, now or later.
    pub fn release(&self, waits: usize) {
        self.permits.add_permits(waits);
    }

    /// Lets everything pass from now on.
    pub fn release_all(&self) {
        self.permits.close();
    }

    /// Returns when so many waits have begun, counted from the start.
    pub async fn arrived(&self, waits: usize) {
        let mut arrived = self.arrived.subscribe();
        arrived.wait_for(|&n| n >= waits).await.unwrap();
    }

    /// Waits begun so far.
    pub fn waits(&self) -> usize {
        *self.arrived.borrow()
    }

    /// Waits for a release.
    pub async fn pass(&self) {
        self.arrived.send_modify(|n| *n += 1);
        // A closed semaphore is an open gate.
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
    }
}

impl Default for Hold {
    fn default() -> Self {
        Self::new()
    }
}
