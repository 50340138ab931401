//! What goes from a file to a server: tables, columns, and what becomes of each.
//!
//! Keeps: every column of the file is named here, or its table is among those
//! that stay behind, and every column of the server is filled or has a value of
//! its own; a test compares with both schemas. Rows go in the order of their
//! key, so that a number of rows says where to go on.

use crate::model::Reason;
use crate::recrawl::SUBMITTED_BAND;
use crate::store::ending::{CHANGED_BESIDES, UNWANTED};
use crate::store::packed::{Field, is_valued, place, said, site_in};
use crate::store::reseat::PLACED_BY;
use crate::store::rows::held;
use crate::store::sql::near_text;

/// What becomes of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing.
    Plain,
    /// Numbers are written out.
    Text,
    /// The number of a host, source or URL gets the partition.
    Host,
    Source,
    Url,
    /// The same by the scope in the first column: of a host, a source, or none.
    Learned,
    /// Of a URL: spelled out.
    Path,
    /// Packed: numbers in it get the partition.
    Snapshot,
    Changes,
    Record,
    /// Of a record, or none: has it looks?
    Looks,
    /// Of an authority: the key of the URL.
    Key,
}

/// A column of the server's table.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// What it is read as, where not as the column of that name.
    said: Option<String>,
}

/// Rows that go into one table.
#[derive(Debug)]
pub(super) struct Step {
    /// Names it, for the place where it is taken up again.
    pub(super) name: &'static str,
    pub(super) table: &'static str,
    pub(super) columns: Vec<Column>,
    /// The column by whose number the row has its partition, if it has one.
    pub(super) part: Option<&'static str>,
    /// Tables that are read beside it, which add no rows.
    joined: String,
    /// Which rows go.
    only: String,
    order: &'static str,
    /// The table of the file that is read.
    read: &'static str,
}

impl Step {
    fn of(table: &'static str, order: &'static str) -> Self {
        Self {
            name: table,
            table,
            columns: Vec::new(),
            part: None,
            joined: String::new(),
            only: String::new(),
            order,
            read: table,
        }
    }

    fn plain(mut self, names: &'static str) -> Self {
        let plain = |name| Column { name, kind: Kind::Plain, said: None };
        self.columns.extend(names.split_whitespace().map(plain));
        self
    }

    fn kind(mut self, kind: Kind, name: &'static str) -> Self {
        self.columns.push(Column { name, kind, said: None });
        self
    }

    /// The same, which is the one that the row has its partition by.
    fn part(mut self, kind: Kind, name: &'static str) -> Self {
        self.part = Some(name);
        self.kind(kind, name)
    }

    fn said(mut self, kind: Kind, name: &'static str, said: &str) -> Self {
        self.columns.push(Column { name, kind, said: Some(said.to_owned()) });
        self
    }

    fn joined(self, joined: impl Into<String>) -> Self {
        Self { joined: joined.into(), ..self }
    }

    fn only(self, only: String) -> Self {
        Self { only, ..self }
    }

    /// Reads the rows, but for the first ?1.
    pub(super) fn select(&self) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|column| match &column.said {
                Some(said) => said.clone(),
                None => format!("t.\"{}\"", column.name),
            })
            .collect();
        let Self { read, joined, only, order, .. } = self;
        let columns = columns.join(", ");
        format!(
            "SELECT {columns} FROM {read} t {joined} {only} ORDER BY {order} LIMIT -1 OFFSET ?1"
        )
    }

    /// Counts them.
    pub(super) fn count(&self) -> String {
        let Self { read, only, .. } = self;
        format!("SELECT count(*) FROM {read} t {only}")
    }

    /// Columns of the server's table, in the order in which they are filled.
    pub(super) fn filled(&self) -> String {
        let part = self.part.map(|_| "\"part\"".to_owned());
        let named = self.columns.iter().map(|column| format!("\"{}\"", column.name));
        part.into_iter().chain(named).collect::<Vec<_>>().join(", ")
    }

    /// The place of a column among those that are read.
    pub(super) fn index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

/// Keys of `meta` that say something of the machine or of the file.
const OWN: [&str; 6] = ["schema", "clock", "probed_at", "last_url", "last_source", "copied"];

/// Keys of `meta` that go. Those of walks do not: on a server there is one for each
/// partition, and they go by other numbers. Nor does that a crawl is looked through, nor what
/// is published of leases, which stay behind.
fn of_meta() -> String {
    format!(
        "WHERE t.key NOT IN ('{}') AND t.key NOT LIKE 'reseat:%' AND t.key NOT LIKE 'empty:%'
             AND t.key NOT LIKE 'published:%'",
        OWN.join("', '")
    )
}

/// What `meta` has. Where a walk has not ended, what the rows are placed by is not
/// what stands there: by nothing that is known, so that it begins anew, everywhere.
fn value_of_meta() -> String {
    format!(
        "CASE WHEN t.key = '{PLACED_BY}'
             AND EXISTS (SELECT 1 FROM meta w WHERE w.key LIKE 'reseat:%') THEN ''
         ELSE t.value END"
    )
}

/// All that goes, in an order in which each row finds what it refers to.
pub(super) fn steps() -> Vec<Step> {
    let mut all = of_sites();
    all.extend(of_urls());
    all.extend(of_queue());
    all.extend(of_history());
    all.extend(of_clients());
    all
}

fn of_sites() -> Vec<Step> {
    use Kind::{Host, Plain, Snapshot, Source};
    vec![
        Step::of("meta", "t.key")
            .plain("key")
            .said(Kind::Text, "value", &value_of_meta())
            .only(of_meta()),
        Step::of("crawls", "t.id").plain("id name paused"),
        Step::of("sites", "t.id")
            .plain("id name crawl_id url state origin urls unlisted sources priorities judged_for added_at"),
        Step::of("hosts", "t.id")
            .part(Host, "id")
            .plain("authority name next_at paused_until pause_reason delay_ms robots"),
        Step::of("robots", "t.host_id")
            .part(Host, "host_id")
            .plain("version status body unreachable crawl_delay_ms read_at expires_at"),
        // Rows have other numbers there: each walk begins anew.
        Step::of("rechecks", "t.host_id").part(Host, "host_id").said(Plain, "after_id", "-1"),
        Step::of("sources", "t.id")
            .part(Source, "id")
            .kind(Host, "host_id")
            .kind(Source, "parent_id")
            .plain(
                "site_id depth role url named_by state retired_why retired_at kind window rolls
                 shrunk_at pending index_lastmod index_precision index_misses dropped_at
                 next_poll_at interval_ms failures failing failing_since rule why rhythm moved_to
                 moved_polls moved_since generation epoch etag last_modified wire_hash body_hash
                 hints added_at hinted_at last_poll_at last_success_at last_complete_at
                 last_full_at last_changed_at status error http_status bytes entries admitted
                 issues",
            ),
        Step::of("snapshots", "t.source_id").part(Source, "source_id").kind(Snapshot, "data"),
        Step::of("topics", "t.source_id").part(Source, "source_id").plain(
            "wanted topic hubs turn next_at asked_at failures error denied_at pushes pushed_at
             hinted_at broken_at",
        ),
        Step::of("callbacks", "t.id").part(Source, "source_id").plain(
            "id token secret hub topic callback state since_at checked_at expires_at next_at tries",
        ),
        Step::of("deliveries", "t.id")
            .part(Source, "source_id")
            .plain("id at tries trusted bytes content_type coding body"),
        Step::of("site_hosts", "t.site_id, t.host_id").plain("site_id").part(Host, "host_id"),
    ]
}

/// Why a URL is due, which a lease of it may know better.
fn reason_of(kept: &str) -> String {
    let changed = Reason::Changed as i64;
    format!(
        "CASE WHEN l.dirty = {CHANGED_BESIDES} THEN {changed}
              WHEN l.dirty > 0 THEN l.dirty - 1 ELSE {kept} END"
    )
}

/// Its place in line, where that is for what someone asked for.
fn band_of(kept: &str) -> String {
    let asked = 1 + Reason::Submitted as i64;
    format!("CASE WHEN l.dirty = {asked} THEN {SUBMITTED_BAND} ELSE {kept} END")
}

/// Where it stands: out of the queue as it was, or, with a fetcher, as after a release.
fn state_of(kept: &str) -> String {
    format!(
        "CASE WHEN l.url_id IS NULL THEN {kept} WHEN l.dirty = {UNWANTED} THEN {} ELSE {} END",
        held::PARKED,
        held::QUEUED
    )
}

/// Leases whose URLs go back into the queue: those of URLs that someone wants.
pub(super) fn returns(lease: &str) -> String {
    format!("{lease}.dirty <> {UNWANTED}")
}

/// URLs that are with a fetcher for the first time and that nobody wants any more: they
/// are parked, which only a row of their own says.
fn unwanted() -> Step {
    use Kind::{Plain, Record, Url};
    let only = format!(
        "WHERE t.dirty = {UNWANTED} AND NOT EXISTS
             (SELECT 1 FROM feedback f WHERE f.url_id = t.url_id)"
    );
    let step = Step::of("feedback", "t.url_id")
        .part(Url, "url_id")
        .said(Plain, "state", &held::PARKED.to_string())
        .plain("reason band due_s attempt")
        // A record that says nothing.
        .said(Record, "record", "x'00'")
        .only(only);
    Step { name: "unwanted", read: "leases", ..step }
}

/// A field that is packed, of a row of a file.
fn near(field: Field, row: &str) -> String {
    near_text(&field.of(row))
}

fn of_urls() -> Vec<Step> {
    use Kind::{Host, Plain, Record, Source, Url};
    let state = near(place::STATE, "t");
    vec![
        Step::of("urls", "t.id")
            .part(Url, "id")
            .kind(Host, "host_id")
            .kind(Source, "source_id")
            .kind(Kind::Path, "path")
            .plain("crawl_id site_id lastmod_s raw expires_s fresh_s")
            .said(Plain, "first_seen_s", &near(said::FIRST_SEEN, "t"))
            .said(Plain, "listed", &near(said::LISTED, "t"))
            .said(Plain, "kind", &near(said::KIND, "t"))
            .said(Plain, "lastmod_precision", &near(said::PRECISION, "t"))
            .said(Plain, "hints", &near(said::HINTS, "t"))
            .said(Plain, "reason", &reason_of(&near(said::REASON, "t")))
            .said(Plain, "band", &band_of(&near(said::BAND, "t")))
            .said(Kind::Key, "key", "h.authority")
            .joined("LEFT JOIN hosts h ON h.id = t.host_id LEFT JOIN leases l ON l.url_id = t.id"),
        Step::of("url_sources", "t.url_id, t.source_id")
            .part(Url, "url_id")
            .kind(Source, "source_id"),
        Step::of("extensions", "t.source_id, t.url_id")
            .part(Url, "url_id")
            .kind(Source, "source_id")
            .plain("expires_s fresh_s data"),
        Step::of("feedback", "t.url_id")
            .part(Url, "url_id")
            .said(Plain, "state", &state_of(&state))
            .said(Plain, "reason", &reason_of(&near(place::REASON, "t")))
            .said(Plain, "band", &band_of(&near(place::BAND, "t")))
            .said(Plain, "due_s", &near(place::DUE, "t"))
            .said(Plain, "attempt", &near(place::ATTEMPT, "t"))
            .kind(Record, "record")
            .joined("LEFT JOIN leases l ON l.url_id = t.url_id"),
        unwanted(),
        Step::of("frontier_urls", "t.url_id")
            .part(Url, "url_id")
            .plain("pushed completed spelled metadata"),
    ]
}

fn of_queue() -> Vec<Step> {
    use Kind::{Host, Looks, Plain, Url};
    let kept = |field, first| format!("coalesce({}, {})", near(field, "f"), near(first, "u"));
    let reason = reason_of(&kept(place::REASON, said::REASON));
    let due = kept(place::DUE, said::FIRST_SEEN);
    let refreshed = format!("{}, {}", Reason::Recrawl as i64, Reason::Changed as i64);
    // As `State::is_valued` has it.
    let listed = near(said::LISTED, "u");
    let looks = format!("CASE WHEN {listed} = 1 AND {reason} IN ({refreshed}) THEN f.record END");
    let returned = Step {
        name: "leases",
        read: "leases",
        ..Step::of("queue", "t.url_id")
            .said(Plain, "crawl_id", "u.crawl_id")
            .said(Host, "host_id", "u.host_id")
            .said(
                Plain,
                "band",
                &band_of(&kept(place::BAND, said::BAND)).replace("l.dirty", "t.dirty"),
            )
            .said(Plain, "due_s", &due)
            .kind(Url, "url_id")
            .said(Plain, "site_id", "u.site_id")
            .said(Looks, "valued", &looks.replace("l.dirty", "t.dirty"))
            .joined(
                "CROSS JOIN urls u ON u.id = t.url_id LEFT JOIN feedback f ON f.url_id = t.url_id",
            )
            .only(format!("WHERE {}", returns("t")))
    };
    vec![
        Step::of("queue", "t.crawl_id, t.host_id, t.band DESC, t.due_s, t.url_id")
            .plain("crawl_id")
            .part(Host, "host_id")
            .plain("band due_s")
            .kind(Url, "url_id")
            .said(Plain, "site_id", &near_text(&site_in("t")))
            .said(Plain, "valued", &near_text(&is_valued("t"))),
        Step { part: Some("host_id"), ..returned },
        Step::of("turns", "t.crawl_id, t.host_id")
            .plain("crawl_id")
            .part(Host, "host_id")
            .said(Plain, "queued", "t.queued + coalesce(l.urls, 0)")
            .said(
                Plain,
                "due_s",
                "CASE WHEN l.urls IS NULL THEN t.due_s WHEN t.queued > 0 THEN min(t.due_s, l.due_s)
                 ELSE l.due_s END",
            )
            .plain("weight")
            .joined(format!(
                "LEFT JOIN (SELECT u.crawl_id, u.host_id, count(*) AS urls,
                         min(coalesce(f.place >> 14 & 274877906943, u.said >> 30)) AS due_s
                     FROM leases x CROSS JOIN urls u ON u.id = x.url_id
                     LEFT JOIN feedback f ON f.url_id = x.url_id WHERE {}
                     GROUP BY u.crawl_id, u.host_id) l
                     ON l.crawl_id = t.crawl_id AND l.host_id = t.host_id",
                returns("x")
            )),
        Step::of("learned", "t.scope, t.id")
            .plain("scope")
            .part(Kind::Learned, "id")
            .plain("trust priors habits moves"),
        Step::of("prices", "t.crawl_id").plain(
            "crawl_id price pace overdue hours ticked_at settled leased leased_overdue asked",
        ),
        Step::of("blocks", "t.crawl_id, t.pattern, t.prefix")
            .plain("crawl_id pattern prefix since_at"),
    ]
}

fn of_history() -> Vec<Step> {
    use Kind::Source;
    vec![
        Step::of("polls", "t.id")
            .part(Source, "source_id")
            .plain("id generation at took_ms result http_status wire_bytes entries counts error"),
        Step::of("changes", "t.id")
            .part(Source, "source_id")
            .plain("id at crawl_id generation events")
            .kind(Kind::Changes, "data"),
        Step::of("robots_changes", "t.id")
            .part(Source, "source_id")
            .plain("id at version subject was now"),
    ]
}

fn of_clients() -> Vec<Step> {
    vec![
        Step::of("submissions", "t.id").plain("id token url known at last_at times"),
        Step::of("pushes", "t.id").plain("id at next_at host key key_url bytes urls"),
        Step::of("frontier_queues", "t.crawl_id, t.name")
            .plain("crawl_id name delay_ms blocked_until max_completed completed"),
    ]
}

#[cfg(test)]
mod tests;
