//! Pure: `X-Hub-Signature` (W3C `WebSub` section 7.1), `method=hex`.
//!
//! The HMAC (RFC 2104) of the body as sent, by the secret of the subscription.
//! Compared in constant time.

use ring::hmac;

/// A signature as it was sent.
#[derive(Debug, Clone)]
pub(super) struct Said {
    method: hmac::Algorithm,
    tag: Vec<u8>,
}

impl Said {
    /// Reads a header; `None` where it is no signature of a method that we know.
    pub(super) fn read(header: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(header).ok()?.trim();
        let (method, hex) = text.split_once('=')?;
        let (method, length) = match method.to_ascii_lowercase().as_str() {
            // Weak as a hash, and still good in an HMAC; old hubs know no other.
            "sha1" => (hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, 20),
            "sha256" => (hmac::HMAC_SHA256, 32),
            "sha384" => (hmac::HMAC_SHA384, 48),
            "sha512" => (hmac::HMAC_SHA512, 64),
            _ => return None,
        };
        if hex.len() != 2 * length || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let byte = |pair: &[u8]| {
            std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
        };
        let tag: Option<Vec<u8>> = hex.as_bytes().chunks(2).map(byte).collect();
        Some(Self { method, tag: tag? })
    }

    /// Is it the signature of `body` by this secret?
    pub(super) fn is_of(&self, secret: &[u8], body: &[u8]) -> bool {
        let key = hmac::Key::new(self.method, secret);
        hmac::verify(&key, body, &self.tag).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 2202 case 2 and RFC 4231 case 2: the key "Jefe".
    const KNOWN: [&str; 4] = [
        "sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
        "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        "sha384=af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
        "sha512=164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
    ];
    const BODY: &[u8] = b"what do ya want for nothing?";

    #[test]
    fn a_signature_of_any_method_is_known_and_no_other_is() {
        for known in KNOWN {
            let said = Said::read(known.as_bytes()).expect(known);
            assert!(said.is_of(b"Jefe", BODY), "{known}");
            assert!(!said.is_of(b"Jeff", BODY), "another secret");
            assert!(!said.is_of(b"Jefe", &BODY[1..]), "another body");
            let (method, hex) = known.split_once('=').expect("a method");
            let shouted = format!("{} = ", method.to_uppercase());
            assert!(Said::read(shouted.as_bytes()).is_none());
            let upper = format!("{}={}", method.to_uppercase(), hex.to_uppercase());
            assert!(Said::read(upper.as_bytes()).expect("read").is_of(b"Jefe", BODY), "{upper}");
            assert!(Said::read(known.replace("sha", "md").as_bytes()).is_none());
            assert!(Said::read(&known.as_bytes()[..known.len() - 2]).is_none(), "cut short");
        }
        for wrong in ["", "=", "sha256", "sha256=", "sha1=zz", "sha256=\u{e9}", &"a".repeat(9_999)]
        {
            assert!(Said::read(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
