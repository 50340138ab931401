//! The same documents by others: the least that quick-xml can do, quick-xml
//! with our output, the crate `sitemaps`, feed-rs.

use std::hint::black_box;

use quick_xml::Reader;
use quick_xml::events::Event;
use sitemapd::date;
use sitemapd::model::{ChangeFreq, Priority};
use sitemaps::Sitemaps as _;
use sitemaps::sitemap::Sitemap;

/// A bare loop over the events of a slice, the fastest way to use quick-xml. It
/// keeps the text of the four fields and calls `url` at the end of each entry.
/// It knows well-formed documents only, without CDATA, prefixes and namespaces.
fn four_fields(text: &str, mut url: impl FnMut(&[String; 4])) {
    let mut reader = Reader::from_str(text);
    // Saves the events of the white space between tags; no URL has any.
    reader.config_mut().trim_text(true);
    let mut fields: [String; 4] = Default::default();
    let mut inside: Option<usize> = None;
    loop {
        match reader.read_event().expect("well-formed") {
            Event::Start(tag) => {
                inside = match tag.name().as_ref() {
                    "loc" => Some(0),
                    "lastmod" => Some(1),
                    "changefreq" => Some(2),
                    "priority" => Some(3),
                    _ => None,
                };
            }
            Event::Text(part) => {
                if let Some(field) = inside {
                    fields[field].push_str(&part);
                }
            }
            Event::GeneralRef(name) => {
                if let Some(field) = inside {
                    fields[field].push(match name.as_ref() {
                        "amp" => '&',
                        "lt" => '<',
                        "gt" => '>',
                        "quot" => '"',
                        "apos" => '\'',
                        other => panic!("&{other}; is not in the document"),
                    });
                }
            }
            Event::End(tag) => {
                inside = None;
                if tag.name().as_ref() == "url" {
                    url(&fields);
                    fields.iter_mut().for_each(String::clear);
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
}

/// The bare loop: four texts, none of them read.
pub(crate) fn bare_loop(text: &str) -> usize {
    let mut urls = 0;
    four_fields(text, |fields| {
        black_box(fields);
        urls += 1;
    });
    urls
}

/// A strict reader with our output: the bare loop, and dates, numbers and words
/// are read. It has no tolerance at all.
pub(crate) fn strict(text: &str) -> usize {
    let mut urls = 0;
    four_fields(text, |[loc, lastmod, changefreq, priority]| {
        assert!(loc.starts_with("http"), "a URL");
        black_box(date::lastmod(lastmod).expect("a date"));
        black_box(changefreq.parse::<ChangeFreq>().expect("a word"));
        black_box(Priority::from_f64(priority.parse().expect("a number")));
        urls += 1;
    });
    urls
}

/// The crate `sitemaps`, which builds a list of all entries.
pub(crate) fn sitemaps(text: &str) -> usize {
    black_box(Sitemap::read_from(text.as_bytes()).expect("well-formed")).entries.len()
}

/// feed-rs, which builds a model of the whole feed.
pub(crate) fn feed_rs(text: &str) -> usize {
    black_box(feed_rs::parser::parse(text.as_bytes()).expect("a feed")).entries.len()
}
