//! The order of the logs that are followed by their numbers: `changes`, and
//! `polls`. (`robots_changes` is not: a change names its row, of the same commit.)
//!
//! A file has one writer, whose rows get the next number each. One that is a copy
//! goes on far above the numbers that it has ([`go_on_above`]): what it was made of
//! has given the next ones away, and cursors behind them. A server has
//! several, and what is committed first need not have the lower number. So there
//! a row's number is that of its transaction, by the server's own count, and its
//! place in it; and a follower reads up to the first transaction that may still
//! add rows, not beyond.
//!
//! Keeps: no row with a number below [`Reach::end`] appears, or goes away by
//! itself, once it was answered. That rests on two things: a transaction of a
//! daemon locks `changes` before it has a number ([`mark`]), which tells it from
//! those of others on the same server; and what numbers begin with is never
//! raised while a transaction has that lock ([`establish`]).

use std::time::Duration;

use jiff::Timestamp;

use super::sql::{Connection, params};
use super::stream::DROPPED;
use super::{Store, StoreError, engine};

/// A log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Log {
    Changes,
    Polls,
}

/// What a transaction numbers its rows by, while it is open.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::store) struct Numbering {
    /// The first number of each log, once one was asked for.
    first: Option<[i64; 2]>,
    /// Rows so far.
    rows: [i64; 2],
}

/// How far a log may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reach {
    /// All rows with lower numbers are there that ever will be.
    pub(super) end: i64,
    /// No row has had this number, or a higher one.
    pub(super) top: i64,
    /// The highest number of a row that is committed; 0: none.
    pub(super) newest: i64,
}

/// Key of `meta`: the file is a copy, and no daemon has worked on it yet.
pub(super) const COPIED: &str = "copied";

/// So many transactions may have followed after the moment that a copy or a dump
/// shows; of a file, so many rows.
const SINCE: i64 = 1 << 32;

/// And a file has fewer rows in a second than two to this power. So of two that
/// go on from the same copy the later one has the higher numbers.
const ROWS_A_SECOND_BITS: u32 = 20;

/// Waits for transactions that hold rows back, each twice as long as the one
/// before; what they hold longer is for the next call.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(128);

/// Nobody tells what other daemons commit: who follows looks this often.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl Log {
    const ALL: [Self; 2] = [Self::Changes, Self::Polls];

    fn table(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::Polls => "polls",
        }
    }

    /// Key of `meta`: what is added to all its numbers, so that they are above
    /// those from before this server.
    pub(super) fn base(self) -> &'static str {
        match self {
            Self::Changes => "changes_base",
            Self::Polls => "polls_base",
        }
    }

    /// A transaction has room for two to this power of its rows. A job writes one
    /// or two of them, and no transaction has a thousand jobs (`writer`). Numbers
    /// of polls are numbers in JSON, which many read exactly up to 2^53 only.
    fn bits(self) -> u32 {
        match self {
            Self::Changes => 20,
            Self::Polls => 12,
        }
    }

    /// A base above what may have followed on the last number that a dump has.
    pub(super) fn above_copy(self, last: i64) -> i64 {
        last + 1 + (SINCE << self.bits())
    }

    /// The first number of a transaction.
    fn first(self, transaction: i64, base: i64) -> i64 {
        (transaction << self.bits()) + base
    }
}

impl Reach {
    /// The same of a page that is full: nobody waits for more.
    pub(super) fn enough(self) -> Self {
        Self { newest: 0, ..self }
    }
}

/// The number of the next row of a log in the open transaction; none where the
/// engine gives numbers itself.
pub(super) fn next(conn: &Connection, log: Log) -> Result<Option<i64>, StoreError> {
    let Some(session) = conn.server() else { return Ok(None) };
    if conn.is_autocommit() {
        return Err(StoreError::Engine("rows of a log come in a transaction".to_owned()));
    }
    let mut numbering = session.numbering().get();
    let first = match numbering.first {
        Some(first) => first,
        None => firsts(conn)?,
    };
    let row = &mut numbering.rows[log as usize];
    if *row >> log.bits() > 0 {
        let table = log.table();
        return Err(StoreError::Engine(format!("a transaction adds too many rows to {table}")));
    }
    let number = first[log as usize] + *row;
    *row += 1;
    numbering.first = Some(first);
    session.numbering().set(numbering);
    Ok(Some(number))
}

fn firsts(conn: &Connection) -> Result<[i64; 2], StoreError> {
    let transaction: i64 = conn
        .query_row("SELECT CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT)", (), |row| {
            row.get(0)
        })
        .map_err(engine)?;
    let [changes, polls] = Log::ALL;
    Ok([
        changes.first(transaction, read_number(conn, changes.base())?),
        polls.first(transaction, read_number(conn, polls.base())?),
    ])
}

/// Says that the transaction that has just begun may add to the logs: the first
/// that it does, before it has a number.
pub(super) fn mark(conn: &Connection) -> Result<(), StoreError> {
    match conn.server() {
        None => Ok(()),
        Some(_) => conn.send("LOCK TABLE changes IN ROW EXCLUSIVE MODE").map_err(engine),
    }
}

/// Has a file that is a copy number its rows above whatever was numbered after it
/// was made: a cursor of that time lies before all that it finds from now on. What
/// a file was copied to by other means nobody tells us.
pub(super) fn go_on_above(conn: &Connection, now: Timestamp) -> Result<(), StoreError> {
    if conn.embedded().is_none() || read_number(conn, COPIED)? == 0 {
        return Ok(());
    }
    conn.begin().map_err(engine)?;
    let raised = Log::ALL.into_iter().try_for_each(|log| {
        let by_time = now.as_second() << ROWS_A_SECOND_BITS;
        let above = by_time.max(last_given(conn, log)? + SINCE);
        conn.execute("DELETE FROM sqlite_sequence WHERE name = ?1", [log.table()])
            .and_then(|_| {
                let sql = "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)";
                conn.execute(sql, params![log.table(), above])
            })
            .map(|_| ())
            .map_err(engine)
    });
    let raised = raised.and_then(|()| {
        conn.execute("DELETE FROM meta WHERE key = ?1", [COPIED]).map(|_| ()).map_err(engine)
    });
    end_with(conn, raised)
}

/// Sees to it that the next transaction has higher numbers than all that there
/// are, and than what may have followed on them: a server that a dump was restored
/// into counts from anew.
pub(super) fn establish(conn: &Connection) -> Result<(), StoreError> {
    if raises(conn)?.is_empty() {
        return Ok(());
    }
    conn.begin().map_err(engine)?;
    // Nobody adds meanwhile, and who comes at the same time finds it done.
    let raised = conn
        .execute_batch("LOCK TABLE changes, polls IN SHARE ROW EXCLUSIVE MODE")
        .map_err(engine)
        .and_then(|()| raises(conn))
        .and_then(|raises| {
            raises.into_iter().try_for_each(|(log, base)| write_base(conn, log, base))
        });
    end_with(conn, raised)
}

fn end_with(conn: &Connection, done: Result<(), StoreError>) -> Result<(), StoreError> {
    match done {
        Ok(()) => conn.commit().map_err(engine),
        Err(error) => {
            // It may have ended already.
            let _ = conn.rollback();
            Err(error)
        }
    }
}

/// The logs whose next number would not be above all others, and what is to be
/// added to it.
fn raises(conn: &Connection) -> Result<Vec<(Log, i64)>, StoreError> {
    let mut raises = Vec::new();
    for log in Log::ALL {
        let dropped = if log == Log::Changes { read_number(conn, DROPPED)? } else { 0 };
        let last = newest(conn, log)?.max(dropped);
        let (_, next) = open_transactions(conn)?;
        let base = read_number(conn, log.base())?;
        if last >= log.first(next, base) {
            raises.push((log, log.above_copy(last)));
        }
    }
    Ok(raises)
}

/// A number that `meta` has; 0 where it has none.
fn read_number(conn: &Connection, key: &str) -> Result<i64, StoreError> {
    let number = "SELECT coalesce(max(CAST(value AS BIGINT)), 0) FROM meta WHERE key = ?1";
    conn.prepare_cached(number)
        .and_then(|mut query| query.query_row([key], |row| row.get(0)))
        .map_err(engine)
}

/// The highest number of a row that is there; 0: there is none.
fn newest(conn: &Connection, log: Log) -> Result<i64, StoreError> {
    conn.prepare_cached(&format!("SELECT coalesce(max(id), 0) FROM {}", log.table()))
        .and_then(|mut query| query.query_row((), |row| row.get(0)))
        .map_err(engine)
}

/// Has all further numbers of a log begin above this.
pub(super) fn write_base(conn: &Connection, log: Log, base: i64) -> Result<(), StoreError> {
    let write = "INSERT INTO meta (key, value) VALUES (?1, ?2)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    conn.execute(write, [log.base(), &*base.to_string()]).map(|_| ()).map_err(engine)
}

/// How far a log may be read in this transaction, which sees one state of the
/// database.
pub(super) fn reach(conn: &Connection, log: Log) -> Result<Reach, StoreError> {
    if conn.embedded().is_some() {
        let newest = last_given(conn, log)?;
        return Ok(Reach { end: newest + 1, top: newest + 1, newest });
    }
    let (oldest, next) = open_transactions(conn)?;
    let base = read_number(conn, log.base())?;
    let newest = newest(conn, log)?;
    let top = log.first(next, base);
    let mut end = log.first(oldest, base);
    if newest >= end {
        // It may be a stranger that is open for so long.
        end = log.first(oldest_of_ours(conn)?.unwrap_or(next), base);
    }
    Ok(Reach { end, top, newest })
}

/// The last number that a file gave to a row: rows may be gone, their numbers do
/// not come again.
fn last_given(conn: &Connection, log: Log) -> Result<i64, StoreError> {
    conn.prepare_cached("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?1")
        .and_then(|mut query| query.query_row([log.table()], |row| row.get(0)))
        .map_err(engine)
}

/// The number of the first transaction that was open for this state of the
/// database, and the one that came next.
fn open_transactions(conn: &Connection) -> Result<(i64, i64), StoreError> {
    conn.prepare_cached(
        "SELECT CAST(CAST(pg_snapshot_xmin(s) AS TEXT) AS BIGINT),
             CAST(CAST(pg_snapshot_xmax(s) AS TEXT) AS BIGINT) FROM pg_current_snapshot() AS s",
    )
    .and_then(|mut query| query.query_row((), |row| Ok((row.get(0)?, row.get(1)?))))
    .map_err(engine)
}

/// The first of those open transactions that is no stranger's, for certain: one
/// of a daemon has locked `changes` for as long as it has a number, which it
/// gives back before its locks. So a stranger is who was seen without that lock
/// and, after that, still at it. One that was seen no more may have been anybody.
fn oldest_of_ours(conn: &Connection) -> Result<Option<i64>, StoreError> {
    let suspects = numbers(
        conn,
        "WITH held AS MATERIALIZED (
             SELECT pid, locktype, mode, transactionid, database, relation
             FROM pg_locks WHERE granted AND locktype IN ('transactionid', 'relation'))
         SELECT CAST(CAST(x AS TEXT) AS BIGINT) AS number
         FROM pg_snapshot_xip(pg_current_snapshot()) AS x
         WHERE EXISTS (
             SELECT 1 FROM held t
             WHERE t.locktype = 'transactionid' AND t.mode = 'ExclusiveLock'
                 AND t.pid IS NOT NULL
                 AND CAST(CAST(t.transactionid AS TEXT) AS BIGINT)
                     = (CAST(CAST(x AS TEXT) AS BIGINT) & 4294967295)
                 AND NOT EXISTS (
                     SELECT 1 FROM held r
                     WHERE r.pid = t.pid AND r.locktype = 'relation'
                         AND r.database = (SELECT oid FROM pg_database
                                           WHERE datname = current_database())
                         AND r.relation IN (CAST('changes' AS REGCLASS), CAST('polls' AS REGCLASS))))",
    )?;
    let open = "SELECT CAST(CAST(x AS TEXT) AS BIGINT) AS number
                FROM pg_snapshot_xip(pg_current_snapshot()) AS x";
    let still_open = numbers(conn, &format!("{open} WHERE pg_xact_status(x) = 'in progress'"))?;
    let is_strange = |number: &i64| suspects.contains(number) && still_open.contains(number);
    Ok(numbers(conn, open)?.into_iter().filter(|number| !is_strange(number)).min())
}

fn numbers(conn: &Connection, sql: &str) -> Result<Vec<i64>, StoreError> {
    conn.prepare_cached(sql)
        .and_then(|mut query| query.query_map((), |row| row.get(0))?.collect())
        .map_err(engine)
}

impl Store {
    /// Reads a log. What was committed before the call is in the answer, unless a
    /// transaction that began earlier is open for longer than a moment.
    pub(super) async fn read_in_order<T, F>(&self, log: Log, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<(T, Reach), StoreError> + Clone + Send + 'static,
    {
        let (answer, reach) = self.read(query.clone()).await?;
        if reach.newest < reach.end {
            return Ok(answer);
        }
        let mut pause = FIRST_PAUSE;
        while pause <= LAST_PAUSE {
            tokio::time::sleep(pause).await;
            if self.read(move |conn| self::reach(conn, log)).await?.end > reach.newest {
                break;
            }
            pause *= 2;
        }
        self.read(query).await.map(|(answer, _)| answer)
    }

    /// How often who follows a log is to look for what other daemons commit; none
    /// where there are no others.
    pub fn look_again(&self) -> Option<Duration> {
        self.inner.readers.are_far().then_some(LOOK_AGAIN)
    }
}
