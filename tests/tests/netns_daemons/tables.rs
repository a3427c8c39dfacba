//! Linux's main table and the forwarder's, side by side.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use forwarder_tests::{
    testbed::{SOON, Testbed},
    wait::wait_until,
};
use serde_json::Value;

/// Gateway and interface of each next hop, by prefix; of several routes of a prefix, all of them.
type Table = BTreeMap<String, BTreeSet<(String, String)>>;

/// Both tables have the same prefixes, with the same next hops, as soon as nothing changes.
pub(crate) fn assert_equal_tables(testbed: &Testbed) {
    let mut tables = (Table::new(), Table::new());
    let waited = wait_until("equal tables", SOON, || {
        tables = (ours(testbed)?, linux(testbed)?);
        Ok((tables.0 == tables.1).then_some(()))
    });
    let (ours, linux) = tables;
    assert!(linux.len() > 4, "{linux:#?}");
    assert!(waited.is_ok(), "ours: {ours:#?}\nLinux's: {linux:#?}");
}

fn ours(testbed: &Testbed) -> Result<Table> {
    Ok(table(&testbed.daemon.forwarder().json("route show")?, false))
}

fn linux(testbed: &Testbed) -> Result<Table> {
    let of = |family| -> Result<Value> {
        let text = testbed.lab.router.ip(&format!("{family} -j route show"))?;
        Ok(serde_json::from_str(&text)?)
    };
    let mut both = table(&of("-4")?, false);
    both.extend(table(&of("-6")?, true));
    // To link-local addresses nobody forwards (RFC 4291, 2.5.6).
    both.remove("fe80::/64");
    Ok(both)
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
