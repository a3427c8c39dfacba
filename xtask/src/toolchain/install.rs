//! Carries out what the plan wants installed.

use std::{process::Command, time::Duration};

use anyhow::{Context as _, Result, bail};

use super::{compiler::RUSTC_MIN, plan::Action};
use crate::process;

/// Beyond this a network that swallows packets is not waited for.
const SOURCES_LIMIT: Duration = Duration::from_mins(2);
const TOOLCHAIN_LIMIT: Duration = Duration::from_mins(5);
const PACKAGES_LIMIT: Duration = Duration::from_mins(10);

pub(crate) fn install(action: &Action) -> Result<()> {
    let words = action.command();
    let (program, arguments) = words.split_first().context("an empty command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    match action {
        Action::AddSources(_) => process::run_within(&mut command, SOURCES_LIMIT),
        Action::InstallToolchain(_) => process::run_within(&mut command, TOOLCHAIN_LIMIT),
        Action::InstallPackages => {
            find_package()?;
            command.env("DEBIAN_FRONTEND", "noninteractive");
            process::run_within(&mut command, PACKAGES_LIMIT)
        }
    }
}

/// Makes sure that apt knows a rustc-web that is new enough, before it installs an old one.
fn find_package() -> Result<()> {
    if candidate("rustc-web").is_none_or(|version| !is_new_enough(&version)) {
        process::run_within(Command::new("apt-get").arg("update"), PACKAGES_LIMIT)?;
    }
    let (major, minor) = RUSTC_MIN;
    match candidate("rustc-web") {
        None => bail!("apt knows no package rustc-web"),
        Some(version) if !is_new_enough(&version) => {
            bail!("apt has rustc-web {version} only, which is older than {major}.{minor}")
        }
        Some(_) => Ok(()),
    }
}

/// The version that apt would install.
pub(crate) fn candidate(package: &str) -> Option<String> {
    let mut command = Command::new("apt-cache");
    command.args(["policy", package]).env("LC_ALL", "C");
    candidate_in(&process::output(&mut command).ok()?)
}

fn candidate_in(policy: &str) -> Option<String> {
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (version != "(none)").then(|| version.to_owned())
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split(['.', '+', '~', '-']).map_while(|part| part.parse().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= RUSTC_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_candidate_is_read() {
        let policy = "rustc-web:\n  Installed: (none)\n  Candidate: 1.96.0+dfsg1-1~deb12u2\n  \
                      Version table:\n     1.85.0+dfsg3-1~deb12u3 500\n";
        assert_eq!(candidate_in(policy).as_deref(), Some("1.96.0+dfsg1-1~deb12u2"));
        assert_eq!(candidate_in("x:\n  Installed: (none)\n  Candidate: (none)\n"), None);
        assert_eq!(candidate_in(""), None);
    }

    #[test]
    fn an_old_package_is_told_from_a_new_one() {
        for new in ["1.96.0+dfsg1-1~deb12u2", "1.95.0", "2.0.0"] {
            assert!(is_new_enough(new), "{new}");
        }
        for old in ["1.85.0+dfsg3-1~deb12u3", "1.94.1", "0.99", "", "x"] {
            assert!(!is_new_enough(old), "{old}");
        }
    }
}
