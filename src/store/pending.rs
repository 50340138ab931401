//! What leases and ends of leases write, gathered over one job, or in a file over
//! several such jobs of a transaction, and written by statements of many rows.
//!
//! Keeps: nothing that a job reads is missing what has been gathered. It is
//! written before the commit, before a job of another kind, and when a job comes to
//! a URL again, or reads the queue ([`State::write_pending`]).

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use super::gathered::Gathered;
use super::leaving::{write_left, write_unleased};
use super::packed::{OWNER_NAMES, PLACE_AGAIN, PLACE_NAMES, Standing, owner, owner_of, place_of};
use super::record::Record;
use super::sql::{
    self,
    Kind::{Bytes as B, Number as N, Text as T},
    Many,
};
use super::state::State;
use super::turns::Place;
use super::{StoreError, engine};
use crate::by_id::IdSet;
use crate::model::{CrawlId, HostId, Reason, SiteId, UrlId};

/// Of each kind there is room kept for so many, which the next need not take anew.
const ROOM: usize = 2_048;

/// A row of `leases`.
pub(super) struct NewLease {
    pub(super) url: UrlId,
    pub(super) secret: [u8; 16],
    pub(super) crawl: CrawlId,
    pub(super) host: HostId,
    pub(super) reason: Reason,
    pub(super) band: u8,
    pub(super) due_s: i64,
    pub(super) attempt: u32,
    pub(super) leased_at: i64,
    pub(super) expires_at: i64,
    pub(super) not_before: i64,
    pub(super) worker: Option<Arc<str>>,
    pub(super) request_id: Option<Arc<str>>,
}

/// Where a URL stands, as `feedback` keeps it: at the end of a lease, as a rule.
pub(super) struct EndedLease {
    pub(super) place: Place,
    pub(super) state: i64,
    pub(super) reason: Reason,
    pub(super) attempt: u32,
    pub(super) record: Record,
    /// Has it no row there yet?
    pub(super) is_new: bool,
}

impl EndedLease {
    fn standing(&self) -> Standing {
        let Self { state, reason, attempt, place: Place { band, due_s, .. }, .. } = *self;
        Standing { state, reason, band, due_s, attempt }
    }
}

/// What has been gathered.
#[derive(Default)]
pub(super) struct Pending {
    leases: Vec<NewLease>,
    ended: Vec<EndedLease>,
    places: Vec<(Place, Option<SiteId>)>,
    /// Rows that leave the queue.
    left: Vec<Place>,
    /// What a chunk gathers on a server.
    pub(super) gathered: Option<Box<Gathered>>,
    /// The URLs of all of these.
    pub(super) urls: IdSet<UrlId>,
    /// Has the job that runs gathered anything, or could not be written what was?
    pub(super) is_touched: bool,
}

impl Pending {
    /// Is anything of a URL gathered and not yet written?
    pub(super) fn holds(&self, url: UrlId) -> bool {
        self.urls.contains(&url)
    }

    /// Rows that leases and their ends have gathered.
    pub(super) fn rows(&self) -> usize {
        self.leases.len() + self.ended.len() + self.places.len() + self.left.len()
    }

    /// May anything of a host be gathered and not yet written?
    fn touches(&self, host: HostId) -> bool {
        self.gathered.is_some()
            || self.leases.iter().any(|lease| lease.host == host)
            || self.ended.iter().any(|ended| ended.place.host == host)
            || self.places.iter().any(|(place, _)| place.host == host)
            || self.left.iter().any(|place| place.host == host)
    }

    pub(super) fn lease(&mut self, lease: NewLease) {
        self.is_touched = true;
        self.urls.insert(lease.url);
        self.leases.push(lease);
    }

    pub(super) fn end(&mut self, ended: EndedLease) {
        self.is_touched = true;
        self.urls.insert(ended.place.url);
        self.ended.push(ended);
    }

    pub(super) fn place(&mut self, place: Place, site: Option<SiteId>) {
        self.is_touched = true;
        self.urls.insert(place.url);
        self.places.push((place, site));
    }

    pub(super) fn leave(&mut self, place: Place) {
        self.is_touched = true;
        self.urls.insert(place.url);
        self.left.push(place);
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> &[Place] {
        &self.left
    }

    /// All leases and their ends that were gathered are written.
    fn empty(&mut self) {
        let Self { leases, ended, places, left, urls, gathered: _, is_touched: _ } = self;
        empty(leases);
        empty(ended);
        empty(places);
        empty(left);
        urls.clear();
        urls.shrink_to(ROOM);
    }

    /// Forgets what a job that is taken back has gathered.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn empty<T>(gathered: &mut Vec<T>) {
    gathered.clear();
    gathered.shrink_to(ROOM);
}

static LEASE: LazyLock<Many> = LazyLock::new(|| {
    let head =
        "INSERT /*lite*/ OR FAIL /*end*/ INTO leases (/*pg: part, */ url_id, token, crawl_id,
                    host_id, reason, band, due_s, attempt, leased_at, expires_at, not_before,
                    worker, request_id) VALUES";
    let row = "(/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    Many::of_pattern(head, row, 13, "").in_columns(&[N, B, N, N, N, N, N, N, N, N, N, T, T])
});

static PLACE: LazyLock<Many> = LazyLock::new(|| {
    let head = format!(
        "INSERT /*lite*/ OR IGNORE /*end*/ INTO queue (/*pg: part, */ crawl_id, host_id, band,
             due_s, url_id, {OWNER_NAMES}) VALUES"
    );
    let row =
        format!("(/*pg: CAST(?2 AS BIGINT) & 255, */ ?1, ?2, ?3, ?4, ?5, {})", owner_of("?6"));
    Many::of_pattern(&head, &row, 6, "/*pg: ON CONFLICT DO NOTHING */").in_columns(&[N; 6])
});

static END_HEAD: LazyLock<String> = LazyLock::new(|| {
    format!(
        "INSERT /*lite*/ OR FAIL /*end*/ INTO feedback
             (/*pg: part, */ url_id, {}, record) VALUES",
        *PLACE_NAMES
    )
});
static END_ROW: LazyLock<String> =
    LazyLock::new(|| format!("(/*pg: CAST(?1 AS BIGINT) & 255, */ ?1, {}, ?3)", place_of("?2")));

/// Of URLs that have no row, for the embedded engine: what may update keeps a copy of
/// each page that it changes until it has ended.
static FIRST_END: LazyLock<Many> = LazyLock::new(|| Many::of_pattern(&END_HEAD, &END_ROW, 3, ""));

static END: LazyLock<Many> = LazyLock::new(|| {
    let tail = format!(
        "ON CONFLICT (/*pg: part, */ url_id) DO UPDATE SET {}, record = excluded.record",
        *PLACE_AGAIN
    );
    Many::of_pattern(&END_HEAD, &END_ROW, 3, &tail).in_columns(&[N, N, B])
});

impl State {
    /// Writes what has been gathered.
    pub(super) fn write_pending(&mut self) -> Result<(), StoreError> {
        if self.pending.urls.is_empty() {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        self.pending.gathered = pending.gathered.take();
        self.pending.is_touched = true;
        let before = self.conn.total_changes();
        self.write_all_of(&mut pending)?;
        pending.empty();
        pending.gathered = self.pending.gathered.take();
        self.pending = pending;
        // Of jobs before, where the one that runs has gathered nothing.
        self.job.note_writes(self.conn.total_changes() - before);
        Ok(())
    }

    fn write_all_of(&mut self, pending: &mut Pending) -> Result<(), StoreError> {
        let mut kept = Vec::new();
        self.write_gathered(&mut pending.places, &mut kept).map_err(engine)?;
        let is_by_value = |place: &Place| {
            self.windows.get(&place.crawl).is_some_and(|window| window.is_by_value(place.host))
        };
        write_left(&self.conn, &mut pending.left, |place| !is_by_value(place)).map_err(engine)?;
        self.write_ends(&mut pending.ended).map_err(engine)?;
        self.write_kept(&mut kept).map_err(engine)?;
        self.write_places(&mut pending.places).map_err(engine)?;
        self.write_leases(&mut pending.leases).map_err(engine)?;
        for lease in &pending.leases {
            self.expiry.note(lease);
        }
        self.frontier.count_leases(
            pending.leases.iter().map(|lease| (lease.crawl, lease.host)),
            pending.ended.iter().map(|ended| (ended.place.crawl, ended.place.host)),
        );
        Ok(())
    }

    /// The same where any of it may be of a host whose list is about to be read.
    pub(super) fn write_pending_of(&mut self, host: HostId) -> Result<(), StoreError> {
        if self.pending.touches(host) { self.write_pending() } else { Ok(()) }
    }

    fn write_leases(&self, leases: &mut [NewLease]) -> sql::Result<()> {
        // In the order of the table: neighbours are written together.
        leases.sort_unstable_by_key(|lease| lease.url);
        LEASE.execute(&self.conn, leases, |lease, row| {
            row.bind(lease.url.0)?;
            row.bind(lease.secret)?;
            row.bind(lease.crawl.0)?;
            row.bind(lease.host.0)?;
            row.bind(lease.reason as i64)?;
            row.bind(lease.band)?;
            row.bind(lease.due_s)?;
            row.bind(lease.attempt)?;
            row.bind(lease.leased_at)?;
            row.bind(lease.expires_at)?;
            row.bind(lease.not_before)?;
            row.bind(lease.worker.as_deref())?;
            row.bind(lease.request_id.as_deref())
        })
    }

    fn write_places(&self, places: &mut [(Place, Option<SiteId>)]) -> sql::Result<()> {
        places.sort_unstable_by_key(|(place, _)| place.in_order());
        PLACE.execute(&self.conn, places, |(place, site), row| {
            row.bind(place.crawl.0)?;
            row.bind(place.host.0)?;
            row.bind(place.band)?;
            row.bind(place.due_s)?;
            row.bind(place.url.0)?;
            row.bind(owner(*site, place.valued))
        })
    }

    fn write_ends(&self, ended: &mut [EndedLease]) -> sql::Result<()> {
        ended.sort_unstable_by_key(|ended| ended.place.url);
        write_unleased(&self.conn, ended)?;
        self.write_kept(ended)
    }

    /// Writes where URLs stand.
    fn write_kept(&self, kept: &mut [EndedLease]) -> sql::Result<()> {
        let is_first = |kept: &EndedLease| kept.is_new && self.conn.embedded().is_some();
        kept.sort_unstable_by_key(|kept| (!is_first(kept), kept.place.url));
        let (new, known) = kept.split_at(kept.partition_point(is_first));
        if !new.is_empty() {
            self.write_rows(&FIRST_END, new)?;
        }
        self.write_rows(&END, known)
    }

    fn write_rows(&self, statement: &Many, rows: &[EndedLease]) -> sql::Result<()> {
        let room = RefCell::default();
        statement.execute(&self.conn, rows, |ended, row| {
            row.bind(ended.place.url.0)?;
            row.bind(ended.standing().pack())?;
            row.bind(ended.record.pack_in(&mut room.borrow_mut()))
        })
    }
}
