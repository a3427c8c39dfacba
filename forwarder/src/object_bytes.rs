//! The eBPF object that `build.rs` found, inside this binary.

/// What the daemon says when it has no object to load.
pub const MISSING: &str = "this binary was built without its eBPF object: run `cargo xtask build`";

/// The bytes of the object, aligned as the headers in it want to be read.
pub fn object() -> Option<&'static [u8]> {
    let bytes: &[u8] = &OBJECT.0;
    (!bytes.is_empty()).then_some(bytes)
}

#[repr(C, align(32))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(env!("FORWARDER_EMBEDDED_OBJECT")));
