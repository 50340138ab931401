//! Rounds, and the steps of a look.

use super::*;

fn round(looked_at: usize, found: usize) -> Round {
    let (begun_at, price, ticked_at) = (1_000, 1.0, 900);
    let (left, aside, is_close, heard) = (VecDeque::new(), VecDeque::new(), false, 0);
    Round { left, aside, begun_at, price, ticked_at, looked_at, found, is_close, heard }
}

#[test]
fn a_round_is_repeated_when_the_price_has_moved_and_there_is_reason_to_hope() {
    let hour = 1_000 + 3_600_000;
    for (looked_at, found, price, ticked_at, now, expected) in [
        (640, 10, 1.0, 2_000, hour, true),
        (640, 10, 1.0, 900, hour, false),
        (640, 9, 1.0, 2_000, hour, false),
        (640, 9, 0.96, 2_000, hour, false),
        (640, 9, 0.95, 2_000, hour, true),
        (640, 0, 2.0, 2_000, 1_000 + AGAIN_MS, true),
        (640, 0, 2.0, 2_000, 999, true),
        (0, 0, 1.0, 2_000, hour, false),
    ] {
        let is_over = round(looked_at, found).is_over(price, ticked_at, now);
        assert_eq!(is_over, expected, "{looked_at} {found} {price} {ticked_at} {now}");
    }
    let mut risen = round(640, 10);
    assert!(!risen.has_risen_to(1.04));
    assert!(risen.has_risen_to(1.06));
    assert!(!risen.is_over(1.06, 2_000, hour), "nothing is to be hoped for");
    assert!(risen.is_over(1.0, 2_000, hour), "but what was written meanwhile");
    let mut unfinished = round(640, 10);
    unfinished.left.push_back(Reached::nothing(HostId(1)));
    assert!(!unfinished.is_over(0.1, 2_000, hour), "it is gone through first");
}

#[test]
fn rounds_of_more_sites_than_there_is_room_for_wait_until_others_are_old() {
    let begun_at = |begun_at| Round { begun_at, ..round(0, 0) };
    let whose = |site: usize| (CrawlId(1), vec![SiteId(i64::try_from(site).unwrap())]);
    let (mut looks, hour) = (EarlyLooks::default(), 3_600_000);
    for site in 0..=OF_SITES {
        looks.begin(&whose(site), begun_at(if site == 5 { 0 } else { 1_000 }));
    }
    assert_eq!(looks.rounds.len(), OF_SITES);
    assert!(!looks.rounds.contains_key(&whose(OF_SITES)));
    looks.begin(&(CrawlId(1), Vec::new()), begun_at(2_000));
    assert_eq!(looks.rounds.len(), OF_SITES + 1, "that of all has room");
    for site in [OF_SITES, OF_SITES + 1] {
        looks.begin(&whose(site), begun_at(hour));
    }
    assert!(looks.rounds.contains_key(&whose(OF_SITES)));
    assert!(!looks.rounds.contains_key(&whose(5)) && looks.rounds.contains_key(&whose(6)));
    assert_eq!(looks.rounds.len(), OF_SITES + 1);
    looks.forget(CrawlId(1));
    assert!(looks.rounds.is_empty());
}

#[test]
fn steps_lead_to_the_end_of_any_list_and_never_back() {
    for is_close in [false, true] {
        let (now, mut spot, mut steps) = (1_000, (1_001, 7), 0);
        while spot.0 < now + 400 * 86_400 {
            let next = beyond(spot, now, is_close);
            assert!(next > spot);
            (spot, steps) = (next, steps + 1);
        }
        assert!(steps <= 24, "{steps}");
    }
    assert_eq!(beyond((i64::MAX, 1), 0, false).0, i64::MAX);
}

#[test]
fn hosts_that_something_came_back_to_are_gone_through_again_by_each_round_once() {
    let (of_all, of_site) = ((CrawlId(1), Vec::new()), (CrawlId(1), vec![SiteId(1)]));
    let (one, other) = (HostId(1), HostId(2));
    let mut looks = EarlyLooks::default();
    looks.came_back(CrawlId(1), one);
    assert!(looks.back.is_empty(), "nobody is past it");
    looks.begin(&of_all, round(0, 0));
    looks.begin(&of_site, round(0, 0));
    let left = |looks: &mut EarlyLooks, whose: &Whose| {
        looks.hear(whose, &[one]);
        let round = looks.rounds.get_mut(whose).unwrap();
        let mut hosts: Vec<_> = round.left.iter().map(|reached| reached.host).collect();
        hosts.sort_unstable();
        hosts
    };
    let been = Reached { below: 7, ..Reached::nothing(one) };
    looks.rounds.get_mut(&of_all).unwrap().left.push_back(been);
    for host in [one, one, other] {
        looks.came_back(CrawlId(1), host);
        looks.came_back(CrawlId(2), host);
    }
    assert_eq!(left(&mut looks, &of_all), [one, other]);
    assert!(looks.rounds[&of_all].left.iter().all(|reached| reached.below > 7), "from the start");
    assert_eq!(left(&mut looks, &of_site), [one], "of its own hosts");
    looks.rounds.values_mut().for_each(|round| round.left.clear());
    assert_eq!(left(&mut looks, &of_all), []);
    looks.came_back(CrawlId(1), other);
    looks.came_back(CrawlId(1), other);
    assert_eq!(left(&mut looks, &of_all), [other]);
    looks.rounds.values_mut().for_each(|round| round.left.clear());
    looks.came_back(CrawlId(1), other);
    assert_eq!(left(&mut looks, &of_all), [other], "also where it was the last before");
    for host in 0..=i64::try_from(BACK).unwrap() {
        looks.came_back(CrawlId(1), HostId(host));
    }
    assert!(looks.rounds.is_empty() && looks.back.is_empty(), "of more, all begin anew");
}
