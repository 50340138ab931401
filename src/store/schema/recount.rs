//! What sites count of their URLs, taken from the rows themselves: for a step from a
//! version that did not keep it true. It goes through all URLs once.

use std::collections::HashMap;

use rusqlite::Connection;

use super::super::sums::Sum;
use super::super::worth::thousandths;
use crate::diff::snapshot::EntryHints;

/// Has sites count their URLs, those of them that no source lists, and what their
/// priorities come to. Not by a statement, which would sort all rows.
pub(super) fn sites(conn: &Connection) -> rusqlite::Result<()> {
    let mut counted: HashMap<i64, Sum> = HashMap::new();
    let mut query =
        conn.prepare("SELECT site_id, listed, hints FROM urls WHERE site_id IS NOT NULL")?;
    let mut rows = query.query(())?;
    while let Some(row) = rows.next()? {
        let hints = EntryHints::from_bits(row.get(2)?).unwrap_or_default();
        let sum = counted.entry(row.get(0)?).or_default();
        sum.urls += 1;
        sum.unlisted += i64::from(!row.get::<_, bool>(1)?);
        sum.priorities += thousandths(hints.priority);
    }
    conn.execute("UPDATE sites SET urls = 0, unlisted = 0, priorities = 0", ())?;
    let mut update =
        conn.prepare("UPDATE sites SET urls = ?2, unlisted = ?3, priorities = ?4 WHERE id = ?1")?;
    for (site, sum) in counted {
        update.execute((site, sum.urls, sum.unlisted, sum.priorities))?;
    }
    Ok(())
}
