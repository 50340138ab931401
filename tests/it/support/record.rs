//! The beginning of a record of `feedback`, read by a second hand: what the
//! checks of lost work need to know of it.

use rusqlite::{Connection, OptionalExtension as _};

/// How the last lease of a URL ended, and how often it was fetched.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The first six hexadecimal digits of the last token that ended.
    pub token: Option<String>,
    /// 0 settled, 1 expired, 2 released.
    pub how: u8,
    pub fetches: u64,
    pub outcome: u8,
}

impl Kept {
    /// That of a URL; nothing where none is kept.
    pub fn of(conn: &Connection, url: i64) -> Self {
        let mut query =
            conn.prepare_cached("SELECT record FROM feedback WHERE url_id = ?1").unwrap();
        let packed: Option<Vec<u8>> = query.query_row([url], |row| row.get(0)).optional().unwrap();
        packed.map_or_else(Self::default, |packed| Self::read(&packed))
    }

    /// That of a record in hexadecimal.
    pub fn of_hex(packed: &str) -> Self {
        let byte = |at| u8::from_str_radix(&packed[at..at + 2], 16).unwrap();
        Self::read(&(0..packed.len()).step_by(2).map(byte).collect::<Vec<u8>>())
    }

    /// Was the last lease that ended this token's?
    pub fn ended(&self, token: &str) -> bool {
        self.token.as_deref() == Some(&token[..6])
    }

    fn read(packed: &[u8]) -> Self {
        let mut rest = packed.iter().copied();
        let parts = number(&mut rest);
        let (is_ended, is_fetched) = (parts & 1 != 0, parts & 2 != 0);
        let mut kept = Self::default();
        if !is_ended && !is_fetched {
            return kept;
        }
        // Two bits of how, three of the outcome, one that both counts are in one
        // byte, and milliseconds; then seconds.
        let low = rest.next().unwrap();
        let (at_once, few) = (3, 1 << 5);
        rest.by_ref().take(5).for_each(drop);
        if is_ended {
            let tag = rest.by_ref().take(3).fold(0_u32, |tag, byte| tag << 8 | u32::from(byte));
            kept.token = Some(format!("{tag:06x}"));
            kept.how = if low & 3 == at_once { 0 } else { low & 3 };
            // How long after the report, where that is not at once.
            if is_fetched && low & 3 != at_once {
                number(&mut rest);
            }
        }
        if is_fetched {
            kept.outcome = low >> 2 & 7;
            kept.fetches = if low & few == 0 {
                number(&mut rest)
            } else {
                u64::from(rest.next().unwrap() & 15)
            };
        }
        kept
    }
}

/// Seven bits a byte, the lowest first.
fn number(rest: &mut impl Iterator<Item = u8>) -> u64 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let byte = rest.next().unwrap();
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    number
}
