//! The control socket: framing, protocol, server and client.
