//! A connection to a server that speaks `PostgreSQL`.
//!
//! It is used from one thread at a time, which waits for each answer: the store
//! has threads of its own for that. A connection that broke, or from which no
//! answer came in time, is not used again; who holds it makes another.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::iter::successors;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{join, join_all};
use rusqlite::types::Value;
use rustls::ClientConfig;
use rustls_platform_verifier::ConfigVerifierExt as _;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::log_order::Numbering;
use super::text::{Key, Text};
use super::values::Sent;
use super::{Error, Result};

/// A server that does not take a connection in this time is away.
const CONNECT: Duration = Duration::from_secs(5);
/// A statement that is not answered in this time is not waited for.
const ANSWER: Duration = Duration::from_secs(60);
/// Statements kept prepared on a connection; beyond that all are let go.
const STATEMENTS: usize = 1_024;
/// Answers left for later at most.
const MOST_WAITING: usize = 64;

/// Where the server is, and as whom it is asked.
#[derive(Debug, Clone)]
pub(in crate::store) struct Server {
    config: Config,
    /// As who our sessions ask, where that matters: `/*ours:` in statements.
    node: Option<String>,
}

impl Server {
    /// Reads a URL (`postgres://user:password@host:port/database`), as libpq
    /// takes it. Where it does not say `sslmode`, what is not this machine is
    /// spoken to under TLS only, with a certificate that the system trusts.
    pub(in crate::store) fn new(url: &str) -> Result<Self> {
        let mut config: Config = url.parse()?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(Error::Refused("it names no host".to_owned()));
        }
        if !url.contains("sslmode=") {
            let is_near = config.get_hosts().iter().all(is_this_machine);
            config.ssl_mode(if is_near { SslMode::Disable } else { SslMode::Require });
        }
        config.connect_timeout(CONNECT).tcp_user_timeout(ANSWER);
        // What is waited for without end ends with the line.
        config.keepalives_idle(ANSWER).keepalives_interval(ANSWER / 6);
        if config.get_application_name().is_none() {
            config.application_name("sitemapd");
        }
        Ok(Self { config, node: None })
    }

    /// The same for sessions of a daemon that works on the store.
    pub(in crate::store) fn named(self, node: &str) -> Self {
        Self { node: Some(node.to_owned()), ..self }
    }

    /// Connects. Blocks; not to be called where futures run.
    pub(in crate::store) fn connect(&self) -> Result<Session> {
        let away = |why: &dyn std::fmt::Display| Error::Away(why.to_string());
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| away(&e))?;
        let tls = ClientConfig::with_platform_verifier().map_err(|e| away(&e))?;
        let (client, connection) = runtime
            .block_on(async {
                let connecting = self.config.connect(MakeRustlsConnect::new(tls));
                tokio::time::timeout(CONNECT * 2, connecting).await
            })
            .map_err(|_| away(&"it does not answer"))?
            .map_err(|error| if is_away(&error) { error.into() } else { refused(&error) })?;
        runtime.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = describe(&error), "a connection to the database ended");
            }
        });
        let session = Session {
            client: Arc::new(client),
            runtime: Some(runtime),
            texts: RefCell::default(),
            statements: RefCell::default(),
            waiting: RefCell::default(),
            changes: Cell::new(0),
            in_transaction: Cell::new(false),
            is_aborted: Cell::new(false),
            numbering: Cell::default(),
            is_broken: Cell::new(false),
            patience: Cell::new(Some(ANSWER)),
        };
        if let Some(node) = &self.node {
            // Made by us of letters, digits and dashes (`Peers::new`).
            session.batch(&format!("SET sitemapd.node = '{node}'"))?;
        }
        Ok(session)
    }
}

/// An answer that only matters if it is an error.
type Waiting = Pin<Box<dyn Future<Output = std::result::Result<(), tokio_postgres::Error>> + Send>>;

/// Where rows are copied to, and what its columns take.
pub(in crate::store) struct Copier {
    sql: String,
    types: Vec<Type>,
}

/// A connection.
pub(in crate::store) struct Session {
    client: Arc<Client>,
    /// Runs the connection while an answer is waited for; there until the end.
    runtime: Option<Runtime>,
    texts: RefCell<HashMap<String, Arc<Text>>>,
    statements: RefCell<HashMap<Key, Statement>>,
    /// Answers that nobody has waited for yet.
    waiting: RefCell<Vec<Waiting>>,
    changes: Cell<u64>,
    in_transaction: Cell<bool>,
    /// Has anything failed in the transaction that was not taken back since?
    is_aborted: Cell<bool>,
    /// What rows of the logs are numbered by in the transaction that is open.
    numbering: Cell<Numbering>,
    is_broken: Cell<bool>,
    /// How long an answer is waited for; `None`: as long as it takes.
    patience: Cell<Option<Duration>>,
}

impl Session {
    /// Can it be used no more?
    pub(in crate::store) fn is_broken(&self) -> bool {
        self.is_broken.get() || self.client.is_closed()
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.in_transaction.get()
    }

    pub(super) fn total_changes(&self) -> u64 {
        self.changes.get()
    }

    /// What rows of the logs are numbered by; begun anew by each transaction.
    pub(in crate::store) fn numbering(&self) -> &Cell<Numbering> {
        &self.numbering
    }

    /// A statement as this engine takes it.
    pub(super) fn text_of(&self, sql: &str) -> Arc<Text> {
        let mut texts = self.texts.borrow_mut();
        if let Some(text) = texts.get(sql) {
            return Arc::clone(text);
        }
        if texts.len() >= STATEMENTS {
            texts.clear();
        }
        let text = Arc::new(Text::new(sql));
        texts.insert(sql.to_owned(), Arc::clone(&text));
        text
    }

    /// Runs a statement; says how many rows it changed.
    pub(super) fn execute(&self, text: &Text, values: &[Value]) -> Result<usize> {
        let statement = self.prepared(text, values)?;
        let sent: Vec<Sent<'_>> = text.sent(values).map(Sent).collect();
        let changed = self.drive(self.client.execute(&statement, &bound(&sent)))?;
        self.changes.set(self.changes.get().saturating_add(changed));
        Ok(usize::try_from(changed).unwrap_or(usize::MAX))
    }

    /// Sends a statement, and leaves its answer for later: an error comes with
    /// the answer of the next one, or of [`Self::flush`].
    pub(super) fn send(&self, text: &Text, values: &[Value]) -> Result<()> {
        let statement = self.prepared(text, values)?;
        let sent: Vec<Value> = text.sent(values).cloned().collect();
        let client = Arc::clone(&self.client);
        self.changes.set(self.changes.get().saturating_add(1));
        self.leave(Box::pin(async move {
            client.execute_raw(&statement, sent.iter().map(Sent)).await.map(|_| ())
        }))
    }

    /// The same for a statement whose parameters are columns, in the order in
    /// which it names them first by their numbers.
    pub(super) fn send_columns<C>(&self, text: &Text, columns: Vec<C>) -> Result<()>
    where
        C: ToSql + Send + Sync + 'static,
    {
        let statement = self.prepared(text, &[])?;
        let client = Arc::clone(&self.client);
        self.changes.set(self.changes.get().saturating_add(1));
        self.leave(Box::pin(
            async move { client.execute_raw(&statement, &columns).await.map(|_| ()) },
        ))?;
        self.set_off();
        Ok(())
    }

    /// Has what was sent go to the server now, which works on it while more is
    /// made ready here; its answers are still left for later. Says whether any of
    /// it is known to have failed, on the server or before it came there.
    fn set_off(&self) -> bool {
        let (Some(runtime), false) = (&self.runtime, self.is_broken()) else { return false };
        let mut waiting = self.waiting.borrow_mut();
        let over = runtime.block_on(async {
            // The first look at each is what sends it, in this order.
            let over = poll_fn(|context| {
                let is_over = |answer: &mut Waiting| answer.as_mut().poll(context);
                Poll::Ready(waiting.iter_mut().map(is_over).collect::<Vec<_>>())
            });
            let over = over.await;
            // The connection writes.
            tokio::task::yield_now().await;
            over
        });
        // What is over already is not asked again.
        let mut has_failed = false;
        for (answer, over) in waiting.iter_mut().zip(over) {
            if let Poll::Ready(result) = over {
                has_failed |= result.is_err();
                *answer = Box::pin(std::future::ready(result));
            }
        }
        has_failed
    }

    /// Runs a statement whose parameters are columns, for what it answers.
    pub(super) fn query_columns(&self, text: &Text, columns: &[Vec<i64>]) -> Result<Vec<Row>> {
        let statement = self.prepared(text, &[])?;
        let bound: Vec<_> = columns.iter().map(|column| column as &(dyn ToSql + Sync)).collect();
        self.drive(self.client.query(&statement, &bound))
    }

    fn leave(&self, answer: Waiting) -> Result<()> {
        self.waiting.borrow_mut().push(answer);
        if self.waiting.borrow().len() < MOST_WAITING { Ok(()) } else { self.flush() }
    }

    /// Waits for what was sent; an error also where anything else failed in the
    /// transaction, and whoever asked for it went on.
    pub(super) fn flush(&self) -> Result<()> {
        if !self.waiting.borrow().is_empty() {
            self.drive(async { Ok(()) })?;
        }
        if self.is_aborted.get() { Err(Error::Aborted) } else { Ok(()) }
    }

    /// Runs a statement, for what it answers.
    pub(super) fn query(&self, text: &Text, values: &[Value]) -> Result<Vec<Row>> {
        let statement = self.prepared(text, values)?;
        let sent: Vec<Sent<'_>> = text.sent(values).map(Sent).collect();
        let rows = self.drive(self.client.query(&statement, &bound(&sent)))?;
        if !text.only_reads() {
            // It wrote a row at least for each that it answers.
            let count = u64::try_from(rows.len()).unwrap_or(u64::MAX);
            self.changes.set(self.changes.get().saturating_add(count));
        }
        Ok(rows)
    }

    /// What rows of these columns of a table are copied by.
    pub(in crate::store) fn copier(&self, table: &str, columns: &str) -> Result<Copier> {
        let like = format!("SELECT {columns} FROM {table} LIMIT 0");
        let statement = self.drive(self.client.prepare(&like))?;
        let types = statement.columns().iter().map(|column| column.type_().clone()).collect();
        let sql = format!("COPY {table} ({columns}) FROM STDIN BINARY");
        Ok(Copier { sql, types })
    }

    /// Adds rows, whose values follow one another; says how many. Several times
    /// as fast as statements that insert.
    pub(in crate::store) fn copy(&self, copier: &Copier, values: &[Value]) -> Result<u64> {
        let count = self.drive(async {
            let sink = self.client.copy_in(&copier.sql).await?;
            let mut writer = pin!(BinaryCopyInWriter::new(sink, &copier.types));
            for row in values.chunks_exact(copier.types.len().max(1)) {
                let sent: Vec<Sent<'_>> = row.iter().map(Sent).collect();
                let bound = sent.iter().map(|value| value as &(dyn ToSql + Sync));
                writer.as_mut().write_raw(bound).await?;
            }
            writer.finish().await
        })?;
        self.changes.set(self.changes.get().saturating_add(count));
        Ok(count)
    }

    /// Does what may take the server any time, of which an answer is waited for as
    /// long as the line holds.
    pub(in crate::store) fn unhurried<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.patience.replace(None);
        let done = work();
        self.patience.set(before);
        done
    }

    /// Runs statements without parameters.
    pub(in crate::store) fn batch(&self, sql: &str) -> Result<()> {
        self.drive(self.client.batch_execute(sql))
    }

    /// Begins a transaction; that it cannot be is heard with the first statement.
    pub(super) fn begin(&self, sql: &'static str) -> Result<()> {
        if self.is_broken() {
            return Err(Error::Away("the connection is broken".to_owned()));
        }
        self.send_batch(sql)?;
        self.numbering.set(Numbering::default());
        self.is_aborted.set(false);
        self.in_transaction.set(true);
        Ok(())
    }

    pub(super) fn send_batch(&self, sql: impl Into<Cow<'static, str>>) -> Result<()> {
        let (client, sql) = (Arc::clone(&self.client), sql.into());
        self.leave(Box::pin(async move { client.batch_execute(&sql).await }))
    }

    /// Ends the transaction. One in which anything is known to have failed is
    /// refused, and still open: the server would take it back, and call that no
    /// error. Where something does that was sent and not yet answered, it takes it
    /// back, and that is the error.
    pub(super) fn commit(&self) -> Result<()> {
        // One that never came to the server does not keep it from committing.
        if self.is_aborted.get() || self.set_off() {
            self.flush()?;
            return Err(Error::Aborted);
        }
        self.in_transaction.set(false);
        self.batch("COMMIT")
    }

    /// Takes back what was written since a savepoint, with whatever went wrong
    /// since then, and ends it.
    pub(super) fn rollback_to(&self, savepoint: &str) -> Result<()> {
        // It is taken back because of these, or without them.
        let _ = self.flush();
        self.batch(&format!("ROLLBACK TO {savepoint}; RELEASE {savepoint}"))?;
        self.is_aborted.set(false);
        Ok(())
    }

    /// Takes the transaction back, with whatever else went wrong in it.
    pub(super) fn rollback(&self) -> Result<()> {
        self.in_transaction.set(false);
        // It is taken back because of these, or without them.
        let _ = self.flush();
        self.is_aborted.set(false);
        self.batch("ROLLBACK")
    }

    fn prepared(&self, text: &Text, values: &[Value]) -> Result<Statement> {
        let key = text.key(values);
        if let Some(statement) = self.statements.borrow().get(&key) {
            return Ok(statement.clone());
        }
        let statement = self.drive(self.client.prepare(&text.sql(values)))?;
        let mut statements = self.statements.borrow_mut();
        if statements.len() >= STATEMENTS {
            statements.clear();
        }
        statements.insert(key, statement.clone());
        Ok(statement)
    }

    /// Waits for an answer.
    fn drive<T>(
        &self,
        answer: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        if self.is_broken() {
            return Err(Error::Away("the connection is broken".to_owned()));
        }
        let Some(runtime) = &self.runtime else {
            return Err(Error::Away("the connection is closed".to_owned()));
        };
        let before = self.waiting.take();
        let both = async {
            let (before, answered) = join(join_all(before), answer).await;
            before.into_iter().collect::<std::result::Result<(), _>>().and(answered)
        };
        let waited = runtime.block_on(async {
            match self.patience.get() {
                Some(limit) => tokio::time::timeout(limit, both).await.ok(),
                None => Some(both.await),
            }
        });
        let Some(answered) = waited else {
            self.is_broken.set(true);
            return Err(Error::Away("it does not answer".to_owned()));
        };
        if answered.is_err() && self.in_transaction.get() {
            self.is_aborted.set(true);
        }
        if let Err(error) = &answered
            && error.code().is_none_or(Self::ends_with)
        {
            self.is_broken.set(true);
        }
        Ok(answered?)
    }

    /// Is an error the last that a connection says?
    pub(in crate::store) fn ends_with(code: &SqlState) -> bool {
        let ends = [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ];
        code.code().starts_with("08") || ends.contains(code)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Where futures run a runtime must not be waited for.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn is_this_machine(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            let address = name.parse::<IpAddr>();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => true,
    }
}

/// Has the server said what is wrong, or did it not come to that? Else what we
/// were told of it is wrong, and waiting does not help: a password or TLS that
/// one of the two does not have, a certificate that nobody trusts.
fn is_away(error: &tokio_postgres::Error) -> bool {
    // What TLS refuses, a certificate above all, comes as an error of input, too.
    let is_io = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<std::io::Error>();
        let of_tls = |io: &std::io::Error| io.get_ref()?.downcast_ref::<rustls::Error>().cloned();
        io.is_some_and(|io| of_tls(io).is_none())
    };
    let mut causes = successors(error.source(), |&cause| cause.source());
    error.code().is_some() || error.is_closed() || causes.any(is_io)
}

fn refused(error: &tokio_postgres::Error) -> Error {
    Error::Refused(describe(error))
}

fn bound<'s>(sent: &'s [Sent<'_>]) -> Vec<&'s (dyn ToSql + Sync)> {
    sent.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

/// An error of the server, or of the way to it, in one line.
pub(in crate::store) fn describe(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(told), _) => format!("{} ({})", told.message(), told.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    #[test]
    fn what_takes_the_server_any_time_is_waited_for_longer_than_all_else() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let connect = || {
            let server = Server::new(&format!("postgres://u@127.0.0.1:{port}/db"));
            let session = server.and_then(|server| server.connect()).expect("it is let in");
            session.patience.set(Some(Duration::from_millis(50)));
            session
        };
        // Answers the first statement of a connection once it is told to.
        let (asked, is_asked) = channel();
        let serve = |told: Receiver<()>| {
            let (mut stream, _) = listener.accept().expect("somebody");
            let asked = asked.clone();
            let mut take = move || -> std::io::Result<()> {
                let mut length = [0; 4];
                stream.read_exact(&mut length)?;
                let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
                stream.read_exact(&mut rest)?;
                stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")?;
                stream.read_exact(&mut [0])?;
                asked.send(()).expect("a test");
                let _ = told.recv();
                stream.write_all(b"C\0\0\0\x08SET\0Z\0\0\0\x05I")
            };
            // Who did not wait is gone.
            move || drop(take())
        };
        let ((tell, told), (never_told, never)) = (channel(), channel());
        std::thread::scope(|scope| {
            let first = scope.spawn(connect);
            scope.spawn(serve(told));
            let first = first.join().expect("a session");
            let waiting = scope.spawn(move || {
                let answered = first.unhurried(|| first.batch("SET a = b"));
                (answered.is_ok(), first.patience.get().is_some())
            });
            is_asked.recv().expect("a statement");
            let second = scope.spawn(connect);
            scope.spawn(serve(never));
            let second = second.join().expect("a session");
            assert!(matches!(second.batch("SET a = b"), Err(Error::Away(_))));
            tell.send(()).expect("a server");
            assert_eq!(waiting.join().expect("an answer"), (true, true));
            drop(never_told);
        });
    }

    #[test]
    fn who_cannot_be_let_in_as_things_stand_is_refused_and_not_waited_for() {
        // What the server says to whoever comes, if anything, before it hangs up.
        let ended = |answer: &'static [u8], more: &str| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = listener.local_addr().expect("an address").port();
            let serving = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("somebody");
                let _ = stream.read(&mut [0; 1_024]);
                let _ = stream.write_all(answer);
                // Until the other side has read it.
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.read_to_end(&mut Vec::new());
            });
            let server = Server::new(&format!("postgres://u@127.0.0.1:{port}/db{more}"));
            let error = server.and_then(|server| server.connect().map(|_| ())).expect_err(more);
            serving.join().expect("it served");
            crate::store::engine(error)
        };
        let cases: [(&[u8], &str, &str); 2] = [
            (b"N", "?sslmode=require", "does not support TLS"),
            // It wants a password, in the clear.
            (b"R\0\0\0\x08\0\0\0\x03", "", "password missing"),
        ];
        for (answer, more, why) in cases {
            let error = ended(answer, more);
            assert!(matches!(error, crate::store::StoreError::Engine(_)), "{error:?}");
            assert!(error.to_string().contains(why), "{error}");
        }
        let error = ended(b"", "");
        assert!(matches!(error, crate::store::StoreError::Away(_)), "{error:?}");
    }
}
