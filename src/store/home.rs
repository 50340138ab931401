//! Where a store is kept, and how one gets at it.

use std::path::PathBuf;

use super::sql::{Connection, Server};
use super::{FILE, StoreError, engine, schema, server};
use crate::config::{Config, Durability};

/// Where a store is kept.
#[derive(Debug, Clone)]
pub(super) enum Home {
    /// In a file of our own.
    File(PathBuf),
    /// In a database of a server.
    Server(Box<Server>),
}

impl Home {
    /// Where a config has its store.
    pub(super) fn of(config: &Config) -> Result<Self, StoreError> {
        Ok(match &config.store.url {
            None => Self::File(config.daemon.data_dir.join(FILE)),
            Some(url) => Self::Server(Box::new(Server::new(url.as_str()).map_err(engine)?)),
        })
    }

    /// The connection of the one writer; makes the store where it is new. Blocks.
    pub(super) fn open_writer(&self, durability: Durability) -> Result<Connection, StoreError> {
        match self {
            Self::File(path) => schema::open_writer(path, durability)
                .map(Connection::Embedded)
                .map_err(|error| match error {
                    // Nobody is there to try again.
                    StoreError::Busy | StoreError::Full => StoreError::Unusable(format!(
                        "{} cannot be opened: {error}",
                        path.display()
                    )),
                    other => other,
                }),
            Self::Server(server) => server::open_writer(server, durability),
        }
    }

    /// A connection that only reads. Blocks.
    pub(super) fn open_reader(&self) -> Result<Connection, StoreError> {
        match self {
            Self::File(path) => {
                let conn = schema::open_reader(path)?;
                schema::check_up_to_date(&conn, path)?;
                Ok(Connection::Embedded(conn))
            }
            Self::Server(server) => server::open_reader(server),
        }
    }
}
