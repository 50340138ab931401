//! The command line as a shell sees it: what is printed, and the exit codes.

#![allow(clippy::expect_used, reason = "a test says what it expects")]

mod check;
mod config;
mod demo;
mod discover;
mod ends;
mod generate;
mod run;
mod store;
mod systemd;
mod tables;
pub(crate) mod usage;

use std::path::Path;

use assert_cmd::Command;

/// The program, with nothing of this process's environment that it would read.
pub(crate) fn sitemapd() -> Command {
    let mut command = Command::cargo_bin("sitemapd").expect("the program is built");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().to_ascii_uppercase().starts_with("SITEMAPD") {
            command.env_remove(name);
        }
    }
    command
}

/// The program in a folder of its own.
pub(crate) fn sitemapd_in(folder: &Path) -> Command {
    let mut command = sitemapd();
    command.current_dir(folder);
    command
}

/// What a run came to: exit code, stdout, stderr.
pub(crate) fn outcome(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints UTF-8");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}
