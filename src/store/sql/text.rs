//! The text of a statement, as a server takes it.
//!
//! Both engines share nearly all of it. Where they do not, the text says both:
//! `/*lite*/ … /*end*/` is for the embedded engine only, `/*pg: … */`, which
//! that one takes for a comment, for a server only, and `/*ours: part */` says
//! there that a partition must be ours (`AND part = ANY(…)`). What is said in the same way
//! everywhere else is turned here: parameters are numbered with `$`, one that is
//! cut to its partition (`?1 & 255`) is a number of 64 bits, and the number in
//! `LIMIT ?1` is written out, since a plan that does not know it reads and sorts
//! all there is (70 times slower, measured).
//!
//! Nothing in quotes is touched. Pure.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::types::Value;

/// Begins what is for a server only.
const SERVER: &str = "/*pg:";
/// Begins the column of a partition that must be ours.
const OURS: &str = "/*ours:";
/// That it is: the session says who we are.
const IS_OURS: &str = "= ANY(ARRAY(SELECT part FROM partitions
    WHERE node = current_setting('sitemapd.node', true)))";

/// A piece of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// Sent as it is.
    Plain(String),
    /// A parameter that is written out, from 1 on.
    Literal(usize),
}

/// A statement whose parameters have yet to be given.
#[derive(Debug)]
pub(in crate::store) struct Text {
    /// Tells it from all others.
    id: u64,
    pieces: Vec<Piece>,
    /// The parameters that are sent, from 1 on, in the order of their `$`.
    sent: Vec<usize>,
    /// Those that are written out.
    literals: Vec<usize>,
    only_reads: bool,
}

/// What a statement is prepared by: its text, and what is written out in it.
pub(super) type Key = (u64, Vec<i64>);

impl Text {
    /// Reads a text.
    pub(super) fn new(sql: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let chosen = choose(sql);
        let (mut pieces, mut plain) = (Vec::new(), String::new());
        let (mut sent, mut literals) = (Vec::new(), Vec::new());
        let (mut rest, mut highest) = (chosen.as_str(), 0);
        while let Some(at) = rest.find(['?', '\'', '"']) {
            let (before, from) = rest.split_at(at);
            plain.push_str(before);
            if !from.starts_with('?') {
                let quote = if from.starts_with('"') { '"' } else { '\'' };
                let end = from[1..].find(quote).map_or(from.len(), |end| end + 2);
                plain.push_str(&from[..end]);
                rest = &from[end..];
                continue;
            }
            let digits = from[1..].bytes().take_while(u8::is_ascii_digit).count();
            let number = from[1..=digits].parse().unwrap_or(highest + 1);
            highest = highest.max(number);
            rest = &from[1 + digits..];
            if ends_with_word(&plain, "LIMIT") || ends_with_word(&plain, "OFFSET") {
                pieces.push(Piece::Plain(std::mem::take(&mut plain)));
                pieces.push(Piece::Literal(number));
                literals.push(number);
                continue;
            }
            let place = sent.iter().position(|known| *known == number).unwrap_or_else(|| {
                sent.push(number);
                sent.len() - 1
            });
            // Writing to a string does not fail.
            let _ = write!(plain, "${}", place + 1);
            if rest.trim_start().starts_with("& ") {
                plain.push_str("::BIGINT");
            }
        }
        plain.push_str(rest);
        pieces.push(Piece::Plain(plain));
        let only_reads = chosen.trim_start().starts_with("SELECT");
        let id = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { id, pieces, sent, literals, only_reads }
    }

    /// Does it change nothing?
    pub(super) fn only_reads(&self) -> bool {
        self.only_reads
    }

    /// What it is prepared by for these values.
    pub(super) fn key(&self, values: &[Value]) -> Key {
        (self.id, self.literals.iter().map(|number| literal(values, *number)).collect())
    }

    /// As it is sent for these values.
    pub(super) fn sql(&self, values: &[Value]) -> String {
        let mut sql = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Plain(text) => sql.push_str(text),
                Piece::Literal(number) => {
                    let _ = write!(sql, "{}", literal(values, *number));
                }
            }
        }
        sql
    }

    /// The values that go beside the text, in its order.
    pub(super) fn sent<'v>(&self, values: &'v [Value]) -> impl Iterator<Item = &'v Value> {
        self.sent.iter().map(|number| values.get(number - 1).unwrap_or(&Value::Null))
    }
}

/// A limit; what is less than none is none at all.
fn literal(values: &[Value], number: usize) -> i64 {
    match values.get(number - 1) {
        Some(Value::Integer(limit)) if *limit >= 0 => *limit,
        _ => i64::MAX,
    }
}

/// A statement without what is for a server.
pub(in crate::store) fn near_text(sql: &str) -> String {
    let mut chosen = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, own)) = rest.split_once(SERVER) {
        chosen.push_str(before);
        rest = own.split_once("*/").map_or("", |(_, after)| after);
    }
    chosen + rest
}

/// Leaves out what is for the embedded engine, and lets in what is for a server.
fn choose(sql: &str) -> String {
    const LITE: &str = "/*lite*/";
    const END: &str = "/*end*/";
    let mut chosen = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(at) = rest.find("/*") {
        let (before, from) = rest.split_at(at);
        chosen.push_str(before);
        if let Some(inner) = from.strip_prefix(LITE) {
            rest = inner.split_once(END).map_or("", |(_, after)| after);
        } else if let Some(inner) = from.strip_prefix(SERVER) {
            let (own, after) = inner.split_once("*/").unwrap_or((inner, ""));
            chosen.push_str(own);
            rest = after;
        } else if let Some(inner) = from.strip_prefix(OURS) {
            let (column, after) = inner.split_once("*/").unwrap_or((inner, ""));
            // Writing to a string does not fail.
            let _ = write!(chosen, "AND {} {IS_OURS}", column.trim());
            rest = after;
        } else {
            chosen.push_str("/*");
            rest = &from[2..];
        }
    }
    chosen.push_str(rest);
    chosen
}

/// Does a text end with this word, and space after it?
fn ends_with_word(text: &str, word: &str) -> bool {
    let trimmed = text.trim_end();
    trimmed.len() < text.len()
        && trimmed.strip_suffix(word).is_some_and(|before| {
            before.is_empty() || before.ends_with(|end: char| !end.is_alphanumeric() && end != '_')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(sql: &str, values: &[Value]) -> (String, Vec<Value>) {
        let text = Text::new(sql);
        (text.sql(values), text.sent(values).cloned().collect())
    }

    #[test]
    fn parameters_are_numbered_in_the_order_in_which_they_come() {
        let (one, two) = (Value::Integer(1), Value::Text("two".to_owned()));
        for (sql, expected, values) in [
            ("SELECT ?1", "SELECT $1", vec![one.clone()]),
            ("SELECT ?, ?", "SELECT $1, $2", vec![one.clone(), two.clone()]),
            (
                "SELECT ?2 FROM t WHERE a = ?1 OR ?2",
                "SELECT $1 FROM t WHERE a = $2 OR $1",
                vec![two.clone(), one.clone()],
            ),
            (
                "SELECT '?1', \"a?\" WHERE b = ?2",
                "SELECT '?1', \"a?\" WHERE b = $1",
                vec![two.clone()],
            ),
            (
                "VALUES (?1, ?), (?1, ?)",
                "VALUES ($1, $2), ($1, $3)",
                vec![one.clone(), two.clone(), one.clone()],
            ),
        ] {
            let given = [one.clone(), two.clone(), one.clone()];
            assert_eq!(sent(sql, &given), (expected.to_owned(), values), "{sql}");
        }
    }

    #[test]
    fn what_is_for_one_engine_only_is_taken_by_that_one_only() {
        let sql = "SELECT a FROM t /*lite*/ INDEXED BY i /*end*/ WHERE b = ?1 /*pg: AND part = (?1 & 255) */ /* why */";
        let (sent, values) = sent(sql, &[Value::Integer(7)]);
        assert_eq!(sent, "SELECT a FROM t  WHERE b = $1  AND part = ($1::BIGINT & 255)  /* why */");
        assert_eq!(values, [Value::Integer(7)]);
    }

    #[test]
    fn a_partition_may_have_to_be_ours() {
        let (sql, _) = sent("SELECT 1 FROM t x WHERE a = 1 /*ours: x.part */ LIMIT 1", &[]);
        assert!(sql.contains("a = 1 AND x.part = ANY(ARRAY(SELECT part FROM partitions"), "{sql}");
        assert!(sql.contains("current_setting('sitemapd.node', true)"), "{sql}");
    }

    #[test]
    fn the_embedded_engine_is_told_nothing_that_is_for_a_server() {
        let sql = "INSERT INTO t (/*pg: part, */ a) VALUES (/*pg: ?1 & 255, */ ?1) /* why */";
        assert_eq!(near_text(sql), "INSERT INTO t ( a) VALUES ( ?1) /* why */");
    }

    #[test]
    fn limits_are_written_out_and_none_is_the_highest() {
        let text = "SELECT a FROM t WHERE b > ?1 LIMIT ?2 OFFSET ?3";
        let values = [Value::Integer(5), Value::Integer(10), Value::Integer(0)];
        let (sql, given) = sent(text, &values);
        assert_eq!(sql, "SELECT a FROM t WHERE b > $1 LIMIT 10 OFFSET 0");
        assert_eq!(given, [Value::Integer(5)]);
        let (sql, _) = sent("SELECT a LIMIT ?1", &[Value::Integer(-1)]);
        assert_eq!(sql, format!("SELECT a LIMIT {}", i64::MAX));
    }
}
