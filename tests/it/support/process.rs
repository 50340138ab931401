//! The real binary as a process, over a folder of its own.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use sitemapd::fetch::api::ApiClient;
use url::Url;

use super::disk::Disk;
use super::engine::server_for;

/// Longest wait for anything that a process should do.
pub const DEADLINE: Duration = super::PATIENCE;

/// The binary of this build, or the one that `SITEMAPD_BIN` names.
fn binary() -> PathBuf {
    let named = std::env::var_os("SITEMAPD_BIN");
    named.map_or_else(|| env!("CARGO_BIN_EXE_sitemapd").into(), PathBuf::from)
}

/// The binary, reading `config`.
pub fn sitemapd(config: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).arg("--config").arg(config).env_remove("SITEMAPD_CONFIG");
    command
}

/// A config file in `folder` for a daemon on a free port, plus `extra`; its
/// store is where this run of the tests has them.
pub fn write_config(folder: &Path, extra: &str) -> PathBuf {
    write_config_at(folder, extra, server_for(&folder.join("data")))
}

/// The same for a daemon whose store is at `server`, or, without that, in a file.
pub fn write_config_at(folder: &Path, extra: &str, server: Option<Url>) -> PathBuf {
    let path = folder.join("config.toml");
    let mut text = format!("[listen]\napi = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n{extra}");
    if let Some(url) = server {
        let key = format!("[store]\nurl = \"{url}\"\n");
        // TOML knows each table once; a test may bring its own.
        text = match text.split_once("[store]\n") {
            Some((head, tail)) => head.to_owned() + &key + tail,
            None => key + &text,
        };
    }
    std::fs::write(&path, text).unwrap();
    path
}

/// Runs the daemon where it must refuse to start; says how it ended.
pub fn refused(config: &Path) -> Output {
    let mut child =
        sitemapd(config, &["run"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait(&mut child);
    child.wait_with_output().unwrap()
}

/// The lines that are for a person, not log events.
pub fn complaints(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    text.lines().filter(|line| !line.starts_with('{')).map(str::to_owned).collect()
}

/// Waits for a process to end by itself, but not for ever.
fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("the process did not end within {DEADLINE:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where what a process says is kept, if `SITEMAPD_LOGS` names a folder for that.
fn log_of(id: u32) -> Option<File> {
    let folder = PathBuf::from(std::env::var_os("SITEMAPD_LOGS")?);
    Some(File::create(folder.join(format!("{id}.log"))).unwrap())
}

/// A running daemon; killed when dropped.
pub struct Daemon {
    child: Child,
    events: Receiver<Value>,
    pub addr: SocketAddr,
}

impl Daemon {
    /// Starts one and waits until it listens.
    pub fn start(config: &Path) -> Self {
        Self::start_on(config, None)
    }

    /// The same on a disk of the test's.
    pub fn start_on(config: &Path, disk: Option<&Disk>) -> Self {
        let started = Self::try_start(config, disk);
        started.unwrap_or_else(|(status, said)| panic!("it ended with {status}: {said:#?}"))
    }

    /// The same where it may refuse; then how it ended, and what it said.
    pub fn try_start(
        config: &Path,
        disk: Option<&Disk>,
    ) -> Result<Self, (ExitStatus, Vec<String>)> {
        let mut daemon = Self::launch(config, disk);
        let deadline = Instant::now() + DEADLINE;
        let mut said = Vec::new();
        loop {
            match daemon.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) if event.to_string().contains("listening") => {
                    daemon.addr = event["api"].as_str().unwrap().parse().unwrap();
                    return Ok(daemon);
                }
                Ok(Value::String(line)) => said.push(line),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Err((daemon.wait(), said)),
                Err(RecvTimeoutError::Timeout) => panic!("it neither listens nor ends: {said:#?}"),
            }
        }
    }

    /// The same without a wait.
    pub fn launch(config: &Path, disk: Option<&Disk>) -> Self {
        let mut command = sitemapd(config, &["run"]);
        if let Some(disk) = disk {
            disk.serve(&mut command);
        }
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, events) = channel();
        let mut kept = log_of(child.id());
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(kept) = &mut kept {
                    writeln!(kept, "{line}").unwrap();
                }
                let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Self { child, events, addr: SocketAddr::from(([127, 0, 0, 1], 0)) }
    }

    /// What it said to a person until its end, which is waited for.
    pub fn complaints(&self) -> Vec<String> {
        let mut said = Vec::new();
        while let Ok(event) = self.events.recv_timeout(DEADLINE) {
            if let Value::String(line) = event {
                said.push(line);
            }
        }
        said
    }

    /// Has it ended by itself?
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// The next log event whose text contains `words`.
    pub fn hear(&self, words: &str) -> Value {
        self.hear_all(words).pop().unwrap()
    }

    /// All log events up to that one, which is the last.
    pub fn hear_all(&self, words: &str) -> Vec<Value> {
        let deadline = Instant::now() + DEADLINE;
        let mut heard = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(event) => {
                    let is_it = event.to_string().contains(words);
                    heard.push(event);
                    if is_it {
                        return heard;
                    }
                }
                Err(why) => panic!("{words:?} was not logged ({why}), but {heard:#?}"),
            }
        }
    }

    pub fn client(&self) -> ApiClient {
        ApiClient::new(&format!("http://{}", self.addr), None).unwrap()
    }

    /// The most memory that it had so far, in bytes, where the system says.
    pub fn most_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Ends it without a chance to do anything about it.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
