//! What holds of any bytes at all, target by target.
//!
//! Each law takes bytes as they come and panics where one of its properties does
//! not hold. The fuzz targets (`fuzz/`) and the tests (`tests/it/fuzzed.rs`) run
//! the same functions, so what was found once is replayed for ever. What a law
//! varies besides the bytes is drawn from the bytes: a file is a whole case.

mod again;
mod dates;
mod decoder;
mod document;
mod fields;
mod hints;
mod html;
mod robots;
mod urls;

/// A target: its name, the folder of its cases, and its law.
pub type Law = (&'static str, fn(&[u8], Dice));

/// Every target.
pub const ALL: [Law; 7] = [
    ("sitemap", again::sitemap),
    ("feed", again::feed),
    ("robots", robots::holds),
    ("html", html::holds),
    ("dates", dates::holds),
    ("url", urls::holds),
    ("decoder", decoder::holds),
];

/// Holds bytes against all of the law of a target.
pub fn hold(target: &str, bytes: &[u8]) {
    law(target)(bytes, Dice::of(bytes));
}

/// Holds bytes against a part of the law, drawn from the bytes: for fuzzing,
/// where more cases are worth more than each case in full.
pub fn hold_in_part(target: &str, bytes: &[u8]) {
    law(target)(bytes, Dice { in_part: true, ..Dice::of(bytes) });
}

fn law(target: &str) -> fn(&[u8], Dice) {
    let known = ALL.iter().find(|(name, _)| *name == target);
    known.unwrap_or_else(|| panic!("no target {target}")).1
}

/// Numbers that look like chance and depend on the bytes alone (splitmix64,
/// begun with FNV-1a of the bytes).
pub struct Dice {
    state: u64,
    in_part: bool,
}

impl Dice {
    /// The dice of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let hash = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
        Self { state: bytes.iter().fold(0xcbf2_9ce4_8422_2325, hash), in_part: false }
    }

    /// A number below `end`, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % end as u64).expect("below a usize")
    }

    /// Is a property looked at that comes up once in so many cases, where not
    /// all are?
    fn turn(&mut self, of: usize) -> bool {
        self.below(of) == 0 || !self.in_part
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// The same things in another order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for end in (2..=things.len()).rev() {
            things.swap(end - 1, self.below(end));
        }
    }
}
