//! The command line: what can be typed.
