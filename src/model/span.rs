//! Lengths of time as people read them: one rounding, in sentences and on the command
//! line.
//!
//! Pure. What the store writes into a sentence and what the command line prints
//! below it are the same words for the same time.

use std::time::Duration;

use jiff::Timestamp;

/// A length of time in its leading unit: `320 ms`, `4.2 s`, `12 min`, `3 h`, `7 d`.
pub fn duration(value: Duration) -> String {
    let millis = value.as_millis();
    if millis < 1_000 {
        return format!("{millis} ms");
    }
    if millis < 10_000 {
        return format!("{}.{} s", millis / 1_000, millis % 1_000 / 100);
    }
    let secs = value.as_secs();
    match secs {
        0..90 => format!("{secs} s"),
        90..5_400 => format!("{} min", (secs + 30) / 60),
        5_400..129_600 => format!("{} h", (secs + 1_800) / 3_600),
        _ => format!("{} d", secs.saturating_add(43_200) / 86_400),
    }
}

/// An instant seen from `now`: `in 3 h`, `12 min ago`, `now`.
pub fn when(at: Timestamp, now: Timestamp) -> String {
    let distance = now.duration_until(at);
    let length = distance.unsigned_abs();
    if length < Duration::from_secs(1) {
        return "now".to_owned();
    }
    if distance.is_negative() {
        return format!("{} ago", duration(length));
    }
    format!("in {}", duration(length))
}

/// How something that is to be done at `at` is told at `now`: `due in 3 h`, `due for
/// 12 min`, `due now`.
pub fn due(at: Timestamp, now: Timestamp) -> String {
    let distance = now.duration_until(at);
    let length = distance.unsigned_abs();
    if length < Duration::from_secs(1) {
        return "due now".to_owned();
    }
    let towards = if distance.is_negative() { "for" } else { "in" };
    format!("due {towards} {}", duration(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_told_as_seen_from_now() {
        let now: Timestamp = "2026-11-21T08:00:00Z".parse().expect("a timestamp");
        let cases = [
            ("2026-11-21T08:00:00.4Z", "now", "due now"),
            ("2026-11-21T08:00:05Z", "in 5.0 s", "due in 5.0 s"),
            ("2026-11-21T07:48:00Z", "12 min ago", "due for 12 min"),
            ("2026-11-21T11:00:00Z", "in 3 h", "due in 3 h"),
            // A moment later it is as near to 24 h as before.
            ("2026-11-22T07:59:59.9Z", "in 24 h", "due in 24 h"),
            ("2026-11-28T08:00:00Z", "in 7 d", "due in 7 d"),
        ];
        for (at, seen, is_due) in cases {
            let at = at.parse().expect("a timestamp");
            assert_eq!((when(at, now).as_str(), due(at, now).as_str()), (seen, is_due));
        }
    }
}
