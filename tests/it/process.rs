//! The daemon as a process.
