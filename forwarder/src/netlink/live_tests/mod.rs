//! Against the kernel, in network namespaces of their own.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::timeout};

use super::{
    Follow, Subscription,
    event::{Address, Event, Link, Neighbour, NeighbourState},
};
use crate::prefix::Prefix;

mod following;
mod requests;
mod routes;

const PATIENCE: Duration = Duration::from_secs(10);

/// A running subscription, and what its events add up to.
struct Mirror {
    events: mpsc::Receiver<Event>,
    state: State,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    links: Vec<Link>,
    addresses: BTreeSet<Address>,
    locals: BTreeSet<Prefix>,
    neighbours: Vec<Neighbour>,
}

impl State {
    fn apply(&mut self, event: Event) {
        match event {
            Event::Links(links) => self.links = links,
            Event::Link(link) => {
                self.links.retain(|known| known.ifindex != link.ifindex);
                self.links.push(link);
            }
            Event::LinkGone { ifindex } => self.links.retain(|known| known.ifindex != ifindex),
            Event::Addresses(addresses) => self.addresses = addresses.into_iter().collect(),
            Event::Address(address) => {
                self.addresses.insert(address);
            }
            Event::AddressGone(address) => {
                self.addresses.remove(&address);
            }
            Event::Locals(locals) => self.locals = locals.into_iter().collect(),
            Event::Local(prefix) => {
                self.locals.insert(prefix);
            }
            Event::LocalGone(prefix) => {
                self.locals.remove(&prefix);
            }
            Event::Neighbours(neighbours) => self.neighbours = neighbours,
            Event::Neighbour(new) => {
                self.forget(new.ifindex, new.address);
                self.neighbours.push(new);
            }
            Event::NeighbourGone { ifindex, address } => self.forget(ifindex, address),
            // See `routes`.
            _ => {}
        }
    }

    fn forget(&mut self, ifindex: u32, address: IpAddr) {
        self.neighbours.retain(|known| (known.ifindex, known.address) != (ifindex, address));
    }

    fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    fn neighbour(&self, address: &str) -> Option<NeighbourState> {
        let address: IpAddr = address.parse().unwrap();
        self.neighbours.iter().find(|known| known.address == address).map(|known| known.state)
    }

    fn has_local(&self, prefix: &str) -> bool {
        self.locals.contains(&prefix.parse().unwrap())
    }

    fn sorted(mut self) -> Self {
        self.links.sort_by_key(|link| link.ifindex);
        self.neighbours.sort_by_key(|neighbour| (neighbour.ifindex, neighbour.address));
        self
    }
}

impl Mirror {
    async fn start() -> Self {
        Self::follow(Subscription::open(Follow::NoRoutes, Arc::default()).await.unwrap(), 64)
    }

    fn follow(subscription: Subscription, queue: usize) -> Self {
        let (sender, events) = mpsc::channel(queue);
        tokio::spawn(subscription.run(sender));
        Self { events, state: State::default() }
    }

    async fn next(&mut self) -> Event {
        timeout(PATIENCE, self.events.recv()).await.expect("an event").expect("still running")
    }

    async fn until(&mut self, what: &str, condition: impl Fn(&State) -> bool) {
        let wait = async {
            while !condition(&self.state) {
                let event = self.events.recv().await.expect("still running");
                self.state.apply(event);
            }
        };
        let reached = timeout(PATIENCE, wait).await.is_ok();
        assert!(reached, "{what} does not come about: {:#?}", self.state);
    }
}
