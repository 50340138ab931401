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

/// The signals that mean something to a daemon.
pub(super) struct Signals {
    hangup: Signal,
    stops: Stops,
}

/// Those that ask anything to stop. SIGHUP stays what it was: under `nohup` it is
/// ignored.
pub(super) struct Stops {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Listens from now on.
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { hangup: signal(SignalKind::hangup())?, stops: Stops::new()? })
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> Heard {
        tokio::select! {
            _ = self.hangup.recv() => Heard::Reload,
            name = self.stops.next() => Heard::Stop(name),
        }
    }

    /// The name of the next signal that asks us to stop. One that asks for something
    /// else is heard later.
    pub(super) async fn stop(&mut self) -> &'static str {
        self.stops.next().await
    }
}

impl Stops {
    /// Listens from now on.
    pub(super) fn new() -> std::io::Result<Self> {
        // Of a file that has reached its limit (`ulimit -f`): heard by anybody, it ends
        // no process, and the write fails as one on a full disk does.
        let limit = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
        drop(signal(limit)?);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The name of the next one.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
