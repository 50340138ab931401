//! What operators order, whatever becomes of who has ordered it.

use super::*;
use crate::support::PATIENCE;

#[tokio::test]
async fn a_block_in_two_forms_is_kept_in_both_though_who_ordered_it_has_left() {
    if !crate::support::engine::is_embedded("a store that is held by somebody else") {
        return;
    }
    let site =
        "[[site]]\nname = \"blog\"\nurl = \"http://blog.test/\"\nsitemaps = []\nfeeds = []\n";
    let daemon = Daemon::start_on(site, None).await;
    let database = daemon.dir.path().join("data").join("sitemapd.db");
    // The first of the two waits for this.
    let holder = rusqlite::Connection::open(database).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let body = json!({"prefix": "https://www.blog.test/a"}).to_string();
    let head = format!(
        "POST /v1/queue/block HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        daemon.addr,
        body.len()
    );
    let mut stream = TcpStream::connect(daemon.addr).await.unwrap();
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    // Nothing can be seen of an order that waits, nor of who has left.
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(stream);
    tokio::time::sleep(Duration::from_millis(300)).await;
    holder.execute_batch("COMMIT").unwrap();
    let blocks = async || {
        let blocks = daemon.get("/v1/queue/blocks").await.json();
        let blocks = blocks["blocks"].as_array().unwrap().iter();
        blocks.map(|block| block["prefix"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let both = async { while blocks().await.len() < 2 {} };
    // How many there are by then is what the next line tells.
    let _ = tokio::time::timeout(PATIENCE, both).await;
    let blocked = blocks().await;
    assert_eq!(blocked, ["http://blog.test/a", "https://www.blog.test/a"]);
}
