//! A listener that nobody may ever connect to.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};

/// Counts the connections made to it; the count must stay 0.
pub struct Canary {
    // Never accepts before it is asked: the kernel completes the connections.
    listener: TcpListener,
    accepted: usize,
}

impl Canary {
    /// Listens on a free port of 127.0.0.1.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener, accepted: 0 }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// Connections so far.
    pub fn touched(&mut self) -> usize {
        loop {
            match self.listener.accept() {
                Ok(_) => self.accepted += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.accepted,
                Err(error) => panic!("the canary cannot accept: {error}"),
            }
        }
    }
}
