//! The environment as the configuration sees it.
//!
//! Read once and handed around as a plain map, so that nothing below depends
//! on the process: `SITEMAPD__SECTION__KEY` overrides a key of the file, and
//! `${NAME}` in a site's headers takes the variable `NAME`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What every override starts with.
pub const PREFIX: &str = "SITEMAPD__";

/// Holds the bearer token of the API itself, where no file does: for containers
/// and process managers that give secrets so.
pub const TOKEN: &str = "SITEMAPD_TOKEN";

/// Overrides `listen.token_file`. Images and units set it; an empty one is as if it were
/// not set, since who gives the token in [`TOKEN`] can take a variable away from them in
/// no other way.
const TOKEN_FILE_KEY: &str = "SITEMAPD__LISTEN__TOKEN_FILE";

/// Holds the secret of the NATS session, where no file does: its token, or the
/// password of `egress.nats.user`.
pub const NATS_TOKEN: &str = "SITEMAPD_NATS_TOKEN";

/// A bearer token; its Debug form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// What is compared, or sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Names and values, in the order of the names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Env {
    variables: BTreeMap<String, String>,
    sends_nothing: bool,
    token_file: Option<PathBuf>,
}

impl Env {
    /// The environment of this process. What is not UTF-8 is read with
    /// replacement characters: a name like that is never ours.
    pub fn of_process() -> Self {
        std::env::vars_os()
            .map(|(name, value)| {
                (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
            })
            .collect()
    }

    /// No variables at all.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The same for who sends no headers of sites: those that take a variable which is
    /// not set are left out. Their secrets are in the service's environment only.
    #[must_use]
    pub fn sending_nothing(self) -> Self {
        Self { sends_nothing: true, ..self }
    }

    /// The same where the command line names the file of the API's token, which then
    /// stands before `listen.token_file`.
    #[must_use]
    pub fn with_token_file(self, token_file: Option<PathBuf>) -> Self {
        Self { token_file, ..self }
    }

    /// The file of the API's token that the command line names.
    pub(super) fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }

    /// May headers of sites be left out?
    pub(super) fn sends_nothing(&self) -> bool {
        self.sends_nothing
    }

    /// The value of one variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// The token of [`TOKEN`], if that says anything.
    pub fn token(&self) -> Option<Token> {
        self.secret(TOKEN)
    }

    /// The secret of [`NATS_TOKEN`], if that says anything.
    pub fn nats_token(&self) -> Option<Token> {
        self.secret(NATS_TOKEN)
    }

    fn secret(&self, name: &str) -> Option<Token> {
        let text = self.get(name)?.trim();
        (!text.is_empty()).then(|| Token(text.to_owned()))
    }

    /// The overrides: name, dotted key path in lower case, value.
    pub(super) fn overrides(&self) -> impl Iterator<Item = (&str, Vec<String>, &str)> {
        let is_set = |(name, value): &(&String, &String)| {
            *name != TOKEN_FILE_KEY || !value.trim().is_empty()
        };
        self.variables.iter().filter(is_set).filter_map(|(name, value)| {
            let path = name.strip_prefix(PREFIX)?;
            let keys = path.split("__").map(str::to_ascii_lowercase).collect();
            Some((name.as_str(), keys, value.as_str()))
        })
    }
}

impl FromIterator<(String, String)> for Env {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self { variables: variables.into_iter().collect(), ..Self::default() }
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Env {
    fn from(variables: [(&str, &str); N]) -> Self {
        variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}
