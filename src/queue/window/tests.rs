//! The window against naive models of what it promises.

mod order;
mod shares;
mod spare;
mod turns;

use crate::model::{HostId, UrlId};
use crate::queue::Candidate;

fn candidate(host: i64, id: i64, band: u8, due_at: i64) -> Candidate {
    Candidate::as_listed(UrlId(id), HostId(host), band, due_at)
}
