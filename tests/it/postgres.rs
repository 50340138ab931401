//! What is so on a server only. Runs where `SITEMAPD_POSTGRES` names one.

mod owners;
mod plans;
mod shared;
mod stream;
mod wire;
