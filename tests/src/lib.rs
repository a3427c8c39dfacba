//! The lab.

/// The built eBPF object.
pub fn object() -> Vec<u8> {
    let path = std::env::var_os("FORWARDER_EBPF_OBJECT").map_or_else(
        || concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bpf/forwarder-ebpf.o").into(),
        std::path::PathBuf::from,
    );
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
