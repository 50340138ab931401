//! Numbers of many magnitudes in few bits, and columns of them in a blob.
//!
//! Keeps: reading never panics, whatever the bytes are; what comes back is
//! never negative, infinite or NaN, and within half a step of what went in.
//! What the numbers mean is left to those who keep them.

/// Smallest number that is told from 0: a millionth.
const SMALLEST: f64 = 1e-6;
/// Largest number that is kept; larger ones become it.
const LARGEST: f64 = 1e6;

/// A number of 0 to a million on a scale of `bits` (at most 16): 0 for 0, then
/// equal steps of the logarithm. 16 bits tell apart what differs by 0.05 %,
/// 12 bits by 0.7 %.
pub(super) fn to_log(value: f64, bits: u32) -> u16 {
    // NaN is no number that a model arrives at; it becomes 0 here.
    if value.is_nan() || value < SMALLEST {
        return 0;
    }
    let steps = f64::from((1_u32 << bits) - 2);
    let share = (value.min(LARGEST) / SMALLEST).ln() / (LARGEST / SMALLEST).ln();
    // Within 1 and 65,535 by the bounds above.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let code = (share * steps).round() as u16;
    code + 1
}

/// What [`to_log`] wrote.
pub(super) fn from_log(code: u16, bits: u32) -> f64 {
    if code == 0 {
        return 0.0;
    }
    let steps = f64::from((1_u32 << bits) - 2);
    let share = (f64::from(code - 1) / steps).min(1.0);
    SMALLEST * (share * (LARGEST / SMALLEST).ln()).exp()
}

/// Appends a number in four bytes.
pub(super) fn put(out: &mut Vec<u8>, value: f64) {
    // Counts of days and looks: seven digits are more than is known of them.
    #[allow(clippy::cast_possible_truncation)]
    let short = value as f32;
    out.extend_from_slice(&short.to_le_bytes());
}

/// The numbers that [`put`] wrote; `None` unless there are exactly `N` and all
/// of them are what a tally can be: finite and not negative.
pub(super) fn numbers<const N: usize>(bytes: &[u8]) -> Option<[f64; N]> {
    let (words, rest) = bytes.as_chunks::<4>();
    if words.len() != N || !rest.is_empty() {
        return None;
    }
    let mut numbers = [0.0; N];
    for (number, word) in numbers.iter_mut().zip(words) {
        *number = f64::from(f32::from_le_bytes(*word));
        if !number.is_finite() || *number < 0.0 {
            return None;
        }
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_comes_back_within_half_a_step(exponent in -13.8_f64..13.8) {
            let value = exponent.exp();
            for (bits, error) in [(16, 0.000_22), (12, 0.003_5)] {
                let back = from_log(to_log(value, bits), bits);
                prop_assert!((back / value - 1.0).abs() <= error, "{value} became {back}");
            }
        }

        #[test]
        fn any_code_is_a_number_and_is_written_as_it_was_read(code: u16) {
            let value = from_log(code, 16);
            prop_assert!((0.0..=LARGEST * 1.001).contains(&value));
            prop_assert_eq!(to_log(value, 16), code);
        }

        #[test]
        fn any_bytes_are_numbers_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            if let Some(read) = numbers::<3>(&bytes) {
                prop_assert_eq!(bytes.len(), 12);
                prop_assert!(read.iter().all(|number| number.is_finite() && *number >= 0.0));
            }
        }
    }

    #[test]
    fn what_is_no_number_of_a_tally_becomes_its_bound() {
        assert_eq!(to_log(f64::NAN, 16), 0);
        assert_eq!(to_log(-1.0, 16), 0);
        assert_eq!(to_log(f64::INFINITY, 16), u16::MAX);
        assert_eq!(to_log(1e9, 12), 4095);
    }
}
