//! Queueing disciplines and filters of our interfaces.

use std::{collections::BTreeSet, io};

use super::{
    socket::Socket,
    wire::{Attributes, Request, malformed, u32_at},
};
use crate::bypass::{Families, Finding, Kind, Port};

/// `tcmsg`.
const HEADER_LEN: usize = 20;

// `linux/rtnetlink.h`, `linux/pkt_sched.h`
const TCA_KIND: u16 = 1;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TC_H_INGRESS: u32 = 0xffff_0000;
const TC_H_CLSACT_INGRESS: u32 = 0xffff_fff2;
const TC_H_CLSACT_EGRESS: u32 = 0xffff_fff3;

/// Disciplines that an interface has by default, and that hold back nothing for long; and the two
/// that only bear filters.
const NOT_SHAPING: [&str; 8] =
    ["clsact", "fq", "fq_codel", "ingress", "mq", "noop", "noqueue", "pfifo_fast"];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Discipline {
    ifindex: u32,
    handle: u32,
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Filter {
    parent: u32,
    priority: u32,
    kind: String,
    families: Families,
}

/// What is bypassed on these interfaces.
pub(super) async fn read(socket: &mut Socket, ports: &[Port]) -> io::Result<Vec<Finding>> {
    let request = Request::new(libc::RTM_GETQDISC, 0, &[0; HEADER_LEN]);
    let disciplines = socket.dump(request, |message| Some(discipline(message.body))).await?;
    let disciplines: Option<Vec<_>> = disciplines.into_iter().collect();
    let disciplines = disciplines.ok_or_else(malformed)?;
    let mut found = Vec::new();
    for port in ports {
        let own: Vec<_> = disciplines.iter().filter(|it| it.ifindex == port.ifindex).collect();
        found.extend(own.iter().filter_map(|discipline| shaping(port, discipline)));
        for parent in parents(&own) {
            let filters = filters(socket, port.ifindex, parent).await?;
            found.extend(filters.iter().map(|filter| filtering(port, filter)));
        }
    }
    Ok(found)
}

async fn filters(socket: &mut Socket, ifindex: u32, parent: u32) -> io::Result<BTreeSet<Filter>> {
    let mut header = [0; HEADER_LEN];
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.to_ne_bytes());
    let request = Request::new(libc::RTM_GETTFILTER, 0, &header);
    // A filter is told several times: itself, and what it consists of.
    let read = socket.dump(request, |message| Some(filter(message.body, parent))).await;
    match read {
        Ok(filters) => {
            let filters: Option<Vec<_>> = filters.into_iter().collect();
            let filters = filters.ok_or_else(malformed)?.into_iter();
            Ok(filters.filter(|it| !it.families.is_empty()).collect())
        }
        // The interface has gone, or what bears filters has.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EINVAL)) => {
            Ok(BTreeSet::new())
        }
        Err(error) => Err(error),
    }
}

/// Where filters may be.
fn parents(disciplines: &[&Discipline]) -> BTreeSet<u32> {
    let of = |discipline: &&Discipline| match discipline.kind.as_str() {
        "clsact" => vec![TC_H_CLSACT_INGRESS, TC_H_CLSACT_EGRESS],
        "ingress" => vec![TC_H_INGRESS],
        _ => vec![discipline.handle],
    };
    // A default discipline has the handle zero, which stands for the root.
    disciplines.iter().flat_map(of).collect()
}

fn discipline(body: &[u8]) -> Option<Discipline> {
    let kind = Attributes::after(HEADER_LEN, body).text(TCA_KIND)?.to_owned();
    Some(Discipline { ifindex: u32_at(body, 4)?, handle: u32_at(body, 8)?, kind })
}

/// The kernel's answer may name another parent: the one that was asked for is the one.
fn filter(body: &[u8], parent: u32) -> Option<Filter> {
    let kind = Attributes::after(HEADER_LEN, body).text(TCA_KIND)?.to_owned();
    let info = u32_at(body, 16)?;
    Some(Filter { parent, priority: info >> 16, kind, families: families(info) })
}

/// By the EtherType in the low half.
fn families(info: u32) -> Families {
    const ETH_P_ALL: u16 = 3;
    const ETH_P_IP: u16 = 0x800;
    const ETH_P_IPV6: u16 = 0x86dd;
    let [a, b, ..] = info.to_ne_bytes();
    let [c, d] = if cfg!(target_endian = "little") { [a, b] } else { [b, a] };
    match u16::from_be_bytes([c, d]) {
        ETH_P_ALL => Families::BOTH,
        ETH_P_IP => Families::V4,
        ETH_P_IPV6 => Families::V6,
        _ => Families::default(),
    }
}

fn shaping(Port { name, .. }: &Port, discipline: &Discipline) -> Option<Finding> {
    let kind = &discipline.kind;
    let counts = !NOT_SHAPING.contains(&kind.as_str());
    counts.then(|| Finding {
        kind: Kind::Tc,
        families: Families::BOTH,
        what: format!("the queueing discipline {kind} of {name}"),
        remedy: format!("remove it with `tc qdisc del dev {name} root`"),
    })
}

fn filtering(Port { name, .. }: &Port, filter: &Filter) -> Finding {
    let Filter { parent, priority, kind, families } = filter;
    let place = match *parent {
        TC_H_CLSACT_INGRESS | TC_H_INGRESS => "ingress".to_owned(),
        TC_H_CLSACT_EGRESS => "egress".to_owned(),
        0 | TC_H_ROOT => "root".to_owned(),
        parent => format!("parent {:x}:{:x}", parent >> 16, parent & 0xffff),
    };
    Finding {
        kind: Kind::Tc,
        families: *families,
        what: format!("the tc filter {kind} of priority {priority} on {name}, {place}"),
        remedy: format!("remove it with `tc filter del dev {name} {place} prio {priority}`"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::{namespace::Namespace, wire::push_attribute};

    /// What is bypassed on `va` after these commands, as "tc: what", for IPv4 "tc4: …".
    fn bypassed(commands: &str) -> Option<Vec<String>> {
        let namespace = Namespace::new()?;
        if !Namespace::has("tc") {
            return None;
        }
        namespace.sh("ip link add va index 101 type veth peer name vb index 102");
        namespace.sh(commands);
        let ports = [Port { ifindex: 101, name: "va".into() }];
        let found = namespace.run(|| async {
            let mut socket = Socket::open(netlink_sys::protocols::NETLINK_ROUTE).unwrap();
            read(&mut socket, &ports).await.unwrap()
        });
        Some(found.iter().map(|it| format!("{}: {}", it.families, it.what)).collect())
    }

    #[test]
    fn disciplines_and_filters() {
        let both = "IPv4 and IPv6: the";
        let filter = "tc filter add dev va";
        let all = "u32 match u32 0 0";
        for (commands, expected) in [
            (String::new(), vec![]),
            ("tc qdisc add dev va clsact".to_owned(), vec![]),
            ("tc qdisc add dev va ingress".to_owned(), vec![]),
            ("tc qdisc add dev vb root tbf rate 1mbit burst 10kb latency 9ms".to_owned(), vec![]),
            (
                "tc qdisc add dev va root handle 1: htb default 1".to_owned(),
                vec![format!("{both} queueing discipline htb of va")],
            ),
            (
                "tc qdisc add dev va root tbf rate 1mbit burst 10kb latency 9ms".to_owned(),
                vec![format!("{both} queueing discipline tbf of va")],
            ),
            (
                format!("tc qdisc add dev va clsact; {filter} ingress prio 7 {all}"),
                vec![format!("{both} tc filter u32 of priority 7 on va, ingress")],
            ),
            (
                format!("tc qdisc add dev va clsact; {filter} egress protocol ip prio 7 {all}"),
                vec!["IPv4: the tc filter u32 of priority 7 on va, egress".to_owned()],
            ),
            (
                format!("tc qdisc add dev va ingress; {filter} ingress protocol ipv6 prio 8 {all}"),
                vec!["IPv6: the tc filter u32 of priority 8 on va, ingress".to_owned()],
            ),
            (format!("tc qdisc add dev va ingress; {filter} ingress protocol arp {all}"), vec![]),
            (
                format!(
                    "tc qdisc add dev va root handle 1: htb
                     {filter} parent 1: protocol ip prio 1 {all} flowid 1:1"
                ),
                vec![
                    format!("{both} queueing discipline htb of va"),
                    "IPv4: the tc filter u32 of priority 1 on va, parent 1:0".to_owned(),
                ],
            ),
        ] {
            let Some(found) = bypassed(&commands) else { return };
            assert_eq!(found, expected, "{commands}");
        }
    }

    fn message(info: u32) -> Vec<u8> {
        let mut body = vec![0; HEADER_LEN];
        body[16..20].copy_from_slice(&info.to_ne_bytes());
        push_attribute(&mut body, TCA_KIND, b"bpf\0");
        body
    }

    #[test]
    fn a_filters_family_is_that_of_its_protocol() {
        let of =
            |protocol: u16| filter(&message(5 << 16 | u32::from(protocol.to_be())), 7).unwrap();
        assert_eq!(of(3).families, Families::BOTH);
        assert_eq!(of(0x0800).families, Families::V4);
        assert_eq!(of(0x86dd).families, Families::V6);
        assert_eq!(of(0x8100).families, Families::default());
        let Filter { parent, priority, kind, .. } = of(3);
        assert_eq!((parent, priority, kind.as_str()), (7, 5, "bpf"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(body in prop::collection::vec(any::<u8>(), 0..128)) {
            let _ = (discipline(&body), filter(&body, 0));
        }
    }

    #[test]
    fn a_message_cut_off_anywhere_says_nothing() {
        let whole = message(3);
        for length in 0..whole.len() - 4 {
            assert_eq!((discipline(&whole[..length]), filter(&whole[..length], 0)), (None, None));
        }
    }
}
