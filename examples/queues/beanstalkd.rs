//! beanstalkd: a job is reserved, and released with another priority. A batch
//! is so many commands sent before the first answer is read.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::{Args, Line, Server, Worker, both, free_port};

/// Jobs that are put in at once.
const PUT: u64 = 1_000;

struct Client(Line);

pub(crate) async fn run(args: &Args) -> anyhow::Result<[Option<f64>; 2]> {
    let (folder, port) = (tempfile::tempdir()?, free_port()?);
    let server = Server::start(
        Command::new("beanstalkd")
            .args(["-l", "127.0.0.1", "-p", &port.to_string(), "-F", "-b"])
            .arg(folder.path()),
    )?;
    let Some(_server) = server else { return Ok([None, None]) };
    let mut line = Line::to(port).await?;
    for first in (0..args.urls).step_by(usize::try_from(PUT)?) {
        let (mut text, end) = (String::new(), (first + PUT).min(args.urls));
        for id in first..end {
            let body = id.to_string();
            // Writing into a string does not fail.
            let _ = write!(text, "put {} 0 300 {}\r\n{body}\r\n", id % 1_000_000, body.len());
        }
        line.send(text.as_bytes()).await?;
        for _ in first..end {
            let answer = line.line().await?;
            ensure!(answer.starts_with("INSERTED"), "beanstalkd: {answer}");
        }
    }
    both(args, || async { Ok(Client(Line::to(port).await?)) }).await
}

impl Worker for Client {
    async fn round(&mut self, batch: u32) -> anyhow::Result<u64> {
        let Self(line) = self;
        line.send("reserve\r\n".repeat(batch as usize).as_bytes()).await?;
        let mut back = String::new();
        for _ in 0..batch {
            let answer = line.line().await?;
            let mut words = answer.split(' ').skip(1);
            let (id, length) = words.next().zip(words.next()).context("a job")?;
            line.bytes(length.parse::<usize>()? + 2).await?;
            // Writing into a string does not fail.
            let _ = write!(back, "release {id} 999999 0\r\n");
        }
        line.send(back.as_bytes()).await?;
        for _ in 0..batch {
            let answer = line.line().await?;
            ensure!(answer == "RELEASED", "beanstalkd: {answer}");
        }
        Ok(u64::from(batch))
    }
}
