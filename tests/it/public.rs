//! The webmasters' listener of a whole daemon: who may ask for what, what
//! follows, and that it stays within its bounds.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::Origin;
use crate::support::daemon::Daemon;

mod doors;
mod indexnow;
mod ping;
mod websub;

/// One answer, as it came over the wire.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }

    /// The value of a header, by its lower-case name.
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Sends a request as it is written here, and reads the answer to its end.
async fn send(to: SocketAddr, head: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let length = body.len();
    // In one piece: a request that is refused has half a second for the next of its body.
    let whole =
        format!("{head}\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(whole.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // One that is refused may be closed before all was sent.
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

/// Asks the public listener as this client, through a proxy on this machine.
async fn get_as(daemon: &Daemon, client: &str, target: &str) -> Answer {
    let head = format!(
        "GET {target} HTTP/1.1\r\nAccept: application/json\r\nX-Forwarded-For: 10.0.0.1, {client}"
    );
    send(daemon.public.unwrap(), &head, "").await
}

async fn get(daemon: &Daemon, target: &str) -> Answer {
    get_as(daemon, "192.0.2.1", target).await
}

fn encoded(url: &str) -> String {
    url::form_urlencoded::byte_serialize(url.as_bytes()).collect()
}

/// A config with a public listener and a site on this origin.
fn site(origin: &Origin, keys: &str) -> String {
    let base = origin.base();
    format!(
        "[listen]\npublic = \"127.0.0.1:0\"\n[poll]\nfirst = \"1d\"\nmin = \"1h\"\n\
         [[site]]\nname = \"a\"\nurl = \"{base}/\"\nfeeds = []\n{keys}\n"
    )
}
