//! The daemon as a process: what it refuses, how it stops, what outlives it.

mod hostile;
mod lifecycle;
mod refusals;
