//! The documents that are read: generated, the same in every run.

use std::fmt::Write as _;

use async_compression::codecs::{EncodeV2, GzipEncoder};
use async_compression::core::Level;
use async_compression::core::util::{PartialBuffer, WriteBuffer};

/// Entries of a sitemap: the protocol's limit.
pub(crate) const URLS: usize = 50_000;
/// Items of a feed.
pub(crate) const ITEMS: usize = 1_000;

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
     <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n";

/// 50,000 URLs with all four tags, one in fourteen with a reference: 10.5 MB.
pub(crate) fn sitemap() -> String {
    let mut text = String::from(HEAD);
    for n in 0..URLS {
        entry(&mut text, n, "&amp;", "</url>");
    }
    text.push_str("</urlset>\n");
    text
}

/// The same entries; one in fourteen has a bare `&`, one in fourteen has no
/// `</url>`.
pub(crate) fn dirty_sitemap() -> String {
    let mut text = String::from(HEAD);
    for n in 0..URLS {
        entry(&mut text, n, "&", if n % 14 == 7 { "" } else { "</url>" });
    }
    text.push_str("</urlset>\n");
    text
}

fn entry(text: &mut String, n: usize, and: &str, end: &str) {
    let query = if n.is_multiple_of(14) { format!("?a=1{and}b=2") } else { String::new() };
    write!(
        text,
        "  <url>\n    <loc>https://www.example.org/section-{}/a-rather-usual-title-of-an-article-{n}{query}</loc>\n    \
         <lastmod>2026-{:02}-{:02}T{:02}:15:00+00:00</lastmod>\n    \
         <changefreq>weekly</changefreq>\n    <priority>0.{}</priority>\n  {end}\n",
        n % 97,
        n % 12 + 1,
        n % 28 + 1,
        n % 24,
        n % 9 + 1,
    )
    .expect("a string takes what is written");
}

/// 1,000 items of RSS 2.0 with a page of content each.
pub(crate) fn rss() -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<rss version=\"2.0\" \
         xmlns:content=\"http://purl.org/rss/1.0/modules/content/\" \
         xmlns:dc=\"http://purl.org/dc/elements/1.1/\"><channel>\n\
         <title>News</title><link>https://www.example.org/</link><description>All of it</description>\n",
    );
    for n in 0..ITEMS {
        write!(
            text,
            "<item>\n  <title>What happened &#8211; part {n}</title>\n  \
             <link>https://www.example.org/news/{n}?from=rss&amp;n={n}</link>\n  \
             <guid isPermaLink=\"false\">https://www.example.org/?p={n}</guid>\n  \
             <dc:creator><![CDATA[An Author]]></dc:creator>\n  \
             <pubDate>Sat, {:02} Nov 2026 {:02}:15:00 +0000</pubDate>\n  \
             <category><![CDATA[Things]]></category>\n  \
             <description><![CDATA[{}]]></description>\n  \
             <content:encoded><![CDATA[{}]]></content:encoded>\n</item>\n",
            n % 28 + 1,
            n % 24,
            prose(1),
            prose(8),
        )
        .expect("a string takes what is written");
    }
    text.push_str("</channel></rss>\n");
    text
}

/// The same as Atom, its content escaped.
pub(crate) fn atom() -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<feed xmlns=\"http://www.w3.org/2005/Atom\">\n\
         <title>News</title><id>https://www.example.org/</id><updated>2026-11-21T00:00:00Z</updated>\n",
    );
    let (summary, content) = (escaped(&prose(1)), escaped(&prose(8)));
    for n in 0..ITEMS {
        write!(
            text,
            "<entry>\n  <title type=\"html\">What happened &amp; why, part {n}</title>\n  \
             <id>tag:example.org,2026:{n}</id>\n  \
             <link rel=\"alternate\" type=\"text/html\" href=\"https://www.example.org/news/{n}?a=1&amp;n={n}\"/>\n  \
             <author><name>An Author</name></author>\n  \
             <published>2026-11-{:02}T{:02}:15:00Z</published>\n  \
             <updated>2026-11-{:02}T{:02}:20:00Z</updated>\n  \
             <summary type=\"html\">{summary}</summary>\n  \
             <content type=\"html\">{content}</content>\n</entry>\n",
            n % 28 + 1,
            n % 24,
            n % 28 + 1,
            n % 24,
        )
        .expect("a string takes what is written");
    }
    text.push_str("</feed>\n");
    text
}

/// Paragraphs of HTML, 270 bytes each.
fn prose(paragraphs: usize) -> String {
    "<p>The committee met on Tuesday to hear what had become of the plan, and <a href=\"https://www.example.org/a?b=1&amp;c=2\">adjourned</a> \
     without a vote. Its chair said that <em>nothing</em> had been decided; the members say that everything had been. More is expected.</p>\n"
        .repeat(paragraphs)
}

fn escaped(html: &str) -> String {
    html.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Packs bytes as a .gz file.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzipEncoder::new(Level::Default.into());
    let mut packed = Vec::with_capacity(bytes.len());
    let mut input = PartialBuffer::new(bytes);
    let mut room = vec![0; 64 * 1024];
    loop {
        let fed = input.unwritten().is_empty();
        let mut output = WriteBuffer::new_initialized(room.as_mut_slice());
        let ended = if fed {
            encoder.finish(&mut output).expect("gzip takes any bytes")
        } else {
            encoder.encode(&mut input, &mut output).expect("gzip takes any bytes");
            false
        };
        packed.extend_from_slice(output.written());
        if ended {
            return packed;
        }
    }
}
