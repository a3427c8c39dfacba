//! Several next hops, weights, and next hops of single CPUs.

use super::*;

#[test]
fn several_next_hops_weights_and_cpus_are_read() {
    let next_hop = |via: &str, dev: &str, weight| NextHop {
        via: via.parse().ok(),
        dev: Some(dev.to_owned()).filter(|dev| !dev.is_empty()),
        weight,
    };
    let (a, b) = ("198.18.1.2", "198.18.2.2");
    for (line, prefix, cpus, next_hops) in [
        (
            "198.18.9.0/24 nexthop via 198.18.1.2 dev eth1 weight 2 nexthop via 198.18.2.2 dev eth2",
            "198.18.9.0/24",
            None,
            vec![next_hop(a, "eth1", 2), next_hop(b, "eth2", 1)],
        ),
        (
            "198.18.9.0/24 proto xdp nexthop weight 256 via 198.18.1.2 nexthop dev eth2 via 198.18.2.2",
            "198.18.9.0/24",
            None,
            vec![next_hop(a, "", 256), next_hop(b, "eth2", 1)],
        ),
        (
            "default nexthop via 2001:db8::1 nexthop via fe80::1 dev eth1 weight 1",
            "::/0",
            None,
            vec![next_hop("2001:db8::1", "", 1), next_hop("fe80::1", "eth1", 1)],
        ),
        (
            "198.18.9.0/24 nexthop via inet6 2001:db8::1 nexthop via 198.18.2.2",
            "198.18.9.0/24",
            None,
            vec![next_hop("2001:db8::1", "", 1), next_hop(b, "", 1)],
        ),
        ("198.18.9.0/24 nexthop via 198.18.1.2", "198.18.9.0/24", None, vec![next_hop(a, "", 1)]),
        (
            "198.18.9.0/24 via 198.18.1.2 dev eth1 weight 3",
            "198.18.9.0/24",
            None,
            vec![next_hop(a, "eth1", 3)],
        ),
        (
            "198.18.9.0/24 cpu 0-1,5 via 198.18.1.2",
            "198.18.9.0/24",
            Some(vec![0, 1, 5]),
            vec![next_hop(a, "", 1)],
        ),
        (
            "198.18.9.0/24 cpu 3 nexthop via 198.18.1.2 nexthop via 198.18.2.2 weight 9",
            "198.18.9.0/24",
            Some(vec![3]),
            vec![next_hop(a, "", 1), next_hop(b, "", 9)],
        ),
    ] {
        let next_hops = next_hops.into();
        let expected = Route { prefix: prefix.parse().unwrap(), next_hops, cpus };
        assert_eq!(read(line, None), Ok(expected), "{line}");
    }
}

#[test]
fn sets_that_are_wrong_are_named() {
    let hops = |count: usize| {
        let hops = (0..count).map(|host| format!(" nexthop via 198.18.1.{host}"));
        format!("198.19.0.0/16{}", hops.collect::<String>())
    };
    for (line, message) in [
        (
            "198.19.0.0/16 nexthop",
            "'198.19.0.0/16' leads nowhere: add `via ADDRESS`, `dev INTERFACE` or both",
        ),
        (
            "198.19.0.0/16 nexthop via 198.18.1.2 nexthop weight 2",
            "'198.19.0.0/16' leads nowhere: add `via ADDRESS`, `dev INTERFACE` or both",
        ),
        (
            "198.19.0.0/16 nexthop via 198.18.1.2 dev eth1 nexthop via 198.18.1.2 dev eth1 weight 2",
            "the next hop via 198.18.1.2 dev eth1 is there twice: give it a larger weight instead",
        ),
        (
            "198.19.0.0/16 dev eth1 nexthop via 198.18.1.2",
            "'dev' stands before `nexthop`, where it would be of no next hop: write it behind",
        ),
        (
            "198.19.0.0/16 nexthop via 198.18.1.2 cpu 1",
            "'cpu' is not understood: write nexthop via ADDRESS [dev INTERFACE] [weight NUMBER] …",
        ),
        (
            "198.19.0.0/16 nexthop via 198.18.1.2 onlink",
            "'onlink' is not supported: the next hop must be reached through an address of its interface",
        ),
        ("198.19.0.0/16 nexthop via 198.18.1.2 via 198.18.1.3", "'via' is given twice"),
        (
            "198.19.0.0/16 via 198.18.1.2 weight 0",
            "'0' is not a weight: write a number from 1 to 256",
        ),
        (
            "198.19.0.0/16 via 198.18.1.2 weight 257",
            "'257' is not a weight: write a number from 1 to 256",
        ),
        (
            "198.19.0.0/16 via 198.18.1.2 weight +1",
            "'+1' is not a weight: write a number from 1 to 256",
        ),
        (
            "198.19.0.0/16 via 198.18.1.2 weight -1",
            "'-1' is not a weight: write a number from 1 to 256",
        ),
        ("198.19.0.0/16 via 198.18.1.2 weight", "'weight' needs a number after it"),
        ("198.19.0.0/16 nhid 7", "'nhid' is not supported: next hops are written out here"),
        (
            "198.19.0.0/16 nexthop via 198.18.1.2 nexthop via 2001:db8::1",
            "'2001:db8::1' is an IPv6 gateway for the IPv4 prefix '198.19.0.0/16': if that is meant (RFC 8950), write `via inet6 2001:db8::1`",
        ),
        (
            "198.19.0.0/16 cpu via 198.18.1.2",
            "'via' is neither the number of a CPU nor a range of them: write for example 0-3,6",
        ),
        (
            "198.19.0.0/16 via 198.18.1.2 cpu",
            "'cpu' needs a list of CPUs, for example 0-3,6, after it",
        ),
        ("198.19.0.0/16 cpu 1,1 via 198.18.1.2", "CPU 1 is listed twice"),
        (
            "198.19.0.0/16 cpu 4096 via 198.18.1.2",
            "CPU 4096 is beyond the last possible number, 4095",
        ),
        ("198.19.0.0/16 cpu 1 cpu 2 via 198.18.1.2", "'cpu' is given twice"),
        (&hops(65), "a route has at most 64 next hops"),
    ] {
        assert_eq!(read(line, None).unwrap_err().to_string(), message, "{line}");
    }
    assert_eq!(
        read(&hops(64).replace("198.18.1.0", "198.18.1.99"), None).unwrap().next_hops.len(),
        64
    );
}
