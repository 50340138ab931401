//! A sitemap by the letter: quick-xml with all its checks, namespaces as they
//! are declared, fields as direct children, and nothing tolerated.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use quick_xml::NsReader;
use quick_xml::events::Event;
use quick_xml::name::{Namespace, ResolveResult};

const SITEMAP: Namespace<'static> = Namespace("http://www.sitemaps.org/schemas/sitemap/0.9");

/// An entry as it stands there, blanks taken off.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Strict {
    pub(super) loc: String,
    pub(super) lastmod: Option<String>,
    pub(super) changefreq: Option<String>,
    pub(super) priority: Option<String>,
}

/// The entries of a sitemap or an index, or what is wrong with it.
pub(super) fn read(document: &str) -> Result<Vec<Strict>, String> {
    let mut reader = NsReader::from_str(document.trim_start_matches('\u{feff}'));
    reader.config_mut().expand_empty_elements = true;
    reader.config_mut().check_comments = true;
    let mut path: Vec<(bool, String)> = Vec::new();
    let mut text = String::new();
    let mut found = Vec::new();
    let mut open = Strict::default();
    loop {
        let (ns, event) = reader.read_resolved_event().map_err(|e| e.to_string())?;
        let ours = ns == ResolveResult::Bound(SITEMAP);
        match event {
            Event::Start(tag) => {
                for attribute in tag.attributes() {
                    attribute.map_err(|e| e.to_string())?;
                }
                let local = tag.local_name();
                path.push((ours, local.as_ref().to_owned()));
                text.clear();
            }
            Event::Text(piece) => text.push_str(&piece),
            Event::CData(piece) => text.push_str(&piece),
            Event::GeneralRef(reference) => {
                let known = match reference.resolve_char_ref().map_err(|e| e.to_string())? {
                    Some(c) => c,
                    None => predefined(&reference).ok_or("a reference to nothing")?,
                };
                text.push(known);
            }
            Event::End(_) => {
                let names: Vec<&str> = path.iter().map(|(_, name)| name.as_str()).collect();
                let all_ours = path.iter().all(|(ours, _)| *ours);
                let value = text.trim().to_owned();
                match names.as_slice() {
                    ["urlset" | "sitemapindex", "url" | "sitemap", field] if all_ours => {
                        match *field {
                            "loc" => open.loc = value,
                            "lastmod" => open.lastmod = Some(value),
                            "changefreq" => open.changefreq = Some(value),
                            "priority" => open.priority = Some(value),
                            other => return Err(format!("{other} is not of the protocol")),
                        }
                    }
                    [_, "url" | "sitemap"] if all_ours => found.push(std::mem::take(&mut open)),
                    _ => {}
                }
                path.pop();
                text.clear();
            }
            Event::Eof if path.is_empty() => return Ok(found),
            Event::Eof => return Err("it ends inside an element".to_owned()),
            _ => {}
        }
    }
}

fn predefined(name: &str) -> Option<char> {
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        _ => return None,
    })
}

/// The first instant of a date in one of the forms of the W3C note.
pub(super) fn instant(text: &str) -> Option<Timestamp> {
    let utc = |date: DateTime| date.to_zoned(TimeZone::UTC).ok().map(|z| z.timestamp());
    match text.len() {
        4 => utc(Date::new(text.parse().ok()?, 1, 1).ok()?.at(0, 0, 0, 0)),
        7 => {
            let (year, month) = text.split_once('-')?;
            utc(Date::new(year.parse().ok()?, month.parse().ok()?, 1).ok()?.at(0, 0, 0, 0))
        }
        10 => utc(text.parse::<Date>().ok()?.at(0, 0, 0, 0)),
        _ => text.parse().ok(),
    }
}
