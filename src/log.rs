//! Sets up the logs: one event a line on stderr, as text or JSON.
//!
//! What comes from outside can neither start a line of its own nor colour a
//! terminal: control characters in fields are written as escapes. Secrets are
//! the business of whoever logs; [`redact`] makes a URL fit to be logged.
//! Rotation and shipping are left to journald or the container.

use std::fmt::{self, Write as _};
use std::io;

use tracing::{Level, Metadata};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::fmt::{FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, reload};
use url::Url;

use crate::config::{Log, LogFormat};

/// Names of query parameters whose values are secrets, in lower case; a name
/// that ends in `_` and one of them is one too (`x_token`).
const SECRET_PARAMS: [&str; 17] = [
    "access_token",
    "api_key",
    "apikey",
    "auth",
    "authorization",
    "credential",
    "jwt",
    "key",
    "pass",
    "passwd",
    "password",
    "pwd",
    "secret",
    "session",
    "sig",
    "signature",
    "token",
];

/// Turns the level of the running logs.
#[derive(Debug, Clone)]
pub struct LogHandle {
    filter: reload::Handle<EnvFilter, Registry>,
}

/// Why the logs could not be set up or turned.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `log.level` cannot be read.
    #[error("log.level: {0}")]
    Level(String),
    /// Something else logs in this process already.
    #[error("logs are set up already")]
    AlreadySet,
}

impl LogHandle {
    /// Takes over the level of `log`; the format needs a restart.
    pub fn apply(&self, log: &Log) -> Result<(), LogError> {
        let filter = filter(&log.level).map_err(LogError::Level)?;
        self.filter.reload(filter).map_err(|_| LogError::AlreadySet)
    }
}

/// Sets up the logs of this process, on stderr. Whether its lines of text have
/// colours the command line decides, as for all that is printed.
pub fn init(log: &Log, colours: bool) -> Result<LogHandle, LogError> {
    let (subscriber, handle) = subscriber(log, io::stderr, colours)?;
    subscriber.try_init().map_err(|_| LogError::AlreadySet)?;
    Ok(handle)
}

/// What [`init`] sets up, written to `writer`.
fn subscriber<W>(
    log: &Log,
    writer: W,
    colours: bool,
) -> Result<(impl tracing::Subscriber + Send + Sync, LogHandle), LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter(&log.level).map_err(LogError::Level)?);
    let lines = tracing_subscriber::fmt::layer();
    let lines = match log.format {
        LogFormat::Text => lines.with_ansi(colours).fmt_fields(OneLine).with_writer(writer).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_writer(AsciiJson(writer)).boxed(),
    };
    // Whatever the level says, and whoever sets it.
    let lines = lines.with_filter(filter_fn(|event| !may_tell_secrets(event)));
    let subscriber = tracing_subscriber::registry().with(filter).with(lines);
    Ok((subscriber, LogHandle { filter: handle }))
}

/// Reads `log.level`: a level, or directives as `EnvFilter` has them. The
/// error is a clause that says what is wrong.
pub(crate) fn filter(level: &str) -> Result<EnvFilter, String> {
    // EnvFilter takes a lone word for the name of a target, so a mistyped
    // level would turn every log off.
    if level.is_empty() {
        return Err("it is empty".to_owned());
    }
    let lone = !level.contains(['=', ',', '[']);
    if lone && level.parse::<tracing::metadata::LevelFilter>().is_err() {
        return Err(format!("{level:?} is no level"));
    }
    // What the broker's client has to say, we say once, and of all that changes.
    EnvFilter::builder().parse(format!("async_nats=off,{level}")).map_err(|e| e.to_string())
}

/// The database's client has a line for each statement, with all that is bound to it:
/// secrets of hubs and of other daemons, and tokens of leases.
fn may_tell_secrets(event: &Metadata<'_>) -> bool {
    *event.level() > Level::INFO && event.target().starts_with("tokio_postgres")
}

/// A URL fit to be logged: without user and password, and with `***` in place
/// of the values of parameters that look like secrets.
pub fn redact(url: &Url) -> String {
    let mut bare = url.clone();
    // Fails only for URLs that have no place for them.
    let _ = bare.set_username("").and_then(|()| bare.set_password(None));
    let Some(query) = url.query() else { return bare.into() };
    let masked: Vec<String> = query.split('&').map(mask_secret).collect();
    bare.set_query(Some(&masked.join("&")));
    bare.into()
}

fn mask_secret(pair: &str) -> String {
    let Some((name, _)) = pair.split_once('=') else { return pair.to_owned() };
    let lower = name.to_ascii_lowercase().replace('-', "_");
    let secret = SECRET_PARAMS.iter().any(|word| {
        lower.strip_suffix(word).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
    });
    if secret { format!("{name}=***") } else { pair.to_owned() }
}

/// Writes fields so that an event stays on its line.
#[derive(Debug, Clone, Copy)]
struct OneLine;

impl<'writer> FormatFields<'writer> for OneLine {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut plain = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut plain), fields)?;
        Escaping(&mut writer).write_str(&plain)
    }
}

/// Writes JSON with the control characters escaped that JSON itself lets by:
/// DEL, the C1 set, which terminals obey, and the two line separators. No call may
/// end within a character.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AsciiJson<W>(pub(crate) W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for AsciiJson<W> {
    type Writer = AsciiJson<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        AsciiJson(self.0.make_writer())
    }
}

impl<W: io::Write> io::Write for AsciiJson<W> {
    /// One call is one event: that is how the layer writes.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let special = |c: char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}');
        if !text.contains(special) {
            self.0.write_all(event)?;
            return Ok(event.len());
        }
        let mut escaped = String::with_capacity(text.len());
        for character in text.chars() {
            if special(character) {
                // Writing to a String cannot fail. All of them have four digits.
                let _ = write!(escaped, "\\u{:04x}", u32::from(character));
            } else {
                escaped.push(character);
            }
        }
        self.0.write_all(escaped.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Passes text on with its control characters escaped.
struct Escaping<'a, W>(&'a mut W);

impl<W: fmt::Write> fmt::Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            // The two separators end a line for some readers of logs.
            if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') {
                write!(self.0, "{}", character.escape_default())?;
            } else {
                self.0.write_char(character)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
