//! Laws of the pools.

use super::*;
use crate::recrawl::signal::PerSignal;

const DAY: Duration = Duration::from_secs(86_400);

fn look(days: f64, changes: f64) -> Evidence {
    Evidence {
        changed: changes > 0.0,
        days,
        signals: PerSignal::default(),
        expected_silent: 1.0,
        expected_signalled: 0.0,
        changes,
    }
}

#[test]
fn without_a_look_a_changefreq_means_its_configured_interval() {
    let none = Priors::default();
    for (bucket, days) in [(Bucket::Daily, 1), (Bucket::Weekly, 7), (Bucket::Yearly, 180)] {
        let rate = none.rate(&none, bucket, days * DAY);
        assert!((rate * f64::from(days) - 1.0).abs() < 1e-12, "{bucket:?}: {rate}");
    }
    assert!(none.looks(&none) <= 0.0);
}

#[test]
fn a_changefreq_means_what_the_pages_of_its_host_prove() {
    let (mut host, mut all) = (Priors::default(), Priors::default());
    for _ in 0..100 {
        // They claim to change daily, and change every 50 days.
        host.learn(Bucket::Daily, &look(10.0, 0.2));
        all.learn(Bucket::Daily, &look(10.0, 0.2));
    }
    let rate = host.rate(&all, Bucket::Daily, DAY);
    assert!((0.018..0.022).contains(&rate), "{rate}");
    let elsewhere = Priors::default().rate(&all, Bucket::Daily, DAY);
    assert!((0.018..0.03).contains(&elsewhere), "{elsewhere}");
    let other = host.rate(&all, Bucket::Weekly, 7 * DAY);
    assert!((other - 1.0 / 7.0).abs() < 1e-12, "another word was not looked at");
}

#[test]
fn a_pool_remembers_the_last_looks_more_than_the_first() {
    let mut host = Priors::default();
    for _ in 0..10_000 {
        host.learn(Bucket::Daily, &look(10.0, 0.2));
    }
    // As many as the weights of all looks sum up to.
    let looks = host.looks(&Priors::default());
    assert!((looks - 100.0).abs() < 1e-6, "{looks}");
    let of_others = Priors::default().looks(&host);
    assert!((of_others - 5.0).abs() < 1e-9, "looks elsewhere count for less");
}

#[test]
fn pools_come_back_as_they_were_kept() {
    let mut priors = Priors::default();
    for (n, bucket) in (1..).zip(Bucket::ALL) {
        priors.learn(bucket, &look(f64::from(n), 0.5));
    }
    let bytes = priors.pack();
    assert_eq!(bytes.len(), PACKED);
    assert_eq!(Priors::unpack(&bytes), Some(priors));
    assert_eq!(Priors::unpack(&bytes[1..]), None);
    let mut broken = bytes;
    broken[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    assert_eq!(Priors::unpack(&broken), None);
}

#[test]
fn every_changefreq_has_a_bucket() {
    let buckets: Vec<_> = ChangeFreq::ALL.into_iter().map(|word| Bucket::of(Some(word))).collect();
    for bucket in Bucket::ALL.into_iter().filter(|bucket| *bucket != Bucket::Absent) {
        assert!(buckets.contains(&bucket), "{bucket:?}");
    }
    assert_eq!(Bucket::of(None), Bucket::Absent);
}
