//! What is so on a server only. Runs where `SITEMAPD_POSTGRES` names one.

mod away;
mod early_of_two;
mod killed;
mod orders;
mod owners;
mod plans;
mod queues;
mod refused;
mod shared;
mod sorted;
mod stream;
mod three;
mod wire;
