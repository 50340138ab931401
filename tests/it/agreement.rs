//! On well-formed documents we read what strict readers read: feed-rs for
//! feeds, a reader of a few lines over strict quick-xml for sitemaps.
//!
//! Documents are generated from pages of known content, so what is compared is
//! three: what was meant, what the other reads, what we read.

mod feeds;
mod pages;
mod pen;
mod sitemaps;
mod strict;
