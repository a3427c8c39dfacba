//! What is found at the start: named rule by rule with its remedy, refused unless its kind is
//! allowed.

use forwarder_tests::{daemon::Forwarder, footprint::xdp, lab::Lab, require, skip};

use crate::{chain, nft, sh};

const RUN: &str = "--iface eth0,eth1";
const DOCKER: &str = include_str!("rules/docker.nft");
const BRIDGE_ALONE: &str = include_str!("rules/bridge_alone.nft");
const FIREWALLD: &str = include_str!("rules/firewalld.nft");

/// What these commands bring about, each with its handle taken out; and the words for it in
/// `--bypass`.
struct Case {
    commands: String,
    found: &'static [&'static str],
    kinds: &'static str,
}

fn case(commands: impl Into<String>, kinds: &'static str, found: &'static [&'static str]) -> Case {
    Case { commands: commands.into(), found, kinds }
}

/// "rule 4 (drop) of …" without the number.
fn without_handle(what: &str) -> String {
    let mut words: Vec<_> = what.split(' ').collect();
    if words.first() == Some(&"rule") {
        words.remove(1);
    }
    words.join(" ")
}

/// Everything that stands against the start, and nothing else; allowed, it starts and `status`
/// tells the same.
fn check(Case { commands, found, kinds }: Case) {
    let lab = Lab::router().static_neighbours().build().unwrap();
    sh(&lab.router, &commands).unwrap();
    let forwarder = Forwarder::new(&lab.router).unwrap();
    let run =
        |options: &str| forwarder.call(&format!("run {RUN} --metrics off {options}")).unwrap();

    let mut sorted = found.to_vec();
    sorted.sort_unstable();
    if !found.is_empty() {
        let others: Vec<_> =
            ["netfilter", "tc", "xfrm"].into_iter().filter(|kind| !kinds.contains(kind)).collect();
        let wrong = others.join(",");
        for options in ["", &format!("--bypass={wrong}")] {
            let refused = run(options);
            let lines: Vec<_> = refused
                .stderr
                .lines()
                .filter_map(|line| line.split_once("XDP would bypass "))
                .map(|(_, rest)| rest)
                .collect();
            let mut named: Vec<_> =
                lines.iter().map(|line| without_handle(line.split(": ").next().unwrap())).collect();
            named.sort_unstable();
            assert_eq!(named, sorted, "{commands}\n{}", refused.stderr);
            assert_eq!(refused.code(), 1);
            for line in lines {
                let (_, remedy) = line.split_once(": ").unwrap();
                assert!(remedy.contains('`') && remedy.contains("--bypass="), "{line}");
            }
            assert_eq!(xdp(&lab.router, "eth0").unwrap(), None);
        }
    }

    let daemon = forwarder.start(&format!("{RUN} {}", allowing(kinds))).unwrap();
    let status = daemon.forwarder().json("status").unwrap();
    let notes = status["notes"].as_array().unwrap();
    let mut bypassed: Vec<_> = notes
        .iter()
        .filter_map(|note| note.as_str()?.strip_prefix("XDP bypasses "))
        .map(|note| without_handle(note.split(", as --bypass=").next().unwrap()))
        .collect();
    bypassed.sort_unstable();
    assert_eq!(bypassed, sorted, "{commands}");
}

fn allowing(kinds: &str) -> String {
    if kinds.is_empty() { String::new() } else { format!("--bypass={kinds}") }
}

#[test]
fn rules_of_nftables() {
    require!(skip::forwarder());
    require!(skip::command("nft", "--version"));
    check(case(
        chain("ip", "postrouting", "oifname \"eth1\" masquerade;"),
        "netfilter",
        &["rule (masquerade) of nftables chain ip t c for IPv4"],
    ));
    check(case(
        chain("inet", "prerouting", "tcp dport 80 meta mark set 7;"),
        "netfilter",
        &["rule (meta set) of nftables chain inet t c for IPv4 and IPv6"],
    ));
    check(case(
        chain("ip6", "forward", "policy drop; iifname \"eth0\" accept;"),
        "netfilter",
        &["policy drop of nftables chain ip6 t c for IPv6"],
    ));
    check(case(
        chain("netdev", "ingress device eth0", "ip protocol icmp drop;"),
        "netfilter",
        &["rule (drop) of nftables chain netdev t c for IPv4"],
    ));
}

#[test]
fn rules_that_are_for_others_do_not_matter() {
    require!(skip::forwarder());
    require!(skip::command("nft", "--version"));
    for rules in [
        chain("inet", "input", "policy drop; ct state invalid drop;"),
        chain("ip", "forward", "iifname \"docker0\" drop; policy accept;"),
        nft(BRIDGE_ALONE),
        "tc qdisc add dev eth0 clsact".to_owned(),
        "ip link add br0 type bridge; tc qdisc add dev br0 root handle 1: htb".to_owned(),
        "ip xfrm policy add src 198.18.0.0/16 dst 198.19.0.0/16 dir in".to_owned(),
    ] {
        check(case(rules, "", &[]));
    }
}

#[test]
fn what_docker_and_firewalld_keep() {
    require!(skip::forwarder());
    require!(skip::command("nft", "--version"));
    check(case(
        nft(DOCKER),
        "netfilter",
        &[
            "policy drop of nftables chain ip filter FORWARD for IPv4",
            "rule (masquerade) of nftables chain ip nat POSTROUTING for IPv4",
            "rule (drop) of nftables chain ip raw PREROUTING for IPv4",
        ],
    ));
    check(case(
        nft(FIREWALLD),
        "netfilter",
        &[
            "rule (ct) of nftables chain inet firewalld filter_FORWARD for IPv4 and IPv6",
            "rule (ct) of nftables chain inet firewalld filter_FORWARD for IPv4 and IPv6",
            "rule (ct, drop) of nftables chain inet firewalld filter_FORWARD for IPv4 and IPv6",
            "rule (reject) of nftables chain inet firewalld filter_FORWARD for IPv6",
            "rule (reject) of nftables chain inet firewalld filter_FWD_public for IPv4 and IPv6",
            "rule (reject) of nftables chain inet firewalld filter_FORWARD for IPv4 and IPv6",
        ],
    ));
}

#[test]
fn rules_of_iptables_of_both_kinds() {
    require!(skip::forwarder());
    require!(skip::command("iptables-legacy", "--version"));
    require!(skip::command("iptables-nft", "--version"));
    check(case(
        "iptables-legacy -P FORWARD DROP
         ip6tables-legacy -A FORWARD -i eth0 -j DROP
         ip6tables-legacy -A FORWARD -i docker0 -j DROP",
        "netfilter",
        &[
            "policy DROP of iptables-legacy chain FORWARD in table filter for IPv4",
            "rule (DROP) of ip6tables-legacy chain FORWARD in table filter for IPv6",
        ],
    ));
    check(case(
        "iptables-nft -t nat -A POSTROUTING -s 198.18.0.0/16 ! -o docker0 -j MASQUERADE
         iptables-nft -A FORWARD -i docker0 -j DROP
         iptables-nft -A FORWARD -p tcp --dport 22 -j ACCEPT
         iptables-nft -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT",
        "netfilter",
        &[
            "rule (conntrack) of nftables chain ip filter FORWARD for IPv4",
            "rule (MASQUERADE) of nftables chain ip nat POSTROUTING for IPv4",
        ],
    ));
}

#[test]
fn shaping_filters_and_ipsec() {
    require!(skip::forwarder());
    require!(skip::command("tc", "-Version"));
    check(case(
        "tc qdisc add dev eth1 root handle 1: htb default 1
         tc qdisc add dev eth0 clsact
         tc filter add dev eth0 ingress protocol ip prio 7 u32 match u32 0 0",
        "tc",
        &[
            "the tc filter u32 of priority 7 on eth0, ingress for IPv4",
            "the queueing discipline htb of eth1 for IPv4 and IPv6",
        ],
    ));
    check(case(
        "ip xfrm policy add src 198.19.1.0/24 dst 198.19.2.0/24 dir fwd tmpl proto esp mode tunnel",
        "xfrm",
        &["the IPsec policy src 198.19.1.0/24 dst 198.19.2.0/24 dir fwd for IPv4"],
    ));
    check(case(
        "ip xfrm policy setdefault fwd block; tc qdisc add dev eth1 root handle 1: htb default 1",
        "tc,xfrm",
        &[
            "the queueing discipline htb of eth1 for IPv4 and IPv6",
            "the default of IPsec policies fwd block for IPv4 and IPv6",
        ],
    ));
}
