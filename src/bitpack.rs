//! Integers of one width, packed without gaps: the shape of every column that
//! the store keeps as a blob.
//!
//! Keeps: reading never panics and never looks outside its slice, whatever the
//! bytes are; a value comes back as it went in when the width fits it. What the
//! values mean, and whether they are plausible, is the business of the format
//! that uses them.

/// Bits needed to write `max`; 0 for 0.
pub(crate) fn width_of(max: u64) -> u32 {
    u64::BITS - max.leading_zeros()
}

/// Bytes that `count` values of `width` bits take; `None` when no slice can be that long.
pub(crate) fn packed_len(count: usize, width: u32) -> Option<usize> {
    Some(count.checked_mul(width as usize)?.div_ceil(8))
}

/// Appends `values`, each cut to `width` bits (at most 64), low bits first.
pub(crate) fn pack(values: impl IntoIterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let mask = u64::MAX >> (u64::BITS - width.min(u64::BITS));
    let mut pending = 0_u128;
    let mut filled = 0_u32;
    for value in values {
        pending |= u128::from(value & mask) << filled;
        filled += width;
        if filled >= u64::BITS {
            out.extend_from_slice(&low_word(pending).to_le_bytes());
            pending >>= u64::BITS;
            filled -= u64::BITS;
        }
    }
    let rest = filled.div_ceil(8) as usize;
    out.extend(low_word(pending).to_le_bytes().into_iter().take(rest));
}

/// A packed column as it lies in a blob.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packed<'a> {
    bytes: &'a [u8],
    width: u32,
    mask: u64,
    count: usize,
}

impl<'a> Packed<'a> {
    /// Splits `count` values of `width` bits off the front of `bytes`; `None`
    /// when they are not all there or the width is over 64.
    pub(crate) fn split(bytes: &'a [u8], count: usize, width: u32) -> Option<(Self, &'a [u8])> {
        if width > u64::BITS {
            return None;
        }
        let (own, rest) = bytes.split_at_checked(packed_len(count, width)?)?;
        let mask = u64::MAX.checked_shr(u64::BITS - width).unwrap_or(0);
        Some((Self { bytes: own, width, mask, count }, rest))
    }

    /// The value at `index`; 0 past the end.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> u64 {
        if self.width == 0 {
            return 0;
        }
        let bit = index * self.width as usize;
        let (at, shift) = (bit / 8, bit % 8);
        let Some(word) = self.bytes.get(at..).and_then(|tail| tail.first_chunk::<8>()) else {
            return self.get_near_end(at, shift);
        };
        let mut value = u64::from_le_bytes(*word) >> shift;
        if self.width as usize + shift > 64 {
            let ninth = self.bytes.get(at + 8).copied().unwrap_or(0);
            value |= u64::from(ninth) << (64 - shift);
        }
        value & self.mask
    }

    /// All values in order.
    pub(crate) fn iter(self) -> impl Iterator<Item = u64> + 'a {
        (0..self.count).map(move |index| self.get(index))
    }

    #[cold]
    fn get_near_end(&self, at: usize, shift: usize) -> u64 {
        let mut bytes = [0_u8; 8];
        for (to, from) in bytes.iter_mut().zip(self.bytes.get(at..).unwrap_or_default()) {
            *to = *from;
        }
        (u64::from_le_bytes(bytes) >> shift) & self.mask
    }
}

fn low_word(bits: u128) -> u64 {
    // The cast is the point: what is above stays pending.
    #[allow(clippy::cast_possible_truncation)]
    let word = bits as u64;
    word
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packed_values_come_back_at_every_width(
            values in prop::collection::vec(any::<u64>(), 0..200),
            width in 0_u32..=64,
        ) {
            let mask = u64::MAX.checked_shr(64 - width).unwrap_or(0);
            let cut: Vec<u64> = values.iter().map(|value| value & mask).collect();
            let mut bytes = Vec::new();
            pack(values.iter().copied(), width, &mut bytes);
            prop_assert_eq!(bytes.len(), packed_len(values.len(), width).unwrap());
            bytes.extend_from_slice(b"rest");
            let (packed, rest) = Packed::split(&bytes, values.len(), width).unwrap();
            prop_assert_eq!(rest, b"rest");
            prop_assert_eq!(packed.iter().collect::<Vec<_>>(), cut);
        }

        #[test]
        fn reading_beyond_the_end_gives_no_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            count in 0_usize..50,
            width in 0_u32..=70,
            index in 0_usize..1000,
        ) {
            if let Some((packed, _)) = Packed::split(&bytes, count, width) {
                packed.get(index);
            }
        }
    }

    #[test]
    fn a_count_that_no_slice_can_hold_is_refused() {
        assert!(Packed::split(&[0; 64], usize::MAX, 64).is_none());
        assert!(Packed::split(&[0; 64], 65, 8).is_none());
    }
}
