//! What `discover` says, and the `[[site]]` block to paste.

use std::fmt::Write as _;
use std::io;

use serde_json::{Value, json};
use url::Url;

use super::explorer::{Findings, Found};
use crate::cli::humane::{self, count, number};
use crate::cli::output::{Output, Tone};
use crate::cli::table::{Align, Cell, Table};

/// Other hosts shown.
const HOSTS: usize = 8;

/// Prints the report.
pub(super) fn print(findings: &Findings, out: &mut Output) -> io::Result<()> {
    out.line("")?;
    let width = out.width();
    let home = humane::cut_middle(&humane::safe(findings.home.as_str()), width - 10);
    out.toned(Tone::Strong, &home)?;
    if let Some(from) = &findings.redirected_from {
        let from = humane::cut_middle(&humane::safe(from.as_str()), width - 24);
        out.line(&format!("  is where {from} redirects to"))?;
    }
    for line in humane::wrap(&humane::safe(&findings.robots), width - 2) {
        out.line(&format!("  {}", humane::cut_middle(&line, width - 2)))?;
    }
    if !findings.sources.is_empty() {
        out.line("")?;
        sources(&findings.sources).print(out)?;
    }
    if findings.unread > 0 {
        let more = count(findings.unread as u64, "more sitemap", "more sitemaps");
        let told = format!("and {more} that the daemon would read, unread here");
        for line in humane::wrap(&told, width) {
            out.toned(Tone::Faint, &line)?;
        }
    }
    urls(findings, out)?;
    out.line("")?;
    out.toned(Tone::Faint, "# to register it, paste this into the configuration")?;
    out.line(site_block(findings).trim_end())
}

fn sources(found: &[Found]) -> Table {
    let mut table = Table::new(&[
        ("source", Align::Elastic),
        ("named by", Align::Left),
        ("what", Align::Elastic),
        ("lists", Align::Right),
        ("dated", Align::Right),
        ("issues", Align::Right),
    ])
    .without_if_narrow(&["dated", "named by"]);
    for source in found {
        let lists = if source.sitemaps > 0 { source.sitemaps } else { source.entries };
        let (what, tone) = match (&source.error, source.kind) {
            (Some(error), _) => (error.clone(), Tone::Bad),
            (None, Some(kind)) => (kind.as_str().to_owned(), Tone::Good),
            (None, None) => ("-".to_owned(), Tone::Plain),
        };
        let issues = if source.issues > 0 { Tone::Warn } else { Tone::Faint };
        table.row(vec![
            source.url.as_str().into(),
            source.named_by.into(),
            Cell::toned(tone, &what),
            (lists as u64).into(),
            (source.dated as u64).into(),
            Cell::toned(issues, &number(source.issues)),
        ]);
    }
    table
}

fn urls(findings: &Findings, out: &mut Output) -> io::Result<()> {
    let sums = &findings.sums;
    if sums.listed() == 0 {
        return Ok(());
    }
    out.line("")?;
    out.line(&format!(
        "{}: {} to be crawled",
        count(sums.listed(), "URL", "URLs"),
        out.paint(Tone::Good, &number(sums.in_scope))
    ))?;
    if sums.forbidden > 0 {
        let forbidden = out.paint(Tone::Warn, &number(sums.forbidden));
        out.line(&format!("  {forbidden} forbidden by robots.txt"))?;
    }
    for (why, urls) in &sums.refused {
        let urls = out.paint(Tone::Warn, &number(*urls));
        out.line(&format!("  {urls} left out: {}", why.replace('-', " ")))?;
    }
    let hosts = sums.hosts_by_urls();
    for (host, urls) in hosts.iter().take(HOSTS) {
        // Beside the words and the number of the line.
        let room = out.width().saturating_sub(58).clamp(12, 50);
        let host = humane::cut_middle(&humane::safe(host), room);
        let urls = out.paint(Tone::Warn, &number(*urls));
        out.line(&format!("  {urls} out of scope: on {host}, which is another host"))?;
    }
    if hosts.len() > HOSTS {
        let more = count((hosts.len() - HOSTS) as u64, "further host", "further hosts");
        out.line(&format!("  and more out of scope, on {more}"))?;
    }
    Ok(())
}

/// The block: what is needed, and as comments what might be wanted.
fn site_block(findings: &Findings) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let name = name_of(&findings.home);
    // Writing to a String cannot fail.
    let mut block = String::from("[[site]]\n");
    let _ = writeln!(block, "name = {}", quoted(&name));
    let _ = writeln!(block, "url = {}", quoted(findings.home.as_str()));
    let relatives = findings.sums.relatives_of(&findings.home);
    if !relatives.is_empty() {
        let hosts: Vec<String> = relatives.iter().take(HOSTS).map(|host| quoted(host)).collect();
        let _ = writeln!(block, "# hosts = [{}]   # these are listed too", hosts.join(", "));
    }
    block
}

/// A name for the site: its host without `www.`.
fn name_of(home: &Url) -> String {
    let host = home.host_str().unwrap_or_default();
    let host = host.strip_prefix("www.").unwrap_or(host);
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let name: String = host.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    name.trim_matches('-').to_owned()
}

/// The report as one object.
pub(super) fn json(findings: &Findings) -> Value {
    let sums = &findings.sums;
    let sources: Vec<Value> = findings
        .sources
        .iter()
        .map(|source| {
            json!({
                "url": source.url.as_str(),
                "named_by": source.named_by,
                "kind": source.kind,
                "entries": source.entries,
                "dated": source.dated,
                "sitemaps": source.sitemaps,
                "issues": source.issues,
                "error": source.error,
            })
        })
        .collect();
    json!({
        "url": findings.home.as_str(),
        "redirected_from": findings.redirected_from.as_ref().map(Url::as_str),
        "robots": findings.robots,
        "sources": sources,
        "unread": findings.unread,
        "urls": {
            "listed": sums.listed(),
            "in_scope": sums.in_scope,
            "forbidden": sums.forbidden,
            "other_hosts": sums.other_hosts,
            "refused": sums.refused,
        },
        "site": site_block(findings),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_named_after_its_host() {
        let cases = [
            ("https://www.example.org/", "example.org"),
            ("http://[::1]:8080/", "--1"),
            ("http://127.0.0.1:8080/", "127.0.0.1"),
        ];
        for (home, name) in cases {
            let named = name_of(&Url::parse(home).expect("a URL"));
            assert_eq!(named, name.trim_matches('-'), "{home}");
        }
    }
}
