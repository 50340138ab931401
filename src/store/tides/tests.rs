//! Tests of the tides: each poll is counted once, in whatever parts it is read.

use super::*;

const NOW: &str = "2026-11-21T12:30:00Z";

/// Documents that were read: id, hours ago, result, new URLs.
fn table(polls: &[(i64, i64, &str, u64)]) -> Connection {
    let conn = Connection::Embedded(rusqlite::Connection::open_in_memory().expect("memory"));
    conn.execute_batch(include_str!("../../../schema.sql")).expect("the schema");
    for (id, hours_ago, result, new) in polls {
        let at = now().as_millisecond() - hours_ago * HOUR_MS;
        // Those that are not 0, or all, as builds before wrote them.
        let counts = if id % 2 == 0 {
            format!("{{\"new\":{new},\"changed\":2}}")
        } else {
            format!("{{\"new\":{new},\"changed\":1,\"touched\":1,\"removed\":0}}")
        };
        conn.execute(
            "INSERT INTO polls (id, source_id, generation, at, took_ms, result, counts)
             VALUES (?1, 1, 1, ?2, 1, ?3, ?4)",
            params![id, at, result, counts],
        )
        .expect("a poll");
    }
    conn
}

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

fn read_on(conn: &Connection, tides: &mut Tides) {
    loop {
        let part = tide_part(conn, tides.seen, tides.is_whole, first_hour(now())).expect("a part");
        if tides.take(part, now()) {
            return;
        }
    }
}

#[test]
fn every_poll_of_the_week_is_counted_once_in_its_hour() {
    let conn = table(&[
        (1, 200, "changed", 1_000),
        (100_000, 167, "changed", 5),
        (200_000, 1, "failed", 0),
        (200_001, 0, "unchanged", 0),
    ]);
    conn.execute("UPDATE polls SET generation = NULL WHERE id >= 200000", ()).expect("no reads");
    let mut tides = Tides::default();
    read_on(&conn, &mut tides);
    read_on(&conn, &mut tides);
    let week: Vec<Tide> = tides.week(now()).collect();
    assert_eq!(week.len(), 168);
    assert_eq!(week[0], Tide { polls: 1, new: 5, changed: 2, ..Tide::default() });
    assert_eq!(week[166], Tide { polls: 1, failed: 1, ..Tide::default() });
    assert_eq!(week[167], Tide { polls: 1, ..Tide::default() });
    assert_eq!(tides.since(), None);
}

#[test]
fn whatever_a_read_was_called_what_it_found_is_counted_and_only_failures_are_failed() {
    for (result, failed) in [
        ("changed", 0),
        ("unchanged", 0),
        ("not-modified", 0),
        ("incomplete", 0),
        ("pushed", 0),
        // No poll at all.
        ("let-go", 0),
        ("failed", 1),
        ("throttled", 1),
    ] {
        let conn = table(&[(1, 0, result, 3)]);
        conn.execute(
            "UPDATE polls SET counts = replace(counts, '\"removed\":0', '\"removed\":4')",
            (),
        )
        .expect("a removal");
        let mut tides = Tides::default();
        read_on(&conn, &mut tides);
        let polls = u64::from(result != "let-go");
        let expected = Tide { polls, failed, new: 3, changed: 2, removed: 4 };
        assert_eq!(tides.week(now()).last(), Some(expected), "{result}");
    }
}

#[test]
fn what_came_since_is_added_and_nothing_is_read_twice() {
    let conn = table(&[(1, 1, "changed", 3)]);
    let mut tides = Tides::default();
    read_on(&conn, &mut tides);
    conn.execute("UPDATE polls SET id = 2, at = at + ?1", [HOUR_MS]).expect("a newer poll");
    read_on(&conn, &mut tides);
    let found: Vec<u64> = tides.week(now()).map(|tide| tide.new).collect();
    assert_eq!(found[166..], [3, 3]);
}

#[test]
fn numbers_that_were_left_out_are_no_steps() {
    let far = 1 << 50;
    let conn = table(&[(1, 3, "changed", 1), (far, 2, "changed", 1)]);
    let mut tides = Tides::default();
    read_on(&conn, &mut tides);
    conn.execute("UPDATE polls SET id = ?1, at = at + ?2 WHERE id = ?3", [2 * far, HOUR_MS, far])
        .expect("a newer poll");
    read_on(&conn, &mut tides);
    let found: Vec<u64> = tides.week(now()).map(|tide| tide.new).collect();
    assert_eq!(found[164..], [1, 1, 1, 0]);
}

#[test]
fn a_week_that_is_not_read_yet_says_since_when_it_is() {
    let conn =
        table(&[(1, 20, "changed", 1), (60_000, 10, "changed", 1), (110_000, 1, "changed", 1)]);
    let mut tides = Tides::default();
    let part = tide_part(&conn, None, false, first_hour(now())).expect("a part");
    assert!(!tides.take(part, now()));
    let hour = |ago| timestamp((now().as_millisecond() / HOUR_MS - ago) * HOUR_MS);
    assert_eq!(tides.since(), Some(hour(1)));
    read_on(&conn, &mut tides);
    assert_eq!(tides.since(), None);
    assert_eq!(tides.week(now()).map(|tide| tide.polls).sum::<u64>(), 3);
}

#[test]
fn a_store_without_polls_has_no_tide_and_no_end_of_one() {
    let conn = table(&[]);
    let mut tides = Tides::default();
    read_on(&conn, &mut tides);
    assert!(tides.week(now()).all(|tide| tide == Tide::default()));
    let later = table(&[(1, 0, "changed", 2)]);
    read_on(&later, &mut tides);
    assert_eq!(tides.week(now()).last().map(|tide| tide.new), Some(2));
}

#[test]
fn no_statement_of_the_pages_reads_the_tables_that_grow_with_the_urls() {
    let text = include_str!("../pages.rs");
    for table in ["urls", "queue", "feedback", "leases", "url_sources", "extensions"] {
        for word in ["FROM", "JOIN"] {
            assert!(!text.contains(&format!("{word} {table} ")), "{word} {table}");
        }
    }
}
