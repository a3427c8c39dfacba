//! The kernel's links, addresses, local table and neighbours, as rtnetlink tells them. The only
//! code that names netlink types.
//!
//! [`Subscription`] says what is and what changes; [`Requests`] asks and acts. Both read messages
//! with `wire` and `decode`, attribute by attribute: whatever a newer kernel adds is skipped,
//! where a parser of whole messages would give up a link for one attribute that it does not know.

mod decode;
pub mod event;
mod generic;
mod ipsec;
mod lists;
mod local_routes;
mod nftables;
mod nic;
mod requests;
mod reread;
mod rules;
mod socket;
mod subscribe;
mod traffic_control;
mod wire;

pub use decode::{LinkDetails, XdpAttachment, XdpMode};
pub use generic::{Generic, Offloads, Queues, XdpFeatures};
pub use lists::ListError;
pub use requests::{LinuxAnswer, LinuxWrite, RequestError, Requests};
pub use rules::{Rules, RulesWatch};
pub use subscribe::{Follow, SubscribeError, Subscription};

#[cfg(test)]
mod live_tests;
#[cfg(test)]
pub(crate) mod namespace;
