//! One TOML file with the places of its keys, so that every fault can name
//! its line.
//!
//! Overrides from the environment are merged in before anything is read, and
//! get places behind the end of the text: a fault there names the variable.

use std::cmp::Reverse;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::env::Env;
use super::error::{Fault, MAX_FAULTS, Place};
use super::raw::Shape;

/// Where the keys of one file are.
#[derive(Debug)]
pub(super) struct Document {
    path: PathBuf,
    /// Byte offset of the start of each line.
    line_starts: Vec<usize>,
    /// Length of the text; places from here on are variables.
    len: usize,
    /// Span of each key and value, and the dotted key.
    keys: Vec<(Range<usize>, String)>,
    variables: Vec<String>,
}

impl Document {
    /// Reads `text`, merges the overrides of `env`, and fills in `T`, whose
    /// keys `shape` lists. All unknown keys are told at once.
    pub(super) fn parse<T: DeserializeOwned>(
        path: &Path,
        text: &str,
        env: &Env,
        shape: &Shape,
    ) -> Result<(Self, T), Vec<Fault>> {
        let line_starts =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut document = Self {
            path: path.to_owned(),
            line_starts,
            len: text.len(),
            keys: Vec::new(),
            variables: Vec::new(),
        };
        let root = DeTable::parse(text).map_err(|e| vec![document.syntax_fault(&e, text)])?;
        let span = root.span();
        let mut table = root.into_inner();
        document.merge(&mut table, env)?;
        document.index(&table, "");
        let mut faults = Vec::new();
        document.check(&table, shape, "", &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        let value = DeValue::Table(table);
        let deserializer = toml::de::ValueDeserializer::from(Spanned::new(span, value));
        match T::deserialize(deserializer) {
            Ok(raw) => Ok((document, raw)),
            Err(e) => Err(vec![document.syntax_fault(&e, text)]),
        }
    }

    /// A fault at the value or key that `span` covers.
    pub(super) fn fault(&self, span: &Range<usize>, message: String) -> Fault {
        let covering = self.keys.iter().filter(|(s, _)| s.contains(&span.start));
        // A variable's sections stand at the same place as its key: the longest is meant.
        let nearest = covering.min_by_key(|(s, key)| (s.len(), Reverse(key.len())));
        let key = nearest.map(|(_, key)| key.clone());
        Fault { place: self.place(span), key: key.unwrap_or_default(), message }
    }

    fn place(&self, span: &Range<usize>) -> Place {
        let variable = span.start.checked_sub(self.len + 1).and_then(|i| self.variables.get(i));
        match variable {
            Some(name) => Place::Variable(name.clone()),
            None => Place::File {
                path: self.path.clone(),
                line: self.line_starts.partition_point(|start| *start <= span.start).max(1),
            },
        }
    }

    fn syntax_fault(&self, error: &toml::de::Error, text: &str) -> Fault {
        let span = error.span().unwrap_or(0..0);
        let mut message = format!("not valid TOML: {}", error.message());
        // Of other faults the text is not shown: it could be part of a secret.
        if let Some(key) = text.get(span.clone()).filter(|_| message.ends_with("duplicate key")) {
            message = format!("{message} {key}");
        }
        self.fault(&span, message)
    }

    fn merge<'i>(&mut self, table: &mut DeTable<'i>, env: &'i Env) -> Result<(), Vec<Fault>> {
        let mut faults = Vec::new();
        for (name, keys, text) in env.overrides() {
            let at = self.place_of(name);
            let value = self.placed(parse_value(text), name, &at);
            if let Err(message) = insert(table, &keys, value, &at) {
                let place = Place::Variable(name.to_owned());
                faults.push(Fault { place, key: keys.join("."), message });
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// Another place in this variable.
    fn place_of(&mut self, name: &str) -> Range<usize> {
        let at = self.len + 1 + self.variables.len();
        self.variables.push(name.to_owned());
        at..at + 1
    }

    /// A value of this variable with all that is in it: where it was read it had places
    /// of its own text, which in the file are others'. Each key has a place, by which a
    /// fault finds its name.
    fn placed<'i>(&mut self, value: DeValue<'i>, name: &str, at: &Range<usize>) -> DeValue<'i> {
        match value {
            DeValue::Table(table) => {
                let mut placed = DeTable::new();
                for (key, value) in table {
                    let at = self.place_of(name);
                    let value = self.placed(value.into_inner(), name, &at);
                    placed.insert(
                        Spanned::new(at.clone(), key.into_inner()),
                        Spanned::new(at, value),
                    );
                }
                DeValue::Table(placed)
            }
            DeValue::Array(mut array) => {
                for item in array.iter_mut() {
                    let inner = std::mem::replace(item.get_mut(), DeValue::Boolean(false));
                    *item = Spanned::new(at.clone(), self.placed(inner, name, at));
                }
                DeValue::Array(array)
            }
            simple => simple,
        }
    }

    fn index(&mut self, table: &DeTable<'_>, path: &str) {
        for (key, value) in table {
            let path = join(path, key.get_ref());
            self.keys.push((key.span(), path.clone()));
            self.keys.push((value.span(), path.clone()));
            for inner in tables_in(value.get_ref()) {
                self.index(inner, &path);
            }
        }
    }

    /// Notes every key that `shape` does not know, and every value that
    /// should be a table and is not.
    fn check(&self, table: &DeTable<'_>, shape: &Shape, path: &str, faults: &mut Vec<Fault>) {
        for (key, value) in table {
            if faults.len() >= MAX_FAULTS {
                return;
            }
            let name: &str = key.get_ref();
            let path = join(path, name);
            // The key is known here; sections of one variable share their place.
            let mut note = |span: Range<usize>, message| {
                faults.push(Fault { place: self.place(&span), key: path.clone(), message });
            };
            if !shape.keys.contains(&name) {
                note(key.span(), unknown_key(shape.keys)(name));
                continue;
            }
            let Some(inner) = shape.table(name) else { continue };
            if path == "site" && value.get_ref().as_array().is_none() {
                note(key.span(), "write a site as [[site]]".to_owned());
            } else if path != "site" && !value.get_ref().is_table() {
                let found = value.get_ref().type_str();
                note(value.span(), format!("found {found}, allowed is a table: [{path}]"));
            }
            for table in tables_in(value.get_ref()) {
                self.check(table, inner, &path, faults);
            }
        }
    }
}

/// Puts the value of one variable where its name says.
fn insert<'i>(
    table: &mut DeTable<'i>,
    keys: &[String],
    value: DeValue<'i>,
    span: &Range<usize>,
) -> Result<(), String> {
    let Some((key, path)) = keys.split_last() else {
        return Err("names no key".to_owned());
    };
    if keys.iter().any(String::is_empty) {
        return Err("names no key: write SITEMAPD__SECTION__KEY".to_owned());
    }
    if keys.first().is_some_and(|first| first == "site") {
        return Err("sites are written in files, not in the environment".to_owned());
    }
    let mut table = table;
    for section in path {
        let name = Spanned::new(span.clone(), section.clone().into());
        let empty = DeValue::Table(DeTable::new());
        let inner = table.entry(name).or_insert(Spanned::new(span.clone(), empty));
        let DeValue::Table(inner) = inner.get_mut() else {
            return Err(format!("{section} is a value and has no keys"));
        };
        table = inner;
    }
    // The old key goes too, for its place.
    table.remove(key.as_str());
    table.insert(Spanned::new(span.clone(), key.clone().into()), Spanned::new(span.clone(), value));
    Ok(())
}

/// The value of a variable: as TOML where it reads as TOML, else a string.
fn parse_value(text: &str) -> DeValue<'_> {
    match DeValue::parse(text) {
        Ok(value) => value.into_inner(),
        Err(_) => DeValue::String(text.into()),
    }
}

fn tables_in<'a, 'i>(value: &'a DeValue<'i>) -> Vec<&'a DeTable<'i>> {
    match value {
        DeValue::Table(table) => vec![table],
        DeValue::Array(array) => array.iter().filter_map(|v| v.get_ref().as_table()).collect(),
        _ => Vec::new(),
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// What is said of a key that is not one of `known`.
fn unknown_key(known: &'static [&'static str]) -> impl Fn(&str) -> String {
    move |key| {
        let nearest = known
            .iter()
            .map(|name| (distance(key, name), *name))
            .filter(|(edits, name)| *edits * 2 < name.len().max(3))
            .min();
        let hint = nearest.map_or(String::new(), |(_, name)| format!("; did you mean {name}?"));
        format!("unknown key{hint} (known here: {})", known.join(", "))
    }
}

/// Edits that lead from one word to another (Levenshtein); words over 40
/// characters are no typing errors.
fn distance(from: &str, to: &str) -> usize {
    if from.len() > 40 {
        return usize::MAX / 2;
    }
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (b, cell) in to.chars().zip(row.iter_mut().skip(1)) {
            let substituted = diagonal + usize::from(a != b);
            diagonal = *cell;
            left = substituted.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}
