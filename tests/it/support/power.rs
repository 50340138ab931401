//! What a disk holds after a power loss: made from the journal of all that a
//! process did to it.
//!
//! What was written before a sync began is there when the sync has ended. Of
//! what was written since, anything may be there: nothing, all, or any part, in
//! units of a sector. A file is there under its name when its folder was synced.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::lease_history::Dice;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;
/// Bytes of a record before its data.
const HEAD: usize = 24;

#[derive(Debug, Clone)]
enum Event {
    Name(String),
    Create,
    Write {
        at: usize,
        data: Vec<u8>,
    },
    Truncate {
        to: usize,
    },
    Sync {
        began: usize,
    },
    Unlink,
    /// A process began.
    Start,
}

#[derive(Debug, Clone)]
struct Record {
    file: u32,
    event: Event,
    /// Where it ends in the journal.
    end: u64,
}

/// What becomes of what was written since the last sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsynced {
    Lost,
    Kept,
    /// Sector by sector, as the dice fall.
    Torn,
}

/// All that happened to the files of one folder, and what it held before.
pub struct Past {
    records: Vec<Record>,
    names: BTreeMap<u32, String>,
    before: BTreeMap<String, Vec<u8>>,
    root: PathBuf,
}

/// A journal while it is read. Each process numbers files and records anew.
#[derive(Default)]
struct Reader {
    records: Vec<Record>,
    names: BTreeMap<u32, String>,
    /// Files under the numbers of the process that is read of.
    own: BTreeMap<u32, u32>,
    /// Files that are there, by name.
    there: BTreeMap<String, u32>,
    /// Records before the first of the process.
    earlier: usize,
}

impl Reader {
    fn take(&mut self, kind: u32, file: u32, place: usize, data: &[u8], end: u64) {
        if kind == 7 {
            // The record that says so is counted by the process.
            self.earlier = self.records.len();
            self.own.clear();
        }
        if kind == 1 {
            let name = String::from_utf8(data.to_vec()).unwrap();
            let next = u32::try_from(self.names.len() + 1).unwrap();
            let known = *self.there.entry(name.clone()).or_insert(next);
            self.names.insert(known, name);
            self.own.insert(file, known);
        }
        let file = self.own.get(&file).copied().unwrap_or(0);
        let event = match kind {
            1 => Event::Name(self.names[&file].clone()),
            2 => Event::Create,
            3 => Event::Write { at: place, data: data.to_vec() },
            4 => Event::Truncate { to: place },
            5 => Event::Sync { began: self.earlier + place },
            6 => Event::Unlink,
            7 => Event::Start,
            other => panic!("{other} is no kind of record"),
        };
        if kind == 6 {
            self.there.remove(&self.names[&file]);
        }
        self.records.push(Record { file, event, end });
    }
}

impl Past {
    /// Reads a journal. `before` holds the files as they were when it began.
    pub fn read(journal: &Path, root: &Path, before: BTreeMap<String, Vec<u8>>) -> Self {
        let bytes = fs::read(journal).unwrap();
        let mut reader = Reader::default();
        let mut at = 0;
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        // The last record may have been cut by a kill.
        while at + HEAD <= bytes.len() {
            let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
            let (kind, file) = (word(at), word(at + 4));
            let place = usize::try_from(number(at + 8)).unwrap();
            let len = usize::try_from(number(at + 16)).unwrap();
            let Some(data) = bytes.get(at + HEAD..at + HEAD + len) else { break };
            at += HEAD + len;
            reader.take(kind, file, place, data, at as u64);
        }
        let Reader { records, names, .. } = reader;
        Self { records, names, before, root: root.to_owned() }
    }

    /// How many things happened.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// How many things had happened when the journal had this many bytes.
    pub fn until(&self, bytes: u64) -> usize {
        self.records.partition_point(|record| record.end <= bytes)
    }

    /// How many syncs there were.
    pub fn syncs(&self) -> usize {
        let is_sync = |record: &&Record| matches!(record.event, Event::Sync { .. });
        self.records.iter().filter(is_sync).count()
    }

    /// Builds in `folder` what the disk holds when the power goes after the
    /// first `count` things.
    pub fn rebuild(&self, count: usize, unsynced: Unsynced, dice: &mut Dice, folder: &Path) {
        let past = &self.records[..count];
        let mut synced: BTreeMap<u32, usize> = BTreeMap::new();
        for record in past {
            if let Event::Sync { began } = record.event {
                let until = synced.entry(record.file).or_default();
                *until = began.max(*until);
            }
        }
        let is_root = |file: &u32| Path::new(&self.names[file]) == self.root;
        let folder_synced = synced.iter().filter(|(file, _)| is_root(file)).map(|(_, at)| *at);
        let folder_synced = folder_synced.max().unwrap_or(0);
        // Names are given and taken in order: of those that nobody synced, a
        // first part is there.
        let named_until = match unsynced {
            Unsynced::Lost => folder_synced,
            Unsynced::Kept => count,
            Unsynced::Torn => {
                let open = u32::try_from(count.saturating_sub(folder_synced) + 1).unwrap();
                folder_synced + dice.below(open) as usize
            }
        };
        let mut there: BTreeMap<String, u32> = BTreeMap::new();
        let mut contents: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for (index, record) in past.iter().enumerate() {
            let Some(name) = self.names.get(&record.file) else { continue };
            let file = record.file;
            let is_safe = synced.get(&file).is_some_and(|until| index < *until);
            match &record.event {
                Event::Name(_) => {
                    if let Some(bytes) = self.before.get(&base(name)) {
                        contents.entry(file).or_insert_with(|| bytes.clone());
                        there.insert(base(name), file);
                    }
                }
                Event::Create => {
                    // Before, the name was not there, or was taken away.
                    contents.insert(file, Vec::new());
                    there.remove(&base(name));
                    if index < named_until {
                        there.insert(base(name), file);
                    }
                }
                Event::Unlink if index < named_until => {
                    there.remove(&base(name));
                }
                Event::Unlink | Event::Sync { .. } | Event::Start => {}
                Event::Write { at, data } => {
                    write(contents.entry(file).or_default(), *at, data, is_safe, unsynced, dice);
                }
                Event::Truncate { to } => {
                    let lost = !is_safe && unsynced == Unsynced::Lost;
                    let torn = !is_safe && unsynced == Unsynced::Torn && dice.below(2) == 0;
                    if !lost && !torn {
                        contents.entry(file).or_default().resize(*to, 0);
                    }
                }
            }
        }
        let named = |name: &str| {
            let mut events = past.iter().map(|record| &record.event);
            events.any(|event| matches!(event, Event::Name(path) if base(path) == name))
        };
        for (name, bytes) in self.before.iter().filter(|(name, _)| !named(name)) {
            fs::write(folder.join(name), bytes).unwrap();
        }
        for (name, file) in there {
            // The shared memory of the log is made anew by whoever comes first.
            if !name.ends_with("-shm") && name != "sitemapd.lock" {
                fs::write(folder.join(name), &contents[&file]).unwrap();
            }
        }
    }
}

/// The name of a file without its folder.
fn base(path: &str) -> String {
    path.rsplit('/').next().unwrap().to_owned()
}

fn write(
    file: &mut Vec<u8>,
    at: usize,
    data: &[u8],
    is_safe: bool,
    unsynced: Unsynced,
    dice: &mut Dice,
) {
    let mut from = at;
    while from < at + data.len() {
        let to = ((from / SECTOR + 1) * SECTOR).min(at + data.len());
        let is_kept = is_safe
            || match unsynced {
                Unsynced::Lost => false,
                Unsynced::Kept => true,
                Unsynced::Torn => dice.below(2) == 0,
            };
        if is_kept {
            if file.len() < to {
                file.resize(to, 0);
            }
            file[from..to].copy_from_slice(&data[from - at..to - at]);
        }
        from = to;
    }
}

/// The files of a folder, to start from.
pub fn files_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    paths.map(|path| (base(path.to_str().unwrap()), fs::read(&path).unwrap())).collect()
}
