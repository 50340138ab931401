//! On a host that cannot keep up, new URLs keep their share of the fetches.

use std::time::Duration;

use sitemapd::model::{Outcome, Reason};

use crate::support::queue_daemon::{Queue, entry};

const DAY: Duration = Duration::from_secs(86_400);

/// So many pages of one host, long overdue, that all stand in one band.
async fn overdue(pages: u32, band: u8) -> Queue {
    let queue = Queue::simple().await;
    queue.list_urls("a", (0..pages).map(|n| format!("http://a.test/{n}"))).await;
    for _ in 0..3 {
        let leased = queue.lease(pages).await;
        assert_eq!(leased.len(), pages as usize);
        for leased in leased {
            queue.settle(leased.token, Outcome::Unchanged).await;
        }
        queue.clock.advance(200 * DAY);
    }
    queue.look().change_packed(
        &format!("UPDATE feedback SET place = (place & ~(127 << 7)) | ({band} << 7)"),
        &format!("UPDATE feedback SET band = {band}"),
    );
    queue.look().change(&format!("UPDATE queue SET band = {band}"));
    queue.reopen(Duration::from_secs(1)).await
}

#[tokio::test]
async fn pages_that_are_worth_more_leave_one_fetch_in_four_to_new_urls() {
    // Those of a priority of 0.6 stand in the band of the others, behind them.
    for (band, priority, is_read_anew) in [(90, 0.5, false), (90, 0.5, true), (80, 0.6, true)] {
        let mut queue = overdue(1_200, band).await;
        let leased = queue.lease(100).await;
        assert!(leased.len() == 100 && leased.iter().all(|url| url.reason == Reason::Recrawl));
        let new = (0..200).map(|n| entry(format!("http://a.test/new/{n}")).priority(priority));
        queue.list("a", &new.collect::<Vec<_>>()).await;
        if is_read_anew {
            queue = queue.reopen(Duration::from_secs(1)).await;
        }
        let leased = queue.lease(400).await;
        let new = leased.iter().filter(|url| url.reason == Reason::New).count();
        assert_eq!(leased.len(), 400);
        assert!((95..=105).contains(&new), "{new} in band {band}, {is_read_anew}");
    }
}
