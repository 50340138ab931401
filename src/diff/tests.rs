//! Rules of the comparison.
