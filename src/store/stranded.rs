//! URLs that a read of a source admitted before it died, for the read that is made in
//! its place: no snapshot has them.

use std::sync::LazyLock;

use super::packed::{Listing, SAID};
use super::rows::read_page;
use super::sql::{Connection, Many, Row};
use super::{StoreError, engine};
use crate::diff::document::loc_key;
use crate::model::{UrlId, UrlKind};

static LISTED: LazyLock<Many> = LazyLock::new(|| {
    let head = format!(
        "SELECT u.id, h.authority, u.path, u.raw, {}
         FROM urls u /*lite*/ CROSS /*end*/ JOIN hosts h
             ON h.id = u.host_id /*pg: AND h.part = u.part */
         WHERE",
        *SAID
    );
    Many::of_ids(&head, "u.id")
});

/// A URL that may be listed no more.
#[derive(Debug, Clone, Copy)]
pub struct Stranded {
    /// Its row.
    pub url: UrlId,
    /// That of its entry in a snapshot.
    pub key: u64,
    /// What it was listed as.
    pub kind: UrlKind,
}

/// Those of the URLs that are there still.
pub(super) fn stranded(
    conn: &Connection,
    seed: u64,
    urls: &[UrlId],
) -> Result<Vec<Stranded>, StoreError> {
    let mut all = Vec::with_capacity(urls.len());
    let keep = |row: &Row<'_>| {
        let loc = match row.get::<Option<String>>(3)? {
            Some(raw) => raw,
            None => read_page(row, 1)?,
        };
        let kind = Listing::unpack(row.get(4)?).kind;
        all.push(Stranded { url: UrlId(row.get(0)?), key: loc_key(seed, &loc), kind });
        Ok(())
    };
    LISTED.query(conn, urls, |id, row| row.bind(id.0), keep).map_err(engine)?;
    Ok(all)
}
