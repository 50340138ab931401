//! What is wrong with a configuration, said so that it can be put right.
//!
//! Every fault names the file and line (or the environment variable), the
//! key, what was found and what is allowed. Values of secrets are never in it.

use std::fmt;
use std::path::PathBuf;

/// Most faults told at once: after that many the reader has seen enough, and
/// finding the place of each takes time.
pub(super) const MAX_FAULTS: usize = 20;

/// Why there is no [`super::Config`]. The program ends with exit code 78
/// (`EX_CONFIG`); a running daemon keeps the configuration that it has.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The config file, or one that it includes.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// What was read is not a valid configuration.
    #[error("{}", lines(.0))]
    Invalid(Vec<Fault>),
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where it was typed.
    pub place: Place,
    /// The key, dotted: `poll.min`. Empty where no key is to blame.
    pub key: String,
    /// What was found, and what is allowed.
    pub message: String,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A line of a file, counted from 1.
    File {
        /// As it was given, or found by `include`.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    /// An environment variable.
    Variable(String),
    /// An option of the command line, by its name and its variable's.
    Option(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Option(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

fn lines(faults: &[Fault]) -> String {
    faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n")
}
