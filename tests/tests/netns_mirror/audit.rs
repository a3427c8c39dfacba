//! `forwarder audit`, and the auditor that works all the time.

use std::fmt::Write;

use forwarder_tests::{
    lab::{Lab, host4, host6},
    require, skip,
    testbed::{SOON, Testbed},
    wait::wait_until,
};

use crate::{follower, ip};

/// Nested prefixes of all lengths with next hops of all kinds, out of a fixed rule.
fn batch() -> String {
    let mut batch = String::new();
    for number in 0..400u32 {
        let (a, b) = (number / 16, number % 16 * 16);
        let length = 20 + number % 13;
        let address = std::net::Ipv4Addr::from(
            (198 << 24 | 19 << 16 | a << 8 | b) & (u32::MAX << (32 - length)),
        );
        let link = u8::try_from(number % 3).unwrap();
        let next = match number % 7 {
            0 => format!("nexthop via {} nexthop via {}", host4(1), host4(2)),
            1 => "via inet6 2001:db8:2::2 dev eth1".to_owned(),
            2 => format!("dev eth{link}"),
            3 => "nhid 7".to_owned(),
            _ => format!("via {}", host4(link)),
        };
        let _ = writeln!(batch, "route replace {address}/{length} {next}");
        if number % 5 == 0 {
            let _ = writeln!(batch, "route replace blackhole 198.19.{a}.{b}/32 metric 9");
        }
        let prefix6 = format!("2001:db8:{:x}::/{}", 0x100 + number, 48 - number % 3);
        let _ = writeln!(batch, "route replace {prefix6} via {}", host6(link));
    }
    batch
}

#[test]
fn everything_is_forwarded_as_linux_would() {
    require!(skip::forwarder());
    let testbed = follower(Lab::router().links(3));
    ip(&testbed, &format!("nexthop add id 7 via {} dev eth2", host4(2)));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), batch()).unwrap();
    let forced = format!("-force -batch {}", file.path().display());
    let _ = testbed.lab.router.ip(&forced);
    let listed = testbed.lab.router.ip("route show").unwrap().lines().count();
    assert!(listed > 300, "{listed}");
    let compared = wait_until("no difference", SOON, || {
        let finished = testbed.daemon.forwarder().call("audit")?;
        Ok((finished.code() == 0).then_some(finished))
    })
    .unwrap();
    assert_eq!(compared.stdout, "");
    let words: Vec<&str> = compared.stderr.split(' ').collect();
    let checked: u64 = words[0].parse().unwrap();
    assert!(checked > 2_000 && compared.stderr.ends_with("0 differ\n"), "{}", compared.stderr);
    let status = testbed.daemon.forwarder().json("status").unwrap();
    assert!(status["audited"].as_u64().unwrap() >= checked);
}

#[test]
fn there_is_nothing_to_compare_where_linux_is_not_followed() {
    require!(skip::forwarder());
    let testbed = Testbed::start(&Lab::router().static_neighbours(), "--routes static").unwrap();
    let finished = testbed.daemon.forwarder().call("audit").unwrap();
    assert_eq!(finished.code(), 1);
    assert!(finished.stderr.contains("--routes static"), "{}", finished.stderr);
}
