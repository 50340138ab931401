//! Redis: two sorted sets, and a script for each call, so that it is atomic.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::{Args, Line, Server, Worker, both, free_port};

/// Takes the first of what is due, and keeps it as leased.
const LEASE: &str = "local ids = redis.call('ZRANGEBYSCORE', 'queue', '-inf', ARGV[2], 'LIMIT', 0, ARGV[1]) \
    for _, id in ipairs(ids) do redis.call('ZREM', 'queue', id) redis.call('ZADD', 'leased', ARGV[2], id) end \
    return ids";
/// Gives leased ones back, due later.
const SETTLE: &str = "for i = 2, #ARGV do \
    if redis.call('ZREM', 'leased', ARGV[i]) == 1 then redis.call('ZADD', 'queue', ARGV[1], ARGV[i]) end end \
    return #ARGV - 1";
/// Entries that are put in at once.
const PUT: u64 = 1_000;
/// The time, as the script sees it: all entries are due.
const NOW: &str = "1000000000";

struct Client {
    line: Line,
    scripts: [String; 2],
}

pub(crate) async fn run(args: &Args, synced: bool) -> anyhow::Result<[Option<f64>; 2]> {
    let (folder, port) = (tempfile::tempdir()?, free_port()?);
    let append = if synced { "yes" } else { "no" };
    let server = Server::start(
        Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", append, "--appendfsync", "everysec", "--dir"])
            .arg(folder.path()),
    )?;
    let Some(_server) = server else { return Ok([None, None]) };
    let mut client = Client::connect(port).await?;
    for first in (0..args.urls).step_by(usize::try_from(PUT)?) {
        let mut words = vec!["ZADD".to_owned(), "queue".to_owned()];
        for id in first..(first + PUT).min(args.urls) {
            words.extend([(id % 1_000_000).to_string(), id.to_string()]);
        }
        client.call(&words).await?;
    }
    both(args, || Client::connect(port)).await
}

impl Client {
    async fn connect(port: u16) -> anyhow::Result<Self> {
        let mut client = Self { line: Line::to(port).await?, scripts: Default::default() };
        for (index, script) in [LEASE, SETTLE].into_iter().enumerate() {
            let words = ["SCRIPT", "LOAD", script].map(str::to_owned);
            let loaded = client.call(&words).await?;
            client.scripts[index] = loaded.into_iter().next().context("a name")?;
        }
        Ok(client)
    }

    /// Sends a command; what it answers, one level deep.
    async fn call(&mut self, words: &[String]) -> anyhow::Result<Vec<String>> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            // Writing into a string does not fail.
            let _ = write!(text, "${}\r\n{word}\r\n", word.len());
        }
        self.line.send(text.as_bytes()).await?;
        let first = self.line.line().await?;
        let (kind, rest) = first.split_at(1);
        match kind {
            "*" => {
                let mut all = Vec::new();
                for _ in 0..rest.parse::<usize>()? {
                    let head = self.line.line().await?;
                    all.push(self.bulk(&head).await?);
                }
                Ok(all)
            }
            "$" => Ok(vec![self.bulk(&first).await?]),
            _ => {
                ensure!(kind != "-", "redis: {rest}");
                Ok(vec![rest.to_owned()])
            }
        }
    }

    async fn bulk(&mut self, head: &str) -> anyhow::Result<String> {
        let length: usize = head.get(1..).unwrap_or_default().parse()?;
        let bytes = self.line.bytes(length + 2).await?;
        Ok(String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned())
    }
}

impl Worker for Client {
    async fn round(&mut self, batch: u32) -> anyhow::Result<u64> {
        let [lease, settle] = self.scripts.clone();
        let words =
            ["EVALSHA".to_owned(), lease, "0".to_owned(), batch.to_string(), NOW.to_owned()];
        let ids = self.call(&words).await?;
        let count = ids.len() as u64;
        let mut words =
            ["EVALSHA".to_owned(), settle, "0".to_owned(), "999999999".to_owned()].to_vec();
        words.extend(ids);
        self.call(&words).await?;
        Ok(count)
    }
}
