//! Which engine the tests' stores are in: a file, or, where
//! `SITEMAPD_POSTGRES` names a database, a schema of it for each data folder.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use sitemapd::config::Config;
use tokio_postgres::NoTls;

/// Gives a config a data folder, and, where that is asked for, a schema of its
/// own in the server's database.
pub fn place(config: &mut Config, folder: &Path) {
    config.daemon.data_dir = folder.to_owned();
    if let Ok(server) = std::env::var("SITEMAPD_POSTGRES") {
        config.store.url = Some(schema_of(&server, folder));
    }
}

/// Are the stores in files? What looks into these says so and ends, where not.
pub fn is_embedded(test: &str) -> bool {
    let is_embedded = std::env::var_os("SITEMAPD_POSTGRES").is_none();
    if !is_embedded {
        eprintln!("SKIPPED on a server: {test} looks into the file");
    }
    is_embedded
}

fn schema_of(server: &str, folder: &Path) -> url::Url {
    let mut hash = DefaultHasher::new();
    folder.hash(&mut hash);
    let name = format!("test_{:016x}", hash.finish());
    let sql = format!("CREATE SCHEMA IF NOT EXISTS {name}");
    let at = server.to_owned();
    // Tests run where futures do; a connection of this kind is waited for.
    let made = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&at, NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(&sql).await.unwrap();
        });
    });
    made.join().unwrap();
    let mut url = url::Url::parse(server).unwrap();
    url.query_pairs_mut().append_pair("options", &format!("-csearch_path={name}"));
    url
}
