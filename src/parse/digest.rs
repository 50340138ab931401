//! A hash over what an entry says besides its URL and dates.
//!
//! Taken block by block, so a long text takes no memory; the same words in the
//! same order give the same value on every machine and in every run.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes hashed at a time.
const BLOCK: usize = 16 * 1024;

/// A hash in the making.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    block: String,
    hashed: u64,
}

impl Digest {
    /// Ready for the next entry.
    pub(crate) fn clear(&mut self) {
        self.block.clear();
        self.hashed = 0;
    }

    /// Adds a named value.
    pub(crate) fn field(&mut self, name: &str, value: &str) {
        self.text(name);
        self.text("\u{1f}");
        self.text(value);
        self.text("\u{1e}");
    }

    /// Adds a piece of text; how a text is cut into pieces does not matter.
    pub(crate) fn text(&mut self, text: &str) {
        let mut rest = text;
        while self.block.len() + rest.len() > BLOCK {
            let room = BLOCK.saturating_sub(self.block.len());
            let cut = (0..=room.min(rest.len())).rev().find(|i| rest.is_char_boundary(*i));
            let (now, later) = rest.split_at(cut.unwrap_or(0));
            self.block.push_str(now);
            self.hashed = xxh3_64_with_seed(self.block.as_bytes(), self.hashed);
            self.block.clear();
            rest = later;
        }
        self.block.push_str(rest);
    }

    /// The hash; 0 only where nothing was added.
    pub(crate) fn value(&self) -> u64 {
        if self.block.is_empty() && self.hashed == 0 {
            return 0;
        }
        xxh3_64_with_seed(self.block.as_bytes(), self.hashed).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_text_is_cut_does_not_matter_and_its_words_do() {
        let long = "één twee drie ".repeat(5_000);
        let mut whole = Digest::default();
        whole.text(&long);
        let mut pieces = Digest::default();
        for c in long.chars() {
            pieces.text(c.encode_utf8(&mut [0; 4]));
        }
        assert_eq!(whole.value(), pieces.value());
        pieces.text("vier");
        assert_ne!(whole.value(), pieces.value());
        assert_eq!(Digest::default().value(), 0);
    }
}
