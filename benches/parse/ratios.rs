//! How one reader compares with another, told on a machine that others use too.
//!
//! Both read in turns, so that whatever slows the machine slows both, and what
//! is counted is the time on the processor, without that of waiting for one. The
//! best run of each is what it can do; the median of the quotients of
//! neighbours shows whether the bests were luck.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Turns that each pair of readers takes.
const TURNS: usize = 101;

/// A reader by name; says how many entries it found.
pub(crate) struct Contender<'a> {
    pub(crate) name: &'a str,
    pub(crate) run: &'a dyn Fn() -> usize,
}

/// Lets two readers run in turns and prints what came of it.
pub(crate) fn compare(ours: &Contender<'_>, other: &Contender<'_>) {
    assert_eq!((ours.run)(), (other.run)(), "both find the same entries");
    let mut bests = [Duration::MAX; 2];
    let mut quotients = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        let mut times = [Duration::ZERO; 2];
        for (contender, time) in [ours, other].into_iter().zip(&mut times) {
            let start = on_processor();
            black_box((contender.run)());
            *time = on_processor().saturating_sub(start);
        }
        bests = [bests[0].min(times[0]), bests[1].min(times[1])];
        quotients.push(times[0].as_secs_f64() / times[1].as_secs_f64());
    }
    quotients.sort_by(f64::total_cmp);
    println!(
        "{:<26} {:>7.2} ms   {:<26} {:>7.2} ms   of bests {:>5.2}   median {:>5.2}",
        ours.name,
        bests[0].as_secs_f64() * 1e3,
        other.name,
        bests[1].as_secs_f64() * 1e3,
        bests[0].as_secs_f64() / bests[1].as_secs_f64(),
        quotients[TURNS / 2],
    );
}

/// How long this thread has been on a processor.
fn on_processor() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let parts = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    match parts {
        (Ok(seconds), Ok(nanos)) => Duration::new(seconds, nanos),
        _ => Duration::ZERO,
    }
}
