//! The TLS of this program: where every HTTP client of ours begins.
//!
//! There is one provider of cryptography, `ring`, for PostgreSQL and NATS as well: it is
//! compiled in a fifth of the time that the default of rustls takes. It lacks certificates
//! with keys of P-521 and those signed by ECDSA with SHA-512, which few have, since not
//! all browsers take them, and the key exchange against quantum computers, beside which
//! servers offer others.

use reqwest::ClientBuilder;

/// A client to be configured, with the provider of this program.
pub fn client() -> ClientBuilder {
    // An error says that there is one already: of an earlier call, or of whoever has us
    // as a library.
    let _ = rustls::crypto::ring::default_provider().install_default();
    ClientBuilder::new()
}
