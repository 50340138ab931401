//! `sitemapd export`: all that is known of every URL, as JSON lines or CSV.

use anyhow::anyhow;
use serde_json::{Value, json};

use super::output::Output;
use super::question::Question;
use super::source_of_truth::SourceOfTruth;
use super::{Failure, Options, humane};

/// How it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON object a line, as `GET /v1/url` answers it
    Jsonl,
    /// A line of names, then one line a URL with what fits into a table
    Csv,
}

/// What, and how.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How it is written
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// Only URLs of this crawl [default: every crawl]
    #[arg(long)]
    crawl: Option<String>,
    /// Only URLs of this site
    #[arg(long)]
    site: Option<String>,
}

/// Columns of the table, as fields of the JSON; those of `learned` by a dot.
const COLUMNS: [&str; 25] = [
    "url",
    "crawl",
    "site",
    "kind",
    "state",
    "listed",
    "first_seen",
    "lastmod",
    "changefreq",
    "priority",
    "reason",
    "due_at",
    "fetched_at",
    "outcome",
    "status",
    "content_hash",
    "hash_kind",
    "fetches",
    "changes",
    "error",
    "canonical",
    "noindex",
    "learned.rate",
    "learned.value",
    "why",
];

/// Writes it, part by part.
pub async fn run(args: &Args, options: &Options, out: &mut Output) -> Result<(), Failure> {
    let truth = SourceOfTruth::of(options)?;
    let named = [
        ("crawl", &args.crawl, Question::Queues, ("queues", "crawl")),
        ("site", &args.site, Question::Sites, ("sites", "name")),
    ];
    for (what, name, question, place) in named {
        if let Some(name) = name {
            must_be_known(what, name, &truth.ask(&question).await?, place)?;
        }
    }
    if args.format == Format::Csv {
        out.line(&COLUMNS.join(","))?;
    }
    let mut cursor = None;
    loop {
        let answer = truth.ask(&Question::Urls { cursor }).await?;
        let urls = answer.get("urls").and_then(Value::as_array).cloned().unwrap_or_default();
        for url in urls.iter().filter(|url| is_wanted(url, args)) {
            match args.format {
                Format::Jsonl => out.json_line(url)?,
                Format::Csv => out.line(&row(url))?,
            }
        }
        cursor = answer.get("next").and_then(Value::as_str).map(str::to_owned);
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// A misspelt name would make an empty file that looks like a whole one.
fn must_be_known(
    what: &str,
    name: &str,
    answer: &Value,
    (list, field): (&str, &str),
) -> Result<(), Failure> {
    let rows = answer.get(list).and_then(Value::as_array);
    let is_known =
        rows.is_some_and(|rows| rows.iter().any(|row| row.get(field) == Some(&json!(name))));
    if is_known { Ok(()) } else { Err(anyhow!("there is no {what} {name:?}").into()) }
}

fn is_wanted(url: &Value, args: &Args) -> bool {
    let is = |field: &str, wanted: &Option<String>| {
        wanted
            .as_deref()
            .is_none_or(|wanted| url.get(field).and_then(Value::as_str) == Some(wanted))
    };
    is("crawl", &args.crawl) && is("site", &args.site)
}

fn row(url: &Value) -> String {
    let cells = COLUMNS.map(|column| {
        let value = column.split('.').try_fold(url, |value, name| value.get(name));
        cell(value.unwrap_or(&Value::Null))
    });
    cells.join(",")
}

/// One value (RFC 4180); nothing where it is null. A terminal takes nothing in it for a
/// command.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => {
            let lines: Vec<_> = text.split('\n').map(humane::safe).collect();
            lines.join("\n")
        }
        other => other.to_string(),
    };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_quoted_only_where_it_must_be() {
        for (value, expected) in [
            (json!(null), ""),
            (json!("https://a.test/?q=1"), "https://a.test/?q=1"),
            (json!("a,b"), "\"a,b\""),
            (json!("say \"no\""), "\"say \"\"no\"\"\""),
            (json!("a\nb"), "\"a\nb\""),
            (json!("\u{1b}[2J\u{9b}2J"), "\\u{1b}[2J\\u{9b}2J"),
            (json!(0.5), "0.5"),
        ] {
            assert_eq!(cell(&value), expected);
        }
    }

    #[test]
    fn a_row_has_a_cell_for_each_column_whatever_is_known() {
        let known = json!({"url": "https://a.test/", "learned": {"rate": 0.5}});
        let row = row(&known);
        assert_eq!(row.matches(',').count(), COLUMNS.len() - 1);
        assert!(row.starts_with("https://a.test/,") && row.contains(",0.5,"), "{row}");
    }
}
