//! A client of the API that does as little as it can, so that what is measured is
//! the daemon.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection that is kept.
pub(crate) struct Http {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Http {
    pub(crate) async fn connect(api: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(api).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, answer: Vec::new() })
    }

    /// The tokens of what is leased.
    pub(crate) async fn lease(&mut self, max: u32, per_host: u32) -> anyhow::Result<Vec<String>> {
        let body = format!("{{\"max\":{max},\"per_host\":{per_host}}}");
        self.post("/v1/lease", &body).await?;
        let text = String::from_utf8_lossy(&self.answer);
        let after = text.split("\"token\":\"").skip(1);
        Ok(after.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect())
    }

    /// Settles leases, each as `outcome` says.
    pub(crate) async fn settle(
        &mut self,
        tokens: &[String],
        outcome: impl Fn(&str) -> anyhow::Result<&'static str>,
    ) -> anyhow::Result<()> {
        let one = |token: &String| {
            let outcome = outcome(token)?;
            anyhow::Ok(format!(
                "{{\"token\":\"{token}\",\"outcome\":\"{outcome}\",\"status\":200,\
                 \"content_hash\":\"0123456789abcdef\"}}"
            ))
        };
        let all: Vec<_> = tokens.iter().map(one).collect::<Result<_, _>>()?;
        self.post("/v1/settle", &format!("{{\"results\":[{}]}}", all.join(","))).await
    }

    /// Sends a body and reads the answer's.
    async fn post(&mut self, path: &str, body: &str) -> anyhow::Result<()> {
        let Self { stream, answer } = self;
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        answer.clear();
        loop {
            ensure!(stream.read_buf(answer).await? > 0, "the API closed the connection");
            let Some(head) = answer.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
            let text = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
            ensure!(text.starts_with("http/1.1 200"), "{path}: {text}");
            let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.context("an answer without a length")?.trim().parse()?;
            while answer.len() < head + 4 + length {
                ensure!(stream.read_buf(answer).await? > 0, "the API closed the connection");
            }
            return Ok(());
        }
    }
}
