//! What fuzzing holds of any bytes, held by CI of every fixture and its wrecks.
//!
//! The laws are those of the fuzz targets (`tests/it/support/laws/mod.rs`).
//! `tests/fixtures/fuzz` has a folder for each target: seeds, and the smallest
//! input of each defect that fuzzing found, under the name of the defect.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::laws;

/// Longer fixtures are not mutated: what is special about them is their length.
const MAX_MUTATED: usize = 16 * 1024;

/// The cases of each target: its own folder, then every ordinary fixture.
static CASES: LazyLock<Vec<(&str, PathBuf, Vec<u8>)>> = LazyLock::new(|| {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let own = fixtures.join("fuzz");
    let mut cases = Vec::new();
    for (target, _) in laws::ALL {
        let seeds = files(&own.join(target));
        assert!(!seeds.is_empty(), "{target} has no seeds");
        let ordinary = files(&fixtures).into_iter().filter(|path| !path.starts_with(&own));
        for path in seeds.into_iter().chain(ordinary) {
            let bytes = fs::read(&path).expect("a fixture");
            cases.push((target, path, bytes));
        }
    }
    cases
});

/// All files under a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_fixture_keeps_the_laws_of_every_target() {
    for (target, path, bytes) in CASES.iter() {
        let law = catch_unwind(AssertUnwindSafe(|| {
            // As it was found, where it was found by fuzzing; then all the rest.
            laws::hold_in_part(target, bytes);
            laws::hold(target, bytes);
        }));
        if let Err(panic) = law {
            println!("{} breaks the law of {target}", path.display());
            resume_unwind(panic);
        }
    }
}

#[test]
fn every_folder_of_cases_has_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fuzz");
    for entry in fs::read_dir(folder).expect("the folder of cases") {
        let name = entry.expect("an entry").file_name();
        let known = laws::ALL.iter().any(|(target, _)| name == *target);
        assert!(known, "{}", name.display());
    }
}

/// A way to spoil a case.
#[derive(Debug, Clone)]
enum Wound {
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Cut(Index, usize),
    Repeat(Index, usize),
    Swap(Index, Index),
}

impl Wound {
    fn strike(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let len = bytes.len();
        match self {
            Self::Flip(at, mask) => bytes[at.index(len)] ^= mask,
            Self::Insert(at, piece) => {
                let at = at.index(len);
                bytes.splice(at..at, piece.iter().copied());
            }
            Self::Cut(at, size) => {
                let at = at.index(len);
                bytes.drain(at..(at + size).min(len));
            }
            Self::Repeat(at, size) => {
                let at = at.index(len);
                let piece = bytes[at..(at + size).min(len)].to_vec();
                bytes.splice(at..at, piece);
            }
            Self::Swap(a, b) => bytes.swap(a.index(len), b.index(len)),
        }
    }
}

fn wound() -> impl Strategy<Value = Wound> {
    let markup = "[<>&;!?/a\"'= :.%*$#0-9TZ+\\[\\]{},\n\r\t-]{1,6}".prop_map(String::into_bytes);
    let piece = prop_oneof![markup, prop::collection::vec(any::<u8>(), 1..4)];
    prop_oneof![
        (any::<Index>(), 1..=255_u8).prop_map(|(at, mask)| Wound::Flip(at, mask)),
        (any::<Index>(), piece).prop_map(|(at, piece)| Wound::Insert(at, piece)),
        (any::<Index>(), 1_usize..40).prop_map(|(at, size)| Wound::Cut(at, size)),
        (any::<Index>(), 1_usize..200).prop_map(|(at, size)| Wound::Repeat(at, size)),
        (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Wound::Swap(a, b)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn spoilt_fixtures_keep_the_laws(
        case in any::<Index>(),
        wounds in prop::collection::vec(wound(), 1..6),
    ) {
        let (target, _, bytes) = case.get(&CASES);
        let mut bytes = bytes.clone();
        prop_assume!(bytes.len() <= MAX_MUTATED);
        for wound in &wounds {
            wound.strike(&mut bytes);
        }
        let law = catch_unwind(AssertUnwindSafe(|| laws::hold(target, &bytes)));
        prop_assert!(law.is_ok(), "the law of {target} is broken by {}", bytes.escape_ascii());
    }
}
