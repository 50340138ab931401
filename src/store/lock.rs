//! One daemon per data folder: a lock that ends with the process, whatever
//! ends it, and a line in the file that says who holds it.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use super::StoreError;

/// Name of the lock file in the data folder.
const FILE: &str = "sitemapd.lock";

/// Mode of the data folder where we make it: what is in it (tokens of fetchers, secrets of
/// hubs, what private sites list) is for the daemon's user.
const OURS: u32 = 0o700;
/// That of folders above it, for the umask to lessen.
const ANYBODYS: u32 = 0o777;

/// Held for as long as the store is open.
pub(super) struct DataLock {
    _file: File,
}

impl DataLock {
    /// Makes the folder if there is none and takes its lock.
    pub(super) fn take(folder: &Path) -> Result<Self, StoreError> {
        let refused = |what: &str, error: &std::io::Error| {
            StoreError::Unusable(format!("{what} {}: {error}", folder.display()))
        };
        make(folder, OURS).map_err(|e| refused("cannot make the data folder", &e))?;
        let path = folder.join(FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| refused("cannot write into the data folder", &e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Who holds it is a courtesy: without it the refusal stands.
                let _ = file.read_to_string(&mut holder);
                return Err(StoreError::Refused(format!(
                    "the data folder {} is in use by {}",
                    folder.display(),
                    if holder.trim().is_empty() { "another sitemapd" } else { holder.trim() }
                )));
            }
            Err(TryLockError::Error(error)) => {
                return Err(refused("cannot lock the data folder", &error));
            }
        }
        let holder =
            format!("sitemapd {} (process {})\n", env!("CARGO_PKG_VERSION"), std::process::id());
        // The same courtesy: a disk that is full has no room for it, and may have what is
        // needed to go on. Part of a line would name another process.
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(holder.as_bytes()));
        if written.is_err() {
            let _ = file.set_len(0);
        }
        Ok(Self { _file: file })
    }
}

/// Who has the lock of a folder just now, as far as that is written in it. Asked of a
/// process that is there only: to ask takes the lock for a moment.
pub fn holder(folder: &Path) -> Option<String> {
    let mut file = File::open(folder.join(FILE)).ok()?;
    let mut holder = String::new();
    file.read_to_string(&mut holder).ok()?;
    let process = holder.trim().rsplit_once("(process ")?.1.strip_suffix(')')?;
    let is_there = !Path::new("/proc/self").exists() || Path::new("/proc").join(process).exists();
    let is_held = is_there && matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    is_held.then(|| holder.trim().to_owned())
}

/// Makes the folder, and those above it, where they are missing. A folder is on
/// the disk when its parent is synced: else a power loss could take it, with
/// all that was synced inside.
fn make(folder: &Path, mode: u32) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        make(parent, ANYBODYS)?;
    }
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !folder.is_dir() {
        return Err(std::io::ErrorKind::NotADirectory.into());
    }
    // Not every file system lets folders be synced, or opened by us.
    let _ = File::open(parent.unwrap_or(Path::new("."))).and_then(|parent| parent.sync_all());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_data_folder_that_we_make_is_for_its_owner_alone() {
        let dir = tempfile::TempDir::new().unwrap();
        let folder = dir.path().join("above/data");
        let bits = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        drop(DataLock::take(&folder).unwrap());
        assert_eq!(bits(&folder), 0o700);
        // What somebody made is as they made it, and so is what is above.
        let made = dir.path().join("made");
        std::fs::create_dir(&made).unwrap();
        let before = bits(&made);
        drop(DataLock::take(&made).unwrap());
        assert_eq!((bits(&made), bits(&dir.path().join("above"))), (before, before));
    }
}
