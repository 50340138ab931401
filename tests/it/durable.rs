//! What outlives what: killed processes, power losses, failing and full disks,
//! stepped clocks. The real binary in real time, on a disk of the test's.

mod answers;
mod care;
mod faults;
mod fire;
mod full;
mod killed;
mod large;
mod power;
mod script;

/// How often to do something: as the environment says, else `usual`.
fn many(name: &str, usual: u32) -> u32 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}
