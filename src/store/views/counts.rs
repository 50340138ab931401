//! What a poll made of the URLs that it read.
//!
//! Keeps: of the log of polls, which has a row for each poll of each robots.txt, only
//! what is not 0 is written.

use std::collections::HashMap;

/// URLs by what a poll made of them.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
pub struct Counts {
    /// Listed by this source for the first time.
    pub new: u64,
    /// With a strictly newer lastmod.
    pub changed: u64,
    /// With another content digest and no newer lastmod.
    pub touched: u64,
    /// With a lastmod that went backwards.
    pub regressed: u64,
    /// As before.
    pub unchanged: u64,
    /// Absent from a complete read of a full source: pages that no other entry stands for.
    pub missing: u64,
    /// Of these for the first time: as many change events are told.
    pub first_missing: u64,
    /// Absent for long enough.
    pub removed: u64,
    /// Not admitted: out of scope, excluded, invalid, over quota.
    pub rejected: u64,
}

impl Counts {
    /// The same with these added.
    pub(in crate::store) fn add(&mut self, more: &Self) {
        let Self { new, changed, touched, regressed, unchanged, .. } = more;
        let Self { missing, first_missing, removed, rejected, .. } = more;
        self.new += new;
        self.changed += changed;
        self.touched += touched;
        self.regressed += regressed;
        self.unchanged += unchanged;
        self.missing += missing;
        self.first_missing += first_missing;
        self.removed += removed;
        self.rejected += rejected;
    }

    /// As the log of polls keeps them: those that are not 0, as JSON. Most polls count
    /// nothing.
    pub(in crate::store) fn kept(&self) -> String {
        let Ok(serde_json::Value::Object(mut counts)) = serde_json::to_value(self) else {
            return "{}".to_owned();
        };
        counts.retain(|_, count| *count != 0);
        serde_json::Value::Object(counts).to_string()
    }

    /// What [`Self::kept`] wrote; nothing where these are no counts.
    pub(in crate::store) fn of_kept(text: &str) -> Self {
        let kept: HashMap<&str, u64> = serde_json::from_str(text).unwrap_or_default();
        let count = |name| kept.get(name).copied().unwrap_or(0);
        Self {
            new: count("new"),
            changed: count("changed"),
            touched: count("touched"),
            regressed: count("regressed"),
            unchanged: count("unchanged"),
            missing: count("missing"),
            first_missing: count("first_missing"),
            removed: count("removed"),
            rejected: count("rejected"),
        }
    }

    /// What happened, without what did not, each with its word.
    pub fn told(&self) -> impl Iterator<Item = (u64, &'static str)> + use<> {
        [
            (self.new, "new"),
            (self.changed, "changed"),
            (self.touched, "touched"),
            (self.regressed, "regressed"),
            (self.missing, "missing"),
            (self.removed, "removed"),
            (self.rejected, "rejected"),
        ]
        .into_iter()
        .filter(|(urls, _)| *urls > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_come_back_as_they_were_and_take_no_room_where_there_are_none() {
        let none = Counts::default();
        assert_eq!(none.kept(), "{}");
        let some = Counts { new: 1, missing: 5, rejected: u64::from(u32::MAX), ..none };
        let all = Counts {
            new: 1,
            changed: 2,
            touched: 3,
            regressed: 4,
            unchanged: 5,
            missing: 6,
            first_missing: 2,
            removed: 7,
            rejected: 8,
        };
        for counts in [none, some, all] {
            assert_eq!(Counts::of_kept(&counts.kept()), counts);
            // As builds before wrote them.
            assert_eq!(Counts::of_kept(&serde_json::to_string(&counts).unwrap()), counts);
        }
        assert_eq!(some.kept(), r#"{"missing":5,"new":1,"rejected":4294967295}"#);
        assert_eq!(Counts::of_kept("[]"), none);
    }
}
