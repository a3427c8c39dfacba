//! What to do next, by what is known of the machine. Pure: [`super::probe`] finds the facts,
//! [`super::install`] carries the steps out.

use std::fmt::{self, Display, Formatter};

use super::{
    LINKER_VARIABLE, RUSTC_VARIABLE, WAY_VARIABLE,
    compiler::{LLVM, RUSTC_MIN},
};

/// Where a compiler can come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The one named in the environment.
    Named,
    /// A toolchain of rustup.
    Rustup(String),
    /// The distribution's, in /usr/bin: Debian's rustc-web with rust-web-src.
    System,
}

/// What became of looking for a compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    Absent,
    NoSources,
    Unfit(String),
    Ready,
}

/// What can be changed on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// To a toolchain that is there: a few MB, and nothing else changes.
    AddSources(String),
    InstallToolchain(String),
    InstallPackages,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Use(Way),
    Install(Action),
    GiveUp(String),
}

#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// In the order of preference.
    pub(crate) ways: Vec<(Way, Finding)>,
    /// Set: the compiler is named in the environment, and no other is looked for.
    pub(crate) named: bool,
    /// Set: the linker that the environment names was of no use to a compiler. That is for the
    /// user to mend, and no reason to install another compiler.
    pub(crate) linker_refused: bool,
    pub(crate) rustup: bool,
    pub(crate) apt: bool,
    pub(crate) root: bool,
    pub(crate) tried: Vec<(Action, Result<(), String>)>,
}

/// What is there is used before anything is installed; the smallest change is tried first.
pub(crate) fn next(facts: &Facts) -> Step {
    if let Some((way, _)) = facts.ways.iter().find(|(_, finding)| *finding == Finding::Ready) {
        return Step::Use(way.clone());
    }
    let untried = |action: &Action| facts.tried.iter().all(|(tried, _)| tried != action);
    let action = |(way, finding): &(Way, Finding)| facts.remedy(way, finding).filter(untried);
    match facts.ways.iter().find_map(action) {
        Some(action) => Step::Install(action),
        None => Step::GiveUp(facts.failure()),
    }
}

impl Facts {
    pub(crate) fn reject(&mut self, way: &Way, why: String) {
        self.found(way, Finding::Unfit(why));
    }

    pub(crate) fn done(&mut self, action: &Action, finding: Finding) {
        self.tried.push((action.clone(), Ok(())));
        self.found(&action.way(), finding);
    }

    pub(crate) fn failed(&mut self, action: &Action, why: String) {
        self.tried.push((action.clone(), Err(why)));
    }

    fn found(&mut self, way: &Way, finding: Finding) {
        for (known, old) in &mut self.ways {
            if known == way {
                *old = finding.clone();
            }
        }
    }

    /// What would make this way work, as far as we may do it.
    fn remedy(&self, way: &Way, finding: &Finding) -> Option<Action> {
        match (way, finding) {
            _ if self.linker_refused => None,
            (Way::Rustup(toolchain), Finding::NoSources) if self.rustup => {
                Some(Action::AddSources(toolchain.clone()))
            }
            (Way::Rustup(toolchain), Finding::Absent) if self.rustup => {
                Some(Action::InstallToolchain(toolchain.clone()))
            }
            (Way::System, Finding::Absent | Finding::NoSources) if self.apt && self.root => {
                Some(Action::InstallPackages)
            }
            _ => None,
        }
    }

    fn failure(&self) -> String {
        let (major, minor) = RUSTC_MIN;
        let (first, last) = (LLVM.start(), LLVM.end());
        let mut lines = vec![format!(
            "no toolchain for the eBPF program: it takes a rustc {major}.{minor} or newer with \
             LLVM {first} to {last} and the sources of its `core`, and a bpf-linker built against \
             that LLVM"
        )];
        for (way, finding) in &self.ways {
            lines.push(format!("{way}: {}", self.trouble(way, finding)));
        }
        if !self.named {
            if !self.rustup {
                lines.push("rustup: not installed (https://rustup.rs)".to_owned());
            }
            lines.push(format!(
                "by hand: set {RUSTC_VARIABLE} to such a rustc, and {LINKER_VARIABLE} to a \
                 bpf-linker for it"
            ));
        }
        lines.join("\n  ")
    }

    /// Why this way does not work, and what a person can do about it.
    fn trouble(&self, way: &Way, finding: &Finding) -> String {
        let what = match finding {
            Finding::Absent => match way {
                Way::Named => {
                    let path = std::env::var(RUSTC_VARIABLE).unwrap_or_default();
                    format!("{RUSTC_VARIABLE} names no file: {path}")
                }
                Way::Rustup(_) | Way::System => "not installed".to_owned(),
            },
            Finding::NoSources => "the sources of `core` are missing".to_owned(),
            Finding::Unfit(why) => why.clone(),
            Finding::Ready => "ready".to_owned(),
        };
        let action = match (way, finding) {
            (Way::Rustup(toolchain), Finding::NoSources) => Action::AddSources(toolchain.clone()),
            (Way::Rustup(toolchain), Finding::Absent) => {
                Action::InstallToolchain(toolchain.clone())
            }
            (Way::System, Finding::Absent | Finding::NoSources) if self.apt => {
                Action::InstallPackages
            }
            _ => return what,
        };
        let tried = self.tried.iter().find(|(tried, _)| *tried == action);
        let sudo = if action == Action::InstallPackages && !self.root { "sudo " } else { "" };
        match tried {
            Some((_, Err(why))) => format!("{what}; {why}"),
            Some((_, Ok(()))) => format!("{what}, even after `{}`", action.line()),
            None => format!("{what}; get it: {sudo}{}", action.line()),
        }
    }
}

impl Action {
    pub(crate) fn way(&self) -> Way {
        match self {
            Self::AddSources(toolchain) | Self::InstallToolchain(toolchain) => {
                Way::Rustup(toolchain.clone())
            }
            Self::InstallPackages => Way::System,
        }
    }

    pub(crate) fn command(&self) -> Vec<&str> {
        match self {
            Self::AddSources(toolchain) => {
                vec!["rustup", "component", "add", "rust-src", "--toolchain", toolchain]
            }
            Self::InstallToolchain(toolchain) => {
                let mut words = vec!["rustup", "toolchain", "install", toolchain];
                words.extend(["--profile", "minimal", "--component", "rust-src"]);
                words.push("--no-self-update");
                words
            }
            Self::InstallPackages => {
                let mut words = vec!["apt-get", "install", "-y", "--no-install-recommends"];
                words.extend(["rustc-web", "rust-web-src"]);
                words
            }
        }
    }

    pub(crate) fn line(&self) -> String {
        self.command().join(" ")
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Self::AddSources(toolchain) => {
                format!("adding the sources of `core` to rustup's {toolchain}, 3 MB")
            }
            Self::InstallToolchain(toolchain) => {
                format!("installing rustup's {toolchain}, 100 MB, about 1 minute")
            }
            Self::InstallPackages => {
                "installing Debian's rustc-web and rust-web-src, about 2 minutes".to_owned()
            }
        }
    }
}

impl Display for Way {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named => f.write_str(RUSTC_VARIABLE),
            Self::Rustup(toolchain) => write!(f, "rustup, {toolchain}"),
            Self::System => f.write_str("/usr/bin/rustc"),
        }
    }
}

/// Which ways the environment leaves: all, or those of one name.
pub(crate) fn allowed(only: Option<&str>, ways: Vec<Way>) -> Result<Vec<Way>, String> {
    let keep: fn(&Way) -> bool = match only {
        None => |_| true,
        Some("rustup") => |way| matches!(way, Way::Rustup(_)),
        Some("system") => |way| *way == Way::System,
        Some(other) => {
            return Err(format!("{WAY_VARIABLE}={other}: it is `rustup` or `system`, or not set"));
        }
    };
    Ok(ways.into_iter().filter(keep).collect())
}

#[cfg(test)]
mod tests;
