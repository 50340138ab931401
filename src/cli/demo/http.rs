//! A small HTTP/1.1 server for the example site, on loopback only.
//!
//! It knows GET and HEAD, keep-alive and conditional requests (RFC 9110 section
//! 13), which is what a polite origin needs to show. Heads are bounded, waits
//! have a timeout, and connections are counted; bodies of requests are refused.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_compression::tokio::write::GzipEncoder;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of one request head; ours are below 1 KiB.
const MAX_HEAD: usize = 8 * 1024;
/// Connections served at once; further ones wait in the backlog.
const MAX_CONNECTIONS: usize = 64;
/// Longest wait for a request on an open connection, and for a reader of ours.
const IDLE: Duration = Duration::from_secs(15);

/// What the site answers for a path.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    /// HTTP status.
    pub(super) status: u16,
    /// `Content-Type`.
    pub(super) content_type: &'static str,
    /// The body before compression.
    pub(super) body: Vec<u8>,
    /// Is the file itself a gzip file (a `.xml.gz`)?
    pub(super) gzip_file: bool,
    /// When it last changed, if it says so.
    pub(super) modified: Option<Timestamp>,
}

/// The pieces of a request that matter here.
#[derive(Debug, Default, PartialEq, Eq)]
struct Head {
    method: String,
    path: String,
    if_none_match: Option<String>,
    if_modified_since: Option<String>,
    close: bool,
    has_body: bool,
}

/// Serves until `stop` is cancelled.
pub(super) async fn serve<F>(listener: TcpListener, answer: F, stop: CancellationToken)
where
    F: Fn(&str) -> Reply + Send + Sync + 'static,
{
    let answer = Arc::new(answer);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let stream = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of descriptors, or the peer has gone: the next may do.
                Err(_) => continue,
            },
        };
        let answer = Arc::clone(&answer);
        let stop = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                // A broken connection of a demo needs no more than its end.
                _ = converse(stream, answer.as_ref()) => {}
            }
            drop(slot);
        });
    }
}

/// Answers the requests of one connection until either side closes it.
async fn converse(
    mut stream: TcpStream,
    answer: &(impl Fn(&str) -> Reply + Sync),
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(1024);
    loop {
        let Some(length) = read_head(&mut stream, &mut buffer).await? else { return Ok(()) };
        let head = parse_head(&buffer[..length]);
        buffer.drain(..length);
        let close = head.as_ref().is_none_or(|head| head.close || head.has_body);
        let wire = match head {
            Some(head) if head.method == "GET" || head.method == "HEAD" => {
                write_reply(&head, answer(&head.path)).await?
            }
            Some(_) => {
                b"HTTP/1.1 405 Method Not Allowed\r\nallow: GET, HEAD\r\ncontent-length: 0\r\n\r\n"
                    .to_vec()
            }
            None => b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".to_vec(),
        };
        timeout(IDLE, stream.write_all(&wire)).await??;
        if close {
            return stream.shutdown().await;
        }
    }
}

/// Reads up to the empty line; says where the head ends. `None` at the end.
async fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<usize>> {
    loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            return Ok(Some(at + 4));
        }
        if buffer.len() > MAX_HEAD {
            return Err(io::Error::other("request head over 8 KiB"));
        }
        let mut chunk = [0; 1024];
        match timeout(IDLE, stream.read(&mut chunk)).await?? {
            0 => return Ok(None),
            read => buffer.extend_from_slice(&chunk[..read]),
        }
    }
}

fn parse_head(bytes: &[u8]) -> Option<Head> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.split("\r\n");
    let mut request = lines.next()?.split(' ');
    let method = request.next()?.to_owned();
    let target = request.next()?;
    let version = request.next()?;
    if !target.starts_with('/') || !version.starts_with("HTTP/1.") {
        return None;
    }
    let path = target.split(['?', '#']).next()?.to_owned();
    let mut head = Head { method, path, close: version == "HTTP/1.0", ..Head::default() };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "if-none-match" => head.if_none_match = Some(value.to_owned()),
            "if-modified-since" => head.if_modified_since = Some(value.to_owned()),
            "connection" => head.close |= value.eq_ignore_ascii_case("close"),
            "content-length" => head.has_body |= value != "0",
            "transfer-encoding" => head.has_body = true,
            _ => {}
        }
    }
    Some(head)
}

/// Writes the whole answer: a 304 where the request's validators still hold.
async fn write_reply(head: &Head, reply: Reply) -> io::Result<Vec<u8>> {
    let etag = format!("\"{:016x}\"", xxh3_64(&reply.body));
    let fresh = reply.status == 200 && still_holds(head, &etag, reply.modified);
    let status = if fresh { 304 } else { reply.status };
    // Writing to a String cannot fail.
    let mut lines = format!("HTTP/1.1 {status} {}\r\n", phrase(status));
    if reply.status == 200 {
        let _ = write!(lines, "etag: {etag}\r\n");
        if let Some(modified) = reply.modified.and_then(http_date) {
            let _ = write!(lines, "last-modified: {modified}\r\n");
        }
    }
    if fresh {
        lines.push_str("\r\n");
        return Ok(lines.into_bytes());
    }
    let body = if reply.gzip_file { gzip(&reply.body).await? } else { reply.body };
    let _ = write!(
        lines,
        "content-type: {}\r\ncontent-length: {}\r\n\r\n",
        reply.content_type,
        body.len()
    );
    let mut wire = lines.into_bytes();
    if head.method == "GET" {
        wire.extend_from_slice(&body);
    }
    Ok(wire)
}

/// RFC 9110 section 13.2.2: `If-None-Match` wins over `If-Modified-Since`.
fn still_holds(head: &Head, etag: &str, modified: Option<Timestamp>) -> bool {
    if let Some(known) = &head.if_none_match {
        return known
            .split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag);
    }
    match (&head.if_modified_since, modified.and_then(http_date)) {
        // Ours, verbatim: no date arithmetic is needed.
        (Some(since), Some(modified)) => *since == modified,
        _ => false,
    }
}

fn http_date(at: Timestamp) -> Option<String> {
    rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&at).ok()
}

async fn gzip(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzipEncoder::new(Vec::new());
    encoder.write_all(plain).await?;
    encoder.shutdown().await?;
    Ok(encoder.into_inner())
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        304 => "Not Modified",
        410 => "Gone",
        _ => "Not Found",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply() -> Reply {
        Reply {
            status: 200,
            content_type: "text/plain",
            body: b"hello".to_vec(),
            gzip_file: false,
            modified: "2026-11-21T08:00:00.7Z".parse().ok(),
        }
    }

    fn request(lines: &str) -> Head {
        parse_head(format!("GET /a?b HTTP/1.1\r\n{lines}\r\n").as_bytes()).expect("a head")
    }

    async fn text_of(head: &Head) -> String {
        String::from_utf8(write_reply(head, reply()).await.expect("a reply")).expect("text")
    }

    #[tokio::test]
    async fn a_request_with_a_validator_that_still_holds_gets_a_304() {
        let first = text_of(&request("")).await;
        assert!(first.starts_with("HTTP/1.1 200 OK\r\n") && first.ends_with("\r\n\r\nhello"));
        let etag = first.lines().find_map(|line| line.strip_prefix("etag: ")).expect("an etag");
        for lines in [
            format!("If-None-Match: {etag}\r\n"),
            format!("if-none-match: \"x\", W/{etag}\r\n"),
            "If-Modified-Since: Sat, 21 Nov 2026 08:00:00 GMT\r\n".to_owned(),
        ] {
            let again = text_of(&request(&lines)).await;
            assert!(again.starts_with("HTTP/1.1 304 "), "{lines}: {again}");
            assert!(!again.contains("hello"), "{lines}: {again}");
        }
    }

    #[tokio::test]
    async fn another_etag_wins_over_an_equal_date() {
        let lines = "if-none-match: \"x\"\r\nif-modified-since: Sat, 21 Nov 2026 08:00:00 GMT\r\n";
        assert!(text_of(&request(lines)).await.starts_with("HTTP/1.1 200 "));
    }

    #[test]
    fn a_head_that_is_none_is_refused() {
        for bytes in
            ["", "\r\n\r\n", "GET\r\n\r\n", "GET example HTTP/1.1\r\n\r\n", "GET / FTP/1\r\n\r\n"]
        {
            assert_eq!(parse_head(bytes.as_bytes()), None, "{bytes:?}");
        }
        assert_eq!(request("").path, "/a");
    }
}
