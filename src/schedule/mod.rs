//! Which source is polled when.

pub mod cron;
pub mod interval;
