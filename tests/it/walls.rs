//! The walls of the house: which file may name what, kept by reading the sources.
//!
//! Looks at code as it is written: comments and tests are left out, names are
//! compared as whole words. What the type system cannot say is said here.

use std::fs;
use std::path::Path;

/// One file of `src/`.
pub(crate) struct Source {
    /// From `src/` on, with `/`.
    pub(crate) path: String,
    /// As it stands.
    pub(crate) text: String,
}

/// A module at the top, and what of the others it may name: a module, or only
/// what begins so. Nothing else, and nothing that it does not use.
const ARROWS: [(&str, &[&str]); 23] = [
    // What every stage shares.
    ("model", &[]),
    ("bitpack", &[]),
    ("bounded", &[]),
    ("by_id", &[]),
    ("clock", &[]),
    ("date", &["model"]),
    ("locks", &[]),
    ("threads", &[]),
    ("log", &["config"]),
    // A site's cron line is kept compiled.
    ("config", &["log", "model", "schedule::cron", "store::check_url"]),
    // The verdicts of `url` are kept in snapshots.
    ("url", &["config", "diff::snapshot"]),
    // From left to right.
    ("fetch", &["bounded", "config", "log"]),
    ("parse", &["date", "model"]),
    ("diff", &["bitpack", "model", "parse"]),
    ("recrawl", &["config", "model"]),
    ("queue", &["by_id", "model", "recrawl"]),
    (
        "store",
        &[
            "bitpack",
            "bounded",
            "by_id",
            "clock",
            "config",
            "diff",
            "fetch::Validators",
            "fetch::peers",
            "locks",
            "metrics",
            "model",
            "parse",
            "queue",
            "recrawl",
            "threads",
            "url",
        ],
    ),
    // It shows what the store has seen, and asks nobody.
    ("metrics", &["model", "queue::TokenResult", "store::views"]),
    (
        "schedule",
        &[
            "bounded", "clock", "config", "diff", "fetch", "locks", "log", "metrics", "model",
            "parse", "recrawl", "store", "threads", "url",
        ],
    ),
    ("serve", &["config", "metrics", "model", "parse", "queue", "recrawl", "store"]),
    ("egress", &["clock", "config", "log", "metrics", "queue", "serve", "store"]),
    ("app", &["clock", "config", "egress", "fetch", "metrics", "schedule", "serve", "store"]),
    (
        "cli",
        &[
            "app", "clock", "config", "fetch", "log", "metrics", "model", "parse", "schedule",
            "serve", "store", "url",
        ],
    ),
];

/// A crate that only files whose path begins so may name.
const CRATES: [(&str, &[&str]); 11] = [
    ("rusqlite", &["src/store/"]),
    ("tokio_postgres", &["src/store/", "src/log.rs"]),
    ("async_nats", &["src/egress", "src/log.rs"]),
    ("reqwest", &["src/fetch/"]),
    ("axum", &["src/serve/"]),
    ("tonic", &["src/serve/"]),
    ("maud", &["src/serve/"]),
    ("quick_xml", &["src/parse/xml"]),
    ("encoding_rs", &["src/parse/text"]),
    ("chrono", &["src/schedule/cron"]),
    ("anyhow", &["src/cli/", "src/main.rs"]),
];

/// Words with which a statement of SQL begins, as this house writes them.
const SQL: [&str; 9] = [
    "SELECT ",
    "INSERT INTO ",
    "INSERT OR ",
    "UPDATE ",
    "DELETE FROM ",
    "PRAGMA ",
    "CREATE TABLE ",
    "BEGIN IMMEDIATE",
    "SAVEPOINT ",
];

/// Where everything is a function of its arguments.
const PURE: [&str; 10] = [
    "src/bitpack.rs",
    "src/date",
    "src/diff",
    "src/model",
    "src/parse",
    "src/queue/window",
    "src/recrawl",
    "src/schedule/interval",
    "src/store/why",
    "src/url.rs",
];

/// What has no place there: the runtime, the clocks, chance, the world outside.
const IMPURE: [&str; 12] = [
    "tokio",
    "getrandom",
    "rustix",
    "Instant",
    "SystemTime",
    "crate::clock",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "Timestamp::now",
];

/// Names under which everything and nothing could be.
const DRAWERS: [&str; 10] =
    ["util", "utils", "helper", "helpers", "common", "manager", "managers", "misc", "types", "lib"];

/// All files of `src/`, tests included.
pub(crate) fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
                found.push(Source { path: name, text: fs::read_to_string(&path).unwrap() });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 100, "only {} files: are these all the sources?", found.len());
    found
}

impl Source {
    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// The code that goes into the program: no comments, no tests at the end.
    fn code(&self) -> String {
        let (program, _) =
            self.text.split_once("\n#[cfg(test)]\nmod tests {").unwrap_or((&self.text, ""));
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        program.lines().filter(is_code).flat_map(|line| [line, "\n"]).collect()
    }

    /// The module at the top that the file belongs to.
    fn module(&self) -> &str {
        let inside = self.path.strip_prefix("src/").unwrap();
        inside.split(['/', '.']).next().unwrap()
    }

    fn is_under(&self, places: &[&str]) -> bool {
        places.iter().any(|place| self.path.starts_with(place))
    }
}

fn program() -> Vec<Source> {
    sources().into_iter().filter(|source| !source.is_test()).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Is `name` there as a whole word, and not as a part of a longer path?
fn names(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + name.len()..].chars().next();
        !before.is_some_and(|c| is_word(c) || c == ':') && !after.is_some_and(is_word)
    })
}

/// Everything of this crate that the code names, from below `crate::` on.
fn named_of_crate(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("crate::") {
        let rest = &code[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.push(path_at(rest));
            continue;
        };
        let mut depth = 1;
        let mut at_start = true;
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 1 => break,
                '}' => depth -= 1,
                ',' if depth == 1 => at_start = true,
                _ if at_start && !c.is_whitespace() => {
                    found.push(path_at(&group[at..]));
                    at_start = false;
                }
                _ => {}
            }
        }
    }
    found
}

fn path_at(text: &str) -> String {
    text.chars().take_while(|c| is_word(*c) || *c == ':').collect()
}

fn is_part_of(path: &str, allowed: &str) -> bool {
    path.strip_prefix(allowed).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[test]
fn each_heavy_crate_has_one_home() {
    for source in program() {
        let code = source.code();
        for (name, homes) in CRATES {
            assert!(source.is_under(homes) || !names(&code, name), "{} names {name}", source.path);
        }
    }
}

#[test]
fn the_cron_crate_is_named_by_the_cron_module_only() {
    for source in program().iter().filter(|source| !source.is_under(&["src/schedule/cron"])) {
        assert!(!source.code().contains("use cron::"), "{}", source.path);
    }
    let home = program().into_iter().find(|source| source.path == "src/schedule/cron.rs").unwrap();
    assert!(names(&home.code(), "cron"), "the rule above looks for the wrong words");
}

#[test]
fn sql_is_written_in_the_store_only() {
    let is_store = |source: &&Source| source.is_under(&["src/store/"]);
    let (store, rest): (Vec<Source>, Vec<Source>) =
        program().into_iter().partition(|source| is_store(&source));
    for word in SQL {
        let culprits: Vec<_> =
            rest.iter().filter(|file| file.code().contains(word)).map(|file| &file.path).collect();
        assert!(culprits.is_empty(), "{word}: {culprits:?}");
    }
    let found = SQL.iter().filter(|word| store.iter().any(|file| file.code().contains(**word)));
    assert!(found.count() >= 7, "the store does not write SQL in these words any more");
}

#[test]
fn pure_modules_know_no_clock_no_runtime_and_no_world() {
    for source in program().iter().filter(|source| source.is_under(&PURE)) {
        let code = source.code();
        for word in IMPURE {
            assert!(!names(&code, word), "{} names {word}", source.path);
        }
    }
    for place in PURE {
        assert!(program().iter().any(|source| source.is_under(&[place])), "nothing is at {place}");
    }
}

#[test]
fn modules_name_only_what_lies_to_their_left() {
    for (module, allowed) in ARROWS {
        let mut used = vec![false; allowed.len()];
        for source in program().iter().filter(|source| source.module() == module) {
            for path in named_of_crate(&source.code()) {
                if is_part_of(&path, module) || path.is_empty() {
                    continue;
                }
                let arrow = allowed.iter().position(|allowed| is_part_of(&path, allowed));
                let Some(arrow) = arrow else {
                    panic!("{} names crate::{path}; {module} may name {allowed:?}", source.path);
                };
                used[arrow] = true;
            }
        }
        let idle: Vec<_> = allowed.iter().zip(used).filter(|(_, used)| !used).collect();
        assert!(idle.is_empty(), "{module} does not name these any more: {idle:?}");
    }
}

#[test]
fn every_module_has_its_arrows_and_its_place_in_the_map() {
    let files = sources();
    let front = &files.iter().find(|source| source.path == "src/lib.rs").unwrap().text;
    let known: Vec<_> = ARROWS.iter().map(|(module, _)| *module).collect();
    let is_module = |source: &&Source| !["lib", "main"].contains(&source.module());
    for source in files.iter().filter(is_module) {
        let module = source.module();
        assert!(known.contains(&module), "no arrows are given for {module}");
        assert!(front.contains(&format!("`{module}`")), "the map in lib.rs leaves out {module}");
    }
}

#[test]
fn every_file_says_first_what_it_is() {
    for source in sources() {
        assert!(source.text.starts_with("//! "), "{} does not begin with //!", source.path);
    }
}

#[test]
fn no_module_is_a_drawer() {
    for source in sources().iter().filter(|source| source.path != "src/lib.rs") {
        let parts = source.path.trim_end_matches(".rs").split('/');
        let drawer = parts.skip(1).find(|part| DRAWERS.contains(part));
        assert_eq!(drawer, None, "{}", source.path);
    }
}

#[test]
fn paths_are_read_out_of_every_form_of_naming() {
    let code = "use crate::a::b;\nuse crate::{c, d::{e, f::g}, h::i};\nlet x = crate::j::k(1);";
    assert_eq!(named_of_crate(code), ["a::b", "c", "d::", "h::i", "j::k"]);
    assert!(names("use reqwest::Client;", "reqwest"));
    assert!(!names("use crate::reqwest::Client;", "reqwest"));
    assert!(!names("my_reqwest::get()", "reqwest"));
    assert!(is_part_of("fetch::Validators", "fetch") && !is_part_of("fetcher", "fetch"));
}
