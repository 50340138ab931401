//! One line an event, whatever is in it, and no secrets in URLs.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

use super::*;

/// Collects what is written.
#[derive(Debug, Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8(bytes.clone()).expect("logs are UTF-8")
    }
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// What is written when `emit` logs under `level` in `format`.
fn logged(format: LogFormat, level: &str, emit: impl FnOnce(&LogHandle)) -> String {
    let sink = Sink::default();
    let log = Log { format, level: level.to_owned() };
    let (subscriber, handle) = subscriber(&log, sink.clone(), false).expect("a level");
    tracing::subscriber::with_default(subscriber, || emit(&handle));
    sink.text()
}

const HOSTILE: &str = "a\nFAKE line\r\x1b[31mred\x07\u{9b}1m\u{2028}b";

#[test]
fn what_comes_from_outside_cannot_start_a_line_or_colour_it() {
    for format in [LogFormat::Text, LogFormat::Json] {
        let text = logged(format, "info", |_| {
            tracing::info!(url = %HOSTILE, other = HOSTILE, "said {HOSTILE}");
        });
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(text.ends_with('\n'));
        let inside = text.trim_end_matches('\n');
        let special = |c: char| c.is_control() || c == '\u{2028}';
        assert!(!inside.contains(special), "{inside:?}");
        if format == LogFormat::Json {
            let event: serde_json::Value = serde_json::from_str(inside).expect("JSON");
            assert_eq!(event["url"], HOSTILE);
        }
    }
}

#[test]
fn text_keeps_letters_and_fields_as_they_are() {
    let text = logged(LogFormat::Text, "info", |_| tracing::info!(entries = 3, "Straße gelesen"));
    assert!(text.contains("Straße gelesen") && text.contains("entries=3"), "{text}");
}

#[test]
fn json_is_one_object_an_event() {
    let text = logged(LogFormat::Json, "info", |_| tracing::info!(entries = 3, "read"));
    let event: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((event["message"].as_str(), event["entries"].as_i64()), (Some("read"), Some(3)));
}

#[test]
fn the_level_can_be_turned_while_it_runs() {
    let text = logged(LogFormat::Text, "warn", |handle| {
        tracing::info!("before");
        let log = |level: &str| Log { format: LogFormat::Text, level: level.to_owned() };
        handle.apply(&log("debug")).expect("a level");
        tracing::debug!("after");
        assert!(handle.apply(&log("loud")).is_err());
        tracing::debug!("still");
    });
    assert!(!text.contains("before") && text.contains("after") && text.contains("still"), "{text}");
}

#[test]
fn no_level_has_the_client_of_the_database_tell_what_is_bound() {
    for level in ["trace", "debug", "info,tokio_postgres=debug", "info,tokio_postgres::query=trace"]
    {
        let text = logged(LogFormat::Text, "info", |handle| {
            let log = Log { format: LogFormat::Text, level: level.to_owned() };
            handle.apply(&log).expect("a level");
            tracing::debug!(target: "tokio_postgres::query", "executing with s3cret");
            tracing::info!(target: "tokio_postgres::connection", "a notice");
            tracing::debug!(target: "sitemapd", "ours");
        });
        assert!(!text.contains("s3cret"), "{level}: {text}");
        assert!(text.contains("a notice"), "{level}: {text}");
        assert_eq!(text.contains("ours"), matches!(level, "trace" | "debug"), "{level}: {text}");
    }
}

#[test]
fn levels_and_directives_are_read_and_typing_errors_are_not() {
    for level in ["info", "WARN", "off", "info,sitemapd=debug", "sitemapd::schedule=trace"] {
        assert!(filter(level).is_ok(), "{level}");
    }
    for level in ["", "verbose", "infos", "sitemapd=loud", "info,=,"] {
        assert!(filter(level).is_err(), "{level}");
    }
}

#[test]
fn a_url_is_logged_without_user_password_and_secrets() {
    for (url, expected) in [
        ("https://me:pw@a.example/x?b=1", "https://a.example/x?b=1"),
        ("https://me@a.example/", "https://a.example/"),
        ("https://a.example/?token=abc&page=2", "https://a.example/?token=***&page=2"),
        (
            "https://a.example/?X-Amz-Signature=a&API_KEY=b",
            "https://a.example/?X-Amz-Signature=***&API_KEY=***",
        ),
        ("https://a.example/?monkey=1&keyword=2&b", "https://a.example/?monkey=1&keyword=2&b"),
        ("https://a.example/?q=a%20b+c&r=%C3%BC", "https://a.example/?q=a%20b+c&r=%C3%BC"),
        ("data:text/plain,x", "data:text/plain,x"),
    ] {
        assert_eq!(redact(&Url::parse(url).expect(url)), expected);
    }
}
