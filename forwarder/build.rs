//! Finds the eBPF object that the daemon embeds: `src/object_bytes.rs` includes what this names.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let (variable, file) = if env::var_os("CARGO_FEATURE_TRACE").is_some() {
        ("FORWARDER_EBPF_TRACE_OBJECT", "forwarder-ebpf-trace.o")
    } else {
        ("FORWARDER_EBPF_OBJECT", "forwarder-ebpf.o")
    };
    println!("cargo::rerun-if-env-changed={variable}");
    let object = match env::var_os(variable) {
        Some(named) => {
            let named = PathBuf::from(named);
            if !named.is_file() {
                return Err(
                    format!("{variable} names {}, which is no file", named.display()).into()
                );
            }
            named
        }
        None => PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../target/bpf").join(file),
    };
    let embedded = if object.is_file() {
        println!("cargo::rerun-if-changed={}", object.display());
        object.canonicalize()?
    } else {
        // Clippy and rust-analyzer need no object. The folder is watched for the day that there is
        // one: a file that is missing would be taken for changed by every build.
        let folder = object.parent().ok_or("an object lies in a folder")?;
        fs::create_dir_all(folder)?;
        println!("cargo::rerun-if-changed={}", folder.display());
        let empty = PathBuf::from(env::var("OUT_DIR")?).join(file);
        fs::write(&empty, [])?;
        empty
    };
    println!("cargo::rustc-env=FORWARDER_EMBEDDED_OBJECT={}", embedded.display());
    Ok(())
}
