//! sitemapd knows what changed on the sites it follows, and which URL to fetch next.

pub mod app;
mod bitpack;
pub mod cli;
pub mod clock;
pub mod config;
pub mod date;
pub mod diff;
pub mod fetch;
pub mod log;
pub mod metrics;
pub mod model;
pub mod parse;
pub mod queue;
pub mod recrawl;
pub mod schedule;
pub mod serve;
pub mod store;
pub mod url;
