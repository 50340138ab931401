//! A temporary folder of our own that goes when it is dropped.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Names tried before giving up; each has 64 random bits.
const TRIES: usize = 8;

/// The folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes a folder that only we may look into.
    pub(super) fn create() -> io::Result<Self> {
        let parent = std::env::temp_dir();
        let mut result = Err(io::Error::other("no free name"));
        for _ in 0..TRIES {
            let name = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
            let path = parent.join(format!("sitemapd-demo-{name:016x}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's own cleaning.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_there_and_goes_with_its_contents() {
        let folder = Folder::create().expect("a folder");
        let path = folder.path().to_owned();
        std::fs::write(path.join("file"), "x").expect("a file");
        drop(folder);
        assert!(!path.exists());
    }
}
