//! The events that machines may look for: what OPERATIONS says of them is so.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::documents::document;
use crate::support::process::{Daemon, write_config};
use crate::support::{Origin, Reply};
use crate::walls::sources;

/// Between two of these stands the table of stable events.
const MARKER: &str = "<!-- events -->";
/// What every event has.
const ALWAYS: [&str; 4] = ["level", "message", "target", "timestamp"];

type Events = BTreeMap<String, BTreeSet<String>>;

/// Messages and fields as OPERATIONS has them.
fn told() -> Events {
    let text = document("docs/OPERATIONS.md");
    let table = text.split(MARKER).nth(1).expect("a table between two markers");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let quoted = |cell: &str| -> Vec<String> {
            cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        // In parentheses stand values, not fields.
        let plain: String = cells[2].split('(').map(|p| p.rsplit(')').next().unwrap()).collect();
        (quoted(cells[1])[0].clone(), quoted(&plain).into_iter().collect())
    })
    .collect()
}

/// The arguments of a macro, from after its parenthesis, split where they are.
fn arguments(text: &str) -> Vec<String> {
    let (mut depth, mut in_text, mut escaped) = (1, false, false);
    let mut parts = vec![String::new()];
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_text => escaped = true,
            '"' => in_text = !in_text,
            '(' | '[' | '{' if !in_text => depth += 1,
            ')' | ']' | '}' if !in_text => depth -= 1,
            ',' if !in_text && depth == 1 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
        parts.last_mut().expect("one").push(c);
    }
    parts.iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// Messages and fields of all events of the program.
fn logged() -> Vec<(String, BTreeSet<String>)> {
    let mut found = Vec::new();
    for source in sources() {
        for call in ["error!(", "warn!(", "info!(", "debug!("] {
            for rest in source.text.split(call).skip(1) {
                let mut parts = arguments(rest);
                let Some(message) = parts.pop().filter(|last| last.starts_with('"')) else {
                    continue;
                };
                let name = |part: &String| {
                    let name = part.split('=').next().unwrap_or_default().trim();
                    name.trim_start_matches(['%', '?']).to_owned()
                };
                let fields = parts.iter().map(name).collect();
                found.push((message.trim_matches('"').to_owned(), fields));
            }
        }
    }
    assert!(found.len() > 40, "only {} events: is it logged otherwise now?", found.len());
    found
}

#[test]
fn the_events_of_operations_are_logged_with_just_these_fields() {
    let logged = logged();
    let told = told();
    assert!(told.len() > 12 && told["poll"].len() > 15, "{told:?}");
    for (message, fields) in &told {
        let of_it: Vec<_> = logged.iter().filter(|(said, _)| said == message).collect();
        assert!(!of_it.is_empty(), "nothing logs {message:?}");
        for (_, said) in of_it {
            assert_eq!(said, fields, "{message}");
        }
    }
}

#[test]
fn no_field_has_the_name_of_one_that_every_event_has() {
    for (message, fields) in logged() {
        let twice: Vec<_> = ALWAYS.iter().filter(|name| fields.contains(**name)).collect();
        assert!(twice.is_empty(), "{message}: JSON would have {twice:?} twice");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_is_logged_with_the_fields_that_are_told_of() {
    let origin = Origin::start().await;
    origin.set("/s.xml", Reply::xml("<urlset><url><loc>/a</loc></url></urlset>"));
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[fetch]\nallow = [\"127.0.0.1:{}\"]\n[store]\nmin_free_disk = \"0B\"\n\
         [[site]]\nname = \"a\"\nurl = \"{1}/\"\nfeeds = []\nsitemaps = [\"{1}/s.xml\"]\n",
        origin.port(),
        origin.base()
    );
    let config = write_config(folder.path(), &text);
    let daemon = Daemon::start(&config);
    let event = daemon.hear("/s.xml");
    let names: BTreeSet<String> = event.as_object().unwrap().keys().cloned().collect();
    let mut expected = told()["poll"].clone();
    expected.extend(ALWAYS.map(str::to_owned));
    assert_eq!(names, expected);
    for number in ["http", "bytes", "entries", "new", "ms"] {
        assert!(event[number].is_u64(), "{number}: {event}");
    }
    assert!(event["source"].is_string() && event["level"] == "INFO", "{event}");
    let at = event["timestamp"].as_str().unwrap();
    assert!(at.parse::<jiff::Timestamp>().is_ok(), "{at}");
    assert_ne!(event["why"], Value::String(String::new()));
}

#[test]
fn arguments_are_split_outside_of_texts_and_parentheses() {
    let call = r#"site = f(a, b), %error, n, "a, \"b\" ({c})"); rest(1)"#;
    assert_eq!(arguments(call), ["site = f(a, b)", "%error", "n", r#""a, \"b\" ({c})""#]);
}
