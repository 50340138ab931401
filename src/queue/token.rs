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
        if text.len() != 48 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(NotAToken);
        }
        let (secret, row) = text.split_at(32);
        let secret = u128::from_str_radix(secret, 16).map_err(|_| NotAToken)?;
        let row = u64::from_str_radix(row, 16).map_err(|_| NotAToken)?;
        let row = i64::try_from(row).map_err(|_| NotAToken)?;
        Ok(Self { url: UrlId(row), secret: secret.to_be_bytes() })
    }
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
    }
}
