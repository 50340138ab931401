//! A copy of the database while the daemon runs.
//!
//! `VACUUM INTO` writes one state of it, whole and compact, in one read
//! transaction: writers go on, and the log grows by what they write meanwhile.
//! (The backup interface of SQLite would begin anew at each of their commits.)
//! The copy says of itself that it is one: the store goes on after it, and who starts
//! from it must not count on as if it had not. Until it is synced it has another name,
//! and is locked: of two backups to one file the second is refused. It holds the secrets
//! that the store holds, so it is for its owner alone.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, InterruptHandle};

use super::log_order::COPIED;
use super::schema;
use super::{FILE, StoreError, engine};

/// What a copy may be to others than its owner: nothing. Of the rest it has what the
/// database has.
const MOST: u32 = 0o600;

/// Ends a copy that somebody no longer waits for.
#[derive(Default)]
pub struct Stop {
    is_asked: AtomicBool,
    /// What the engine is stopped by, while it copies.
    handle: Mutex<Option<InterruptHandle>>,
}

impl Stop {
    /// Asks for it. Between two statements the engine does not hear it: ask again until
    /// the copy has ended.
    pub fn ask(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
        // A panic never happens while it is held.
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*handle {
            handle.interrupt();
        }
    }

    fn watch(&self, conn: &Connection) {
        let handle = Some(conn.get_interrupt_handle());
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = handle;
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.is_asked.load(Ordering::Relaxed) {
            return Err(StoreError::Refused(
                "it was stopped, and nothing is kept of it".to_owned(),
            ));
        }
        Ok(())
    }
}

/// Copies the database of a data folder to a file that is not there yet, until it is
/// stopped, of which nothing is left behind; says how many bytes that has.
pub fn backup(data_dir: &Path, to: &Path, stop: &Stop) -> Result<u64, StoreError> {
    let from = data_dir.join(FILE);
    if !from.is_file() {
        return Err(StoreError::NotFound(format!("there is no store at {}", from.display())));
    }
    let refused = |why: String| StoreError::Refused(format!("{}: {why}", to.display()));
    if fs::symlink_metadata(to).is_ok() {
        return Err(refused("it is there already, and a backup overwrites nothing".to_owned()));
    }
    let Some(partial) = partial_of(to) else {
        return Err(refused("a file is needed".to_owned()));
    };
    let failed = |error: io::Error| refused(format!("it cannot be written: {error}"));
    let Some(held) = hold(&partial).map_err(failed)? else {
        return Err(refused("another backup writes it".to_owned()));
    };
    // One that has just ended may have left it there.
    if fs::symlink_metadata(to).is_ok() {
        let _ = fs::remove_file(&partial);
        return Err(refused("another backup has just written it".to_owned()));
    }
    // What one left over that was killed.
    let emptied = held.set_len(0).and_then(|()| restrict(&held, &from)).map_err(failed);
    let written = emptied
        .and_then(|()| write(&from, &partial, stop))
        .and_then(|()| settle(&partial, to).map_err(failed));
    let Err(error) = written else { return written };
    // What is left of it is of no use to anybody.
    let _ = fs::remove_file(&partial);
    stop.check().map_err(|stopped| refused(stopped.to_string()))?;
    Err(match error {
        StoreError::Full => refused("there is no room for it: the disk is full".to_owned()),
        other => other,
    })
}

/// Lets nobody do more with a copy than with what it is of, and others nothing.
fn restrict(copy: &File, from: &Path) -> io::Result<()> {
    let mode = fs::metadata(from)?.mode() & MOST;
    copy.set_permissions(Permissions::from_mode(mode))
}

/// The file that a copy is written to, locked for as long as it is open; none
/// while another backup has it.
fn hold(partial: &Path) -> io::Result<Option<File>> {
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(MOST).open(partial)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Who had it may have put it in its place, or away, since it was opened; and a
    // link leads to what is somebody else's.
    let (ours, there) = (file.metadata()?, fs::symlink_metadata(partial));
    let is_it = there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()));
    Ok(is_it.then_some(file))
}

fn write(from: &Path, to: &Path, stop: &Stop) -> Result<(), StoreError> {
    let conn = schema::open_reader(from)?;
    stop.watch(&conn);
    let to = to.to_str().ok_or_else(|| StoreError::Refused("the name is no text".to_owned()))?;
    conn.execute_batch("PRAGMA query_only = OFF").map_err(engine)?;
    stop.check()?;
    conn.execute("VACUUM INTO ?1", [to]).map_err(engine)?;
    stop.check()?;
    let copy = Connection::open(to).map_err(engine)?;
    // It has no name yet: where this fails, there is no copy.
    copy.execute_batch("PRAGMA journal_mode = OFF").map_err(engine)?;
    let mark = "INSERT INTO meta (key, value) VALUES (?1, 1) ON CONFLICT (key) DO NOTHING";
    copy.execute(mark, [COPIED]).map(|_| ()).map_err(engine)
}

/// Puts a whole copy on the disk, and then in its place.
fn settle(partial: &Path, to: &Path) -> io::Result<u64> {
    let file = File::open(partial)?;
    file.sync_all()?;
    fs::rename(partial, to)?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    file.metadata().map(|about| about.len())
}

fn partial_of(to: &Path) -> Option<PathBuf> {
    let mut name = to.file_name()?.to_owned();
    name.push(".partial");
    Some(to.with_file_name(name))
}
