//! robots.txt by RFC 9309, with what real files carry besides.
//!
//! Groups are merged by product token, the longest matching rule wins and
//! `allow` wins a tie; matching is linear in rule and path. `Sitemap` lines are
//! taken in every shape that real files have. Nothing here decides when a file
//! is fetched or what an absent one means.

mod differences;
mod rules;
mod usage;

use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

use url::Url;

use super::loc;
use super::text::Text;
use crate::model::product_token;
pub use differences::{Difference, Subject};
pub use rules::Rules;
use rules::{Rule, Verdict};
use usage::Preference;
pub use usage::{Preferences, Usage};

/// Bytes of robots.txt that are read (RFC 9309 section 2.5 asks for at least
/// 500 KiB); what follows is not.
pub const MAX_BYTES: usize = 500 * 1024;
/// Where a sitemap is looked for when robots.txt names none, one after the
/// other until one is there.
pub const WELL_KNOWN: [&str; 6] = [
    "/sitemap.xml",
    "/sitemap_index.xml",
    "/wp-sitemap.xml",
    "/sitemap.xml.gz",
    "/sitemap.txt",
    "/sitemaps.xml",
];

/// Characters of a line shown with its defect.
const MAX_SAMPLE: usize = 200;

/// Seconds of `Crawl-delay` that make sense; more is taken for this.
const MAX_DELAY: f64 = 86_400.0;

/// The rules for some agents.
#[derive(Debug, Clone, Default, PartialEq)]
struct Group {
    /// Product tokens in lower case, `*` among them.
    agents: Vec<String>,
    rules: Vec<Rule>,
    delays: Vec<Delay>,
    content_signal: Vec<Preference>,
    content_usage: Vec<Preference>,
    /// Only of the file.
    license: Option<String>,
}

/// A `Crawl-delay` of some of the agents of a group.
#[derive(Debug, Clone, PartialEq)]
struct Delay {
    /// Those that were named since the one before.
    agents: Range<usize>,
    /// None where the line made no sense.
    value: Option<Duration>,
}

impl Group {
    /// Each delay, with its agents.
    fn delays(&self) -> impl Iterator<Item = (&[String], Duration)> {
        self.delays
            .iter()
            .filter_map(|delay| Some((self.agents.get(delay.agents.clone())?, delay.value?)))
    }

    /// A delay is of the agents that were named since the one before; where there are
    /// none, it is that one said anew.
    fn take_delay(&mut self, value: Option<Duration>) {
        let end = self.agents.len();
        match self.delays.last_mut() {
            Some(last) if last.agents.end == end => last.value = value.or(last.value),
            last => {
                let agents = last.map_or(0, |last| last.agents.end)..end;
                self.delays.push(Delay { agents, value });
            }
        }
    }
}

/// Where things stand in a robots.txt: bytes from the start of its text.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Each of [`Robots::sitemaps`].
    pub(crate) sitemaps: Vec<usize>,
    /// Lines that are neither `key: value` nor a comment.
    pub(crate) strange: Defect,
    /// Rules before the first `User-agent`.
    pub(crate) homeless: Defect,
    /// Where it was cut for its length.
    pub(crate) cut: Option<usize>,
}

/// How often a defect occurs, and the first place and text of it.
#[derive(Debug, Default)]
pub(crate) struct Defect {
    pub(crate) count: u64,
    pub(crate) at: usize,
    pub(crate) sample: String,
}

impl Defect {
    fn note(&mut self, at: usize, line: &str) {
        self.count += 1;
        if self.count == 1 {
            self.at = at;
            self.sample = line.chars().take(MAX_SAMPLE).collect();
        }
    }
}

/// A robots.txt as it was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Robots {
    groups: Vec<Group>,
    sitemaps: Vec<String>,
    /// Lines outside of any group, and what is of the file wherever it stands.
    file: Group,
    too_large: bool,
    is_one: bool,
}

impl Robots {
    /// Reads a file; every sequence of bytes is a robots.txt, if an empty one.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut reader = bytes;
        let mut text = Text::new(&mut reader, None);
        Self::read(&mut text)
    }

    /// Reads a decoded document.
    pub(super) fn read(text: &mut Text<'_>) -> Self {
        Self::read_with_places(text).0
    }

    /// Reads a decoded document; says also where its defects are, and where each
    /// of [`Self::sitemaps`] stands. `text` is left unread, so that its places hold.
    pub(crate) fn read_with_places(text: &mut Text<'_>) -> (Self, Places) {
        text.fill(MAX_BYTES + 1);
        let all = text.rest();
        let too_large = all.len() > MAX_BYTES;
        let kept = if too_large {
            // What is cut in the middle of a line is no line.
            let whole = all.as_bytes().get(..MAX_BYTES).unwrap_or_default();
            let end = whole.iter().rposition(|b| matches!(b, b'\n' | b'\r')).unwrap_or(0);
            all.get(..end).unwrap_or_default()
        } else {
            all
        };
        let mut reading = Reading::default();
        let mut at = 0;
        for line in kept.split(['\n', '\r']) {
            reading.line(line, at);
            at += line.len() + 1;
        }
        let (mut robots, mut places) = reading.finish();
        robots.too_large = too_large;
        robots.is_one = is_robots(kept);
        places.cut = too_large.then_some(kept.len());
        (robots, places)
    }

    /// May `agent` fetch this path (with its query)? `/robots.txt` always.
    /// `agent` is a product token; what follows a `/` in it does not count.
    pub fn allows(&self, agent: &str, path_and_query: &str) -> bool {
        self.rules_for(agent).allows(path_and_query)
    }

    /// The rules for `agent`, to be asked about many paths.
    pub fn rules_for(&self, agent: &str) -> Rules {
        Rules::new(self.groups_for(agent).flat_map(|group| group.rules.iter().cloned()).collect())
    }

    /// `Crawl-delay` for `agent`, at most a day. Not in RFC 9309.
    pub fn crawl_delay(&self, agent: &str) -> Option<Duration> {
        let name = self.name_for(agent);
        let mut delays = self.groups.iter().flat_map(Group::delays);
        delays.find(|(agents, _)| agents.contains(&name)).map(|(_, delay)| delay)
    }

    /// `Content-Signal` and `Content-Usage` for `agent`, and the `License` of the file.
    pub fn usage(&self, agent: &str) -> Usage {
        let of = |field: fn(&Group) -> &Vec<Preference>| {
            // Of lines of one group that are for the same the last one counts.
            let own = self.groups_for(agent).flat_map(|group| field(group).iter().rev());
            let own = Preferences::new(own);
            if own.is_empty() { Preferences::new(field(&self.file).iter().rev()) } else { own }
        };
        Usage {
            content_signal: of(|group| &group.content_signal),
            content_usage: of(|group| &group.content_usage),
            license: self.file.license.clone(),
        }
    }

    /// Values of the `Sitemap` lines as written, each once, in order. They may
    /// be relative.
    pub fn sitemaps(&self) -> &[String] {
        &self.sitemaps
    }

    /// The URLs of the web that the `Sitemap` lines of the file at `base` name: of whole
    /// documents, whatever part of them is named.
    pub fn sitemap_urls(&self, base: &Url) -> impl Iterator<Item = Url> {
        self.sitemaps.iter().filter_map(|value| {
            let mut url = loc::resolve(value, base)?;
            url.set_fragment(None);
            Some(url)
        })
    }

    /// Was the file longer than [`MAX_BYTES`] and cut there?
    pub fn is_too_large(&self) -> bool {
        self.too_large
    }

    /// Is it a robots.txt, if perhaps one that says nothing, and no page in its place?
    pub fn is_one(&self) -> bool {
        self.is_one
    }

    /// The groups that bind `agent`: all that name it, else all for `*`.
    fn groups_for(&self, agent: &str) -> impl Iterator<Item = &Group> {
        let name = self.name_for(agent);
        self.groups.iter().filter(move |group| group.agents.contains(&name))
    }

    /// The name by which groups bind `agent`: its own, or `*`.
    fn name_for(&self, agent: &str) -> String {
        let token = token_of(agent);
        let is_named =
            !token.is_empty() && self.groups.iter().any(|group| group.agents.contains(&token));
        if is_named { token } else { "*".to_owned() }
    }
}

/// The product token of an agent, to be compared with others.
fn token_of(agent: &str) -> String {
    product_token(agent.trim()).to_ascii_lowercase()
}

/// The keys that are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    UserAgent,
    Allow,
    Disallow,
    CrawlDelay,
    Sitemap,
    ContentSignal,
    ContentUsage,
    License,
}

impl Key {
    fn of(word: &str) -> Option<Self> {
        // `User agent`, `user_agent` and `UserAgent` are all written.
        let plain: String = word.chars().filter(char::is_ascii_alphabetic).collect();
        Some(match plain.to_ascii_lowercase().as_str() {
            "useragent" => Self::UserAgent,
            "allow" => Self::Allow,
            "disallow" | "dissallow" | "dissalow" | "disalow" | "diasllow" | "disallaw" => {
                Self::Disallow
            }
            "crawldelay" => Self::CrawlDelay,
            "sitemap" | "sitemaps" => Self::Sitemap,
            "contentsignal" => Self::ContentSignal,
            "contentusage" => Self::ContentUsage,
            "license" => Self::License,
            _ => return None,
        })
    }
}

/// A line as key and value, if it is one that is understood.
fn key_value(line: &str) -> Option<(Key, &str)> {
    const MAX_KEY: usize = 24;
    let line = line.split('#').next().unwrap_or_default();
    let line = loc::trim(line);
    let wordlike = |c: char| c.is_ascii_alphabetic() || matches!(c, '-' | '_' | ' ');
    let key = |word: &str| {
        let word = loc::trim(word);
        let is_word = word.len() <= MAX_KEY && word.chars().all(wordlike);
        if is_word { Key::of(word) } else { None }
    };
    let (word, value) = match line.split_once(':') {
        // `Sitemap http://…` and `Disallow /1:2`: the colon is of the value.
        Some((word, _)) if word.contains([' ', '\t', '\u{a0}']) && key(word).is_none() => {
            spaced(line)?
        }
        Some((word, value)) => (word, value),
        None => spaced(line)?,
    };
    Some((key(word)?, loc::trim(value)))
}

/// A key and its value without a colon between them. But for a sitemap they are all of
/// the line, as Google has it, and what is said must make sense.
fn spaced(line: &str) -> Option<(&str, &str)> {
    let (word, value) = line.split_once(char::is_whitespace)?;
    let value = loc::trim(value);
    let one = !value.contains(char::is_whitespace);
    let good = match Key::of(word)? {
        Key::Sitemap => loc::is_web(value) || value.starts_with('/'),
        Key::Allow | Key::Disallow => one && value.starts_with(['/', '*']),
        Key::UserAgent => one,
        Key::CrawlDelay => one && delay(value).is_some(),
        Key::ContentSignal | Key::ContentUsage | Key::License => false,
    };
    good.then_some((word, value))
}

/// Is there a line in `window` that belongs in a robots.txt?
pub(crate) fn has_robots_line(window: &str) -> bool {
    window.split(['\n', '\r']).any(|line| {
        key_value(line).is_some_and(|(key, value)| match key {
            // Prose has a word and a colon, too, but no such value.
            Key::Sitemap => {
                let absolute = loc::is_web(value) && value.contains("://");
                absolute || value.is_empty() || value.contains(['/', '.']) && !value.contains(' ')
            }
            Key::License => false,
            _ => true,
        })
    })
}

/// Is there a line in `window` that only a robots.txt has? A `Sitemap` line may stand in a
/// list of URLs too, but for one whose value is the URL in the next line.
pub(crate) fn has_line_of_its_own(window: &str) -> bool {
    window.split(['\n', '\r']).filter_map(key_value).any(|(key, value)| match key {
        Key::UserAgent | Key::Allow | Key::Disallow => true,
        Key::Sitemap => value.is_empty(),
        _ => false,
    })
}

/// Does this line name a sitemap?
pub(crate) fn names_sitemap(line: &str) -> bool {
    key_value(line).is_some_and(|(key, _)| key == Key::Sitemap)
}

/// Is this where a host has its robots.txt?
pub(crate) fn is_at(url: &Url) -> bool {
    url.path() == "/robots.txt"
}

/// Has a file a line that belongs in a robots.txt, or nothing to say at all?
fn is_robots(text: &str) -> bool {
    let says_nothing = |line: &str| {
        let line = loc::trim(line);
        line.is_empty() || line.starts_with('#')
    };
    has_robots_line(text) || text.split(['\n', '\r']).all(says_nothing)
}

/// A file while it is being read.
#[derive(Default)]
struct Reading {
    robots: Robots,
    places: Places,
    /// The sitemaps so far, to be asked: a file may name tens of thousands.
    named: HashSet<String>,
    group: Option<Group>,
    /// Did the open group have a rule? Nothing else ends its list of agents (RFC 9309
    /// section 2.2.4).
    has_rules: bool,
    /// Was there any `User-agent` yet?
    has_agents: bool,
    /// Was the last line a `Sitemap:` without a value?
    sitemap_pending: bool,
}

impl Reading {
    fn line(&mut self, line: &str, at: usize) {
        let pending = std::mem::take(&mut self.sitemap_pending);
        let Some((key, value)) = key_value(line) else {
            let value = loc::trim(line);
            if pending && loc::is_web(value) {
                self.sitemap(value, at);
            } else if Key::of(value) == Some(Key::Sitemap) && !value.starts_with('#') {
                self.sitemap_pending = true;
            } else {
                self.sitemap_pending = pending && value.is_empty();
                if !value.is_empty() && !value.starts_with('#') && !value.contains(':') {
                    self.places.strange.note(at, value);
                }
            }
            return;
        };
        match key {
            Key::UserAgent => self.agent(value),
            Key::Sitemap if value.is_empty() => self.sitemap_pending = true,
            Key::Sitemap => self.sitemap(value, at),
            _ => {
                if matches!(key, Key::Allow | Key::Disallow) && !self.has_agents {
                    self.places.homeless.note(at, line);
                }
                self.member(key, value);
            }
        }
    }

    fn agent(&mut self, value: &str) {
        if self.has_rules {
            self.close();
        }
        self.has_agents = true;
        // `*bot` is no pattern, and names nobody.
        let is_star = value.split_whitespace().next() == Some("*");
        let token = if is_star { "*".to_owned() } else { token_of(value) };
        self.group.get_or_insert_default().agents.push(token);
    }

    /// The value of a `Sitemap` line. Several URLs in one line are several; what
    /// else follows the first is a remark.
    fn sitemap(&mut self, value: &str, at: usize) {
        let words = value.split_whitespace().enumerate();
        for (index, word) in words.flat_map(|(i, word)| joined(word).map(move |url| (i, url))) {
            let url = word.trim_matches(['"', '\'', '<', '>', ',', ';']);
            // A page that shows the file puts tags behind it.
            let url = url.split('<').next().unwrap_or_default();
            if url.is_empty() || index > 0 && !loc::is_web(url) {
                continue;
            }
            if self.named.insert(url.to_owned()) {
                self.robots.sitemaps.push(url.to_owned());
                self.places.sitemaps.push(at);
            }
        }
    }

    fn member(&mut self, key: Key, value: &str) {
        let grouped = self.group.is_some();
        let group = self.group.as_mut().unwrap_or(&mut self.robots.file);
        match key {
            Key::Allow => group.rules.extend(Rule::new(Verdict::Allow, value)),
            Key::Disallow => group.rules.extend(Rule::new(Verdict::Disallow, value)),
            Key::CrawlDelay => group.take_delay(delay(value)),
            Key::ContentSignal => group.content_signal.extend(Preference::new(value)),
            Key::ContentUsage => group.content_usage.extend(Preference::new(value)),
            // RSL has it that the line is of the file.
            Key::License => {
                let license = &mut self.robots.file.license;
                *license = license.take().or_else(|| (!value.is_empty()).then(|| value.to_owned()));
            }
            Key::UserAgent | Key::Sitemap => {}
        }
        self.has_rules |= grouped && matches!(key, Key::Allow | Key::Disallow);
    }

    fn close(&mut self) {
        self.has_rules = false;
        self.robots.groups.extend(self.group.take());
    }

    fn finish(mut self) -> (Robots, Places) {
        self.close();
        (self.robots, self.places)
    }
}

/// The URLs of a word, with or without a comma between them.
fn joined(word: &str) -> impl Iterator<Item = &str> {
    // Looks at so many bytes and no further: a line may be all commas.
    let begins = |text: &str| {
        ["http://", "https://"].iter().any(|start| {
            text.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start))
        })
    };
    let mut rest = Some(word);
    std::iter::from_fn(move || {
        let all = rest?;
        let mut marks = all.match_indices([',', ';']);
        let end = marks.find(|(at, _)| begins(all.get(at + 1..).unwrap_or_default()));
        rest = end.and_then(|(at, _)| all.get(at + 1..));
        all.get(..end.map_or(all.len(), |(at, _)| at))
    })
}

fn delay(value: &str) -> Option<Duration> {
    let number = value.split_whitespace().next()?.trim_end_matches(['s', 'S']).replace(',', ".");
    let seconds: f64 = number.parse().ok()?;
    let sensible = seconds.is_finite() && seconds >= 0.0;
    sensible.then(|| Duration::from_secs_f64(seconds.min(MAX_DELAY)))
}

#[cfg(test)]
mod tests;
