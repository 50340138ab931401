//! Pure: the next poll of a source, and why.
