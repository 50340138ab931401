//! The log of a store that is written to, by the room that its disk has.

use tempfile::TempDir;

use super::*;
use crate::config::Durability;

/// Bytes that one commit writes, at least.
const WRITTEN: u32 = 256 << 10;
/// Bytes that it writes at most, with what goes with them.
const WITH_ALL: u64 = 2 * WRITTEN as u64;
const LITTLE: Option<u64> = Some(PLENTY - 1);

/// A store that is written to, and who keeps its log short; the thread is played, which
/// never catches up.
struct Written {
    conn: Connection,
    mover: Connection,
    reader: Connection,
    keeper: LogKeeper,
    log: PathBuf,
    _dir: TempDir,
}

impl Written {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("test.db");
        Self {
            conn: schema::open_writer(&path, Durability::Normal).unwrap(),
            mover: schema::open_checkpointer(&path).unwrap(),
            reader: schema::open_reader(&path).unwrap(),
            keeper: LogKeeper::new(&path, Arc::default()),
            log: log_of(&path),
            _dir: dir,
        }
    }

    /// Writes the same row over and over, where pages are moved after so many commits, but
    /// for those of the last; the largest that the log was after one.
    fn write(&self, commits: usize, moved_after: usize, room: Option<u64>) -> u64 {
        let commit = |number: usize| {
            let moves = number.is_multiple_of(moved_after);
            if moves {
                self.reader.execute_batch("BEGIN; SELECT count(*) FROM meta;").unwrap();
            }
            let row = "INSERT OR REPLACE INTO meta (key, value) VALUES ('test', randomblob(?1))";
            self.conn.execute(row, [WRITTEN]).unwrap();
            if moves {
                move_pages(&self.mover).unwrap();
                self.reader.execute_batch("ROLLBACK").unwrap();
            }
            self.keeper.keep_within(&self.conn, room).unwrap();
            self.keeper.keep_short(&self.conn).unwrap();
            size(&self.log)
        };
        (1..=commits).map(commit).max().unwrap_or(0)
    }
}

/// As the file has them, each with its header.
fn bytes(pages: i64) -> u64 {
    u64::try_from(pages * (PAGE + 24)).unwrap()
}

#[test]
fn a_log_begins_anew_after_a_round() {
    let largest = Written::new().write(400, 4, None);
    assert!(largest > bytes(USUAL.round), "{largest}");
    assert!(largest < bytes(USUAL.round) + 5 * WITH_ALL, "{largest}");
}

#[test]
fn with_little_room_on_the_disk_the_log_takes_little_of_it() {
    let largest = Written::new().write(400, 4, LITTLE);
    assert!(largest < bytes(SHORT.round) + 5 * WITH_ALL, "{largest}");
}

#[test]
fn a_log_that_is_moved_too_slowly_makes_the_writer_wait() {
    let largest = Written::new().write(150, usize::MAX, LITTLE);
    assert!(largest > bytes(SHORT.round) + 5 * WITH_ALL, "{largest}");
    assert!(largest < bytes(SHORT.longest) + 2 * WITH_ALL, "{largest}");
}

#[test]
fn a_log_gives_back_its_room_where_the_disk_has_little() {
    let written = Written::new();
    assert!(written.write(150, 4, None) > 2 * bytes(SHORT.longest));
    written.write(50, 4, LITTLE);
    let left = size(&written.log);
    assert!(left < bytes(SHORT.kept) + WITH_ALL, "{left}");
}

#[test]
fn the_longer_a_log_the_more_of_it_the_writer_moves_itself() {
    let moved = [12_287, 12_288, 16_384, 24_576, 65_536].map(|pages| USUAL.rest(pages));
    assert_eq!(moved, [0, 512, 1_024, 2_048, 7_168]);
    assert_eq!([1_023, 1_024, 4_096].map(|pages| SHORT.rest(pages)), [0, 512, 512]);
}
