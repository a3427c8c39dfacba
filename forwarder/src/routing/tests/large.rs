//! A large change takes seconds: the lease is renewed while it lasts.

use super::{table::Life, *};

const ROUTES: u32 = 12_000;
/// Prefixes without a sign of life: far less than a second.
const SILENCE_MAX: u32 = 10_000;

/// Does what must look at as many prefixes, and looks whether it gave signs of life meanwhile.
fn gives_signs_of_life(
    routing: &mut Routing<FakeTable>,
    prefixes: u32,
    work: impl FnOnce(&mut Routing<FakeTable>),
) {
    routing.table.life.take();
    work(routing);
    let Life { looked, silence, .. } = routing.table.life.get();
    assert!(looked >= prefixes, "only {looked} prefixes");
    assert!(silence <= SILENCE_MAX, "{silence} of {looked} prefixes without a sign of life");
}

#[test]
fn signs_of_life_are_given_while_a_large_change_lasts() {
    let mut routing = routing_with(limits(ROUTES, 0));
    let route = |number: u32, via: &str| {
        let [.., third, fourth] = (number * 4).to_be_bytes();
        route(&format!("198.19.{third}.{fourth}/30"), Some(via), None)
    };
    let routes: Vec<Route> = (0..ROUTES).map(|number| route(number, "198.18.2.2")).collect();
    let others = || (0..ROUTES).map(|number| route(number, "198.18.1.2")).collect();

    // A word for the next hop, and the prefixes fail: undone, and then done.
    routing.table.fails_after = Some(1);
    gives_signs_of_life(&mut routing, ROUTES, |routing| {
        routing.load(routes.clone(), Existing::Refuse).unwrap_err();
    });
    assert_eq!(routing.counts(), Counts::default());
    gives_signs_of_life(&mut routing, ROUTES, |routing| {
        assert_eq!(routing.load(routes, Existing::Refuse), Ok(ROUTES.into()));
    });
    gives_signs_of_life(&mut routing, ROUTES, |routing| {
        assert_eq!(routing.load(others(), Existing::Replace), Ok(ROUTES.into()));
    });
    // What Linux says, too.
    let locals: Vec<Prefix> =
        routing.show(&Selector::default()).iter().map(|it| it.route.prefix).collect();
    gives_signs_of_life(&mut routing, ROUTES, |routing| {
        routing.apply([Event::Locals(locals)]).unwrap();
    });
    gives_signs_of_life(&mut routing, ROUTES, |routing| {
        routing.apply([Event::Locals(Vec::new())]).unwrap();
    });
    gives_signs_of_life(&mut routing, ROUTES, |routing| {
        assert_eq!(routing.flush(&Selector::default()), Ok(ROUTES.into()));
    });
}
