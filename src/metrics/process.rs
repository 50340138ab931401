//! What the system knows of the process, by the names that all programs use.
//!
//! Read from `/proc` at each scrape; left out where there is none.

use std::fs;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Gauges of the process; `None` where the system does not tell.
pub(super) fn gauges() -> Option<Registry> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let mut registry = Registry::with_prefix("process");
    let mut one = |name: &str, help: &str, value: u64| {
        let gauge = Gauge::<u64, AtomicU64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    let figures = Figures::read(&stat)?;
    one("resident_memory_bytes", "Resident memory size in bytes", figures.resident_bytes);
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        one("open_fds", "Number of open file descriptors", open.count() as u64);
    }
    if let Some(most) = max_open_files(&limits) {
        one("max_fds", "Maximum number of open file descriptors", most);
    }
    registry.register_with_unit(
        "cpu",
        "Total user and system CPU time spent in seconds",
        Unit::Seconds,
        ConstCounter::new(figures.cpu_seconds),
    );
    Some(registry)
}

#[derive(Debug, PartialEq)]
struct Figures {
    cpu_seconds: f64,
    resident_bytes: u64,
}

impl Figures {
    /// Reads `/proc/self/stat` (proc(5)): user and system time are fields 14
    /// and 15, resident pages are field 24.
    fn read(stat: &str) -> Option<Self> {
        // The name, in parentheses, may hold anything.
        let rest = stat.rsplit_once(')')?.1;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = field(14)?.checked_add(field(15)?)?;
        // Ticks of years are far below 2^52.
        #[allow(clippy::cast_precision_loss)]
        let cpu_seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let resident_bytes = field(24)?.checked_mul(rustix::param::page_size() as u64)?;
        Some(Self { cpu_seconds, resident_bytes })
    }
}

/// The soft limit of `/proc/self/limits`; `None` without one.
fn max_open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_move_the_fields() {
        let fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        let stat = format!("1 (a) b (c)) {}", fields.join(" "));
        let figures = Figures::read(&stat).expect("figures");
        assert_eq!(figures.resident_bytes, 24 * rustix::param::page_size() as u64);
        assert!(figures.cpu_seconds > 0.0);
        assert_eq!(Figures::read("1 (a) S 1"), None);
    }

    #[test]
    fn the_soft_limit_of_open_files_is_read_where_there_is_one() {
        let limits = "Limit  Soft  Hard  Units\nMax open files            256    512    files\n";
        assert_eq!(max_open_files(limits), Some(256));
        assert_eq!(max_open_files("Max open files   unlimited  unlimited  files\n"), None);
    }
}
