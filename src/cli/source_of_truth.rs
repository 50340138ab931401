//! Where a command learns what is so, and who does what it orders: the running
//! daemon over its API, or, where none runs on this machine, its store.
//!
//! The address comes from `--api`, else from the configuration, else it is the
//! default one; the token from `--token-file`, else from the environment, else from
//! the configuration. Answers are handed on as the API gives them, so that `--json`
//! prints exactly what a program would get.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use super::order::{Call, Order, open_alone};
use super::question::{self, Question};
use super::{Failure, Options};
use crate::clock::Clock;
use crate::config::{Config, ConfigError, Env, first_line};
use crate::fetch::api::{ApiClient, ApiError};
use crate::store::{Store, StoreError};

/// File that is the configuration where none is named.
pub const DEFAULT_CONFIG: &str = "config.toml";
/// Rows asked for at once: the API's maximum.
const PART: &str = "1000";

/// What answers questions and carries out orders.
pub struct SourceOfTruth {
    client: ApiClient,
    /// The configuration of the daemon's own machine: unless `--api` was given
    /// we are on it, and may look into the store when no daemon runs.
    local: Option<Local>,
}

/// What is configured here.
struct Local {
    config: Config,
    /// Is it that of a file? Else it names no site.
    of_file: bool,
    /// The store, once it was opened to look at: a command may ask thousands of times.
    looked_at: OnceCell<Store>,
    /// The store, where it is a file, once it was opened to carry out orders. No daemon
    /// starts on it until the command is over.
    alone: OnceCell<Store>,
}

impl Local {
    fn new(config: Config, of_file: bool) -> Self {
        Self { config, of_file, looked_at: OnceCell::new(), alone: OnceCell::new() }
    }

    /// The store, to look at.
    async fn look(&self) -> Result<Store, StoreError> {
        let opened = self.looked_at.get_or_try_init(|| async {
            let config = self.config.clone();
            let open = move || Store::open_read_only(&config, Clock::system());
            let failed = |error| StoreError::Engine(format!("the store did not open: {error}"));
            let store = spawn_blocking(open).await.map_err(failed)??;
            Ok::<_, StoreError>(store.explained_by(&self.config))
        });
        opened.await.cloned()
    }

    /// The store, for orders.
    async fn take(&self) -> Result<&Store, Failure> {
        self.alone.get_or_try_init(|| open_alone(&self.config)).await
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // Blocks until all is on disk; the command is over.
        if let Some(store) = self.alone.get() {
            store.close();
        }
    }
}

impl SourceOfTruth {
    /// Finds the daemon that these options mean. Does not ask it anything yet.
    pub fn of(options: &Options) -> Result<Self, Failure> {
        let (address, local) = if let Some(api) = &options.api {
            (api.clone(), None)
        } else {
            let config = load_config_to_ask(options)?;
            let of_file = config_path(options).is_some();
            let address = format!("http://{}", reachable(config.listen.api));
            (address, Some(Local::new(config, of_file)))
        };
        // The file of the configuration comes last: it may be the daemon's alone to read,
        // and who sets the variable for a command means it.
        let configured = local.as_ref().and_then(|local| local.config.listen.token_file.as_ref());
        let token = match (options.token_file.as_ref(), Env::of_process().token(), configured) {
            (Some(path), _, _) | (None, None, Some(path)) => Some(read_token(path)?),
            (None, Some(token), _) => Some(token.as_str().to_owned()),
            (None, None, None) => None,
        };
        let client = ApiClient::new(&address, token.as_deref()).map_err(explain)?;
        Ok(Self { client, local })
    }

    /// Who works on the folder of the configuration though no daemon has answered: its
    /// API may be elsewhere.
    pub fn holder(&self) -> Option<String> {
        let local = self.local.as_ref()?;
        crate::store::holder(&local.config.daemon.data_dir)
    }

    /// Asks the daemon, or looks into the store when none runs.
    pub async fn ask(&self, question: &Question) -> Result<Value, Failure> {
        question.check()?;
        // No daemon has answered before, and one that came since can wait.
        if let Some(store) = self.local.as_ref().and_then(|local| local.looked_at.get()) {
            return question.answer(store).await;
        }
        let owned = question.query();
        let query: Vec<(&str, &str)> =
            owned.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let asked = match question.whole_list() {
            Some(rows) => self.whole(question.path(), &query, rows).await,
            None => self.client.get(question.path(), &query).await,
        };
        match (asked, &self.local) {
            (Err(error @ ApiError::NoDaemon { .. }), Some(local)) => {
                match local.look().await {
                    Ok(store) => question.answer(&store).await,
                    // Neither a daemon nor a store: the first is what is missing.
                    Err(StoreError::NotFound(_)) => Err(explain(error)),
                    Err(other) => Err(question::explain(other)),
                }
            }
            (asked, _) => asked.map_err(explain),
        }
    }

    /// Gives the order to the daemon, or carries it out when none runs.
    pub async fn order(&self, order: &Order) -> Result<Value, Failure> {
        order.check()?;
        if let Some(store) = self.local.as_ref().and_then(|local| local.alone.get()) {
            return order.carry_out(store).await;
        }
        let given = match order.call() {
            Call::Post(path, body) => self.client.post(&path, &body).await,
            Call::Delete(path) => self.client.delete(&path, &[]).await,
        };
        match (given, &self.local) {
            (Err(ApiError::NoDaemon { .. }), Some(local)) if has_store(&local.config) => {
                // Whoever opens the store says which sites there are: without a file none.
                if !local.of_file {
                    let why = "no daemon answers, and to carry this out on its store takes its \
                               configuration";
                    return Err(no_config(why));
                }
                if local.config.store.url.is_some() {
                    // Others may start on it at any moment, and then it is for them: it is
                    // asked anew each time.
                    let store = open_alone(&local.config).await?;
                    let carried_out = order.carry_out(&store).await;
                    store.close();
                    return carried_out;
                }
                order.carry_out(local.take().await?).await
            }
            (given, _) => given.map_err(explain),
        }
    }

    /// Asks for what is at this path of the API.
    pub async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, Failure> {
        self.client.get(path, query).await.map_err(explain)
    }

    /// Asks the daemon for a whole list.
    pub async fn list(
        &self,
        path: &str,
        query: &[(&str, &str)],
        rows: &str,
    ) -> Result<Value, Failure> {
        self.whole(path, query, rows).await.map_err(explain)
    }

    /// Follows `next` and answers all rows, which stand under `rows`, as one part.
    async fn whole(
        &self,
        path: &str,
        query: &[(&str, &str)],
        rows: &str,
    ) -> Result<Value, ApiError> {
        let mut query = query.to_vec();
        query.push(("limit", PART));
        let mut whole: Value = self.client.get(path, &query).await?;
        let mut cursor = whole.get("next").cloned().unwrap_or(Value::Null);
        while let Some(next) = cursor.as_str().map(str::to_owned) {
            let mut query = query.clone();
            query.push(("cursor", &next));
            let mut part: Value = self.client.get(path, &query).await?;
            cursor = part.get("next").cloned().unwrap_or(Value::Null);
            let more = part.get_mut(rows).and_then(Value::as_array_mut).map(std::mem::take);
            let all = whole.get_mut(rows).and_then(Value::as_array_mut);
            let (Some(all), Some(more)) = (all, more) else { break };
            if more.is_empty() {
                break;
            }
            all.extend(more);
        }
        whole["next"] = Value::Null;
        Ok(whole)
    }

    /// Asks for a change.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.client.post(path, body).await.map_err(explain)
    }

    /// The time by which relative times are told.
    pub fn now(&self) -> Timestamp {
        Clock::system().now()
    }
}

/// The config file that is meant, if there is one.
pub fn config_path(options: &Options) -> Option<PathBuf> {
    options
        .config
        .clone()
        .or_else(|| Some(PathBuf::from(DEFAULT_CONFIG)).filter(|path| path.exists()))
}

/// Refuses an address of another daemon where nobody is asked. In the environment it is
/// there for all commands.
pub fn refuse_api(options: &Options, why: &str) -> Result<(), Failure> {
    match &options.api {
        Some(api) if std::env::var("SITEMAPD_API").is_ok_and(|of_env| of_env == *api) => Ok(()),
        Some(_) => Err(Failure::Usage(why.to_owned())),
        None => Ok(()),
    }
}

/// There is no config file, and no going on without one.
pub fn no_config(why: &str) -> Failure {
    Failure::NoConfig(format!(
        "{why}: no {DEFAULT_CONFIG} in the current folder; name a file with --config"
    ))
}

/// Loads the config file that is meant, or the defaults where there is none,
/// with the overrides of the environment.
pub fn load_config(options: &Options) -> Result<Config, ConfigError> {
    load_with(options, &env_of(options))
}

/// The environment, and what the command line says in its place.
pub fn env_of(options: &Options) -> Env {
    Env::of_process().with_token_file(options.token_file.clone())
}

/// The same for commands that send no header of a site, and need not know what is
/// secret in them.
pub fn load_config_to_ask(options: &Options) -> Result<Config, ConfigError> {
    load_with(options, &env_of(options).sending_nothing())
}

fn load_with(options: &Options, env: &Env) -> Result<Config, ConfigError> {
    match config_path(options) {
        Some(path) => Config::load(&path, env),
        None => Config::from_env(env),
    }
}

/// Is there anything to carry an order out on?
fn has_store(config: &Config) -> bool {
    config.store.url.is_some() || Store::is_in(&config.daemon.data_dir)
}

/// An address to listen on is no address to connect to when it means "all".
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// The token, as the daemon reads it.
fn read_token(path: &Path) -> Result<String, Failure> {
    first_line(path).map_err(|why| anyhow!("token file {}: {why}", path.display()).into())
}

fn explain(error: ApiError) -> Failure {
    match error {
        ApiError::Usage(text) => Failure::Usage(text),
        ApiError::Refused { status: 401, detail, .. } => {
            let detail = detail.trim_end_matches('.');
            Failure::Runtime(anyhow!(
                "{detail} (name the file that holds it with --token-file, or set SITEMAPD_TOKEN)"
            ))
        }
        other => Failure::Runtime(anyhow!(other)),
    }
}

/// Percent-encodes a value for one segment of a path.
pub fn segment(value: &str) -> String {
    ::url::form_urlencoded::byte_serialize(value.as_bytes())
        .map(|piece| if piece == "+" { "%20" } else { piece })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_listens_everywhere_is_reached_on_loopback() {
        let cases = [
            ("0.0.0.0:7070", "127.0.0.1:7070"),
            ("[::]:7070", "[::1]:7070"),
            ("10.0.0.1:80", "10.0.0.1:80"),
        ];
        for (listen, connect) in cases {
            let listen: SocketAddr = listen.parse().expect("an address");
            assert_eq!(reachable(listen).to_string(), connect);
        }
    }

    #[test]
    fn a_name_is_one_segment_of_a_path_whatever_is_in_it() {
        assert_eq!(segment("rust-blog"), "rust-blog");
        assert_eq!(segment("a b/../c?d+e%"), "a%20b%2F..%2Fc%3Fd%2Be%25");
    }
}
