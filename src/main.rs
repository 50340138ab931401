//! The program: parses the command line, calls one library function, and maps
//! its error to an exit code.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use sitemapd::cli::{self, Cli, Failure};

fn main() -> ExitCode {
    match cli::run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader such as `head` had enough.
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Reported) {
                // Nobody is left to tell when stderr is closed.
                let _ = writeln!(std::io::stderr(), "sitemapd: {failure}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}
