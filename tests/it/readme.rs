//! README.md tells the truth: its commands are there, its help is the program's.

#![allow(clippy::expect_used, reason = "a test says what it expects")]

use super::cli::{outcome, sitemapd, usage::COMMANDS};

/// Between two of these stands the text of `sitemapd --help`, in a code block.
const MARKER: &str = "<!-- help -->";

fn readme() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    std::fs::read_to_string(path).expect("there is a README.md")
}

#[test]
fn the_two_commands_stand_in_the_readme() {
    let text = readme();
    for command in ["cargo run --release -- demo", "cargo test"] {
        assert!(text.contains(command), "{command}");
    }
}

#[test]
fn the_readme_mentions_every_command() {
    let text = readme();
    for command in COMMANDS {
        assert!(text.contains(&format!("sitemapd {command}")), "sitemapd {command}");
    }
}

#[test]
fn the_help_in_the_readme_is_the_help_of_the_program() {
    let text = readme();
    let block = text.split(MARKER).nth(1).expect("a block between two markers");
    let told: Vec<&str> =
        block.trim().lines().filter(|line| !line.starts_with("```")).map(str::trim_end).collect();
    let (_, out, _) = outcome(sitemapd().arg("--help"));
    let help: Vec<&str> = out.trim().lines().map(str::trim_end).collect();
    assert_eq!(told, help);
}
