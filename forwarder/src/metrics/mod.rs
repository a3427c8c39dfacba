//! The Prometheus endpoint.
