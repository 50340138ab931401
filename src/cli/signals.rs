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

/// Those that ask anything to stop.
pub(super) struct Stops {
    /// Of a terminal that has gone; not of a daemon, nor under `nohup`.
    hangup: Option<Signal>,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Listens from now on.
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { hangup: signal(SignalKind::hangup())?, stops: Stops::but_hangup()? })
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
        // Whoever listens to what is ignored hears it all the same.
        let hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self { hangup, ..Self::but_hangup()? })
    }

    fn but_hangup() -> std::io::Result<Self> {
        // Of a file that has reached its limit (`ulimit -f`): heard by anybody, it ends
        // no process, and the write fails as one on a full disk does.
        let limit = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
        drop(signal(limit)?);
        Ok(Self {
            hangup: None,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The name of the next one.
    pub(super) async fn next(&mut self) -> &'static str {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = hangup => "SIGHUP",
        }
    }
}

/// Did whoever started us have us ignore SIGHUP? Where nobody can tell it is left to
/// what it does.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The lowest bit is that of signal 1.
    ignored.is_none_or(|mask| mask & 1 == 1)
}
