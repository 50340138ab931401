//! The client by which daemons that share a store ask one another: plain HTTP to
//! an address that the other one gave, and to nowhere else.
//!
//! What it posts and gets is the store's affair. No proxy of the environment, no
//! redirect is heeded.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};

/// Another daemon that takes no connection in this time is away.
const CONNECT: Duration = Duration::from_secs(2);
/// What is not answered in this time is not waited for.
const ANSWER: Duration = Duration::from_secs(30);
/// Bytes of an answer: what a thousand leases or settlements come to is a tenth.
const MOST: usize = 64 << 20;
/// A connection that was idle for so long is not used again: sooner than the
/// other side closes it.
const IDLE: Duration = Duration::from_secs(5);

/// Asks other daemons.
#[derive(Debug, Clone)]
pub struct PeerClient(reqwest::Client);

impl PeerClient {
    /// # Errors
    /// Says what the TLS of this machine lacks.
    pub fn new() -> Result<Self, String> {
        super::tls::client()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .timeout(ANSWER)
            .build()
            .map(Self)
            .map_err(|error| error.to_string())
    }

    /// Posts JSON to a daemon (`host:port`) with a secret, for its JSON.
    ///
    /// # Errors
    /// Says why there is no answer, or none with a 2xx.
    pub async fn post(
        &self,
        address: &str,
        path: &str,
        secret: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, String> {
        let mut answer = self
            .0
            .post(format!("http://{address}{path}"))
            .header(AUTHORIZATION, format!("Bearer {secret}"))
            .header(CONTENT_TYPE, "application/json")
            .body(body)
            .send()
            .await
            .and_then(reqwest::Response::error_for_status)
            .map_err(|error| error.to_string())?;
        let mut read = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| error.to_string())? {
            if read.len() + chunk.len() > MOST {
                return Err(format!("its answer is longer than {MOST} bytes"));
            }
            read.extend_from_slice(&chunk);
        }
        Ok(read)
    }
}
