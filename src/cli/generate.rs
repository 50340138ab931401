//! `sitemapd generate`: completions of shells and manual pages, for packages
//! and for those who install by hand. Made of the command line itself.

use std::path::PathBuf;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use super::output::Output;
use super::{Cli, Failure, humane};

/// What to make.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Print the completions of a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print the manual page, or write those of all commands into a folder
    Man {
        /// Write a page for each command into this folder
        #[arg(long, value_name = "FOLDER")]
        dir: Option<PathBuf>,
    },
}

/// Makes it.
pub fn run(command: &Command, out: &mut Output) -> Result<(), Failure> {
    let mut cli = Cli::command();
    let mut made = Vec::new();
    match command {
        Command::Completions { shell } => {
            let name = cli.get_name().to_owned();
            clap_complete::generate(*shell, &mut cli, name, &mut made);
        }
        Command::Man { dir: None } => Man::new(cli).render(&mut made)?,
        Command::Man { dir: Some(folder) } => {
            std::fs::create_dir_all(folder)?;
            clap_mangen::generate_to(cli, folder)?;
            let folder = humane::safe(&folder.display().to_string());
            return Ok(out.line(&format!("the pages are in {folder}"))?);
        }
    }
    Ok(out.line(String::from_utf8_lossy(&made).trim_end())?)
}
