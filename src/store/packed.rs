//! The small columns of a row in one integer, in a file of our own: the embedded
//! engine spends a byte on each column beside its value, and reads over all of them.
//! On a server, which does not, they are columns of their own, and a statement says
//! both.
//!
//! Keeps: what is packed is read again as it was, within the ranges that stand here;
//! a value outside is cut to the nearest inside.

use std::sync::LazyLock;

use super::rows::{decode, kind, reason};
use crate::diff::snapshot::EntryHints;
use crate::model::{Precision, Reason, SiteId, UrlKind};

/// Some bits of a packed column, and the column of a server that they stand for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    name: &'static str,
    /// What it is packed into.
    within: &'static str,
    /// Bits below it.
    at: u32,
    width: u32,
    /// Is it one more than what the column of a server has, and 0 where that is null?
    is_nullable: bool,
}

impl Field {
    const fn said(name: &'static str, at: u32, width: u32) -> Self {
        Self { name, within: "said", at, width, is_nullable: false }
    }

    const fn place(name: &'static str, at: u32, width: u32) -> Self {
        Self { within: "place", ..Self::said(name, at, width) }
    }

    #[cfg(test)]
    pub(super) fn name(self) -> &'static str {
        self.name
    }

    /// It, of a row by this name; null where there is no row.
    pub(super) fn of(self, row: &str) -> String {
        let Self { name, within, at, is_nullable, .. } = self;
        // As the index of what is held has it.
        let shifted = if at == 0 { String::new() } else { format!(" >> {at}") };
        let code = format!("{row}.{within}{shifted} & {}", self.max());
        let near = if is_nullable { format!("NULLIF({code}, 0) - 1") } else { code };
        format!("/*lite*/ ({near}) /*end*/ /*pg: {row}.{name} */")
    }

    const fn max(self) -> i64 {
        (1 << self.width) - 1
    }

    const fn put(self, value: i64) -> i64 {
        let inside = if value < 0 {
            0
        } else if value > self.max() {
            self.max()
        } else {
            value
        };
        inside << self.at
    }

    const fn get(self, packed: i64) -> i64 {
        packed >> self.at & self.max()
    }
}

/// Fields of `urls.said`.
pub(super) mod said {
    use super::Field;

    pub(in crate::store) const LISTED: Field = Field::said("listed", 0, 1);
    pub(in crate::store) const KIND: Field = Field::said("kind", 1, 3);
    pub(in crate::store) const PRECISION: Field =
        Field { is_nullable: true, ..Field::said("lastmod_precision", 4, 3) };
    pub(in crate::store) const HINTS: Field = Field::said("hints", 7, 13);
    pub(in crate::store) const REASON: Field = Field::said("reason", 20, 3);
    pub(in crate::store) const BAND: Field = Field::said("band", 23, 7);
    /// Up to the year 2242.
    pub(in crate::store) const FIRST_SEEN: Field = Field::said("first_seen_s", 30, 33);
    pub(in crate::store) const ALL: [Field; 7] =
        [LISTED, KIND, PRECISION, HINTS, REASON, BAND, FIRST_SEEN];
}

/// Fields of `feedback.place`, of which the last is 0 as a rule, so that six bytes do.
pub(super) mod place {
    use super::Field;

    pub(in crate::store) const STATE: Field = Field::place("state", 0, 3);
    pub(in crate::store) const REASON: Field = Field::place("reason", 3, 4);
    pub(in crate::store) const BAND: Field = Field::place("band", 7, 7);
    /// Up to the year 9999.
    pub(in crate::store) const DUE: Field = Field::place("due_s", 14, 38);
    pub(in crate::store) const ATTEMPT: Field = Field::place("attempt", 52, 11);
    pub(in crate::store) const ALL: [Field; 5] = [STATE, REASON, BAND, DUE, ATTEMPT];
}

/// What `urls.said` has of a URL beside its text, its owners and its date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) listed: bool,
    pub(super) kind: UrlKind,
    pub(super) precision: Option<Precision>,
    pub(super) hints: EntryHints,
    pub(super) reason: Reason,
    pub(super) band: u8,
    pub(super) first_seen_s: i64,
}

impl Listing {
    pub(super) fn pack(self) -> i64 {
        said::LISTED.put(self.listed.into())
            | said::KIND.put(self.kind as i64)
            | said::PRECISION.put(self.precision.map_or(0, |precision| precision as i64 + 1))
            | said::HINTS.put(self.hints.to_bits().into())
            | said::REASON.put(self.reason as i64)
            | said::BAND.put(self.band.into())
            | said::FIRST_SEEN.put(self.first_seen_s)
    }

    pub(super) fn unpack(packed: i64) -> Self {
        let hints = u16::try_from(said::HINTS.get(packed)).ok();
        Self {
            listed: said::LISTED.get(packed) != 0,
            kind: kind(said::KIND.get(packed)),
            precision: decode(&Precision::ALL, said::PRECISION.get(packed) - 1),
            hints: hints.and_then(EntryHints::from_bits).unwrap_or_default(),
            reason: reason(said::REASON.get(packed)),
            band: band(said::BAND.get(packed)),
            first_seen_s: said::FIRST_SEEN.get(packed),
        }
    }
}

/// Where a URL stands, as `feedback.place` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) state: i64,
    pub(super) reason: Reason,
    pub(super) band: u8,
    pub(super) due_s: i64,
    pub(super) attempt: u32,
}

impl Standing {
    pub(super) fn pack(self) -> i64 {
        place::STATE.put(self.state)
            | place::REASON.put(self.reason as i64)
            | place::BAND.put(self.band.into())
            | place::DUE.put(self.due_s)
            | place::ATTEMPT.put(self.attempt.into())
    }

    pub(super) fn unpack(packed: i64) -> Self {
        Self {
            state: place::STATE.get(packed),
            reason: reason(place::REASON.get(packed)),
            band: band(place::BAND.get(packed)),
            due_s: place::DUE.get(packed),
            attempt: u32::try_from(place::ATTEMPT.get(packed)).unwrap_or(u32::MAX),
        }
    }
}

/// What `queue.owner` has: the site of a URL, and whether its value is to be taken anew.
pub(super) fn owner(site: Option<SiteId>, valued: bool) -> i64 {
    site.map_or(0, |site| site.0) << 1 | i64::from(valued)
}

/// The site that `queue.owner` has.
pub(super) fn site_of(owner: i64) -> Option<i64> {
    Some(owner >> 1).filter(|site| *site > 0)
}

/// Whether the value of a row with this `queue.owner` is to be taken anew.
pub(super) fn valued_of(owner: i64) -> bool {
    owner & 1 != 0
}

/// The site of a row of `queue` by this name, null where it has none.
pub(super) fn site_in(row: &str) -> String {
    format!("/*lite*/ NULLIF({row}.owner >> 1, 0) /*end*/ /*pg: {row}.site_id */")
}

/// Whether the value of a row of `queue` by this name is to be taken anew: 0 or 1.
pub(super) fn is_valued(row: &str) -> String {
    format!("/*lite*/ ({row}.owner & 1) /*end*/ /*pg: {row}.valued */")
}

/// Whether a row of `feedback` by this name is out of the queue, in the state that a
/// parameter says: by the index of those.
pub(super) fn is_held(row: &str, parameter: &str) -> String {
    let state = place::STATE.of(row);
    format!("{state} = {parameter} AND {state} > 1")
}

/// URLs that are held in the state ?1 behind ?2, at most ?3.
pub(super) static HELD_BEHIND: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT f.url_id FROM feedback f WHERE {} AND f.url_id > ?2 /*ours: f.part */
         ORDER BY f.url_id LIMIT ?3",
        is_held("f", "?1")
    )
});

/// The names under which a row of `queue` is inserted with what [`owner_of`] says.
pub(super) const OWNER_NAMES: &str = "/*lite*/ owner /*end*/ /*pg: site_id, valued */";

/// What is inserted under [`OWNER_NAMES`], of a parameter.
pub(super) fn owner_of(parameter: &str) -> String {
    format!(
        "/*lite*/ {parameter} /*end*/
         /*pg: NULLIF(CAST({parameter} AS BIGINT) >> 1, 0), CAST({parameter} AS BIGINT) & 1 */"
    )
}

/// It has seven bits.
fn band(code: i64) -> u8 {
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// `said`, of `urls u`.
pub(super) static SAID: LazyLock<String> =
    LazyLock::new(|| format!("/*lite*/ u.said /*end*/ /*pg: {} */", joined(&said::ALL, "u")));

/// `place`, of `feedback f`, null where there is no row.
pub(super) static PLACE: LazyLock<String> =
    LazyLock::new(|| format!("/*lite*/ f.place /*end*/ /*pg: {} */", joined(&place::ALL, "f")));

/// The names under which a row of `urls` is inserted with what [`said_of`] says.
pub(super) static SAID_NAMES: LazyLock<String> = LazyLock::new(|| names("said", &said::ALL));

/// The same of a row of `feedback`.
pub(super) static PLACE_NAMES: LazyLock<String> = LazyLock::new(|| names("place", &place::ALL));

/// What is inserted under [`SAID_NAMES`], of a parameter.
pub(super) fn said_of(parameter: &str) -> String {
    values(parameter, &said::ALL)
}

/// What is inserted under [`PLACE_NAMES`], of a parameter.
pub(super) fn place_of(parameter: &str) -> String {
    values(parameter, &place::ALL)
}

/// Sets where a URL stands to what was to be inserted.
pub(super) static PLACE_AGAIN: LazyLock<String> = LazyLock::new(|| {
    let apart = place::ALL.map(|field| format!("{0} = excluded.{0}", field.name));
    format!("/*lite*/ place = excluded.place /*end*/ /*pg: {} */", apart.join(", "))
});

/// Sets fields of a row of `urls` to parameters.
pub(super) fn set_said(fields: &[(Field, &str)]) -> String {
    let mask = fields.iter().fold(-1, |mask, (field, _)| mask & !(field.max() << field.at));
    let mut packed = format!("said & {mask}");
    let mut apart = Vec::with_capacity(fields.len());
    for (Field { name, at, is_nullable, .. }, value) in fields {
        let code =
            if *is_nullable { format!("coalesce({value} + 1, 0)") } else { (*value).to_owned() };
        packed = format!("({packed}) | (({code}) << {at})");
        apart.push(format!("{name} = {value}"));
    }
    format!("/*lite*/ said = {packed} /*end*/ /*pg: {} */", apart.join(", "))
}

/// The columns of a server as one number, null where there is no row.
fn joined(fields: &[Field], table: &str) -> String {
    let parts = fields.iter().map(|field| {
        let Field { name, at, is_nullable, .. } = field;
        let column = format!("CAST({table}.{name} AS BIGINT)");
        let value = if *is_nullable { format!("coalesce({column} + 1, 0)") } else { column };
        format!("(({value} & {}) << {at})", field.max())
    });
    parts.collect::<Vec<_>>().join(" | ")
}

fn names(packed: &str, fields: &[Field]) -> String {
    let apart: Vec<_> = fields.iter().map(|field| field.name).collect();
    format!("/*lite*/ {packed} /*end*/ /*pg: {} */", apart.join(", "))
}

fn values(parameter: &str, fields: &[Field]) -> String {
    let apart = fields.iter().map(|field| {
        let code = format!("(CAST({parameter} AS BIGINT) >> {}) & {}", field.at, field.max());
        if field.is_nullable { format!("NULLIF({code}, 0) - 1") } else { code }
    });
    let apart: Vec<_> = apart.collect();
    format!("/*lite*/ {parameter} /*end*/ /*pg: {} */", apart.join(", "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rusqlite::Connection;

    use super::*;
    use crate::model::{ChangeFreq, Priority};
    use crate::recrawl::SUBMITTED_BAND;

    fn one_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
        prop::sample::select(all)
    }

    fn said() -> impl Strategy<Value = Listing> {
        let hints = (prop::option::of(one_of(&ChangeFreq::ALL)), prop::option::of(0_u16..=1_000));
        let hints = hints.prop_map(|(changefreq, priority)| EntryHints {
            changefreq,
            priority: priority.and_then(Priority::from_thousandths),
        });
        let is_listed = any::<bool>();
        let precision = prop::option::of(one_of(&Precision::ALL));
        let (kind, reason) = (one_of(&UrlKind::ALL), one_of(&Reason::ALL));
        let (band, first_seen) = (0..=SUBMITTED_BAND, 0_i64..=8_589_934_591);
        (is_listed, kind, precision, hints, reason, band, first_seen).prop_map(
            |(listed, kind, precision, hints, reason, band, first_seen_s)| Listing {
                listed,
                kind,
                precision,
                hints,
                reason,
                band,
                first_seen_s,
            },
        )
    }

    fn standing() -> impl Strategy<Value = Standing> {
        let (state, reason) = (0_i64..=5, one_of(&Reason::ALL));
        // Up to the last second that has a date.
        let (band, due_s) = (0..=SUBMITTED_BAND, 0_i64..=253_402_300_799);
        (state, reason, band, due_s, 0_u32..=2_047).prop_map(
            |(state, reason, band, due_s, attempt)| Standing {
                state,
                reason,
                band,
                due_s,
                attempt,
            },
        )
    }

    fn store() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../schema.sql")).unwrap();
        conn
    }

    /// The columns of the first row of a table, by their names.
    fn read(conn: &Connection, table: &str, fields: &[Field]) -> Vec<Option<i64>> {
        let names: Vec<_> = fields.iter().map(|field| field.of(table)).collect();
        let sql = format!("SELECT {} FROM {table}", names.join(", "));
        let row = |row: &rusqlite::Row<'_>| (0..names.len()).map(|n| row.get(n)).collect();
        conn.query_row(&sql, (), row).unwrap()
    }

    fn codes(said: Listing) -> Vec<Option<i64>> {
        vec![
            Some(said.listed.into()),
            Some(said.kind as i64),
            said.precision.map(|precision| precision as i64),
            Some(said.hints.to_bits().into()),
            Some(said.reason as i64),
            Some(said.band.into()),
            Some(said.first_seen_s),
        ]
    }

    proptest! {
        #[test]
        fn what_was_packed_is_read_again_by_field(
            said in said(),
            standing in standing(),
            site in prop::option::of(1_i64..1 << 40),
            valued: bool,
        ) {
            prop_assert_eq!(Listing::unpack(said.pack()), said);
            prop_assert_eq!(Standing::unpack(standing.pack()), standing);
            let conn = store();
            let insert = format!(
                "INSERT INTO urls (id, crawl_id, host_id, path, {}) VALUES (1, 1, 1, '/', {})",
                *SAID_NAMES, said_of("?1")
            );
            conn.execute(&insert, [said.pack()]).unwrap();
            prop_assert_eq!(read(&conn, "urls", &said::ALL), codes(said));
            let insert = format!(
                "INSERT INTO feedback (url_id, {}, record) VALUES (1, {}, x'')",
                *PLACE_NAMES, place_of("?1")
            );
            conn.execute(&insert, [standing.pack()]).unwrap();
            let Standing { state, reason, band, due_s, attempt } = standing;
            let there = [state, reason as i64, band.into(), due_s, attempt.into()];
            prop_assert_eq!(read(&conn, "feedback", &place::ALL), there.map(Some).to_vec());
            let insert = format!(
                "INSERT INTO queue (crawl_id, host_id, band, due_s, url_id, {OWNER_NAMES})
                 VALUES (1, 1, 1, 1, 1, {})",
                owner_of("?1")
            );
            let packed = owner(site.map(SiteId), valued);
            prop_assert_eq!((site_of(packed), valued_of(packed)), (site, valued));
            conn.execute(&insert, [packed]).unwrap();
            let sql = format!("SELECT {}, {} FROM queue q", site_in("q"), is_valued("q"));
            let there = conn.query_row(&sql, (), |row| {
                Ok((row.get(0)?, row.get(1)?))
            });
            prop_assert_eq!(there, Ok((site, valued)));
        }

        #[test]
        fn fields_that_are_set_leave_the_others_as_they_are(one in said(), other in said()) {
            let conn = store();
            let insert = "INSERT INTO urls (id, crawl_id, host_id, path, said)
                          VALUES (1, 1, 1, '/', ?1)";
            conn.execute(insert, [one.pack()]).unwrap();
            let mut expected = codes(one);
            let mut set = |fields: &[(Field, usize)]| {
                let mut values = Vec::new();
                let mut named = Vec::new();
                for (field, at) in fields {
                    values.push(codes(other)[*at]);
                    expected[*at] = codes(other)[*at];
                    named.push((*field, ["?1", "?2"][named.len()]));
                }
                let sql = format!("UPDATE urls SET {}", set_said(&named));
                conn.execute(&sql, rusqlite::params_from_iter(values)).unwrap();
                assert_eq!(read(&conn, "urls", &said::ALL), expected);
            };
            set(&[(said::LISTED, 0)]);
            set(&[(said::KIND, 1)]);
            set(&[(said::PRECISION, 2)]);
            set(&[(said::HINTS, 3)]);
            set(&[(said::REASON, 4), (said::BAND, 5)]);
        }
    }

    #[test]
    fn what_is_outside_is_cut_to_the_nearest_inside() {
        let far =
            Standing { state: 0, reason: Reason::New, band: 0, due_s: i64::MAX, attempt: u32::MAX };
        let kept = Standing::unpack(far.pack());
        assert_eq!((kept.due_s, kept.attempt), (274_877_906_943, 2_047));
        let kept = Standing::unpack(Standing { due_s: -1, ..far }.pack());
        assert_eq!((kept.due_s, kept.reason, kept.band), (0, Reason::New, 0));
    }
}
