//! The signals of Unix that a long-running command listens to; nothing else
//! of the process is known here.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks of us.
pub(super) enum Heard {
    /// Read the configuration again (SIGHUP).
    Reload,
    /// Stop; the name of the signal (SIGINT, SIGTERM).
    Stop(&'static str),
}

/// The signals that mean something to us.
pub(super) struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Listens from now on.
    pub(super) fn new() -> std::io::Result<Self> {
        // Of a file that has reached its limit (`ulimit -f`): heard by anybody, it ends
        // no process, and the write fails as one on a full disk does.
        let limit = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
        drop(signal(limit)?);
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> Heard {
        tokio::select! {
            _ = self.hangup.recv() => Heard::Reload,
            _ = self.interrupt.recv() => Heard::Stop("SIGINT"),
            _ = self.terminate.recv() => Heard::Stop("SIGTERM"),
        }
    }

    /// The name of the next signal that asks us to stop. One that asks for something
    /// else is heard later.
    pub(super) async fn stop(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
