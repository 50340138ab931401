//! The laws that the fuzz targets hold bytes against.

pub mod support;
