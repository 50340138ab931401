//! The Nth write, sync or open fails, for every N of a scripted run.
