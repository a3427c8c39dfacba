//! What is checked before anything is touched.
