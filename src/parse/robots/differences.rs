//! What two readings of a robots.txt differ in, for people and fetchers.
//!
//! Compared are sets of statements, each with the agents that it is meant for:
//! order, comments, spelling and `Sitemap` lines make no difference. Linear in
//! both files, and what is told is short.

use std::collections::HashSet;
use std::fmt::Write as _;

use xxhash_rust::xxh3::xxh3_64;

use super::{Group, Preference, Robots};

/// Bytes of a text that is told.
const MAX_TEXT: usize = 500;
/// Bytes of a list of agents, or of one statement, that are told.
const MAX_PART: usize = 120;

/// What a difference is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// `Allow`, `Disallow` and `Crawl-delay`.
    Rules,
    /// `License`.
    License,
    /// `Content-Signal`.
    ContentSignal,
    /// `Content-Usage`.
    ContentUsage,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What differs.
    pub subject: Subject,
    /// The statements that are gone, a line each; the first few.
    pub was: String,
    /// The statements that are new, a line each; the first few.
    pub now: String,
}

impl Subject {
    /// All, in the order of their numbers in the store: append only.
    pub const ALL: [Self; 4] =
        [Self::Rules, Self::License, Self::ContentSignal, Self::ContentUsage];

    /// The word of tables and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::License => "license",
            Self::ContentSignal => "content-signal",
            Self::ContentUsage => "content-usage",
        }
    }

    /// What is said of it to all agents of a group.
    fn of(self, group: &Group) -> Vec<String> {
        let all = |key: &str, lines: &[Preference]| {
            lines.iter().map(|line| format!("{key}: {}", line.line())).collect()
        };
        match self {
            Self::Rules => group.rules.iter().map(ToString::to_string).collect(),
            Self::License => group.license.iter().map(|text| format!("License: {text}")).collect(),
            Self::ContentSignal => all("Content-Signal", &group.content_signal),
            Self::ContentUsage => all("Content-Usage", &group.content_usage),
        }
    }
}

impl Robots {
    /// What this reading says that `before` did not, and the other way round.
    pub fn differences(&self, before: &Self) -> Vec<Difference> {
        let mut all = Vec::new();
        for subject in Subject::ALL {
            let (old, new) = (before.statements(subject), self.statements(subject));
            let (was, now) = (told(&old, &new), told(&new, &old));
            if !was.is_empty() || !now.is_empty() {
                all.push(Difference { subject, was, now });
            }
        }
        all
    }

    fn statements(&self, subject: Subject) -> Vec<Statement> {
        let mut all = Vec::new();
        // Rules outside of any group bind nobody.
        let outside = (subject != Subject::Rules).then_some(&self.file);
        for group in outside.into_iter().chain(&self.groups) {
            Statement::add(&mut all, &group.agents, subject.of(group));
            let delays = group.delays().filter(|_| subject == Subject::Rules);
            for (agents, delay) in delays {
                let text = format!("Crawl-delay: {}", delay.as_secs_f64());
                Statement::add(&mut all, agents, vec![text]);
            }
        }
        all
    }
}

/// A statement for some agents.
struct Statement {
    /// Hash of the agents: a group may name thousands, and have as many rules.
    agents: u64,
    shown: String,
    text: String,
}

impl Statement {
    fn add(all: &mut Vec<Self>, agents: &[String], texts: Vec<String>) {
        let mut agents = agents.to_vec();
        agents.sort_unstable();
        agents.dedup();
        let agents = agents.join(", ");
        let (hash, shown) = (xxh3_64(agents.as_bytes()), cut(&agents, MAX_PART));
        let texts = texts.into_iter();
        all.extend(texts.map(|text| Self { agents: hash, shown: shown.clone(), text }));
    }
}

/// The statements that only the first reading has.
fn told(these: &[Statement], others: &[Statement]) -> String {
    let known: HashSet<_> = others.iter().map(|line| (line.agents, line.text.as_str())).collect();
    let mut seen = HashSet::new();
    let mut text = String::new();
    let mut more = 0_u64;
    for line in these {
        let key = (line.agents, line.text.as_str());
        if known.contains(&key) || !seen.insert(key) {
            continue;
        }
        let statement = cut(&line.text, MAX_PART);
        let room = line.shown.len() + statement.len() + 3;
        if more > 0 || text.len() + room > MAX_TEXT {
            more += 1;
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        if !line.shown.is_empty() {
            text.push_str(&line.shown);
            text.push_str(": ");
        }
        text.push_str(&statement);
    }
    if more > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n… and {more} more");
    }
    text
}

/// The beginning of a text that is too long, and a sign that it is one.
fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(old: &str, new: &str) -> Vec<(&'static str, String, String)> {
        let differences = Robots::parse(new.as_bytes()).differences(&Robots::parse(old.as_bytes()));
        differences.into_iter().map(|d| (d.subject.as_str(), d.was, d.now)).collect()
    }

    fn one(subject: &'static str, was: &str, now: &str) -> Vec<(&'static str, String, String)> {
        vec![(subject, was.to_owned(), now.to_owned())]
    }

    const OLD: &str = "License: https://a.example/l\nUser-agent: *\nDisallow: /x\nCrawl-delay: 2\nContent-Signal: search=yes\n";

    #[test]
    fn what_a_reader_would_not_notice_is_no_difference() {
        for same in [
            OLD.to_owned(),
            format!("# new\n{OLD}Sitemap: https://a.example/s.xml\n"),
            OLD.replace("User-agent", "user_agent").replace('\n', "\r\n\r\n"),
            OLD.replace("Disallow: /x\nCrawl-delay: 2", "Crawl-delay: 2\nDisallow: /x"),
        ] {
            assert_eq!(between(OLD, &same), [], "{same}");
        }
    }

    #[test]
    fn each_subject_is_told_with_what_was_and_what_is() {
        assert_eq!(
            between(OLD, &OLD.replace("/x", "/y*z$")),
            one("rules", "*: Disallow: /x", "*: Disallow: /y*z$")
        );
        assert_eq!(
            between(OLD, &OLD.replace("delay: 2", "delay: 2.5")),
            one("rules", "*: Crawl-delay: 2", "*: Crawl-delay: 2.5")
        );
        assert_eq!(
            between(OLD, &OLD.replace("/l", "/m")),
            one("license", "License: https://a.example/l", "License: https://a.example/m")
        );
        assert_eq!(
            between(OLD, &OLD.replace("yes", "no")),
            one("content-signal", "*: Content-Signal: search=yes", "*: Content-Signal: search=no")
        );
        assert_eq!(
            between(OLD, &format!("{OLD}Content-Usage: train-ai=n\n")),
            one("content-usage", "", "*: Content-Usage: train-ai=n")
        );
    }

    #[test]
    fn a_file_that_is_gone_takes_all_with_it() {
        let subjects: Vec<_> = between(OLD, "").into_iter().map(|(subject, ..)| subject).collect();
        assert_eq!(subjects, ["rules", "license", "content-signal"]);
    }

    #[test]
    fn a_rule_that_moves_to_another_agent_is_told() {
        let told = between("User-agent: a\nDisallow: /", "User-agent: b\nDisallow: /");
        assert_eq!(told, one("rules", "a: Disallow: /", "b: Disallow: /"));
    }

    #[test]
    fn what_is_told_of_a_huge_file_is_short_and_takes_no_time() {
        let mut text = String::new();
        (0..10_000).for_each(|n| writeln!(text, "User-agent: agent-{n}").expect("a String"));
        (0..10_000).for_each(|n| writeln!(text, "Disallow: /{n}").expect("a String"));
        let told = between("", &text);
        let [(_, was, now)] = &told[..] else { panic!("{told:?}") };
        assert!(was.is_empty());
        assert!(now.len() < MAX_TEXT + 40, "{}", now.len());
        assert!(now.ends_with(" more"), "{now}");
    }
}
