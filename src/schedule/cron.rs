//! Cron lines.

/// A cron line.
#[derive(Debug, Clone, PartialEq)]
pub struct CronSpec {}
