//! Which hashes a run surely has not: a split block Bloom filter.
//!
//! Blocks of 256 bits, eight of which each hash sets, one in each of its words
//! (the layout of Parquet). A hash belongs to the block of its range, so a run
//! that is written in order fills its filter in order, piece by piece, and each
//! piece is one row of about one page.

use super::chunk::{Corrupt, checksum};

/// Blocks of a piece: with its checksum and row header it fits a page.
const BLOCKS_PER_PIECE: u32 = 124;
/// Bytes of a full piece in memory.
pub(super) const PIECE_BYTES: usize = BLOCKS_PER_PIECE as usize * size_of::<Block>();

/// Odd numbers that spread one 32-bit hash over eight words, as in Parquet.
const SALT: [u32; 8] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

type Block = [u32; 8];

/// The bits of a hash, the same in every filter: worked out once for all runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bits(Block);

impl Bits {
    pub(super) fn of(hash: i64) -> Self {
        // The high half of the product depends on all bits of the hash.
        let [_, _, _, _, mixed @ ..] =
            hash.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let mixed = u32::from_le_bytes(mixed);
        Self(SALT.map(|salt| 1 << (mixed.wrapping_mul(salt) >> 27)))
    }
}

/// A part of a run's filter. Grows as blocks are set; those beyond are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Piece {
    blocks: Vec<Block>,
}

impl Piece {
    /// Takes a hash that belongs to this block of the run.
    pub(super) fn insert(&mut self, block: u32, hash: i64) {
        let index = (block % BLOCKS_PER_PIECE) as usize;
        if self.blocks.len() <= index {
            self.blocks.resize(index + 1, [0; 8]);
        }
        if let Some(words) = self.blocks.get_mut(index) {
            for (word, bit) in words.iter_mut().zip(Bits::of(hash).0) {
                *word |= bit;
            }
        }
    }

    /// Is the hash with these bits perhaps in this block of the run?
    #[inline]
    pub(super) fn may_have(&self, block: u32, bits: &Bits) -> bool {
        self.blocks.get((block % BLOCKS_PER_PIECE) as usize).is_some_and(|words| {
            let missing = words.iter().zip(bits.0).fold(0, |all, (word, bit)| all | (bit & !word));
            missing == 0
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.blocks.len() * size_of::<Block>()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend(self.blocks.iter().flatten().flat_map(|word| word.to_le_bytes()));
        let sum = checksum(out.get(4..).unwrap_or_default());
        out.splice(..4, sum);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let (sum, body) = bytes.split_first_chunk::<4>().ok_or(Corrupt("a filter is cut off"))?;
        if checksum(body) != *sum {
            return Err(Corrupt("the checksum of a filter differs"));
        }
        let (words, _) = body.as_chunks::<4>();
        let (blocks, _) = words.as_chunks::<8>();
        Ok(Self { blocks: blocks.iter().map(|block| block.map(u32::from_le_bytes)).collect() })
    }
}

/// Which piece of a run's filter a block is in.
pub(super) fn piece_of(block: u32) -> u32 {
    block / BLOCKS_PER_PIECE
}

/// How many pieces so many blocks take.
pub(super) fn pieces(blocks: u32) -> u32 {
    blocks.div_ceil(BLOCKS_PER_PIECE)
}

/// Blocks of the filter of a run. A run of a higher level is asked as often as
/// a small one, but lives longer and has eight times the entries: the small
/// ones can afford to be wrong less often (1 in 5,000, 1,000, 500, 150).
pub(super) fn blocks_for(entries: usize, level: u32) -> u32 {
    let bits_per_entry = match level {
        0 => 20,
        1 => 16,
        2 => 14,
        _ => 12,
    };
    let blocks = entries.saturating_mul(bits_per_entry).div_ceil(Block::default().len() * 32);
    u32::try_from(blocks).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::super::run::Split;
    use super::*;

    fn hash(n: u64) -> i64 {
        super::super::cut(xxh3_64(&n.to_le_bytes()))
    }

    #[test]
    fn what_was_inserted_is_never_denied_and_little_else_is_admitted() {
        for (level, most_wrong) in [(0, 100), (1, 300), (2, 600), (3, 1500)] {
            let blocks = blocks_for(20_000, level);
            let split = Split::into_parts(blocks);
            let mut filter = vec![Piece::default(); pieces(blocks) as usize];
            for hash in (0..20_000).map(hash) {
                let block = split.part_of(hash);
                filter[piece_of(block) as usize].insert(block, hash);
            }
            let may_have = |hash: i64| {
                let block = split.part_of(hash);
                filter[piece_of(block) as usize].may_have(block, &Bits::of(hash))
            };
            assert!((0..20_000).map(hash).all(may_have));
            let wrong = (20_000..120_000).map(hash).filter(|&hash| may_have(hash)).count();
            assert!(wrong < most_wrong, "level {level}: {wrong} of 100,000");
        }
    }

    #[test]
    fn a_piece_survives_being_written_and_damage_is_noticed() {
        let mut piece = Piece::default();
        for n in 0..500 {
            piece.insert(u32::try_from(n % 124).expect("small"), hash(n));
        }
        let mut bytes = piece.encode();
        assert!(bytes.len() <= 4_000, "fits a page");
        assert_eq!(Piece::decode(&bytes), Ok(piece));
        bytes[100] ^= 1;
        assert!(Piece::decode(&bytes).is_err());
    }
}
