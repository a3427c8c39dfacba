//! The command line: what can be typed.

pub mod stats;
