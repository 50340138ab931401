//! `[egress]`: what is published elsewhere, and how that is read.
//!
//! Without servers nothing is published, and the other keys say nothing.
//! Secrets are in files or in the environment, never among these values' text.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::env::{Env, Token};
use super::raw::{Leaf, RawNats};
use super::read::{Reader, duration, flag, list, string, whole};
use super::resolve::MAX_LEASE;
use super::subject::{Subject, covers};

/// Longest name of a stream, in characters.
const MAX_NAME: usize = 64;
/// Shortest and longest lease of what is published.
const LEASES: RangeInclusive<Duration> = Duration::from_secs(10)..=MAX_LEASE;

/// `[egress]`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Egress {
    /// `[egress.nats]`
    pub nats: Nats,
}

/// `[egress.nats]`: URLs that may be fetched, published to NATS `JetStream`.
#[derive(Debug, Clone, PartialEq)]
pub struct Nats {
    /// Where it is; empty where nothing is published.
    pub servers: Vec<Url>,
    /// A user JWT and its `NKey` seed.
    pub credentials_file: Option<PathBuf>,
    /// Makes the token a password.
    pub user: Option<String>,
    /// File that holds the token or password.
    pub token_file: Option<PathBuf>,
    /// The same from the environment; used where no file is named.
    pub token: Option<Token>,
    /// More certificate authorities, PEM.
    pub ca_file: Option<PathBuf>,
    /// Whose URLs.
    pub crawls: Vec<String>,
    /// The stream that keeps what is published.
    pub stream: String,
    /// Where it is published.
    pub subject: Subject,
    /// The stream that keeps what fetchers report.
    pub results_stream: String,
    /// Where they report it; nothing is to be filled in.
    pub results: Subject,
    /// Are streams made that are not there?
    pub create: bool,
    /// URLs leased and published at a time, 1 to 1,000.
    pub batch: u32,
    /// URLs published and not settled at most, 1 to 100,000.
    pub in_flight: usize,
    /// How long each is leased.
    pub lease: Duration,
}

impl Default for Nats {
    fn default() -> Self {
        let subject = |text: &str| {
            // Both are subjects; a test reads them.
            #[allow(clippy::expect_used)]
            Subject::parse(text).expect("a built-in subject is one")
        };
        Self {
            servers: Vec::new(),
            credentials_file: None,
            user: None,
            token_file: None,
            token: None,
            ca_file: None,
            crawls: vec!["default".to_owned()],
            stream: "SITEMAPD".to_owned(),
            subject: subject("sitemapd.urls"),
            results_stream: "SITEMAPD_RESULTS".to_owned(),
            results: subject("sitemapd.results"),
            create: true,
            batch: 100,
            in_flight: 1_000,
            lease: Duration::from_secs(15 * 60),
        }
    }
}

/// Reads the section.
pub(super) fn nats(nats: &mut Nats, raw: &RawNats, env: &Env, reader: &mut Reader<'_>) {
    reader.set(&mut nats.servers, &raw.servers, list(server));
    let file = reader.file();
    reader.set(&mut nats.credentials_file, &raw.credentials_file, |v| file(v).map(Some));
    reader.set(&mut nats.token_file, &raw.token_file, |v| file(v).map(Some));
    reader.set(&mut nats.ca_file, &raw.ca_file, |v| file(v).map(Some));
    reader.set(&mut nats.user, &raw.user, |v| filled(string(v)?).map(Some));
    nats.token = env.nats_token();
    reader.set(&mut nats.crawls, &raw.crawls, |v| some(list(filled)(v)?));
    reader.set(&mut nats.stream, &raw.stream, |v| name(string(v)?));
    reader.set(&mut nats.subject, &raw.subject, |v| Subject::parse(string(v)?));
    reader.set(&mut nats.results_stream, &raw.results_stream, |v| name(string(v)?));
    reader.set(&mut nats.results, &raw.results, |v| fixed(string(v)?));
    reader.set(&mut nats.create, &raw.create, flag);
    reader.set(&mut nats.batch, &raw.batch, whole(1..=1_000));
    reader.set(&mut nats.in_flight, &raw.in_flight, whole(1..=100_000));
    reader.set(&mut nats.lease, &raw.lease, duration(LEASES));
    at_odds(nats, raw, reader);
}

/// What is right by itself and wrong beside another key.
fn at_odds(nats: &Nats, raw: &RawNats, reader: &mut Reader<'_>) {
    let mut refuse = |is_wrong: bool, at: [&Leaf; 2], message: &str| {
        if is_wrong {
            reader.fault_at(&at, message.to_owned());
        }
    };
    let has_token = nats.token_file.is_some() || nats.token.is_some();
    refuse(
        nats.credentials_file.is_some() && (has_token || nats.user.is_some()),
        [&raw.credentials_file, &None],
        "is one way to log in, and user with token_file (or a token in the environment) another; \
         allowed is one of them",
    );
    refuse(
        nats.user.is_some() && !has_token,
        [&raw.user, &None],
        "has no password: allowed with token_file, or with SITEMAPD_NATS_TOKEN in the environment",
    );
    refuse(
        nats.stream == nats.results_stream,
        [&raw.results_stream, &raw.stream],
        "is the same as the other stream; what is reported needs one of its own",
    );
    refuse(
        covers(&nats.subject.wildcard(), &nats.results.to_string()),
        [&raw.results, &raw.subject],
        "is a subject of the URLs, as they are published; what is reported needs another one",
    );
}

/// The URL of a server; who logs in is not said in it.
fn server(text: &str) -> Result<Url, String> {
    let allowed = "allowed is \"nats://host:4222\" or \"tls://host:4222\"";
    let url = Url::parse(text).map_err(|e| format!("{allowed} ({e})"))?;
    if !matches!(url.scheme(), "nats" | "tls") || !url.has_host() {
        return Err(allowed.to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("allowed is a server without user and password; \
                    name them by user, token_file or credentials_file"
            .to_owned());
    }
    Ok(url)
}

fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if text.is_empty() || text.len() > MAX_NAME || !text.chars().all(fits) {
        return Err(format!("allowed is 1 to {MAX_NAME} ASCII letters, digits, _ and -"));
    }
    Ok(text.to_owned())
}

fn fixed(text: &str) -> Result<Subject, String> {
    let subject = Subject::parse(text)?;
    if subject.is_fixed() { Ok(subject) } else { Err("allowed is one subject".to_owned()) }
}

fn filled(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("allowed is a name".to_owned()) } else { Ok(text.to_owned()) }
}

fn some(names: Vec<String>) -> Result<Vec<String>, String> {
    if names.is_empty() { Err("allowed is at least one crawl".to_owned()) } else { Ok(names) }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Env};

    fn told(keys: &str) -> String {
        let text = format!("[egress.nats]\n{keys}");
        Config::from_toml_str(&text).map_or_else(|e| e.to_string(), |_| String::new())
    }

    #[test]
    fn each_fault_names_its_key_and_shows_no_secret() {
        for (keys, expected) in [
            ("servers = [\"http://a\"]", "egress.nats.servers: found"),
            ("servers = [\"nats://me:s3cret@a\"]", "without user and password"),
            ("stream = \"a.b\"", "egress.nats.stream: found"),
            ("results = \"a.{crawl}\"", "allowed is one subject"),
            ("subject = \"a.>\"", "egress.nats.subject: found"),
            ("crawls = []", "at least one crawl"),
            ("batch = 0", "from 1 to 1000"),
            ("lease = \"1s\"", "from 10s to 12h"),
            ("user = \"me\"", "egress.nats.user: has no password"),
            ("stream = \"SITEMAPD_RESULTS\"", "is the same as the other stream"),
            ("subject = \"sitemapd.results\"", "is a subject of the URLs"),
            ("subject = \"sitemapd.{crawl}\"", "is a subject of the URLs"),
            ("subject = \"{site}.r\"\nresults = \"a.r\"", "is a subject of the URLs"),
            ("url = \"x\"", "egress.nats.url: unknown key"),
        ] {
            let told = told(keys);
            assert!(told.contains(expected), "{keys}\n{told}");
            assert!(!told.contains("s3cret"), "{told}");
        }
        assert_eq!(told("servers = [\"tls://a:4222\"]\nsubject = \"a.{crawl}.{host}\""), "");
    }

    #[test]
    fn the_secret_comes_from_the_environment_and_is_not_shown() {
        let file = tempfile::NamedTempFile::with_suffix(".toml").expect("a file");
        let text = "[egress.nats]\nservers = [\"nats://a\"]\nuser = \"me\"";
        std::fs::write(file.path(), text).expect("a config");
        let env = Env::from([("SITEMAPD_NATS_TOKEN", "s3cret")]);
        let config = Config::load(file.path(), &env).expect("it has a password");
        assert_eq!(config.egress.nats.token.as_ref().map(super::Token::as_str), Some("s3cret"));
        assert!(!format!("{config:?}").contains("s3cret"));
        assert!(!crate::config::resolved_toml(&config).contains("s3cret"));
    }
}
