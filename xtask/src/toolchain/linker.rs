//! The bpf-linker for a compiler: the one named, the one built before, one on the path that can
//! read what the compiler writes, or one built now.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::{
    LINKER_VARIABLE,
    compiler::{BPF_LINKER, Compiler},
    say, variable,
};
use crate::{
    process::{self, on_path},
    workspace::cargo,
};

pub(crate) fn find(folder: &Path, compiler: &Compiler) -> Result<PathBuf> {
    let folder = folder.join(compiler.version.key());
    if let Some(linker) = variable(LINKER_VARIABLE) {
        return probe(&folder, compiler, &linker)
            .map(|()| linker)
            .with_context(|| format!("the one that {LINKER_VARIABLE} names is of no use"));
    }
    let built = folder.join("bin/bpf-linker");
    if built.exists() && probe(&folder, compiler, &built).is_ok() {
        return Ok(built);
    }
    if let Some(linker) = on_path("bpf-linker") {
        match probe(&folder, compiler, &linker) {
            Ok(()) => {
                say(&format!("using {}", linker.display()));
                return Ok(linker);
            }
            Err(error) => say(&format!("not using {}: {error:#}", linker.display())),
        }
    }
    build(&folder, compiler)?;
    probe(&folder, compiler, &built).context("the one that was built is of no use")?;
    Ok(built)
}

/// It loads its LLVM when it starts: one that cannot find it any more fails here.
pub(crate) fn starts(linker: &Path) -> bool {
    process::output(Command::new(linker).arg("--version")).is_ok()
}

/// Links a function that this compiler compiled, as bitcode, for the host. Bitcode for BPF would
/// need `core` for BPF, which takes a minute to build; what is in question is whether the linker
/// reads the bitcode of this compiler's LLVM.
fn probe(folder: &Path, compiler: &Compiler, linker: &Path) -> Result<()> {
    const SOURCE: &str =
        "#![no_std]\n#[unsafe(no_mangle)]\npub extern \"C\" fn probe() -> i32 {\n    2\n}\n";
    const EM_BPF: u16 = 247;
    ensure!(linker.is_file(), "there is no {}", linker.display());
    let folder = folder.join("probe");
    fs::create_dir_all(&folder)?;
    let (source, bitcode, object) =
        (folder.join("probe.rs"), folder.join("probe.bc"), folder.join("probe.o"));
    fs::write(&source, SOURCE)?;
    let mut command = Command::new(&compiler.rustc);
    command.args(["--crate-type=lib", "--emit=llvm-bc", "-Copt-level=2", "-Ctarget-cpu=generic"]);
    process::output(command.arg("-o").arg(&bitcode).arg(&source))?;
    let mut command = Command::new(linker);
    command.args(["--target=bpfel-unknown-none", "--export=probe", "--emit=obj", "-o"]);
    process::output(command.arg(&object).arg(&bitcode))
        .map_err(|_| anyhow!("{} cannot read what this rustc writes", linker.display()))?;
    let machine = fs::read(&object)?.get(18..20).map(|bytes| [bytes[0], bytes[1]]);
    fs::remove_dir_all(&folder)?;
    if machine.map(u16::from_le_bytes) != Some(EM_BPF) {
        bail!("{} made no BPF object", linker.display());
    }
    Ok(())
}

fn build(folder: &Path, compiler: &Compiler) -> Result<()> {
    let llvm = compiler.version.llvm_major().context("no LLVM version")?;
    let prefix = llvm_prefix(folder, compiler)?;
    say(&format!(
        "building bpf-linker against LLVM {} of this rustc, 1 to 2 minutes, once",
        compiler.version.llvm
    ));
    let objects = folder.join("build");
    // On the path, or cargo advises to put it there.
    let mut path = folder.join("bin").into_os_string();
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    let mut command = Command::new(cargo());
    command
        .args(["install", "bpf-linker", "--locked", "--no-default-features", "--no-track"])
        .arg(format!("--version={BPF_LINKER}"))
        .arg(format!("--features=llvm-{llvm}"))
        .arg("--root")
        .arg(folder)
        .env("PATH", path)
        .env("LLVM_PREFIX", &prefix)
        .env("CARGO_TARGET_DIR", &objects)
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    let built = process::run(&mut command);
    // Whoever interrupts the build keeps what it had made.
    if built.is_ok() {
        fs::remove_dir_all(&objects)?;
    }
    built.map_err(|error| match on_path("cc") {
        Some(_) => error,
        None => error.context("there is no C compiler `cc` to link it (Debian: gcc, libc6-dev)"),
    })
}

/// A folder as bpf-linker's build script wants it: `lib/libLLVM.so`, and beside it the name by
/// which the linker looks for it when it starts.
fn llvm_prefix(folder: &Path, compiler: &Compiler) -> Result<PathBuf> {
    let mut command = Command::new("ldd");
    let said = process::output(command.arg(&compiler.rustc).env("LC_ALL", "C"))?;
    let (name, library) = llvm_in(&said).ok_or_else(|| {
        anyhow!("{} has its LLVM built in, and not in a library", compiler.rustc.display())
    })?;
    let library = fs::canonicalize(&library)
        .with_context(|| format!("find the LLVM of rustc, {}", library.display()))?;
    let prefix = folder.join("llvm");
    let lib = prefix.join("lib");
    if lib.exists() {
        fs::remove_dir_all(&lib)?;
    }
    fs::create_dir_all(&lib)?;
    symlink(&library, lib.join("libLLVM.so"))?;
    if name != "libLLVM.so" {
        symlink(&library, lib.join(&name))?;
    }
    Ok(prefix)
}

/// The name and the place of libLLVM, in what `ldd` says.
fn llvm_in(ldd: &str) -> Option<(String, PathBuf)> {
    ldd.lines().find_map(|line| {
        let (name, rest) = line.trim().split_once(" => ")?;
        let path = rest.rsplit_once(" (").map_or(rest, |(path, _)| path);
        (name.starts_with("libLLVM") && path.starts_with('/'))
            .then(|| (name.to_owned(), path.into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_llvm_of_a_compiler_is_found() {
        let debian = "\tlinux-vdso.so.1 (0x00007f95821c1000)\n\
            \tlibLLVM.so.22.1 => /lib/x86_64-linux-gnu/libLLVM.so.22.1 (0x00007f9573400000)\n\
            \tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f9573320000)\n";
        let found =
            Some(("libLLVM.so.22.1".into(), "/lib/x86_64-linux-gnu/libLLVM.so.22.1".into()));
        assert_eq!(llvm_in(debian), found);
        assert_eq!(llvm_in("\tlibLLVM.so.22.1 => not found\n"), None);
        assert_eq!(llvm_in("\tlibc.so.6 => /lib/libc.so.6 (0x1)\n"), None);
    }
}
