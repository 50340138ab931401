//! The rest of a host's list, read before its window wants it, on a thread of its
//! own: reading rows took a fifth of what a lease and its end cost the writer.
//!
//! When a buffer runs low, what follows it is asked for between two transactions,
//! and so is what hosts begin with whose turns come next.
//! It is read as of then or later. Meanwhile the writer notes what it changes: a
//! row that it touched is not taken over, and a list that something came into, or
//! that lost anything behind its buffer, is read by the writer as ever. For the
//! embedded engine only; a host whose URLs are ordered by value is given the rows,
//! and not the list.
//!
//! Keeps: what is taken over is what the tables say.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use super::home::Home;
use super::rows::{LISTED_WITH_ROWS, REST_WITH_ROWS, Spent, UrlRow, read_listed};
use super::sql::{Connection, Row};
use super::state::State;
use super::turns::Place;
use super::walk::{Due, Walk, walk_due};
use super::{StoreError, engine};
use crate::by_id::{ById, IdSet};
use crate::model::{CrawlId, HostId, SiteId, UrlId};
use crate::queue::Candidate;
use crate::queue::window::Follows;

/// Lists that are read at once, or wait for it, at most.
const OPEN: usize = 16;
/// Rows touched meanwhile that are noted at most; with more, what was asked for is
/// of no use.
const NOTED: usize = 65_536;

/// Rows that were used and wait to be filled anew, at most, about 300 bytes each.
const SPENT: usize = 8_192;
/// Bytes that their paths have room for, at most.
const PATH: usize = 512;

/// Hosts whose turns come next that are looked at. Four clients that ask for a hundred
/// URLs each are given those of eight, where a host has fifty.
const COMING: usize = 32;
/// Where anything may have changed before what was read of these was taken over, none are
/// asked for in so many transactions.
const RESTS: u32 = 64;

/// Lists of which it is noted that rows were taken over, at most.
const LISTS: usize = 4_096;

/// A host's list in the queue.
type List = (CrawlId, HostId);
/// A place in it: band, due time in Unix seconds, and URL.
type Last = (u8, i64, UrlId);
/// What was read: places, each with its row.
type Read = Due<(Candidate, Option<Box<UrlRow>>)>;
/// An order, and what was read for it, if that could be.
type Answer = (Order, Option<Read>);

/// What is asked for.
struct Order {
    list: List,
    /// The last that the buffer had; none where there is no buffer.
    behind: Option<Last>,
    now_s: i64,
    limit: usize,
    paused: IdSet<SiteId>,
    /// Rows to fill.
    spent: Spent,
    /// See [`Ahead::epoch`].
    epoch: u64,
}

/// What happened to a list since it was asked for.
struct Asked {
    behind: Option<Last>,
    now_s: i64,
    /// Nothing came into what is read, and nothing of it left.
    is_whole: bool,
    /// When the next of what came since is due.
    next_due: Option<i64>,
}

/// The writer's side of it.
#[derive(Default)]
pub(super) struct Ahead {
    reader: Option<Reader>,
    /// Buffers that run low: what they end with, and how much more is wanted.
    low: Vec<(List, Last, usize)>,
    /// A crawl whose leases come to hosts without a buffer.
    goes_on: Option<CrawlId>,
    /// How much the last of these leases wanted of each host.
    per_host: usize,
    /// Transactions to come in which nothing is read of hosts without a buffer.
    rests: u32,
    asked: ById<List, Asked>,
    /// Orders that are not answered yet.
    open: usize,
    /// Rows that were touched since the first of these.
    touched: IdSet<UrlId>,
    /// Lists that rows were taken over of since the writer read them last, and
    /// behind what.
    rows_of: ById<List, Option<Last>>,
    /// Rows to fill: where one thread takes memory and another lets it go, both wait
    /// for the allocator.
    spent: Spent,
    /// Grows when nothing that was asked for before is of use any more.
    epoch: u64,
}

impl Ahead {
    /// The row of a URL is about to change, or to be somebody's.
    pub(super) fn touch(&mut self, url: UrlId) {
        if self.open == 0 {
            return;
        }
        self.touched.insert(url);
        if self.touched.len() > NOTED {
            self.forget_all();
        }
    }

    /// A row came into the queue.
    pub(super) fn queued(&mut self, place: Place) {
        if let Some(asked) = self.asked.get_mut(&(place.crawl, place.host)) {
            if place.due_s <= asked.now_s {
                asked.is_whole &= !is_behind(place, asked.behind);
            } else {
                asked.next_due = asked.next_due.into_iter().chain([place.due_s]).min();
            }
        }
    }

    /// A row left the queue.
    pub(super) fn left(&mut self, place: Place) {
        if let Some(asked) = self.asked.get_mut(&(place.crawl, place.host)) {
            asked.is_whole &= !is_behind(place, asked.behind);
        }
    }

    /// Anything may have changed.
    pub(super) fn forget_all(&mut self) {
        self.epoch += 1;
        self.low.clear();
        self.goes_on = None;
        self.asked.clear();
        self.touched.clear();
        self.rows_of.clear();
    }

    /// A row that nobody needs any more.
    pub(super) fn give_back(&mut self, row: Box<UrlRow>) {
        // One with much room for its path would keep it for ever.
        let is_plain = row.path.capacity() <= PATH;
        if self.reader.is_some() && self.spent.len() < SPENT && is_plain {
            self.spent.push(row);
        }
    }

    /// Were rows of a list taken over since this was asked last?
    pub(super) fn has_rows_of(&mut self, list: List) -> bool {
        self.rows_of.remove(&list).is_some()
    }

    fn note_rows(&mut self, list: List, behind: Option<Last>) {
        if self.rows_of.len() >= LISTS {
            self.rows_of.clear();
        }
        self.rows_of.insert(list, behind);
    }

    /// Is what follows a place to be asked for?
    fn wants(&self, list: List, behind: Option<Last>) -> bool {
        let has_rows = self.rows_of.get(&list) == Some(&behind);
        self.open < OPEN && !has_rows && !self.asked.contains_key(&list)
    }

    fn ask(&mut self, home: &Home, order: Order) {
        if self.reader.is_none() {
            self.reader = Reader::start(home.clone());
        }
        let Some(reader) = &self.reader else { return };
        let Order { list, behind, now_s, .. } = order;
        if reader.orders.as_ref().is_some_and(|orders| orders.try_send(order).is_ok()) {
            self.open += 1;
            self.asked.insert(list, Asked { behind, now_s, is_whole: true, next_due: None });
        }
    }

    /// What has been read, if anything new has.
    fn answer(&mut self) -> Option<Answer> {
        match self.reader.as_ref()?.read.as_ref()?.try_recv() {
            Ok(answer) => {
                self.open -= 1;
                Some(answer)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                // It panicked, which has been logged: another one is started.
                *self = Self { epoch: self.epoch + 1, ..Self::default() };
                None
            }
        }
    }
}

/// Does a place come after another of its list, if there is one?
fn is_behind(place: Place, other: Option<Last>) -> bool {
    other.is_none_or(|(band, due_s, url)| {
        (u8::MAX - place.band, place.due_s, place.url) > (u8::MAX - band, due_s, url)
    })
}

impl State {
    /// The buffer of a host may run low.
    pub(super) fn note_low(&mut self, list: List, per_host: usize) {
        if self.conn.embedded().is_none() {
            return;
        }
        let Some(window) = self.windows.get(&list.0) else { return };
        let most = window.refill_size(per_host, window.is_by_value(list.1));
        if let Some((last, held)) = window.ends_with(list.1)
            && held < most / 2
        {
            self.at_hand.ahead.low.push((list, last, most - held));
        }
    }

    /// A lease came to a host of which nothing was buffered, or would have.
    pub(super) fn note_unread(&mut self, crawl: CrawlId, per_host: usize) {
        if self.conn.embedded().is_some() {
            self.at_hand.ahead.goes_on = Some(crawl);
            self.at_hand.ahead.per_host = per_host;
        }
    }

    /// Asks for what buffers that run low will want next, and for what hosts begin
    /// with whose turns come; between transactions.
    pub(super) fn read_ahead(&mut self) {
        let low = std::mem::take(&mut self.at_hand.ahead.low);
        for (list, behind, limit) in low {
            self.read_list_ahead(list, Some(behind), limit);
        }
        let ahead = &mut self.at_hand.ahead;
        ahead.rests = ahead.rests.saturating_sub(1);
        let per_host = ahead.per_host;
        let Some(crawl) = ahead.goes_on.take().filter(|_| ahead.rests == 0) else { return };
        let Some(window) = self.windows.get_mut(&crawl) else { return };
        let limit = window.refill_size(per_host, false);
        for host in window.coming(COMING) {
            self.read_list_ahead((crawl, host), None, limit);
        }
    }

    fn read_list_ahead(&mut self, list: List, behind: Option<Last>, limit: usize) {
        // Without room for them, rows are read as they are wanted.
        if !self.at_hand.ahead.wants(list, behind) || !self.at_hand.has_room(limit) {
            return;
        }
        let now_s = self.steady_ms().div_euclid(1000);
        let (paused, epoch) = (self.paused_sites.clone(), self.at_hand.ahead.epoch);
        let spent = &mut self.at_hand.ahead.spent;
        let spent = spent.split_off(spent.len().saturating_sub(limit));
        let order = Order { list, behind, now_s, limit, paused, spent, epoch };
        self.at_hand.ahead.ask(&self.engine.home, order);
    }

    /// Takes over what has been read ahead.
    pub(super) fn take_over_what_was_read(&mut self) -> Result<(), StoreError> {
        while let Some((mut order, read)) = self.at_hand.ahead.answer() {
            self.at_hand.ahead.spent.append(&mut order.spent);
            if order.epoch != self.at_hand.ahead.epoch {
                if order.behind.is_none() {
                    self.at_hand.ahead.rests = RESTS;
                }
                continue;
            }
            let asked = self.at_hand.ahead.asked.remove(&order.list);
            let (Some(asked), Some((due, extent, next_due))) = (asked, read) else { continue };
            let (mut candidates, mut is_whole) = (Vec::with_capacity(due.len()), asked.is_whole);
            for (candidate, row) in due {
                is_whole &= !self.at_hand.ahead.touched.contains(&candidate.id);
                let row = row.filter(|row| !self.at_hand.ahead.touched.contains(&row.id));
                if let Some(row) = row.filter(|_| self.at_hand.has_room(1)) {
                    self.at_hand.keep(row);
                }
                candidates.push(candidate);
            }
            let next_due_at = next_due.into_iter().chain(asked.next_due).min();
            let now_ms = self.steady_ms();
            let (crawl, host) = order.list;
            // The buffer is filled by value as soon as there is anything to take it by.
            is_whole &= !self.is_by_value(host)?;
            let window = self.window(crawl);
            let is_used = is_whole
                && match order.behind {
                    Some(behind) => {
                        let follows = Follows { behind, candidates, extent, next_due_at };
                        window.extend(host, &follows, now_ms)
                    }
                    None if window.known_due_ms(host).is_none() => {
                        window.refill(host, &candidates, extent, next_due_at);
                        true
                    }
                    None => false,
                };
            if !is_used {
                self.at_hand.ahead.note_rows(order.list, order.behind);
            }
            if order.behind.is_none() {
                self.at_hand.ahead.goes_on = Some(crawl);
            }
        }
        if self.at_hand.ahead.open == 0 {
            self.at_hand.ahead.touched.clear();
        }
        Ok(())
    }
}

/// The thread, which ends when nothing can be ordered any more.
struct Reader {
    orders: Option<SyncSender<Order>>,
    read: Option<Receiver<Answer>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        // What waits is not read any more, since nobody would hear of it.
        (self.orders, self.read) = (None, None);
        if let Some(thread) = self.thread.take() {
            // At most one list is still read; its panic would have been logged.
            let _ = thread.join();
        }
    }
}

impl Reader {
    /// `None` where the system has no thread for it.
    fn start(home: Home) -> Option<Self> {
        let (orders, waiting) = sync_channel::<Order>(OPEN);
        let (done, read) = sync_channel(OPEN);
        let work = move || {
            let mut conn = None;
            for mut order in waiting {
                // Whatever is wrong, the writer meets it too, and says so.
                let list = read_list(&home, &mut conn, &mut order).ok();
                if list.is_none() {
                    conn = None;
                }
                if done.send((order, list)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("store-ahead".to_owned()).spawn(work).ok()?;
        Some(Self { orders: Some(orders), read: Some(read), thread: Some(thread) })
    }
}

fn read_list(
    home: &Home,
    conn: &mut Option<Connection>,
    order: &mut Order,
) -> Result<Read, StoreError> {
    let conn = match conn {
        Some(conn) => conn,
        None => conn.insert(home.open_reader()?),
    };
    let ((crawl, host), spent) = (order.list, &mut order.spent);
    let walk = Walk::on_from(order.behind, &LISTED_WITH_ROWS, &REST_WITH_ROWS);
    conn.begin_reading().map_err(engine)?;
    let read = |row: &Row<'_>| {
        let (place, url) = read_listed(row, crawl, host, spent)?;
        Ok((place.candidate(), url))
    };
    let due =
        walk_due((conn, &order.paused, None), walk, order.list, order.now_s, order.limit, read);
    conn.rollback().map_err(engine)?;
    due
}

#[cfg(test)]
mod tests;
