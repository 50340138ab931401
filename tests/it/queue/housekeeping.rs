//! What is too old goes in parts, and only where there are more of them at once.

use crate::support::engine::Look;
use crate::support::queue_daemon::Queue;

/// Rows of history that one job drops at most.
const PART: u32 = 5_000;

/// Adds so many polls of long ago.
fn old_polls(look: &Look, count: u32) {
    let (column, part) = match look {
        Look::File(_) => ("", ""),
        Look::Server(_) => ("part, ", "0, "),
    };
    look.change(&format!(
        "WITH RECURSIVE numbers (n) AS
             (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
         INSERT INTO polls ({column}id, source_id, at, took_ms, result, counts)
             SELECT {part}n, 1, 0, 1, 'unchanged', '{{}}' FROM numbers"
    ));
}

#[tokio::test]
async fn a_few_rows_that_have_become_too_old_do_not_keep_housekeeping_at_it() {
    let queue = Queue::simple().await;
    queue.maintain().await;
    let look = queue.look();
    for (count, parts) in [(10, 1), (PART - 1, 1), (PART + 1, 2)] {
        old_polls(&look, count);
        for part in 1..=parts {
            let is_more = queue.store.maintain().await.unwrap();
            assert_eq!(is_more, part < parts, "part {part} of {count} rows");
        }
        assert_eq!(look.number("SELECT count(*) FROM polls"), 0, "{count}");
    }
}
