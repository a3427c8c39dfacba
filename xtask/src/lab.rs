//! `cargo xtask demo` and `cargo xtask lab`: builds as the user, then becomes the lab as root.

use std::ffi::OsString;

use anyhow::Result;

use crate::{
    build::{self, Kind},
    process,
    workspace::Workspace,
};

/// Show the forwarder at work, in a lab of network namespaces on this machine
///
/// Two hosts and a router between them: traffic through it, counters before your eyes, and what
/// Linux still does. Touches no interface of this machine and leaves nothing behind.
/// `cargo xtask demo -- --help` tells what it takes.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    args: LabKind,
}

/// Open a shell in a lab whose links are called eth0 and eth1
///
/// The same lab as `demo`, for trying what the README says. It is taken down when the shell ends.
/// `cargo xtask lab -- COMMAND` runs that instead; `cargo xtask lab -- --help` tells what else it
/// takes.
#[derive(Debug, clap::Args)]
pub(crate) struct LabArgs {
    #[command(flatten)]
    args: LabKind,
}

#[derive(Debug, clap::Args)]
struct LabKind {
    #[command(flatten)]
    kind: Kind,
    /// Arguments of the lab
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    rest: Vec<OsString>,
}

pub(crate) fn demo(workspace: &Workspace, args: DemoArgs) -> Result<()> {
    start(workspace, "demo", args.args)
}

pub(crate) fn lab(workspace: &Workspace, args: LabArgs) -> Result<()> {
    start(workspace, "lab", args.args)
}

fn start(workspace: &Workspace, verb: &str, args: LabKind) -> Result<()> {
    build::all(workspace, args.kind)?;
    let profile = args.kind.profile();
    let forwarder = workspace.binary("forwarder", profile);
    // Before the rest, which may end in a command that the lab runs.
    let mut arguments: Vec<OsString> = vec![verb.into(), "--forwarder".into(), forwarder.into()];
    arguments.extend(separated(args.rest));
    Err(process::become_root(&workspace.binary("forwarder-lab", profile), &arguments))
}

/// What came behind `--` has lost it on the way: a command needs it again, options do not.
fn separated(rest: Vec<OsString>) -> Vec<OsString> {
    let is_command = |first: &OsString| !first.as_encoded_bytes().starts_with(b"-");
    let separator = rest.first().filter(|first| is_command(first)).map(|_| OsString::from("--"));
    separator.into_iter().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_from_options() {
        let separated = |words: &[&str]| separated(words.iter().map(OsString::from).collect());
        assert_eq!(separated(&["ip", "-br", "link"]), ["--", "ip", "-br", "link"]);
        assert_eq!(separated(&["--help"]), ["--help"]);
        assert_eq!(separated(&[]), [""; 0]);
    }
}
