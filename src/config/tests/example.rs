//! `config.example.toml` is true.

use proptest::prelude::*;

use crate::config::raw::Shape;
use crate::config::{Config, ConfigError, Place, Site, warnings};

const EXAMPLE: &str = include_str!("../../../config.example.toml");

fn example() -> Config {
    Config::from_toml_str(EXAMPLE).expect("the example loads as it is")
}

#[test]
fn the_example_loads_as_it_is_and_its_keys_are_the_defaults() {
    let config = Config { sites: Config::default().sites, ..example() };
    assert_eq!(config, Config::default());
}

#[test]
fn the_site_of_the_example_shows_the_defaults_of_a_site() {
    let Site { name, url, .. } = &*example().sites["example"];
    let bare = format!("[[site]]\nname = \"{name}\"\nurl = \"{url}\"");
    let bare = Config::from_toml_str(&bare).expect("a site needs no more");
    assert_eq!(bare.sites, example().sites);
    assert_eq!(warnings(&example()).join("\n"), "");
}

/// Every key of `shape`, as the section it is in and its name.
fn keys(shape: &Shape, section: &str, all: &mut Vec<(String, &'static str)>) {
    for key in shape.keys {
        match shape.table(key) {
            Some(inner) if section.is_empty() => keys(inner, key, all),
            Some(inner) if section == "egress" => keys(inner, "egress.nats", all),
            Some(inner) if section == "recrawl" => keys(inner, "recrawl.changefreq", all),
            // The tables of a site are written inline, on one line.
            Some(_) | None => all.push((section.to_owned(), key)),
        }
    }
}

#[test]
fn every_key_is_explained_in_the_example_on_its_line() {
    let mut all = Vec::new();
    keys(&Shape::of_config(), "", &mut all);
    assert!(all.len() > 70, "{}", all.len());
    for (section, key) in all {
        let mut current = String::new();
        let explained = EXAMPLE.lines().any(|line| {
            if line.starts_with('[') {
                let end = line.find(']').unwrap_or(line.len());
                line[..end].trim_matches('[').clone_into(&mut current);
            }
            let line = line.trim_start_matches("# ");
            let comment = line.rsplit_once("# ").map_or("", |(_, comment)| comment);
            current == section && line.starts_with(&format!("{key} = ")) && comment.len() > 8
        });
        assert!(explained, "[{section}] {key}");
    }
}

proptest! {
    #[test]
    fn a_slip_of_the_hand_is_accepted_or_told_with_a_line_of_the_file(
        at in 0..EXAMPLE.len(), cut in 0..4_usize, typed in "[\"=\\[\\]#0-9a-z\n{}.\\-é]{0,3}",
    ) {
        let tail = EXAMPLE.get(at + cut..).unwrap_or_default();
        let text = format!("{}{typed}{tail}", &EXAMPLE[..at]);
        if let Err(error) = Config::from_toml_str(&text) {
            let ConfigError::Invalid(faults) = error else { panic!("no file was read") };
            prop_assert!(!faults.is_empty());
            for fault in faults {
                let Place::File { line, .. } = fault.place else { panic!("no variable was set") };
                prop_assert!(line >= 1 && line <= text.split('\n').count());
            }
        }
    }
}
