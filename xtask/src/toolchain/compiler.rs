//! A rustc, and what makes it fit for the eBPF build.

use std::{
    fmt::{self, Display, Formatter},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::Command,
};

use super::plan::Finding;
use crate::process;

/// What `rust-version` of the workspace says.
pub(crate) const RUSTC_MIN: (u32, u32) = (1, 95);
/// What the bpf-linker that we build can be built against.
pub(crate) const LLVM: RangeInclusive<u32> = 22..=23;
pub(crate) const BPF_LINKER: &str = "^0.13";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compiler {
    pub(crate) rustc: PathBuf,
    /// Its own cargo, where it has one.
    pub(crate) cargo: Option<PathBuf>,
    pub(crate) version: Version,
}

/// `rustc -vV`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) text: String,
    pub(crate) release: String,
    pub(crate) commit: String,
    pub(crate) llvm: String,
}

impl Compiler {
    /// Looks at a rustc: is it there, new enough, with BPF in its LLVM, with sources?
    pub(crate) fn inspect(rustc: &Path, cargo: Option<PathBuf>) -> (Finding, Option<Self>) {
        let version = match version(rustc) {
            Ok(version) => version,
            Err(why) => return (Finding::Unfit(why), None),
        };
        if let Err(why) = version.check().and_then(|()| has_bpf(rustc)) {
            return (Finding::Unfit(why), None);
        }
        match has_sources(rustc) {
            Ok(true) => {
                let rustc = rustc.to_owned();
                (Finding::Ready, Some(Self { rustc, cargo, version }))
            }
            Ok(false) => (Finding::NoSources, None),
            Err(why) => (Finding::Unfit(why), None),
        }
    }
}

impl Display for Compiler {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Version { release, llvm, .. } = &self.version;
        write!(f, "rustc {release} with LLVM {llvm}: {}", self.rustc.display())
    }
}

impl Version {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
        };
        Some(Self {
            text: text.to_owned(),
            release: field("release:")?,
            commit: field("commit-hash:").unwrap_or_else(|| "unknown".to_owned()),
            llvm: field("LLVM version:")?,
        })
    }

    pub(crate) fn llvm_major(&self) -> Option<u32> {
        self.llvm.split('.').next()?.parse().ok()
    }

    /// Tells this rustc from any other, in the name of a folder.
    pub(crate) fn key(&self) -> String {
        let commit = self.commit.get(..9).unwrap_or(&self.commit);
        format!("rustc-{}-{commit}-llvm-{}", self.release, self.llvm)
    }

    fn check(&self) -> Result<(), String> {
        let mut numbers = self.release.split(['.', '-']).map_while(|part| part.parse().ok());
        let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
            return Err(format!("rustc {} has no version that can be read", self.release));
        };
        if (major, minor) < RUSTC_MIN {
            let (major, minor) = RUSTC_MIN;
            return Err(format!("rustc {} is older than {major}.{minor}", self.release));
        }
        match self.llvm_major() {
            Some(major) if LLVM.contains(&major) => Ok(()),
            _ => Err(format!(
                "rustc {} has LLVM {}, and bpf-linker can be built for LLVM {} to {}",
                self.release,
                self.llvm,
                LLVM.start(),
                LLVM.end()
            )),
        }
    }
}

pub(crate) fn version(rustc: &Path) -> Result<Version, String> {
    let text =
        process::output(Command::new(rustc).arg("-vV")).map_err(|error| format!("{error:#}"))?;
    Version::parse(&text).ok_or_else(|| format!("`{} -vV` says no LLVM version", rustc.display()))
}

/// Every rustc knows the target; its LLVM need not.
fn has_bpf(rustc: &Path) -> Result<(), String> {
    process::output(Command::new(rustc).args([
        "--print",
        "target-cpus",
        "--target",
        "bpfel-unknown-none",
    ]))
    .map(drop)
    .map_err(|_| format!("the LLVM of {} cannot make BPF code", rustc.display()))
}

/// Where cargo looks for what `-Zbuild-std` builds.
pub(crate) fn has_sources(rustc: &Path) -> Result<bool, String> {
    let sysroot = process::output(Command::new(rustc).args(["--print", "sysroot"]))
        .map_err(|error| format!("{error:#}"))?;
    let library = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library");
    Ok(library.join("Cargo.lock").is_file() && library.join("core/src/lib.rs").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NIGHTLY: &str = "rustc 1.97.0-nightly (e50aa6fba 2026-05-19)\nbinary: rustc\n\
        commit-hash: e50aa6fba4e63ab34c72bf9acfd2c307c1155d1a\ncommit-date: 2026-05-19\n\
        host: x86_64-unknown-linux-gnu\nrelease: 1.97.0-nightly\nLLVM version: 22.1.4\n";

    fn release(release: &str, llvm: &str) -> Version {
        let text = format!("release: {release}\nLLVM version: {llvm}\n");
        Version::parse(&text).unwrap()
    }

    #[test]
    fn the_version_is_read() {
        let version = Version::parse(NIGHTLY).unwrap();
        assert_eq!(version.release, "1.97.0-nightly");
        assert_eq!(version.llvm_major(), Some(22));
        assert_eq!(version.key(), "rustc-1.97.0-nightly-e50aa6fba-llvm-22.1.4");
        assert_eq!(Version::parse("rustc 1.0"), None);
    }

    #[test]
    fn a_version_that_does_not_fit_says_why() {
        let table = [
            ("1.95.0", "22.1.2", None),
            ("1.101.0-nightly", "23.1.0", None),
            ("2.0.0", "23.1.0", None),
            ("1.85.0", "22.1.0", Some("rustc 1.85.0 is older than 1.95")),
            (
                "1.95.0",
                "21.1.0",
                Some("LLVM 21.1.0, and bpf-linker can be built for LLVM 22 to 23"),
            ),
            ("1.110.0", "24.1.0", Some("LLVM 24.1.0, and")),
            ("x", "22.1.0", Some("no version that can be read")),
        ];
        for (rustc, llvm, why) in table {
            match (release(rustc, llvm).check(), why) {
                (Ok(()), None) => {}
                (Err(said), Some(why)) => assert!(said.contains(why), "{said}"),
                (got, _) => panic!("{rustc}: {got:?}"),
            }
        }
    }
}
