//! A copy of the database while the daemon runs.
//!
//! `VACUUM INTO` writes one state of it, whole and compact, in one read
//! transaction: writers go on, and the log grows by what they write meanwhile.
//! (The backup interface of SQLite would begin anew at each of their commits.)
//! Until the copy is synced it has another name.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

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
    match fs::remove_file(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let written = write(&from, &partial).and_then(|()| settle(&partial, to).map_err(failed));
    if written.is_err() {
        // What is left of it is of no use to anybody.
        let _ = fs::remove_file(&partial);
    }
    written
}

fn write(from: &Path, to: &Path) -> Result<(), StoreError> {
    let conn = schema::open_reader(from)?;
    let to = to.to_str().ok_or_else(|| StoreError::Refused("the name is no text".to_owned()))?;
    conn.execute_batch("PRAGMA query_only = OFF").map_err(engine)?;
    conn.execute("VACUUM INTO ?1", [to]).map(|_| ()).map_err(engine)
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
