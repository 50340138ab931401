//! The rules of the queue against a real store: who is leased when, who holds
//! what, and what comes back. The clock is moved by hand; nothing sleeps.

mod blocks;
mod calls;
mod early;
mod early_orders;
mod expiry;
mod history;
mod host_clock;
mod housekeeping;
mod imported;
mod learned;
mod of_sites;
mod order;
mod outcomes;
mod owed;
mod reseat;
mod robots;
mod shares;
mod sources;
mod spellings;
mod start;
mod tokens;
mod turns;
mod wall_clock;
mod why;
