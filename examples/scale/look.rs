//! A look at what the store holds, past the daemon: of either engine.

use std::path::Path;

use anyhow::Context as _;
use rusqlite::{Connection, OpenFlags};
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::daemon::Setup;

/// Where to look.
pub(crate) enum Look {
    File(Connection),
    /// A database of a server.
    Server(String),
}

impl Look {
    pub(crate) fn at(setup: &Setup) -> anyhow::Result<Self> {
        Ok(match &setup.postgres {
            Some(url) => Self::Server(url.clone()),
            None => Self::File(open(&setup.folder)?),
        })
    }

    /// The one number that a statement answers.
    pub(crate) fn number(&self, sql: &str) -> anyhow::Result<i64> {
        match self {
            Self::File(conn) => Ok(conn.query_row(sql, [], |row| row.get(0))?),
            Self::Server(url) => far(url, sql)?.parse().context("no number"),
        }
    }

    /// Is a URL listed?
    pub(crate) fn listed(&self) -> &'static str {
        match self {
            Self::File(_) => "said & 1",
            Self::Server(_) => "listed = 1",
        }
    }

    /// A count of a poll, by its name.
    pub(crate) fn count(&self, kind: &str) -> String {
        match self {
            Self::File(_) => format!("counts ->> '{kind}'"),
            Self::Server(_) => format!("CAST(CAST(counts AS JSON) ->> '{kind}' AS BIGINT)"),
        }
    }
}

/// Opens the file of a folder.
pub(crate) fn open(folder: &Path) -> anyhow::Result<Connection> {
    let file = folder.join("sitemapd.db");
    Ok(Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?)
}

/// Makes a database empty.
pub(crate) fn clear(url: &str) -> anyhow::Result<()> {
    let sql = "DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public; SELECT 0";
    far(url, sql).map(|_| ())
}

/// Asks a server; on a thread of its own, as this is called where futures run.
fn far(url: &str, sql: &str) -> anyhow::Result<String> {
    let ask = async || {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let connection = tokio::spawn(connection);
        let answers = client.simple_query(sql).await?;
        connection.abort();
        let row = answers.iter().find_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        row.context("no answer")
    };
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(ask())
        });
        asked.join().map_err(|_| anyhow::anyhow!("the question panicked"))?
    })
}
