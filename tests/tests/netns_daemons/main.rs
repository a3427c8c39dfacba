//! Routing daemons as people run them, FRR and BIRD, on a router that forwards by XDP: their
//! sessions come up by its interfaces, traffic follows their routes, and what an event costs is
//! counted in lost frames, beside what it costs Linux alone.

mod bird;
mod frr;
mod losses;
mod site;
mod tables;
