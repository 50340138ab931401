//! What SQLite notes of the sizes of tables, which is forgotten: the statements are
//! made for tables of which nothing is known. By what an earlier version noted at its
//! end, or somebody's `ANALYZE`, a table that was small then is read whole for a
//! hundred of its rows, however large it is by now.

use rusqlite::Connection;

/// Forgets it; an error is the engine's.
pub(super) fn forget(conn: &Connection) -> rusqlite::Result<()> {
    let is_there = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat1')";
    if conn.query_row(is_there, [], |row| row.get(0))?
        && conn.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_stat1)", [], |row| row.get(0))?
    {
        // The second has this connection hear of it.
        conn.execute_batch("DELETE FROM sqlite_stat1; ANALYZE sqlite_schema;")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::super::open_writer;
    use crate::config::Durability;

    #[test]
    fn no_table_is_read_whole_because_it_was_small_once() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("test.db");
        let places = vec!["?"; 100].join(", ");
        let plan = |conn: &Connection| -> String {
            let sql = format!("EXPLAIN QUERY PLAN DELETE FROM feedback WHERE url_id IN ({places})");
            let values = rusqlite::params_from_iter(0..100);
            conn.query_row(&sql, values, |row| row.get("detail")).unwrap()
        };
        let conn = open_writer(&path, Durability::Full).unwrap();
        let rows = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 200)
            INSERT INTO feedback (url_id, place, record) SELECT n, 0, x'00' FROM n;";
        conn.execute_batch(&format!("{rows} ANALYZE;")).unwrap();
        assert!(plan(&conn).starts_with("SCAN"), "{}", plan(&conn));
        drop(conn);
        for _ in 0..2 {
            let conn = open_writer(&path, Durability::Full).unwrap();
            assert!(plan(&conn).starts_with("SEARCH"), "{}", plan(&conn));
            drop(conn);
        }
    }
}
