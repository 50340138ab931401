//! What is read: everything follows from numbers, so that every run is the same.
//!
//! Each file is a sitemap of 50,000 entries with all four tags: 49,900 of its
//! own and 100 that all files of its site list. A block of a hundred of its own
//! has five that are newer in the second version, one that is gone and one that
//! is new. What a file holds of each is counted as it is written: that is the
//! truth that the daemon's counts are compared with.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use async_compression::Level;
use async_compression::tokio::write::GzipEncoder;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Entries of one file.
pub(crate) const PER_FILE: u64 = 50_000;
/// Of these, those that every file of a site lists.
const SHARED: u64 = 100;
/// The others come in blocks of so many.
const BLOCK: u64 = 100;
/// Of a block, those that are newer in the second version.
const CHANGED: u64 = 5;
/// Unix second of the oldest date: 2025-11-01.
const OLDEST: u64 = 1_761_955_200;
/// Dates of the first version lie in a year.
const SPAN: u64 = 364 * 86_400;
/// Unix second of the first date of the second version: 2026-11-20.
const NEWER: u64 = 1_795_132_800;

/// How the URLs lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Files in all.
    pub(crate) files: u64,
    /// Sites, each with an index of its own.
    pub(crate) sites: u64,
    /// Hosts that the URLs lie on; as many as sites: on those themselves.
    pub(crate) hosts: u64,
}

/// What there is to be counted, of one file or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Truth {
    /// Entries listed.
    pub(crate) entries: u64,
    /// Different URLs among them.
    pub(crate) urls: u64,
    /// Sum of their dates.
    pub(crate) dates: u64,
    /// Newer than in the first version.
    pub(crate) changed: u64,
    /// New in the second.
    pub(crate) added: u64,
    /// Gone in the second.
    pub(crate) removed: u64,
}

impl Truth {
    fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.urls += other.urls;
        self.dates += other.dates;
        self.changed += other.changed;
        self.added += other.added;
        self.removed += other.removed;
    }
}

/// One line of a file.
struct Line {
    number: u64,
    second: u64,
}

fn hash(number: u64, salt: u64) -> u64 {
    xxh3_64_with_seed(&number.to_le_bytes(), salt)
}

impl Shape {
    /// The site that a file belongs to.
    fn site_of(self, file: u64) -> u64 {
        file * self.sites / self.files
    }

    /// Files of a site.
    pub(crate) fn files_of(self, site: u64) -> impl Iterator<Item = u64> {
        (0..self.files).filter(move |file| self.site_of(*file) == site)
    }

    /// Number of the host that a URL of a file lies on; hosts that are not
    /// sites come in turns, so that neighbours in a file have none in common.
    fn host_of(self, file: u64, number: u64) -> u64 {
        if self.hosts <= self.sites {
            return self.site_of(file);
        }
        let of_file = (self.hosts / self.files).max(1);
        self.sites + file * of_file + number % of_file
    }

    /// Names of the hosts that are not sites.
    pub(crate) fn further_hosts(self) -> impl Iterator<Item = String> {
        let hosts = if self.hosts <= self.sites {
            0
        } else {
            (self.hosts / self.files).max(1) * self.files
        };
        (self.sites..self.sites + hosts).map(name)
    }

    /// The lines of a file in a version, 1 or 2, and what is to be counted.
    fn lines(file: u64, version: u8) -> (Vec<Line>, Truth) {
        let own = PER_FILE - SHARED;
        let mut lines = Vec::new();
        let mut truth = Truth::default();
        for block in 0..own / BLOCK {
            let first = (file * (own / BLOCK) + block) * (BLOCK + 1);
            // Six neighbours, from anywhere in the block on.
            let moved = hash(first, 11) % BLOCK;
            for place in 0..BLOCK {
                let number = first + place;
                let second = OLDEST + hash(number, 12) % SPAN;
                let fate = (place + BLOCK - moved) % BLOCK;
                match (version, fate) {
                    (2, fate) if fate < CHANGED => {
                        lines.push(Line { number, second: NEWER + hash(number, 13) % 40_000 });
                        truth.changed += 1;
                    }
                    (2, CHANGED) => truth.removed += 1,
                    _ => lines.push(Line { number, second }),
                }
            }
            if version == 2 {
                let number = first + BLOCK;
                lines.push(Line { number, second: NEWER + hash(number, 13) % 40_000 });
                truth.added += 1;
            }
        }
        truth.urls = lines.len() as u64;
        truth.dates = lines.iter().map(|line| line.second).sum();
        truth.entries = lines.len() as u64 + SHARED;
        (lines, truth)
    }

    /// What one site's shared URLs add to the truth.
    fn shared(self) -> Truth {
        let dates = (0..SHARED).map(shared_second).sum::<u64>() * self.sites;
        Truth { urls: SHARED * self.sites, dates, ..Truth::default() }
    }

    /// Writes all files of a version into a folder; says what is in them.
    pub(crate) async fn write(
        self,
        folder: &Path,
        port: u16,
        version: u8,
        told: impl Fn(u64),
    ) -> io::Result<Truth> {
        let mut all = self.shared();
        // Two at once: there are two cores.
        for pair in (0..self.files).collect::<Vec<_>>().chunks(2) {
            let mut writing = Vec::new();
            for &file in pair {
                let path = folder.join(format!("{version}-{file}.xml.gz"));
                writing.push(tokio::spawn(async move {
                    let (text, truth) = self.text(file, version, port);
                    let mut packed = GzipEncoder::with_quality(Vec::new(), Level::Precise(4));
                    packed.write_all(text.as_bytes()).await?;
                    packed.shutdown().await?;
                    tokio::fs::write(path, packed.into_inner()).await?;
                    Ok::<_, io::Error>(truth)
                }));
            }
            for written in writing {
                all.add(written.await??);
            }
            told(pair.last().map_or(0, |file| file + 1));
        }
        Ok(all)
    }

    fn text(self, file: u64, version: u8, port: u16) -> (String, Truth) {
        let mut text = String::with_capacity(12 << 20);
        text.push_str(HEAD);
        let (lines, truth) = Self::lines(file, version);
        for line in &lines {
            let host = name(self.host_of(file, line.number));
            entry(&mut text, &host, port, &path(line.number), line.second, line.number);
        }
        let site = self.site_of(file);
        for number in 0..SHARED {
            let path = format!("/shared/page-{number}");
            entry(&mut text, &name(site), port, &path, shared_second(number), number);
        }
        text.push_str("</urlset>\n");
        (text, truth)
    }
}

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
    <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n";

fn shared_second(number: u64) -> u64 {
    OLDEST + hash(number, 14) % SPAN
}

/// The name of a host by its number.
pub(crate) fn name(host: u64) -> String {
    format!("h{host}.test")
}

/// Path and query of a URL, as it stands in a document.
fn path(number: u64) -> String {
    const SECTIONS: [&str; 8] =
        ["politics", "science", "sport", "culture", "travel", "money", "opinion", "local"];
    const WORDS: [&str; 16] = [
        "harbour", "quiet", "minister", "opens", "river", "after", "storm", "budget", "northern",
        "library", "festival", "results", "winter", "railway", "garden", "evening",
    ];
    let bits = hash(number, 15);
    let pick = |shift: u32, len: u64| usize::try_from((bits >> shift) % len).unwrap_or(0);
    let (a, b) = (WORDS[pick(8, 16)], WORDS[pick(16, 16)]);
    let section = SECTIONS[pick(0, 8)];
    // One in fourteen has a reference to be read.
    let query = if bits >> 32 & 0xff < 18 { "?page=2&amp;ref=front" } else { "" };
    format!("/{section}/{a}-{b}-{number}.html{query}")
}

fn entry(text: &mut String, host: &str, port: u16, path: &str, second: u64, number: u64) {
    const WORDS: [&str; 4] = ["hourly", "daily", "weekly", "monthly"];
    let freq = WORDS[usize::try_from(hash(number, 16) % 4).unwrap_or(0)];
    // Seconds of this century are times.
    let at = i64::try_from(second).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    let at = at.unwrap_or_default().strftime("%FT%T+00:00");
    // Writing into a string does not fail.
    let _ = writeln!(
        text,
        "  <url>\n    <loc>http://{host}:{port}{path}</loc>\n    <lastmod>{at}</lastmod>\n    \
         <changefreq>{freq}</changefreq>\n    <priority>0.{}</priority>\n  </url>",
        hash(number, 17) % 9 + 1
    );
}

/// A sitemap of one page of each of these hosts.
pub(crate) fn front_pages(hosts: impl Iterator<Item = String>, port: u16) -> String {
    let mut text = HEAD.to_owned();
    for host in hosts {
        let _ = writeln!(text, "<url><loc>http://{host}:{port}/</loc></url>");
    }
    text.push_str("</urlset>\n");
    text
}
