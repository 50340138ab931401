//! Who works on which partitions of a store that is on a server.
//!
//! A daemon has a row of `nodes`, and renews it. Each of its transactions locks
//! that row first; who takes over from it deletes the row, once its time is up,
//! and waits for that lock. So a daemon that was stopped, or cut off, and goes
//! on later finds itself fenced: nothing of what it writes then is committed,
//! whatever its own clock says. It joins anew, with nothing that is its own. The
//! server ends the transactions of one that stops amid them. With that lock it is
//! told the server's time, which is the time of all: the clock of a machine that
//! was suspended stood still, however often.
//!
//! Partitions are dealt evenly. Each daemon looks every second: what it has
//! beyond its share it gives up, what nobody has it takes, up to its share. So
//! none is taken that another still has, and who joins has its share as soon as
//! the others have looked.
//!
//! Keeps: two transactions of different owners of a partition never both commit
//! after one has taken it from the other.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::peers::{Deal, Node, PARTITIONS, Peers};
use super::server::{TIME, check_version};
use super::sql::{self, Connection, OptionalExtension, Row, params};
use super::{StoreError, engine, timestamp};

/// A daemon that has not renewed its row for so long may be taken over.
const LEASE_S: i64 = 10;
/// The row is renewed this often.
const RENEW: Duration = Duration::from_secs(2);
/// Partitions are looked at this often.
const LOOK: Duration = Duration::from_secs(1);
/// A transaction that stops is ended by the server after so long.
const STOPPED_MS: i64 = 5_000;
/// Over another connection the end of the last transaction is waited for so long
/// at once: longer than one that stops lasts.
const ENDED_MS: i64 = 2 * STOPPED_MS;

/// Partitions that are ours.
#[derive(Debug)]
pub(super) struct Claim {
    peers: Arc<Peers>,
    /// Name of the daemon that had our data folder before.
    last: Option<String>,
    renewed: Instant,
    looked: Instant,
    /// Of what is ours the epoch, which grows with each owner; else 0.
    epochs: [i64; PARTITIONS],
    /// The rows of others as last seen, and since when they are so: after the
    /// server was away nobody's time is up before he could renew it.
    seen: HashMap<String, (String, Instant)>,
}

/// What a look came to.
#[derive(Debug)]
pub(super) struct Look {
    deal: Deal,
    epochs: [i64; PARTITIONS],
}

impl Claim {
    /// Joins those who work on the store; what nobody works on is ours at once,
    /// and so is what the daemon had that was `last` in our place.
    pub(super) fn join(
        peers: Arc<Peers>,
        last: Option<&str>,
        conn: &Connection,
    ) -> Result<Self, StoreError> {
        if let Some(last) = last {
            // Waits for the end of what the server still does for it.
            conn.execute("DELETE FROM nodes WHERE name = ?1", [last]).map_err(engine)?;
        }
        let now = Instant::now();
        let epochs = [0; PARTITIONS];
        let last = last.map(str::to_owned);
        let seen = HashMap::new();
        let mut claim = Self { peers, last, renewed: now, looked: now, epochs, seen };
        claim.join_again(conn)?;
        Ok(claim)
    }

    /// The same once more, after others have taken all that was ours.
    pub(super) fn join_again(&mut self, conn: &Connection) -> Result<(), StoreError> {
        let stopped = format!("SET idle_in_transaction_session_timeout = {STOPPED_MS}");
        conn.execute_batch(&stopped).map_err(engine)?;
        conn.begin().map_err(engine)?;
        let joined = self.enter(conn).and_then(|look| {
            conn.commit().map_err(engine)?;
            Ok(look)
        });
        if joined.is_err() {
            // It may have ended already.
            let _ = conn.rollback();
        }
        self.take_over(joined?);
        Ok(())
    }

    fn enter(&mut self, conn: &Connection) -> Result<Look, StoreError> {
        // Another daemon may have brought the store up to a version of its own since
        // we last looked.
        let locked = "SELECT CAST(value AS BIGINT) FROM meta WHERE key = 'schema' FOR UPDATE";
        check_version(conn.query_row(locked, (), |row| row.get(0)).map_err(engine)?)?;
        self.bury(conn, true)?;
        conn.execute(
            "INSERT INTO nodes (name, address, backend, since, until)
             VALUES (?1, coalesce(?2, ''), pg_backend_pid(), clock_timestamp(),
                 clock_timestamp() + make_interval(secs => ?3))
             ON CONFLICT (name) DO UPDATE SET backend = excluded.backend, until = excluded.until",
            params![self.peers.name, self.peers.address(), LEASE_S],
        )
        .map_err(engine)?;
        self.renewed = Instant::now();
        self.even_out(conn)?;
        self.read(conn)
    }

    /// Goes on over another connection, with what the tables say is ours: whether
    /// the last look was committed is not known. Where others have taken over, the
    /// fence of the next transaction finds that. `true` as of [`Self::take_over`].
    ///
    /// The server may still be at the last transaction of the lost connection, and
    /// even commit it: what is read before it ends would be without its rows.
    pub(super) fn go_on(&mut self, conn: &Connection) -> Result<bool, StoreError> {
        let settings = format!(
            "SET idle_in_transaction_session_timeout = {STOPPED_MS}; SET lock_timeout = {ENDED_MS}"
        );
        conn.execute_batch(&settings).map_err(engine)?;
        // Of all locks that conflict with that of the fence: it is had when that
        // transaction has ended. By itself, since what a statement sees is what was
        // committed as it began.
        let ended = "SELECT name FROM nodes WHERE name = ?1 FOR UPDATE";
        conn.query_row(ended, [&self.peers.name], |_| Ok(())).optional().map_err(|error| {
            match engine(error) {
                StoreError::Busy => StoreError::Away("it is still at what was cut off".to_owned()),
                other => other,
            }
        })?;
        conn.execute_batch("SET lock_timeout = 0").map_err(engine)?;
        // Others may have been cut off as we were.
        self.seen.clear();
        self.renewed = Instant::now();
        conn.execute(
            "UPDATE nodes SET backend = pg_backend_pid(),
                 until = clock_timestamp() + make_interval(secs => ?2) WHERE name = ?1",
            params![self.peers.name, LEASE_S],
        )
        .map_err(engine)?;
        let look = self.read(conn)?;
        Ok(self.take_over(look))
    }

    /// The server's time, if the transaction that has just begun is ours; none
    /// where others have taken over.
    pub(super) fn fence(&mut self, conn: &Connection) -> Result<Option<Timestamp>, StoreError> {
        let time = |row: &Row<'_>| -> sql::Result<Timestamp> { row.get(0).map(timestamp) };
        let me = &self.peers.name;
        let fenced = if self.wants_renewal() {
            let renew = format!(
                "UPDATE nodes SET until = clock_timestamp() + make_interval(secs => ?2)
                 WHERE name = ?1 RETURNING {TIME}"
            );
            let renewed = conn.query_row(&renew, params![me, LEASE_S], time).optional();
            self.renewed = Instant::now();
            renewed
        } else {
            let lock = format!("SELECT {TIME} FROM nodes WHERE name = ?1 FOR KEY SHARE");
            conn.query_row(&lock, [me], time).optional()
        };
        fenced.map_err(engine)
    }

    /// Is it time to say that we live?
    pub(super) fn wants_renewal(&self) -> bool {
        self.renewed.elapsed() >= RENEW
    }

    /// Is it time to look at who has what?
    pub(super) fn wants_look(&self) -> bool {
        self.looked.elapsed() >= LOOK
    }

    /// Somebody looks now, whether or not it comes to anything.
    pub(super) fn looks(&mut self) {
        self.looked = Instant::now();
    }

    /// Are there others?
    pub(super) fn is_shared(&self) -> bool {
        self.peers.deal().nodes.len() > 1
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.peers.name
    }

    /// Was this the daemon that had its data folder before?
    pub(super) fn was(&self, name: &str) -> bool {
        self.last.as_deref() == Some(name)
    }

    /// The epoch of a partition that is ours.
    pub(super) fn epoch(&self, part: i64) -> Option<i64> {
        let place = usize::try_from(part).ok()?;
        self.epochs.get(place).copied().filter(|epoch| *epoch > 0)
    }

    /// How many partitions are ours.
    pub(super) fn size(&self) -> usize {
        self.epochs.iter().filter(|epoch| **epoch > 0).count()
    }

    /// Looks at who has what, in a transaction that is ours: gives up what is
    /// too much, takes what is nobody's.
    pub(super) fn look(&mut self, conn: &Connection) -> Result<Look, StoreError> {
        // Another daemon that does the same does it for all.
        let turn = "SELECT key FROM meta WHERE key = 'schema' FOR UPDATE SKIP LOCKED";
        if conn.query_row(turn, (), |_| Ok(())).optional().map_err(engine)?.is_some() {
            self.bury(conn, false)?;
            self.even_out(conn)?;
        }
        self.read(conn)
    }

    /// Are other partitions ours by it?
    pub(super) fn moves_by(&self, look: &Look) -> bool {
        self.epochs != look.epochs
    }

    /// What a look came to holds from now on; `true` where other partitions are
    /// ours than before.
    pub(super) fn take_over(&mut self, look: Look) -> bool {
        let has_changed = self.epochs != look.epochs;
        self.epochs = look.epochs;
        self.peers.set(look.deal);
        has_changed
    }

    /// Gives all up to whoever wants it.
    pub(super) fn give_back(&self, conn: &Connection) -> Result<(), StoreError> {
        conn.begin().map_err(engine)?;
        conn.execute("UPDATE partitions SET node = NULL WHERE node = ?1", [&self.peers.name])
            .map_err(engine)?;
        conn.execute("DELETE FROM nodes WHERE name = ?1", [&self.peers.name]).map_err(engine)?;
        conn.commit().map_err(engine)
    }

    /// Takes from those whose time is up, and who have not renewed it since we
    /// look; at a start, from those whose time is up for long. One that is amid a
    /// transaction is left for the next look.
    fn bury(&mut self, conn: &Connection, is_start: bool) -> Result<(), StoreError> {
        let mut query = conn
            .prepare_cached(
                "SELECT name, CAST(until AS TEXT), until < clock_timestamp(),
                     until < clock_timestamp() - make_interval(secs => ?2)
                 FROM nodes WHERE name <> ?1",
            )
            .map_err(engine)?;
        let others: Vec<Until> = query
            .query_map(params![self.peers.name, LEASE_S], |row| {
                Ok(Until {
                    node: row.get(0)?,
                    text: row.get(1)?,
                    is_over: row.get(2)?,
                    is_long_over: row.get(3)?,
                })
            })
            .and_then(Iterator::collect)
            .map_err(engine)?;
        // Of one whose row is gone whatever way.
        conn.execute(
            "UPDATE partitions SET node = NULL
             WHERE node IS NOT NULL AND node NOT IN (SELECT name FROM nodes)",
            (),
        )
        .map_err(engine)?;
        let now = Instant::now();
        self.seen.retain(|node, _| others.iter().any(|other| other.node == *node));
        for other in others {
            let known = self.seen.entry(other.node.clone()).or_insert_with(|| (String::new(), now));
            if known.0 != other.text {
                *known = (other.text, now);
            }
            let is_silent = now.duration_since(known.1) >= RENEW * 2;
            if other.is_over && if is_start { other.is_long_over } else { is_silent } {
                let gone = conn
                    .execute(
                        "DELETE FROM nodes WHERE name IN (SELECT name FROM nodes
                             WHERE name = ?1 AND until < clock_timestamp() FOR UPDATE SKIP LOCKED)",
                        [&other.node],
                    )
                    .map_err(engine)?;
                if gone > 0 {
                    conn.execute(
                        "UPDATE partitions SET node = NULL WHERE node = ?1",
                        [&other.node],
                    )
                    .map_err(engine)?;
                    tracing::warn!(node = other.node, "another daemon is gone, and is taken over");
                }
            }
        }
        Ok(())
    }

    /// Gives up what is beyond our share, or takes what is missing of it.
    fn even_out(&self, conn: &Connection) -> Result<(), StoreError> {
        let me = &self.peers.name;
        let (nodes, before, ours): (i64, i64, i64) = conn
            .query_row(
                "SELECT count(*), count(*) FILTER (WHERE (n.since, n.name) < (m.since, m.name)),
                     (SELECT count(*) FROM partitions WHERE node = ?1)
                 FROM nodes n CROSS JOIN nodes m WHERE m.name = ?1",
                [me],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .map_err(engine)?;
        let all = i64::try_from(PARTITIONS).unwrap_or(i64::MAX);
        let share = all / nodes.max(1) + i64::from(before < all % nodes.max(1));
        let sql = match ours.cmp(&share) {
            Ordering::Equal => return Ok(()),
            Ordering::Greater => {
                "UPDATE partitions SET node = NULL WHERE part IN
                     (SELECT part FROM partitions WHERE node = ?1 ORDER BY part DESC LIMIT ?2)"
            }
            Ordering::Less => {
                "UPDATE partitions SET node = ?1, epoch = epoch + 1 WHERE part IN
                     (SELECT part FROM partitions WHERE node IS NULL ORDER BY part LIMIT ?2)"
            }
        };
        conn.execute(sql, params![me, (ours - share).abs()]).map(|_| ()).map_err(engine)
    }

    /// Who has what.
    fn read(&self, conn: &Connection) -> Result<Look, StoreError> {
        let nodes = read_nodes(conn)?;
        let mut epochs = [0; PARTITIONS];
        let mut owners = [None; PARTITIONS];
        let mut query = conn
            .prepare_cached("SELECT part, node, epoch FROM partitions WHERE node IS NOT NULL")
            .map_err(engine)?;
        let rows: Vec<(i64, String, i64)> = query
            .query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .and_then(Iterator::collect)
            .map_err(engine)?;
        for (part, node, epoch) in rows {
            let Ok(part) = usize::try_from(part) else { continue };
            let owner = nodes.iter().position(|known| known.name == node);
            if let (Some(slot), Some(own)) = (owners.get_mut(part), epochs.get_mut(part)) {
                *slot = owner;
                *own = if node == self.peers.name { epoch } else { 0 };
            }
        }
        Ok(Look { deal: Deal { nodes, owners }, epochs })
    }
}

/// Refuses where daemons work on the store, or may yet go on: who joined them
/// for a moment would take part of what is theirs, and tell them of sites by a
/// configuration that need not be theirs. `last` is the daemon that was in our
/// place before, and is gone.
pub(super) fn check_alone(conn: &Connection, last: Option<&str>) -> Result<(), StoreError> {
    let others: i64 = conn
        .query_row(
            "SELECT count(*) FROM nodes WHERE until >= clock_timestamp() AND name <> ?1",
            [last.unwrap_or_default()],
            |row| row.get(0),
        )
        .map_err(engine)?;
    if others == 0 {
        return Ok(());
    }
    let why = "daemons work on this store; give the order to one of them with --api";
    Err(StoreError::Refused(why.to_owned()))
}

/// Until when the row of another daemon holds.
struct Until {
    node: String,
    text: String,
    is_over: bool,
    /// Is it over for as long as it holds?
    is_long_over: bool,
}

/// The daemons that are up, the first of them first.
pub(super) fn read_nodes(conn: &Connection) -> Result<Vec<Node>, StoreError> {
    let mut query = conn
        .prepare_cached(
            "SELECT n.name, n.address, CAST(extract(epoch FROM n.since) * 1000 AS BIGINT),
                 (SELECT count(*) FROM partitions p WHERE p.node = n.name)
             FROM nodes n ORDER BY n.since, n.name",
        )
        .map_err(engine)?;
    query
        .query_map((), |row| {
            let address: String = row.get(1)?;
            Ok(Node {
                name: row.get(0)?,
                address: Some(address).filter(|address| !address.is_empty()),
                since: timestamp(row.get(2)?),
                partitions: row.get(3)?,
            })
        })
        .and_then(Iterator::collect)
        .map_err(engine)
}
