//! Finds the sources of a site and reads them, within bounds.

use std::collections::HashSet;

use jiff::Timestamp;
use url::Url;

use super::manners::{Manners, Rules, decode};
use super::sums::{Standing, Sums};
use crate::cli::check::{Document, Reading, default_rules, fetcher_for, read};
use crate::cli::output::{Output, Tone};
use crate::cli::{Failure, Options, humane};
use crate::clock::Clock;
use crate::config::Config;
use crate::model::DocumentKind;
use crate::parse::html;
use crate::parse::robots::WELL_KNOWN;
use crate::url::SiteRules;

/// Children of one index that are read.
const CHILDREN: usize = 5;
/// Documents read in all: a person waits, and the site should not notice.
const DOCUMENTS: usize = 40;

/// What was found.
#[derive(Debug)]
pub(super) struct Findings {
    /// The home page, after redirects.
    pub(super) home: Url,
    /// What was typed, where the site redirects from it to another host or scheme.
    pub(super) redirected_from: Option<Url>,
    /// What is to be said of robots.txt.
    pub(super) robots: String,
    /// What was found, in the order that it was asked.
    pub(super) sources: Vec<Found>,
    /// Children of indexes that were left unread.
    pub(super) unread: usize,
    /// What the listed URLs come to.
    pub(super) sums: Sums,
}

/// One source.
#[derive(Debug)]
pub(super) struct Found {
    /// Where it is.
    pub(super) url: Url,
    /// Who named it.
    pub(super) named_by: &'static str,
    /// What it is.
    pub(super) kind: Option<DocumentKind>,
    /// Usable URLs that it lists.
    pub(super) entries: usize,
    /// Of these, with a date.
    pub(super) dated: usize,
    /// Children that it lists.
    pub(super) sitemaps: usize,
    /// Issues found in it.
    pub(super) issues: u64,
    /// Why it is none.
    pub(super) error: Option<String>,
}

/// One look at a site.
pub(super) struct Explorer {
    typed: Url,
    config: Config,
    manners: Manners,
    now: Timestamp,
    asked: HashSet<Url>,
    findings: Findings,
}

impl Explorer {
    pub(super) fn new(typed: &Url, config: &Config) -> Result<Self, Failure> {
        let manners = Manners::new(fetcher_for(typed, config)?, config);
        let findings = Findings {
            home: typed.clone(),
            redirected_from: None,
            robots: String::new(),
            sources: Vec::new(),
            unread: 0,
            sums: Sums::default(),
        };
        Ok(Self {
            typed: typed.clone(),
            config: config.clone(),
            manners,
            now: Clock::system().now(),
            asked: HashSet::new(),
            findings,
        })
    }

    /// Asks the site.
    pub(super) async fn explore(
        &mut self,
        options: &Options,
        out: &mut Output,
    ) -> Result<Findings, Failure> {
        let feeds = self.visit_home().await?;
        let named = self.ask_robots().await;
        let mut queue: Vec<(Url, &'static str, u32)> = Vec::new();
        if named.is_empty() {
            let places = WELL_KNOWN.iter().filter_map(|path| self.findings.home.join(path).ok());
            queue.extend(places.map(|url| (url, "well-known", 0)));
        } else {
            queue.extend(named.into_iter().map(|url| (url, "robots.txt", 0)));
        }
        queue.extend(feeds.into_iter().map(|url| (url, "home page", 0)));
        // A stack: children come right after their index.
        queue.reverse();
        while let Some((url, named_by, depth)) = queue.pop() {
            if self.asked.len() >= DOCUMENTS {
                self.findings.unread += queue.len() + 1;
                break;
            }
            // Of the well-known places the first that is one counts, as in the daemon.
            let is_found = |found: &Found| found.named_by == "well-known";
            if named_by == "well-known" && self.findings.sources.iter().any(is_found) {
                continue;
            }
            if !self.asked.insert(url.clone()) {
                continue;
            }
            if !options.json {
                let url = humane::cut_middle(&humane::safe(url.as_str()), 80);
                out.toned(Tone::Faint, &format!("reading {url}"))?;
                out.flush()?;
            }
            let children = self.read_source(url, named_by).await;
            if depth < self.config.fetch.max_index_depth {
                self.findings.unread += children.len().saturating_sub(CHILDREN);
                let children = children.into_iter().take(CHILDREN);
                queue.extend(children.rev().map(|child| (child, "index", depth + 1)));
            } else {
                self.findings.unread += children.len();
            }
        }
        let empty = Findings {
            home: self.findings.home.clone(),
            redirected_from: None,
            robots: String::new(),
            sources: Vec::new(),
            unread: 0,
            sums: Sums::default(),
        };
        Ok(std::mem::replace(&mut self.findings, empty))
    }

    /// Fetches the home page: where it redirects to, and the sitemaps and feeds that it names.
    async fn visit_home(&mut self) -> Result<Vec<Url>, Failure> {
        let fetched = match self.manners.fetch(&self.typed).await {
            Ok(fetched) => fetched,
            Err(error) => {
                // The sitemaps may be there all the same.
                tracing::debug!(%error, "home page");
                return Ok(Vec::new());
            }
        };
        let home = fetched.head.final_url.clone();
        if home.origin() != self.typed.origin() {
            self.findings.redirected_from = Some(self.typed.clone());
        }
        self.findings.home = home.clone();
        let headers = fetched.head.links.clone();
        let body = decode(fetched, self.config.fetch.limits.max_body_bytes);
        let links = html::page_links(&headers, &body, &home);
        Ok(links.sitemaps.into_iter().chain(links.feeds).collect())
    }

    /// The `Sitemap` lines of robots.txt, resolved.
    async fn ask_robots(&mut self) -> Vec<Url> {
        let home = self.findings.home.clone();
        let rules = self.manners.rules(&home).await;
        match rules.as_ref() {
            Rules::Absent => "there is no robots.txt".clone_into(&mut self.findings.robots),
            Rules::Unreachable(why) => self.findings.robots.clone_from(why),
            Rules::File(robots) => {
                self.findings.robots = match robots.sitemaps().len() {
                    0 => "robots.txt names no sitemap".to_owned(),
                    named => format!(
                        "robots.txt names {}",
                        humane::count(named as u64, "sitemap", "sitemaps")
                    ),
                };
                let base = home.join("/robots.txt").unwrap_or(home);
                return robots.sitemap_urls(&base).collect();
            }
        }
        Vec::new()
    }

    /// Reads one source and counts what it lists; answers its children.
    async fn read_source(&mut self, url: Url, named_by: &'static str) -> Vec<Url> {
        let fetched = match self.manners.fetch(&url).await {
            Ok(fetched) => fetched,
            Err(error) => {
                // Well-known places are guesses: one that is not there is no news.
                if named_by != "well-known" {
                    self.findings.sources.push(failed(url, named_by, error));
                }
                return Vec::new();
            }
        };
        let document = Document::fetched(fetched);
        let reading = read(&document, &self.config.fetch.limits, None, true, self.now);
        if !reading.is_usable() {
            if named_by != "well-known" {
                let error = "not a sitemap or feed".to_owned();
                self.findings.sources.push(failed(url, named_by, error));
            }
            return Vec::new();
        }
        let rules = default_rules(&self.findings.home, &self.config);
        for entry in &reading.entries {
            if let Ok(page) = Url::parse(&entry.loc) {
                let standing = self.standing(&page, rules.as_ref(), &document.base);
                self.findings.sums.add(&page, standing);
            }
        }
        self.findings.sources.push(found(url, named_by, &reading));
        reading.sitemaps.iter().filter_map(|child| Url::parse(&child.loc).ok()).collect()
    }

    fn standing(&self, page: &Url, rules: Option<&SiteRules>, source: &Url) -> Standing {
        if let Some(Err(why)) = rules.map(|rules| rules.admit(page.as_str(), source)) {
            return Standing::Refused(why);
        }
        let robots = self.manners.known_rules(page);
        let allowed = robots.is_none_or(|robots| robots.allow(self.manners.agent(), page));
        if allowed { Standing::Ours } else { Standing::Forbidden }
    }
}

fn found(url: Url, named_by: &'static str, reading: &Reading) -> Found {
    Found {
        url,
        named_by,
        kind: Some(reading.report.kind),
        entries: reading.entries_total,
        dated: reading.dated,
        sitemaps: reading.sitemaps_total,
        issues: reading.report.issues.iter().map(|issue| issue.count).sum(),
        error: None,
    }
}

fn failed(url: Url, named_by: &'static str, error: String) -> Found {
    Found {
        url,
        named_by,
        kind: None,
        entries: 0,
        dated: 0,
        sitemaps: 0,
        issues: 0,
        error: Some(error),
    }
}
