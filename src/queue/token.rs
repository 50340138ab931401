//! Lease tokens: 128 random bits and the row they lease, opaque to clients.

use std::fmt;
use std::str::FromStr;

use crate::model::UrlId;

/// Names one lease. Written as 48 hexadecimal digits.
///
/// The random part makes it unguessable; the row part finds the lease without
/// an index over random keys, which would dirty a random page per lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Token {
    /// The row that is leased.
    pub url: UrlId,
    /// 128 random bits.
    pub secret: [u8; 16],
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In one piece: as many are written as URLs are leased.
        let digit = |bits: u8| b"0123456789abcdef"[usize::from(bits & 15)];
        let mut text = [0; 48];
        let bytes = self.secret.into_iter().chain(self.url.0.to_be_bytes());
        for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte)]);
        }
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

/// The text is no token that we ever gave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token is 48 hexadecimal digits")]
pub struct NotAToken;

impl FromStr for Token {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        let digits: &[u8; 48] = text.as_bytes().try_into().map_err(|_| NotAToken)?;
        let mut bytes = [0; 24];
        // Of all digits together: as many are read as URLs are settled.
        let mut strangers = 0;
        for (byte, [high, low]) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            let (high, low) = (value_of(*high), value_of(*low));
            strangers |= high | low;
            *byte = high << 4 | low & 15;
        }
        if strangers > 15 {
            return Err(NotAToken);
        }
        let (mut secret, mut row) = ([0; 16], [0; 8]);
        let (random, named) = bytes.split_at(secret.len());
        secret.copy_from_slice(random);
        row.copy_from_slice(named);
        let row = i64::try_from(u64::from_be_bytes(row)).map_err(|_| NotAToken)?;
        Ok(Self { url: UrlId(row), secret })
    }
}

/// Of a hexadecimal digit; of anything else over 15.
fn value_of(digit: u8) -> u8 {
    static VALUES: [u8; 256] = {
        let mut values = [u8::MAX; 256];
        let mut value = 0;
        while value < 16 {
            let digit = b"0123456789abcdef"[value as usize];
            values[digit as usize] = value;
            values[digit.to_ascii_uppercase() as usize] = value;
            value += 1;
        }
        values
    };
    VALUES[usize::from(digit)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_being_written_and_read() {
        let token = Token { url: UrlId(7_654_321), secret: [0xa5; 16] };
        assert_eq!(token.to_string().parse(), Ok(token));
    }

    #[test]
    fn anything_else_is_no_token() {
        for text in ["", "x", &"g".repeat(48), &"f".repeat(48), &"a".repeat(47), &"é".repeat(24)] {
            assert_eq!(text.parse::<Token>(), Err(NotAToken), "{text}");
        }
        let good = Token { url: UrlId(0x0123_4567_89ab_cdef), secret: [0xfe; 16] }.to_string();
        assert!(good.parse::<Token>().is_ok());
        assert_eq!(good.to_uppercase().parse::<Token>(), good.parse());
        for place in 0..good.len() {
            for stranger in ["g", "@", "/", ":", "`", "G", "\0", " ", "+", "-"] {
                let mut bad = good.clone();
                bad.replace_range(place..=place, stranger);
                assert_eq!(bad.parse::<Token>(), Err(NotAToken), "{bad}");
            }
        }
    }
}
