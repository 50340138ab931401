//! What happens on the example site, step by step.
//!
//! The same every time: a step depends on its number only. The site neither
//! grows nor shrinks beyond bounds, however long the demo runs.

use std::time::Duration;

use jiff::Timestamp;

use super::site::{Kind, Site};

/// Time between two steps.
pub(super) const STEP: Duration = Duration::from_secs(2);
/// Above this many pages of a kind, one goes for each that comes.
const MAX_OF_KIND: usize = 24;
/// Below this many, none goes.
const MIN_OF_KIND: usize = 8;

/// Lets step number `step` happen at `now`: something is edited in every step,
/// something comes or goes in most.
pub(super) fn advance(site: &mut Site, step: u64, now: Timestamp) {
    edit(site, Kind::Article, step, now);
    if step.is_multiple_of(2) {
        edit(site, Kind::Product, step, now);
    }
    if step % 3 == 1 {
        // Nothing tells of this one: only looking again finds it.
        edit(site, Kind::Note, step, now);
    }
    match step % 6 {
        0 | 3 => publish(site, Kind::Article, now),
        1 => withdraw(site, Kind::Product, step),
        2 => publish(site, Kind::Product, now),
        4 => withdraw(site, Kind::Note, step),
        _ => publish(site, Kind::Note, now),
    }
}

fn edit(site: &mut Site, kind: Kind, step: u64, now: Timestamp) {
    if let Some(at) = nth_of(site, kind, step) {
        site.edit(at, now);
    }
}

fn publish(site: &mut Site, kind: Kind, now: Timestamp) {
    site.publish(kind, now);
    let oldest = site.of_kind(kind).next().map(|(at, _)| at);
    if site.of_kind(kind).count() > MAX_OF_KIND
        && let Some(oldest) = oldest
    {
        site.withdraw(oldest);
    }
}

fn withdraw(site: &mut Site, kind: Kind, step: u64) {
    if site.of_kind(kind).count() > MIN_OF_KIND
        && let Some(at) = nth_of(site, kind, step)
    {
        site.withdraw(at);
    }
}

/// A page of this kind, another one in each step: 7 shares no factor with most
/// lengths, so that the choice wanders over all.
fn nth_of(site: &Site, kind: Kind, step: u64) -> Option<usize> {
    let length = site.of_kind(kind).count() as u64;
    let nth = step.wrapping_mul(7).checked_rem(length)?;
    site.of_kind(kind).nth(usize::try_from(nth).ok()?).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_changes_in_every_step_and_stays_small_for_ever() {
        let now = "2026-11-21T08:00:00Z".parse().expect("a timestamp");
        let mut site = Site::new("http://127.0.0.1:1".to_owned(), now);
        let (mut added, mut gone) = (0, 0);
        for step in 1..=2_000 {
            let before: Vec<(String, u32)> =
                site.pages.iter().map(|page| (page.path(), page.version)).collect();
            advance(&mut site, step, now);
            let after: Vec<(String, u32)> =
                site.pages.iter().map(|page| (page.path(), page.version)).collect();
            assert_ne!(before, after, "step {step}");
            let has = |list: &[(String, u32)], path: &str| list.iter().any(|(at, _)| at == path);
            added += after.iter().filter(|(path, _)| !has(&before, path)).count();
            gone += before.iter().filter(|(path, _)| !has(&after, path)).count();
            assert!((3 * MIN_OF_KIND - 3..=3 * MAX_OF_KIND).contains(&site.pages.len()));
        }
        assert!(added > 500 && gone > 500, "{added} {gone}");
    }
}
