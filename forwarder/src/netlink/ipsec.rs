//! IPsec policies (XFRM) for packets that are forwarded.

use std::{io, net::IpAddr};

use super::{
    decode::{AF_INET, AF_INET6},
    socket::Socket,
    wire::{Attributes, Message, Request, malformed, u16_at, u32_at},
};
use crate::bypass::{Families, Finding, Kind, Port};

/// `XFRMNLGRP_POLICY`: every change of policies.
pub(super) const GROUP: u32 = 4;

// `linux/xfrm.h`
const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRM_MSG_NEWSPDINFO: u16 = 0x24;
const XFRM_MSG_GETSPDINFO: u16 = 0x25;
const XFRM_MSG_GETDEFAULT: u16 = 0x28;
const XFRMA_SPD_INFO: u16 = 1;
const XFRMA_IF_ID: u16 = 31;
const XFRM_USERPOLICY_BLOCK: u8 = 1;
/// `xfrm_userpolicy_info` and `xfrm_userpolicy_id`.
const POLICY_LEN: usize = 168;
const POLICY_ID_LEN: usize = 64;

/// One that packets between our interfaces may meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    families: Families,
    /// Of an interface; zero: any.
    ifindex: u32,
    /// "src 198.18.0.0/24 dst 198.18.1.0/24 dir fwd"
    selector: String,
}

/// What policies there were when it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Policies {
    policies: Vec<Policy>,
    /// What happens to packets without one: `in`, `fwd`, `out`.
    defaults: Vec<u8>,
}

/// Changes whenever the number of policies does, or what happens without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    counts: Vec<u8>,
    defaults: Vec<u8>,
}

pub(super) async fn fingerprint(socket: &mut Socket) -> io::Result<Fingerprint> {
    let request = Request::new(XFRM_MSG_GETSPDINFO, 0, &[0; 4]);
    let counts = socket.request(request, counts).await?.into_iter().next().unwrap_or_default();
    Ok(Fingerprint { counts, defaults: defaults(socket).await? })
}

pub(super) async fn read(socket: &mut Socket) -> io::Result<Policies> {
    let request = Request::new(XFRM_MSG_GETPOLICY, 0, &[0; POLICY_ID_LEN]);
    let told =
        |message: &Message<'_>| (message.kind == XFRM_MSG_NEWPOLICY).then(|| policy(message.body));
    let policies = socket.dump(request, told).await?.into_iter();
    let policies: Result<Vec<_>, _> = policies.collect();
    let policies = policies.map_err(|_: Malformed| malformed())?.into_iter().flatten().collect();
    Ok(Policies { policies, defaults: defaults(socket).await? })
}

/// What is bypassed between these interfaces.
pub(super) fn findings(policies: &Policies, ports: &[Port]) -> Vec<Finding> {
    let is_ours = |ifindex| ifindex == 0 || ports.iter().any(|port| port.ifindex == ifindex);
    let meant = policies.policies.iter().filter(|policy| is_ours(policy.ifindex));
    let mut found: Vec<_> = meant
        .map(|Policy { families, selector, .. }| Finding {
            kind: Kind::Xfrm,
            families: *families,
            what: format!("the IPsec policy {selector}"),
            remedy: format!("remove it with `ip xfrm policy delete {selector}`"),
        })
        .collect();
    for (at, direction) in [(1, "fwd"), (2, "out")] {
        if policies.defaults.get(at) == Some(&XFRM_USERPOLICY_BLOCK) {
            found.push(Finding {
                kind: Kind::Xfrm,
                families: Families::BOTH,
                what: format!("the default of IPsec policies {direction} block"),
                remedy: format!("set it by `ip xfrm policy setdefault {direction} accept`"),
            });
        }
    }
    found
}

async fn defaults(socket: &mut Socket) -> io::Result<Vec<u8>> {
    let request = Request::new(XFRM_MSG_GETDEFAULT, 0, &[0; 4]);
    let of = |message: &Message<'_>| {
        (message.kind == XFRM_MSG_GETDEFAULT)
            .then(|| message.body.iter().copied().take(3).collect())
    };
    match socket.request(request, of).await {
        Ok(answers) => Ok(answers.into_iter().next().unwrap_or_default()),
        // Before 5.15 there are none.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn counts(message: &Message<'_>) -> Option<Vec<u8>> {
    let counts = Attributes::after(4, message.body).get(XFRMA_SPD_INFO)?.to_vec();
    (message.kind == XFRM_MSG_NEWSPDINFO).then_some(counts)
}

/// It is cut off: nobody knows what it would have said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Malformed;

/// `None`: it is not for packets that are forwarded between Ethernet interfaces.
fn policy(body: &[u8]) -> Result<Option<Policy>, Malformed> {
    if body.len() < POLICY_LEN {
        return Err(Malformed);
    }
    Ok(forwarding(body))
}

fn forwarding(body: &[u8]) -> Option<Policy> {
    const OUT: u8 = 1;
    const FORWARD: u8 = 2;
    let direction = match *body.get(160)? {
        OUT => "out",
        FORWARD => "fwd",
        // To this host; or of one socket.
        _ => return None,
    };
    // Those of XFRM interfaces are met there alone.
    if Attributes::after(POLICY_LEN, body).u32(XFRMA_IF_ID).is_some_and(|id| id != 0) {
        return None;
    }
    let family = u16_at(body, 40)?;
    let end = |address: usize, len: usize| {
        let (octets, len) = (body.get(address..)?.first_chunk::<16>()?, body.get(len)?);
        let address = if family == u16::from(AF_INET) {
            IpAddr::from([octets[0], octets[1], octets[2], octets[3]])
        } else {
            IpAddr::from(*octets)
        };
        Some(format!("{address}/{len}"))
    };
    Some(Policy {
        families: match family {
            family if family == u16::from(AF_INET) => Families::V4,
            family if family == u16::from(AF_INET6) => Families::V6,
            _ => Families::BOTH,
        },
        ifindex: u32_at(body, 48)?,
        selector: format!("src {} dst {} dir {direction}", end(16, 43)?, end(0, 42)?),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::namespace::Namespace;

    const NETLINK_XFRM: isize = netlink_sys::protocols::NETLINK_XFRM;

    fn bypassed(namespace: &Namespace) -> Vec<Finding> {
        let ports = [Port { ifindex: 101, name: "va".into() }];
        namespace.run(|| async {
            let mut socket = Socket::open(NETLINK_XFRM).unwrap();
            findings(&read(&mut socket).await.unwrap(), &ports)
        })
    }

    #[test]
    fn policies_for_what_is_forwarded() {
        let between = "src 198.18.0.0/24 dst 198.18.1.0/24";
        let v6 = "src 2001:db8::/32 dst ::/0";
        for (command, expected) in [
            (format!("add {between} dir in"), None),
            (
                format!("add {between} dir fwd tmpl proto esp mode tunnel"),
                Some((Families::V4, between, "fwd")),
            ),
            (format!("add {between} dir out action block"), Some((Families::V4, between, "out"))),
            (format!("add {v6} dir fwd"), Some((Families::V6, v6, "fwd"))),
            (format!("add {v6} dev va dir out"), Some((Families::V6, v6, "out"))),
            (format!("add {v6} dev vb dir out"), None),
            (format!("add {v6} dir out if_id 7"), None),
        ] {
            let Some(namespace) = Namespace::new() else { return };
            namespace.sh("ip link add va index 101 type veth peer name vb index 102");
            namespace.sh(&format!("ip xfrm policy {command}"));
            let found = bypassed(&namespace);
            let found: Vec<_> = found.iter().map(|it| (it.families, it.what.clone())).collect();
            let expected = expected.map(|(families, ends, direction)| {
                (families, format!("the IPsec policy {ends} dir {direction}"))
            });
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{command}");
        }
    }

    #[test]
    fn the_remedy_removes_what_was_found_and_the_fingerprint_tells() {
        let Some(namespace) = Namespace::new() else { return };
        let print = || {
            namespace.run(|| async {
                fingerprint(&mut Socket::open(NETLINK_XFRM).unwrap()).await.unwrap()
            })
        };
        let empty = print();
        assert_eq!((bypassed(&namespace), print()), (vec![], empty.clone()));
        namespace.sh("ip xfrm policy add src 198.18.0.0/24 dst 198.18.1.0/24 dir fwd
             ip xfrm policy setdefault fwd block");
        assert_ne!(print(), empty);
        let found = bypassed(&namespace);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[1].what, "the default of IPsec policies fwd block");
        for finding in found {
            namespace.sh(finding.remedy.split('`').nth(1).unwrap());
        }
        assert_eq!((bypassed(&namespace), print()), (vec![], empty));
    }

    #[test]
    fn a_policy_that_is_cut_off_is_an_error() {
        let mut body = [0; POLICY_LEN];
        assert_eq!(policy(&body), Ok(None));
        body[160] = 1;
        assert!(policy(&body).unwrap().is_some());
        for length in 0..POLICY_LEN {
            assert_eq!(policy(&body[..length]), Err(Malformed));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(body in prop::collection::vec(any::<u8>(), 0..256)) {
            let message = Message { kind: XFRM_MSG_NEWSPDINFO, flags: 0, sequence: 0, port: 0, body: &body };
            let _ = (policy(&body), counts(&message));
        }
    }
}
