//! What publishers say of a page to those who crawl it: when it last changed,
//! how often it does, how it ranks among their own (Sitemaps protocol, XML tag
//! definitions). What is believed of it is decided elsewhere.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// How much of a date its writer gave. Ordered from coarse to fine.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Precision {
    /// `2026`
    Year,
    /// `2026-11`
    Month,
    /// `2026-11-21`
    Day,
    /// `2026-11-21T08:30Z`
    Minute,
    /// `2026-11-21T08:30:05Z`
    Second,
    /// `2026-11-21T08:30:05.25Z`
    Fraction,
}

impl Precision {
    /// Every precision, in the order of the codes stored for them.
    pub const ALL: [Self; 6] =
        [Self::Year, Self::Month, Self::Day, Self::Minute, Self::Second, Self::Fraction];
}

/// A date as a publisher wrote it: an instant and how precisely it was given.
///
/// A coarse date stands for the first instant (UTC) of what it names, so
/// `2026` is `2026-01-01T00:00:00Z` with [`Precision::Year`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lastmod {
    /// First instant that the date stands for.
    pub at: Timestamp,
    /// How much of it was written.
    pub precision: Precision,
}

impl Lastmod {
    /// Is this date strictly newer than `other`, at the coarser precision of
    /// the two? So `2026-11-21` and `2026-11-21T08:30Z` are the same date.
    pub fn is_newer_than(self, other: Self) -> bool {
        let coarser = self.precision.min(other.precision);
        truncate(self.at, coarser) > truncate(other.at, coarser)
    }

    /// Is this date strictly older than `other`, at the coarser precision?
    pub fn is_older_than(self, other: Self) -> bool {
        other.is_newer_than(self)
    }
}

/// Cuts an instant down to the start (UTC) of the year, month, day, … it is in.
fn truncate(at: Timestamp, precision: Precision) -> i64 {
    const DAY: i64 = 86_400;
    let second = at.as_second();
    match precision {
        Precision::Second | Precision::Fraction => second,
        Precision::Minute => second.div_euclid(60) * 60,
        Precision::Day => second.div_euclid(DAY) * DAY,
        Precision::Month | Precision::Year => {
            let date = at.to_zoned(TimeZone::UTC).date();
            let month = if precision == Precision::Month { i64::from(date.month()) } else { 0 };
            // Not an instant any more, but it orders the same way.
            i64::from(date.year()) * 12 + month
        }
    }
}

impl fmt::Display for Lastmod {
    /// Writes the date at the precision it was given: `2026`, `2026-11`,
    /// `2026-11-21`, or RFC 3339 in UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = self.at.to_zoned(TimeZone::UTC).date();
        match self.precision {
            Precision::Year => write!(f, "{:04}", date.year()),
            Precision::Month => write!(f, "{:04}-{:02}", date.year(), date.month()),
            Precision::Day => write!(f, "{:04}-{:02}-{:02}", date.year(), date.month(), date.day()),
            Precision::Minute | Precision::Second | Precision::Fraction => self.at.fmt(f),
        }
    }
}

impl schemars::JsonSchema for Lastmod {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Lastmod".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A date at the precision that it was given with: a year, a month, a \
                day, or RFC 3339 in UTC.",
            "examples": ["2026", "2026-11", "2026-11-21", "2026-11-21T08:30:00Z"],
        })
    }
}

impl serde::Serialize for Lastmod {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Lastmod {
    /// Reads what [`fmt::Display`] writes, and no other spelling. Of an instant
    /// it is not known any more how precisely it was given: to the second.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let (rest, precision) = match text.len() {
            4 => ("-01-01T00:00:00Z", Precision::Year),
            7 => ("-01T00:00:00Z", Precision::Month),
            10 => ("T00:00:00Z", Precision::Day),
            _ => ("", Precision::Second),
        };
        let at = format!("{text}{rest}").parse().map_err(serde::de::Error::custom)?;
        Ok(Self { at, precision })
    }
}

/// A lastmod and how precisely it was given, for where that must not be lost.
pub(crate) mod exact {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Lastmod, Precision};

    type Parts = (Timestamp, Precision);

    pub(crate) fn serialize<S: Serializer>(date: &Lastmod, to: S) -> Result<S::Ok, S::Error> {
        (date.at, date.precision).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Lastmod, D::Error> {
        Parts::deserialize(from).map(|(at, precision)| Lastmod { at, precision })
    }

    /// The same where there may be none.
    pub(crate) mod option {
        use super::{Deserialize, Deserializer, Lastmod, Parts, Serialize, Serializer};

        // The signature is what serde calls.
        #[allow(clippy::ref_option)]
        pub(crate) fn serialize<S: Serializer>(
            date: &Option<Lastmod>,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            date.map(|date| (date.at, date.precision)).serialize(to)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Lastmod>, D::Error> {
            let parts = <Option<Parts>>::deserialize(from)?;
            Ok(parts.map(|(at, precision)| Lastmod { at, precision }))
        }
    }
}

/// `<changefreq>` of the Sitemaps protocol: a hint, not a command.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ChangeFreq {
    /// Changes each time it is accessed.
    Always,
    /// Every hour.
    Hourly,
    /// Every day.
    Daily,
    /// Every week.
    Weekly,
    /// Every month.
    Monthly,
    /// Every year.
    Yearly,
    /// Archived; it is still looked at again, but rarely.
    Never,
}

impl ChangeFreq {
    /// Every value, in the order of the codes stored for them.
    pub const ALL: [Self; 7] = [
        Self::Always,
        Self::Hourly,
        Self::Daily,
        Self::Weekly,
        Self::Monthly,
        Self::Yearly,
        Self::Never,
    ];

    /// The word of the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Yearly => "yearly",
            Self::Never => "never",
        }
    }
}

impl FromStr for ChangeFreq {
    type Err = ();

    /// Reads the word of the protocol, in any letter case.
    fn from_str(word: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|f| f.as_str().eq_ignore_ascii_case(word)).ok_or(())
    }
}

/// `<priority>` of the Sitemaps protocol, kept in thousandths: 0 to 1000.
/// Relative within one site only; 500 where none is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Priority(u16);

impl Priority {
    /// What the protocol takes where none is given: 0.5.
    pub const DEFAULT: Self = Self(500);

    /// From a number; `None` outside 0.0 to 1.0 and for NaN.
    pub fn from_f64(value: f64) -> Option<Self> {
        // In range, so the cast can neither cut nor wrap.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        (0.0..=1.0).contains(&value).then(|| Self((value * 1000.0).round() as u16))
    }

    /// From thousandths; `None` over 1000.
    pub fn from_thousandths(value: u16) -> Option<Self> {
        (value <= 1000).then_some(Self(value))
    }

    /// In thousandths.
    pub fn thousandths(self) -> u16 {
        self.0
    }

    /// As the number of the protocol.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl schemars::JsonSchema for Priority {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Priority".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
}

impl<'de> serde::Deserialize<'de> for Priority {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        // Within 0 and 1,000.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let thousandths = (value.clamp(0.0, 1.0) * 1000.0).round() as u16;
        Ok(Self(thousandths))
    }
}

impl serde::Serialize for Priority {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lastmod(at: &str, precision: Precision) -> Lastmod {
        Lastmod { at: at.parse().expect("a timestamp"), precision }
    }

    #[test]
    fn a_date_and_a_time_of_the_same_day_are_the_same_lastmod() {
        let day = lastmod("2026-11-21T00:00:00Z", Precision::Day);
        let time = lastmod("2026-11-21T08:30:00Z", Precision::Second);
        assert!(!time.is_newer_than(day));
        assert!(!day.is_newer_than(time));
    }

    #[test]
    fn an_edit_of_the_next_day_is_newer_though_only_its_day_is_told() {
        let evening = lastmod("2026-11-20T18:00:00Z", Precision::Second);
        let next_day = lastmod("2026-11-21T00:00:00Z", Precision::Day);
        assert!(next_day.is_newer_than(evening));
        assert!(!evening.is_newer_than(next_day));
    }

    #[test]
    fn a_later_year_is_newer_at_every_precision() {
        for precision in Precision::ALL {
            let old = lastmod("2025-12-31T23:59:59Z", precision);
            let new = lastmod("2026-01-01T00:00:00Z", precision);
            assert!(new.is_newer_than(old), "{precision:?}");
            assert!(!old.is_newer_than(new), "{precision:?}");
        }
    }

    #[test]
    fn a_lastmod_is_written_at_the_precision_it_was_given() {
        let at = "2026-11-01T00:00:00Z";
        assert_eq!(lastmod(at, Precision::Year).to_string(), "2026");
        assert_eq!(lastmod(at, Precision::Month).to_string(), "2026-11");
        assert_eq!(lastmod(at, Precision::Day).to_string(), "2026-11-01");
        assert_eq!(lastmod(at, Precision::Minute).to_string(), "2026-11-01T00:00:00Z");
    }

    #[test]
    fn a_priority_outside_the_protocol_is_none() {
        for value in [-0.1, 1.01, f64::NAN, f64::INFINITY] {
            assert_eq!(Priority::from_f64(value), None, "{value}");
        }
        assert_eq!(Priority::from_f64(0.8).map(Priority::thousandths), Some(800));
    }
}
