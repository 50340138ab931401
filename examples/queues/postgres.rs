//! `PostgreSQL`: a function for each call, asked by pgbench; rows that another
//! lease holds are skipped.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, ensure};

use crate::{Args, free_port};

const SCHEMA: &str = "
CREATE TABLE queue (id bigint PRIMARY KEY, state int NOT NULL, priority int NOT NULL, due int NOT NULL);
CREATE INDEX queue_order ON queue (priority DESC, due) WHERE state = 0;
CREATE FUNCTION lease(n int) RETURNS bigint[] LANGUAGE sql AS $$
    WITH picked AS (SELECT id FROM queue WHERE state = 0 ORDER BY priority DESC, due LIMIT n FOR UPDATE SKIP LOCKED),
    taken AS (UPDATE queue SET state = 1 FROM picked WHERE queue.id = picked.id RETURNING queue.id)
    SELECT array_agg(id) FROM taken $$;
CREATE FUNCTION settle(ids bigint[]) RETURNS void LANGUAGE sql AS $$
    UPDATE queue SET state = 0, priority = 0, due = due + 1000000 WHERE id = ANY(ids) $$;
";

/// A cluster of our own, stopped when this is dropped.
struct Cluster<'a> {
    args: &'a Args,
    folder: &'a Path,
    port: u16,
}

pub(crate) fn run(args: &Args, synced: bool) -> anyhow::Result<[Option<f64>; 2]> {
    if !args.postgres.join("initdb").exists() {
        return Ok([None, None]);
    }
    let folder = tempfile::tempdir()?;
    // It refuses to run as root, and must reach the folder as somebody else.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777))?;
    let cluster = Cluster { args, folder: folder.path(), port: free_port()? };
    let data = cluster.folder.join("data");
    cluster.call("initdb", &["-A", "trust", "-U", "q", "-D", &data.to_string_lossy()])?;
    let commit = if synced { "on" } else { "off" };
    let options = format!(
        "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories={} \
         -c synchronous_commit={commit} -c shared_buffers=1GB -c max_wal_size=8GB",
        cluster.port,
        cluster.folder.display()
    );
    let log = cluster.folder.join("log");
    let place = ["-D", &data.to_string_lossy(), "-l", &log.to_string_lossy(), "-w"];
    cluster.call("pg_ctl", &[&place[..], &["-o", &options, "start"]].concat())?;
    let statements = format!(
        "{SCHEMA} INSERT INTO queue SELECT n, 0, n % 11, n FROM generate_series(1, {}) n; VACUUM ANALYZE queue;",
        args.urls
    );
    let script = cluster.folder.join("fill.sql");
    std::fs::write(&script, statements)?;
    cluster.ask("psql", &["-q", "-v", "ON_ERROR_STOP=1", "-f", &script.to_string_lossy()])?;
    Ok([Some(cluster.rate(100)?), Some(cluster.rate(1)?)])
}

impl Cluster<'_> {
    /// Items a second in batches of that size.
    fn rate(&self, batch: u32) -> anyhow::Result<f64> {
        let script = self.folder.join("round.sql");
        std::fs::write(
            &script,
            format!("SELECT lease({batch}) AS ids \\gset\nSELECT settle(':ids');\n"),
        )?;
        let (clients, seconds) = (self.args.clients.to_string(), self.args.seconds.to_string());
        let output = self.ask(
            "pgbench",
            &["-n", "-c", &clients, "-j", "2", "-T", &seconds, "-f", &script.to_string_lossy()],
        )?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("tps = ")).context("no rate")?;
        let rounds: f64 = line.split(' ').next().unwrap_or_default().parse()?;
        Ok(rounds * f64::from(batch))
    }

    /// Runs a program that talks to the server.
    fn ask(&self, program: &str, arguments: &[&str]) -> anyhow::Result<Output> {
        let port = self.port.to_string();
        let place = ["-h", "127.0.0.1", "-p", &port, "-U", "q"];
        let last = if program == "psql" { &["-d", "postgres"][..] } else { &["postgres"] };
        self.call(program, &[&place[..], arguments, last].concat())
    }

    /// Runs a program as the user that `PostgreSQL` is installed with.
    fn call(&self, program: &str, arguments: &[&str]) -> anyhow::Result<Output> {
        let program = self.args.postgres.join(program);
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(&program);
            command
        } else {
            Command::new(&program)
        };
        // A server that stays must not hold our pipes: it logs to a file.
        let output = if program.ends_with("pg_ctl") {
            let status =
                command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
            Output { status, stdout: Vec::new(), stderr: Vec::new() }
        } else {
            command.args(arguments).output()?
        };
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {told}", program.display());
        Ok(output)
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let data = self.folder.join("data");
        // Where it never started there is nothing to stop.
        let _ = self.call("pg_ctl", &["-D", &data.to_string_lossy(), "-m", "immediate", "stop"]);
    }
}
