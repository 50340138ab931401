//! A copy of the database while the daemon runs.
//!
//! `VACUUM INTO` writes one state of it, whole and compact, in one read
//! transaction: writers go on, and the log grows by what they write meanwhile.
//! (The backup interface of SQLite would begin anew at each of their commits.)
//! The copy says of itself that it is one: the store goes on after it, and who starts
//! from it must not count on as if it had not. Until it is synced it has another name, and is locked: of two backups
//! to one file the second is refused.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::log_order::COPIED;
use super::schema;
use super::{FILE, StoreError, engine};

/// Copies the database of a data folder to a file that is not there yet; says
/// how many bytes that has.
pub fn backup(data_dir: &Path, to: &Path) -> Result<u64, StoreError> {
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
    let emptied = held.set_len(0).map_err(failed);
    let written = emptied
        .and_then(|()| write(&from, &partial))
        .and_then(|()| settle(&partial, to).map_err(failed));
    if written.is_err() {
        // What is left of it is of no use to anybody.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// The file that a copy is written to, locked for as long as it is open; none
/// while another backup has it.
fn hold(partial: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(partial)?;
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

fn write(from: &Path, to: &Path) -> Result<(), StoreError> {
    let conn = schema::open_reader(from)?;
    let to = to.to_str().ok_or_else(|| StoreError::Refused("the name is no text".to_owned()))?;
    conn.execute_batch("PRAGMA query_only = OFF").map_err(engine)?;
    conn.execute("VACUUM INTO ?1", [to]).map_err(engine)?;
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
