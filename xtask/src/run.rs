//! `cargo xtask run`: builds as the user, then becomes the daemon as root.

use std::ffi::OsString;

use anyhow::Result;

use crate::{
    build::{self, Kind},
    process,
    workspace::Workspace,
};

/// Build and run the daemon: cargo xtask run --iface eth0,eth1
///
/// Builds as you, then starts `sudo -- target/release/forwarder run …`, and shows it. Everything
/// that is not an option of ours goes to the daemon; `cargo xtask run -- --help` tells what it
/// takes. Ctrl-C ends the daemon and takes everything down.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    kind: Kind,
    /// Arguments of `forwarder run`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    daemon: Vec<OsString>,
}

pub(crate) fn run(workspace: &Workspace, args: Args) -> Result<()> {
    let (kind, daemon) = args.split();
    build::all(workspace, kind)?;
    let mut arguments = vec!["run".into()];
    arguments.extend(daemon);
    Err(process::become_root(&workspace.binary("forwarder", kind.profile()), &arguments))
}

impl Args {
    /// clap stops looking for our options at the first one of the daemon's, and people do not:
    /// `run --iface eth0,eth1 --trace`.
    fn split(self) -> (Kind, Vec<OsString>) {
        let mut kind = self.kind;
        let mut daemon = Vec::new();
        let mut words = self.daemon.into_iter();
        for word in words.by_ref() {
            match word.to_str() {
                Some("--trace") => kind.trace = true,
                Some("--debug") => kind.debug = true,
                Some("--release") => kind.debug = false,
                Some("--") => break,
                _ => daemon.push(word),
            }
        }
        daemon.extend(words);
        (kind, daemon)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn what_is_not_ours_goes_to_the_daemon() {
        let table: &[(&[&str], bool, bool, &[&str])] = &[
            (&["--iface", "a,b"], false, false, &["--iface", "a,b"]),
            (&["--trace", "--iface", "a,b"], true, false, &["--iface", "a,b"]),
            (&["--iface", "a,b", "--trace", "--yes"], true, false, &["--iface", "a,b", "--yes"]),
            (&["--debug", "--", "--help"], false, true, &["--help"]),
            (&["--iface", "a,b", "--", "--trace"], false, false, &["--iface", "a,b", "--trace"]),
            (&[], false, false, &[]),
        ];
        for (line, trace, debug, daemon) in table {
            let words = std::iter::once("run").chain(line.iter().copied());
            let (kind, rest) = Line::parse_from(words).args.split();
            assert_eq!((kind.trace, kind.debug), (*trace, *debug), "{line:?}");
            assert_eq!(rest, *daemon, "{line:?}");
        }
    }
}
