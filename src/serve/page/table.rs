//! One form for all tables: a caption, headers with a scope, and on a narrow
//! screen each row a card in which every value still has its name.

use maud::{Markup, html};

/// One column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    name: &'static str,
    is_number: bool,
}

/// A column of words.
pub(super) const fn words(name: &'static str) -> Column {
    Column { name, is_number: false }
}

/// A column of numbers.
pub(super) const fn number(name: &'static str) -> Column {
    Column { name, is_number: true }
}

/// A table; the first cell of each row names it. Without rows, `none` in its
/// place.
pub(super) fn table(caption: &str, none: &str, columns: &[Column], rows: &[Vec<Markup>]) -> Markup {
    html! {
        @if rows.is_empty() {
            p.quiet { (none) }
        } @else {
            table.narrow[columns.len() <= 2] {
                caption { (caption) }
                thead { tr { @for column in columns {
                    th.n[column.is_number] scope="col" { (column.name) }
                } } }
                tbody { @for row in rows { tr {
                    @for (place, (column, cell)) in columns.iter().zip(row).enumerate() {
                        @if place == 0 {
                            th scope="row" { (cell) }
                        } @else {
                            td.n[column.is_number] data-is=[(!cell.0.is_empty()).then_some(column.name)] { (cell) }
                        }
                    }
                } } }
            }
        }
    }
}

/// Facts, each with its name.
pub(super) fn facts(facts: &[(&str, Markup)]) -> Markup {
    html! {
        dl.facts { @for (name, fact) in facts.iter().filter(|(_, fact)| !fact.0.is_empty()) {
            dt { (name) } dd { (fact) }
        } }
    }
}
