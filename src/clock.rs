//! Time.

/// Time (stub; being written).
#[derive(Debug, Clone)]
pub struct Clock {}
