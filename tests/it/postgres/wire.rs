//! A way to the server past which every statement of the store goes: the texts
//! are those that the daemon sends, in the order in which it first does.

use std::collections::BTreeSet;
use std::io::{Read, Result, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use url::Url;

/// The texts that were sent so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Wire(Arc<Mutex<BTreeSet<String>>>);

impl Wire {
    /// Listens on a port of its own until the process ends; says by which URL
    /// `server` is reached through it.
    pub(super) fn to(server: &Url) -> (Self, Url) {
        let upstream = format!("{}:{}", server.host_str().unwrap(), server.port().unwrap_or(5432));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut url = server.clone();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(listener.local_addr().unwrap().port())).unwrap();
        let wire = Self::default();
        let accepted = wire.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let server = TcpStream::connect(&upstream).unwrap();
                accepted.clone().join(client.unwrap(), server);
            }
        });
        (wire, url)
    }

    /// All of them so far.
    pub(super) fn statements(&self) -> BTreeSet<String> {
        self.0.lock().unwrap().clone()
    }

    /// Carries both ways until either side ends.
    fn join(self, client: TcpStream, server: TcpStream) {
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let (mut answers, mut to_client) =
            (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut answers, &mut to_client);
            let _ = to_client.shutdown(Shutdown::Both);
        });
        std::thread::spawn(move || {
            // However it ends, the server is told.
            let _ = self.carry(client, &server);
            let _ = server.shutdown(Shutdown::Both);
        });
    }

    /// Messages of a client: the first has no kind, all others a byte of it; then
    /// the length, itself included.
    fn carry(&self, mut client: TcpStream, mut server: &TcpStream) -> Result<()> {
        let mut is_first = true;
        loop {
            let mut head = vec![0; if is_first { 4 } else { 5 }];
            client.read_exact(&mut head)?;
            let length = u32::from_be_bytes(head[head.len() - 4..].try_into().unwrap());
            let mut body = vec![0; length as usize - 4];
            client.read_exact(&mut body)?;
            // Parse: the name of the statement, its text, and more.
            if !is_first && head[0] == b'P' {
                let text = body.split(|byte| *byte == 0).nth(1).unwrap_or_default();
                self.0.lock().unwrap().insert(String::from_utf8_lossy(text).into_owned());
            }
            server.write_all(&head)?;
            server.write_all(&body)?;
            is_first = false;
        }
    }
}
