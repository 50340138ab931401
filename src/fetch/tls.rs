//! The TLS of this program: where every HTTP client of ours begins.
//!
//! There is one provider of cryptography, `ring`: it is compiled in a sixth of the time
//! that the default of rustls takes. What it lacks, certificates of P-521 and key
//! exchange against quantum computers, no public origin can insist on while browsers
//! lack the first and offer others beside the second.

use reqwest::ClientBuilder;

/// A client to be configured, with the provider of this program.
pub fn client() -> ClientBuilder {
    // An error says that there is one already: of an earlier call, or of whoever has us
    // as a library.
    let _ = rustls::crypto::ring::default_provider().install_default();
    ClientBuilder::new()
}
