//! Linux's main table and the forwarder's, side by side.

use std::collections::{BTreeMap, BTreeSet};

use forwarder_tests::testbed::Testbed;
use serde_json::Value;

/// Gateway and interface of each next hop, by prefix; of several routes of a prefix, all of them.
type Table = BTreeMap<String, BTreeSet<(String, String)>>;

/// Both tables have the same prefixes, with the same next hops.
pub(crate) fn assert_equal_tables(testbed: &Testbed) {
    let linux = ["-4", "-6"].map(|family| {
        let text = testbed.lab.router.ip(&format!("{family} -j route show")).unwrap();
        table(&serde_json::from_str(&text).unwrap(), family == "-6")
    });
    let mut linux: Table = linux.into_iter().flatten().collect();
    // To link-local addresses nobody forwards (RFC 4291, 2.5.6).
    linux.remove("fe80::/64");
    let shown = testbed.daemon.forwarder().json("route show").unwrap();
    assert!(linux.len() > 4, "{linux:#?}");
    assert_eq!(table(&shown, false), linux);
}

fn table(routes: &Value, is_ipv6: bool) -> Table {
    let mut table = Table::new();
    for route in routes.as_array().expect("a list") {
        let prefix = prefix_of(route["dst"].as_str().or(route["prefix"].as_str()), is_ipv6);
        let several = route["nexthops"].as_array();
        let hops = several.map_or_else(|| vec![route], |it| it.iter().collect());
        table.entry(prefix).or_default().extend(hops.into_iter().map(hop));
    }
    table
}

fn hop(hop: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let via = hop["gateway"].as_str().map_or_else(|| text(&hop["via"]["host"]), str::to_owned);
    (via, text(&hop["dev"]))
}

/// With its length, as `ip` does not write it of hosts and of the default.
fn prefix_of(prefix: Option<&str>, is_ipv6: bool) -> String {
    let prefix = prefix.expect("a destination");
    let is_ipv6 = is_ipv6 || prefix.contains(':');
    match (prefix, is_ipv6) {
        ("default", false) => "0.0.0.0/0".into(),
        ("default", true) => "::/0".into(),
        (prefix, _) if prefix.contains('/') => prefix.into(),
        (prefix, true) => format!("{prefix}/128"),
        (prefix, false) => format!("{prefix}/32"),
    }
}
