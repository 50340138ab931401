//! What the process tells systemd, over a socket of our own.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::process::{DEADLINE, write_config};

struct Service {
    child: Child,
    socket: UnixDatagram,
}

impl Service {
    /// Starts the daemon as systemd would, with a watchdog or without.
    fn start(folder: &Path, watchdog_usec: Option<&str>) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let config = write_config(folder, "");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sitemapd"));
        command.arg("run").arg("--config").arg(config).env("NOTIFY_SOCKET", path);
        command.stderr(Stdio::null());
        if let Some(limit) = watchdog_usec {
            command.env("WATCHDOG_USEC", limit);
        }
        Self { child: command.spawn().expect("it starts"), socket }
    }

    /// The next message that is not a sign of life.
    fn hear(&self) -> String {
        loop {
            let told = self.hear_any();
            if told != "WATCHDOG=1\n" {
                return told;
            }
        }
    }

    fn hear_any(&self) -> String {
        let mut bytes = [0; 1_000];
        let length = self.socket.recv(&mut bytes).expect("a message in time");
        String::from_utf8(bytes[..length].to_vec()).expect("text")
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().expect("kill").success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn systemd_is_told_of_start_reload_and_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut service = Service::start(folder.path(), None);
    assert_eq!(service.hear_any(), "READY=1\n");
    service.signal("HUP");
    let reloading = service.hear_any();
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("when it began");
    assert!(since.trim_end().parse::<u64>().is_ok_and(|at| at > 0), "{reloading:?}");
    assert_eq!(service.hear_any(), "READY=1\n");
    service.signal("TERM");
    assert_eq!(service.hear_any(), "STOPPING=1\n");
    assert!(service.child.wait().expect("it ends").success());
}

#[test]
fn a_watchdog_is_given_signs_of_life_and_a_frozen_daemon_gives_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = Service::start(folder.path(), Some("400000"));
    assert_eq!(service.hear(), "READY=1\n");
    for _ in 0..3 {
        assert_eq!(service.hear_any(), "WATCHDOG=1\n");
    }
    service.signal("STOP");
    // What it sent before it stood still; then nothing comes.
    service.socket.set_read_timeout(Some(std::time::Duration::from_secs(1))).expect("a timeout");
    let mut bytes = [0; 100];
    while service.socket.recv(&mut bytes).is_ok() {}
    service.signal("CONT");
    service.socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    assert_eq!(service.hear_any(), "WATCHDOG=1\n");
}
