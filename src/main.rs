//! The program: parses the command line, calls one library function, and maps
//! its error to an exit code.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use sitemapd::cli::{self, Cli, Failure};

/// Longest wait for threads that are still at work when all is said.
const LAST_WAIT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = tokio::runtime::Runtime::new().map_err(Failure::from).and_then(|runtime| {
        let result = runtime.block_on(cli::run(cli));
        runtime.shutdown_timeout(LAST_WAIT);
        result
    });
    match result {
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
