//! One chunk of a run: its entries sorted, packed, with a checksum.
//!
//! ```text
//! xxh3 u32 · count u32 · hash width u8 · id width u8 · least id i64
//! packed: gaps between hashes, the first from the start of the chunk's range
//! packed: ids less the least
//! ```

use xxhash_rust::xxh3::xxh3_64;

use super::Entry;
use crate::bitpack::{Packed, pack, width_of};

const HEADER: usize = 4 + 4 + 1 + 1 + 8;

/// The bytes are no chunk that we wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the URL lookup is damaged: {0}")]
pub(super) struct Corrupt(pub(super) &'static str);

/// Writes entries that are sorted and none below `start`; not over 2^32 of them.
pub(super) fn encode(entries: &[Entry], start: i64, out: &mut Vec<u8>) {
    let least = entries.iter().map(|entry| entry.id).min().unwrap_or(0);
    let before = std::iter::once(start).chain(entries.iter().map(|entry| entry.hash));
    let gaps = entries
        .iter()
        .zip(before)
        .map(|(entry, before)| entry.hash.wrapping_sub(before).cast_unsigned());
    let ids = entries.iter().map(|entry| entry.id.wrapping_sub(least).cast_unsigned());
    let hash_width = width_of(gaps.clone().max().unwrap_or(0));
    let id_width = width_of(ids.clone().max().unwrap_or(0));

    out.clear();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&u32::try_from(entries.len()).unwrap_or(u32::MAX).to_le_bytes());
    // A width is at most 64.
    out.extend([hash_width, id_width].map(|width| u8::try_from(width).unwrap_or(64)));
    out.extend_from_slice(&least.to_le_bytes());
    pack(gaps, hash_width, out);
    pack(ids, id_width, out);
    let sum = checksum(out.get(4..).unwrap_or_default());
    if let Some(place) = out.first_chunk_mut::<4>() {
        *place = sum;
    }
}

/// Appends the entries to `out`.
pub(super) fn decode(bytes: &[u8], start: i64, out: &mut Vec<Entry>) -> Result<(), Corrupt> {
    const BAD: Corrupt = Corrupt("a chunk is cut off");
    let (header, body) = bytes.split_first_chunk::<HEADER>().ok_or(BAD)?;
    let [s0, s1, s2, s3, c0, c1, c2, c3, hash_width, id_width, least @ ..] = *header;
    if checksum(bytes.get(4..).unwrap_or_default()) != [s0, s1, s2, s3] {
        return Err(Corrupt("the checksum of a chunk differs"));
    }
    let count = usize::try_from(u32::from_le_bytes([c0, c1, c2, c3])).map_err(|_| BAD)?;
    let (gaps, rest) = Packed::split(body, count, hash_width.into()).ok_or(BAD)?;
    let (ids, rest) = Packed::split(rest, count, id_width.into()).ok_or(BAD)?;
    if !rest.is_empty() {
        return Err(Corrupt("a chunk has bytes after its end"));
    }
    // No two entries are equal, so more than one takes at least a bit each.
    if count > 1 && hash_width == 0 && id_width == 0 {
        return Err(Corrupt("a chunk claims equal entries"));
    }
    let least = i64::from_le_bytes(least);
    let mut hash = start;
    out.reserve(count);
    out.extend(gaps.iter().zip(ids.iter()).map(|(gap, id)| {
        hash = hash.wrapping_add(gap.cast_signed());
        Entry { hash, id: least.wrapping_add(id.cast_signed()) }
    }));
    Ok(())
}

/// Of what lies in one blob; the low half is enough to notice damage.
pub(super) fn checksum(bytes: &[u8]) -> [u8; 4] {
    let [a, b, c, d, ..] = xxh3_64(bytes).to_le_bytes();
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        let entry = (0_i64..1 << 48, prop_oneof![any::<i64>(), 0_i64..100])
            .prop_map(|(hash, id)| Entry { hash: hash + 7, id });
        prop::collection::btree_set(entry, 0..200).prop_map(|set| set.into_iter().collect())
    }

    proptest! {
        #[test]
        fn a_chunk_survives_being_written_and_read(entries in entries()) {
            let (mut bytes, mut read) = (Vec::new(), Vec::new());
            encode(&entries, 7, &mut bytes);
            prop_assert_eq!(decode(&bytes, 7, &mut read), Ok(()));
            prop_assert_eq!(read, entries);
        }

        #[test]
        fn a_damaged_chunk_is_noticed(
            entries in entries(),
            at in any::<prop::sample::Index>(),
            flip in 1_u8..,
        ) {
            let mut bytes = Vec::new();
            encode(&entries, 7, &mut bytes);
            prop_assert!(decode(&bytes[..at.index(bytes.len())], 7, &mut Vec::new()).is_err());
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(decode(&bytes, 7, &mut Vec::new()).is_err());
        }

        #[test]
        fn forged_bytes_with_a_right_checksum_do_no_harm(
            body in prop::collection::vec(any::<u8>(), HEADER - 4..100),
            widths in (0_u8..=66, 0_u8..=66),
            count in prop_oneof![any::<u32>(), 0_u32..20],
        ) {
            let mut bytes = [&[0; 4], &body[..]].concat();
            bytes[4..8].copy_from_slice(&count.to_le_bytes());
            (bytes[8], bytes[9]) = widths;
            let sum = checksum(&bytes[4..]);
            bytes[..4].copy_from_slice(&sum);
            let mut read = Vec::new();
            if decode(&bytes, 0, &mut read).is_ok() {
                prop_assert!(read.len() <= 8 * bytes.len());
            }
        }
    }
}
