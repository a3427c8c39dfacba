//! The kernel's links, addresses, local table and neighbours, as rtnetlink tells them. The only
//! code that names netlink types.

pub mod event;
