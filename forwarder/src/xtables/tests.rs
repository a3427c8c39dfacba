//! Against the kernel, in network namespaces of their own.

use crate::{
    bypass::{Families, Port, rules::findings},
    netlink::namespace::Namespace,
};

use super::*;

/// What of these commands' rules is bypassed between `va` and `vb`.
fn bypassed(commands: &[&str]) -> Option<Vec<(Families, String, String)>> {
    let namespace = Namespace::new()?;
    if !(Namespace::has("iptables-legacy") && Namespace::has("ip6tables-legacy")) {
        return None;
    }
    for command in commands {
        namespace.sh(command);
    }
    let ruleset = namespace.run(|| async { rules(Path::new("/proc")).unwrap() });
    let ports: Vec<_> = (101..)
        .zip(["va", "vb"])
        .map(|(ifindex, name)| Port { ifindex, name: name.to_owned() })
        .collect();
    let found = findings(&ruleset, &ports).into_iter();
    Some(found.map(|it| (it.families, it.what, it.remedy)).collect())
}

#[test]
fn rules_are_judged_one_by_one() {
    for (rule, expected) in [
        ("iptables-legacy -A FORWARD -j ACCEPT", ""),
        ("iptables-legacy -A FORWARD", "4: 1 counter FORWARD filter"),
        ("iptables-legacy -A FORWARD -s 198.18.0.0/16 -p tcp --dport 22 -j RETURN", ""),
        ("iptables-legacy -A INPUT -j DROP", ""),
        ("iptables-legacy -A OUTPUT -j DROP", ""),
        ("iptables-legacy -A FORWARD -j DROP", "4: 1 DROP FORWARD filter"),
        ("ip6tables-legacy -A FORWARD -j DROP", "6: 1 DROP FORWARD filter"),
        ("iptables-legacy -A FORWARD -i va -j DROP", "4: 1 DROP FORWARD filter"),
        ("iptables-legacy -A FORWARD -i docker0 -j DROP", ""),
        ("ip6tables-legacy -A FORWARD -o docker0 -j DROP", ""),
        ("ip6tables-legacy -A FORWARD ! -o docker0 -j DROP", "6: 1 DROP FORWARD filter"),
        ("iptables-legacy -A FORWARD -i v+ -j DROP", "4: 1 DROP FORWARD filter"),
        ("iptables-legacy -A FORWARD -i br-+ -j DROP", ""),
        ("iptables-legacy -A FORWARD ! -i v+ -j DROP", ""),
        ("iptables-legacy -A FORWARD -i va -o va -j DROP", ""),
        (
            "iptables-legacy -t mangle -A PREROUTING -j MARK --set-mark 3",
            "4: 1 MARK PREROUTING mangle",
        ),
        (
            "iptables-legacy -t nat -A POSTROUTING -o vb -j MASQUERADE",
            "4: 1 MASQUERADE POSTROUTING nat",
        ),
        (
            "iptables-legacy -A FORWARD -m conntrack --ctstate NEW -j ACCEPT",
            "4: 1 conntrack FORWARD filter",
        ),
        ("iptables-legacy -A FORWARD -m comment --comment x -j ACCEPT", ""),
        ("iptables-legacy -P FORWARD DROP", "4: policy DROP FORWARD filter"),
        ("iptables-legacy -P INPUT DROP", ""),
        (
            "iptables-legacy -N a; iptables-legacy -N b; iptables-legacy -A b -j DROP
             iptables-legacy -A a -o vb -j b; iptables-legacy -A FORWARD -i va -j a",
            "4: 1 DROP b filter",
        ),
        (
            "iptables-legacy -N a; iptables-legacy -A a -j DROP
             iptables-legacy -A FORWARD -i docker0 -j a; iptables-legacy -A FORWARD -i vx -g a",
            "",
        ),
        (
            "iptables-legacy -A FORWARD -j ACCEPT; iptables-legacy -A FORWARD -i va -j LOG",
            "4: 2 LOG FORWARD filter",
        ),
    ] {
        let Some(found) = bypassed(&[rule]) else { return };
        let found: Vec<_> =
            found.iter().map(|(families, what, _)| short(*families, what)).collect();
        assert_eq!(found.join("; "), expected, "{rule}");
    }
}

/// "4: 1 DROP FORWARD filter"
fn short(families: Families, what: &str) -> String {
    let family = if families == Families::V4 { 4 } else { 6 };
    let superfluous = ["rule", "of", "chain", "in", "table", "iptables-legacy", "ip6tables-legacy"];
    let words = what.split(' ').filter(|word| !superfluous.contains(word));
    let words: Vec<_> = words.map(|word| word.trim_matches(['(', ')'])).collect();
    format!("{family}: {}", words.join(" "))
}

#[test]
fn the_remedy_removes_what_was_found() {
    let rules = [
        "iptables-legacy -A FORWARD -j ACCEPT",
        "iptables-legacy -A FORWARD -j DROP",
        "ip6tables-legacy -P FORWARD DROP",
    ];
    let Some(found) = bypassed(&rules) else { return };
    assert_eq!(found.len(), 2, "{found:?}");
    let remedies: Vec<_> =
        found.iter().filter_map(|(_, _, remedy)| remedy.split('`').nth(1)).collect();
    assert_eq!(bypassed(&[&rules[..], &remedies].concat()), Some(vec![]));
}

#[test]
fn a_namespace_without_tables_has_no_rules() {
    assert_eq!(bypassed(&[]).unwrap_or_default(), []);
    assert_eq!(rules(Path::new("/nonexistent")).unwrap(), Ruleset::default());
}

#[test]
fn many_rules_are_read_whole() {
    let line = |port: u32| format!("-A FORWARD -p tcp --dport {port} -j ACCEPT");
    let lines = (0..3000).map(line).collect::<Vec<_>>().join("\n");
    let script = format!(
        "iptables-legacy-restore <<'END'\n*filter\n{lines}\n-A FORWARD -j DROP\nCOMMIT\nEND"
    );
    let Some(found) = bypassed(&[&script]) else { return };
    assert_eq!(found.len(), 1);
    assert!(found[0].1.starts_with("rule 3001 (DROP)"), "{}", found[0].1);
}
