//! The loaded program's lookups against an oracle that knows nothing of the FIB.

use std::{fs, process::Command};

use forwarder::prefix::Family;
use forwarder_tests::{
    agreement::{Agreement, Sizes},
    require, skip,
};
use serde_json::Value;

#[test]
fn the_loaded_program_finds_what_the_oracle_finds() {
    require!(skip::lab());
    for (family, routes) in [(Family::Inet, 20_000), (Family::Inet6, 10_000)] {
        Agreement::check(family, &Sizes { routes, addresses: 1 << 16, updates: 2000 });
    }
}

/// It is run to see that it can be run: what it measures here means nothing.
#[test]
fn the_benchmark_writes_its_results() {
    require!(skip::lab());
    require!(skip::cpus(2));
    let out = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut bench = Command::new(env!("CARGO_BIN_EXE_forwarder-bench"));
        bench.args(["fib", "--brief", "--out"]).arg(out.path()).args(arguments);
        let output = bench.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    };
    run(&[]);
    let read = |name: &str| fs::read_to_string(out.path().join(name)).unwrap();
    let results: Value = serde_json::from_str(&read("fib.json")).unwrap();
    let tables = results["tables"].as_array().unwrap();
    assert_eq!(tables.len(), 2, "{results}");
    for table in tables {
        for answers in table["answers"].as_array().unwrap() {
            assert_eq!(answers["wrong"], 0, "{answers}");
            assert!(answers["of"].as_u64().unwrap() > 10_000, "{answers}");
        }
        for lookup in table["lookups"].as_array().unwrap() {
            assert!(lookup["ns"].as_f64().unwrap() > 0.0, "{lookup}");
        }
    }
    assert!(read("fib.svg").starts_with("<svg"));

    run(&["--writer"]);
    let results: Value = serde_json::from_str(&read("fib-writer.json")).unwrap();
    assert_eq!(results["cases"].as_array().unwrap().len(), 5);
}
