//! A disk and a wall clock in the hands of a test, for the real binary: a small
//! C library (`disk/shim.c`) that is compiled here and loaded before the
//! daemon's own. The product has no hook for any of this.
//!
//! Where there is no C compiler, or no Linux, the tests that need it say so on
//! standard error, past the capture of the test runner, and pass.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use super::engine::is_embedded;

/// Which calls are counted.
pub const WRITE: i64 = 1;
pub const SYNC: i64 = 2;
pub const OPEN: i64 = 4;

pub const EIO: i64 = 5;
pub const ENOSPC: i64 = 28;

/// What happens to a call that is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails with this errno.
    Error(i64),
    /// It, and all of its kinds after it, fail.
    Errors(i64),
    /// The process is killed before it.
    Killed,
    /// The process is killed when half of it is written.
    KilledHalfway,
}

/// The disk below one folder.
pub struct Disk {
    library: PathBuf,
    root: PathBuf,
    control: File,
    dir: TempDir,
    keeps_journal: bool,
}

impl Disk {
    /// For daemons whose data folder is `root`; `None`, loudly, where it cannot be.
    pub fn below(root: &Path) -> Option<Self> {
        if !is_embedded("a disk of the test's") {
            return None;
        }
        Self::for_clock(root)
    }

    /// The same where no more than the wall clock is wanted, wherever the store is.
    pub fn for_clock(root: &Path) -> Option<Self> {
        let library = library()?;
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("control");
        fs::write(&path, [0; 4096]).unwrap();
        let control = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let root = root.to_owned();
        Some(Self { library: library.to_owned(), root, control, dir, keeps_journal: false })
    }

    /// The same, and all that happens to it is written down.
    pub fn with_journal(mut self) -> Self {
        self.keeps_journal = true;
        self
    }

    /// The journal.
    pub fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    /// How much has happened so far: what this says when an answer has come
    /// in happened before it.
    pub fn happened(&self) -> u64 {
        fs::metadata(self.journal()).map_or(0, |file| file.len())
    }

    /// Puts a process onto this disk.
    pub fn serve(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("DISK_ROOT", &self.root)
            .env("DISK_CONTROL", self.dir.path().join("control"));
        if self.keeps_journal {
            command.env("DISK_JOURNAL", self.journal());
        }
    }

    /// The `nth` call of these kinds from now on is hit.
    pub fn arm(&self, kinds: i64, nth: u64, fault: Fault) {
        let (action, sticky) = match fault {
            Fault::Error(errno) => (errno, 0),
            Fault::Errors(errno) => (errno, 1),
            Fault::Killed => (-1, 0),
            Fault::KilledHalfway => (-2, 0),
        };
        self.disarm();
        self.set(4, action);
        self.set(5, sticky);
        self.set(3, kinds);
        self.set(2, i64::try_from(nth).unwrap());
    }

    /// All is well from now on.
    pub fn disarm(&self) {
        for field in [2, 3, 6, 7, 8] {
            self.set(field, 0);
        }
    }

    /// How many calls were hit.
    pub fn hits(&self) -> i64 {
        self.get(7)
    }

    /// Writes that were made after the first hit.
    pub fn writes_after(&self) -> i64 {
        self.get(8)
    }

    /// Nothing finds room any more, or all does again.
    pub fn fill(&self, is_full: bool) {
        self.set(1, i64::from(is_full));
    }

    /// Only what makes no file longer finds room, or all does again.
    pub fn fill_up(&self, is_full: bool) {
        self.set(1, if is_full { 2 } else { 0 });
    }

    /// The wall clock is so many seconds off.
    pub fn step_clock(&self, seconds: i64) {
        self.set(0, seconds * 1_000_000_000);
    }

    fn set(&self, field: u64, value: i64) {
        self.control.write_all_at(&value.to_ne_bytes(), field * 8).unwrap();
    }

    fn get(&self, field: u64) -> i64 {
        let mut bytes = [0; 8];
        self.control.read_exact_at(&mut bytes, field * 8).unwrap();
        i64::from_ne_bytes(bytes)
    }
}

/// The library, compiled once a run.
fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    LIBRARY.get_or_init(compile).as_deref()
}

fn compile() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        return skip("this is not Linux");
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/disk/shim.c");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join(format!("disk-{}.so", std::process::id()));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .output();
    match built {
        Ok(output) if output.status.success() => Some(library),
        Ok(output) => panic!("{compiler}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => skip(&format!("{compiler} does not run: {error}")),
    }
}

fn skip(why: &str) -> Option<PathBuf> {
    // Not by a macro: those are captured, and a test that did not run is to be seen.
    let line = format!("\nSKIPPED: tests of a failing disk and a stepped clock: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    None
}
