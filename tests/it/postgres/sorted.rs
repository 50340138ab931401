//! Pages of what is sorted, in a database that sorts otherwise than by bytes.

use serde_json::Value;

use crate::support::engine;
use crate::support::queue_daemon::{Queue, QueueDaemon, site};

#[tokio::test]
async fn every_site_is_on_a_page_however_the_database_sorts_names() {
    // By bytes capitals come first, and punctuation before letters.
    let names = ["B", "C.1", "a", "a-z", "aa", "c_1"];
    let text: String =
        names.iter().map(|name| site(name, &format!("http://{name}.test/"), "")).collect();
    let queue = Queue::open(&text).await;
    if engine::server_for(queue.folder()).is_none() {
        eprintln!("SKIPPED: collations need a server, which SITEMAPD_POSTGRES names");
        return;
    }
    // As in a database that was made with another collation than C.
    queue.look().change(
        "DROP VIEW url_view;
         ALTER TABLE sites ALTER COLUMN name TYPE TEXT COLLATE \"und-x-icu\"",
    );
    let clock = queue.clock.clone();
    let daemon = QueueDaemon::over(queue, clock).await;
    let client = daemon.client();
    let (mut seen, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut query = vec![("limit", "1")];
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page: Value = client.get("/v1/sites", &query).await.unwrap();
        let sites = page["sites"].as_array().unwrap();
        seen.extend(sites.iter().map(|site| site["name"].as_str().unwrap().to_owned()));
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    // In the order of the database, each once.
    seen.sort_unstable();
    assert_eq!(seen, names);
    daemon.end().await;
}
