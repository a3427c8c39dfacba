//! Which forwarder is meant, and what to say when it is not there.

use std::{
    fs::read_dir,
    path::{Path, PathBuf},
};

use super::{args::Global, error::CliError};
use crate::{
    config::{check_name, default_name, socket_path},
    control::{
        client::{Client, ClientError},
        server::is_served,
    },
};

/// Names of other forwarders that an error lists.
const OTHERS_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Target {
    pub(super) run_dir: PathBuf,
    pub(super) name: String,
    /// It was named, and is not just the one of this network namespace.
    chosen: bool,
}

impl Target {
    pub(super) fn of(global: &Global) -> Result<Self, CliError> {
        let name = match &global.name {
            Some(name) => {
                check_name(name)?;
                name.clone()
            }
            None => default_name().map_err(|error| {
                CliError::Refused(format!(
                    "cannot tell which network namespace this is: {error}; choose a forwarder with --name"
                ))
            })?,
        };
        Ok(Self { run_dir: global.run_dir.clone(), name, chosen: global.name.is_some() })
    }

    pub(super) fn connect(&self) -> Result<Client, CliError> {
        self.try_connect().map_err(|error| match error {
            ClientError::NoDaemon { path, stale } => {
                CliError::NoDaemon(self.explain_absence(&path, stale))
            }
            error => error.into(),
        })
    }

    pub(super) fn try_connect(&self) -> Result<Client, ClientError> {
        Client::connect(&socket_path(&self.run_dir, &self.name))
    }

    fn explain_absence(&self, path: &Path, stale: bool) -> String {
        let path = path.display();
        let name = &self.name;
        let (subject, option) = if self.chosen {
            (format!("no forwarder named '{name}' is running"), format!(" --name {name}"))
        } else {
            ("no forwarder is running in this network namespace".to_owned(), String::new())
        };
        let trace = if stale { "one has died and left" } else { "looked for" };
        let others = match &self.running()[..] {
            [] => String::new(),
            others => format!(", or choose a running one with --name: {}", others.join(", ")),
        };
        // Whoever looks for one that was killed may have its programs still forwarding.
        let unload = if stale {
            format!(
                ", or remove what it has left, which may still forward, with `forwarder{option} unload`"
            )
        } else {
            String::new()
        };
        format!(
            "{subject} ({trace} {path}): start one with `forwarder run{option} --iface A,B`{unload}{others}"
        )
    }

    /// Forwarders of other names, of this namespace or another, by name.
    fn running(&self) -> Vec<String> {
        let entries = read_dir(&self.run_dir).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| is_served(&socket_path(&self.run_dir, name)))
            .collect();
        names.sort_unstable();
        names.truncate(OTHERS_MAX);
        names
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener};

    use super::*;

    fn target(run_dir: &Path, name: Option<&str>) -> Target {
        let global = Global {
            json: false,
            pretty: false,
            ipv4: false,
            ipv6: false,
            name: name.map(str::to_owned),
            run_dir: run_dir.to_owned(),
        };
        Target::of(&global).unwrap()
    }

    fn absence(target: &Target) -> String {
        let error = target.connect().unwrap_err();
        assert_eq!(error.exit_code(), 3);
        error.to_string()
    }

    #[test]
    fn a_daemon_that_is_not_there_is_missed_with_a_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let run_dir = directory.path();
        let shown = run_dir.display();
        let here = target(run_dir, None);
        let name = &here.name;
        assert_eq!(
            absence(&here),
            format!(
                "no forwarder is running in this network namespace (looked for {shown}/{name}/control.sock): start one with `forwarder run --iface A,B`"
            )
        );
        let lab = target(run_dir, Some("lab"));
        assert_eq!(
            absence(&lab),
            format!(
                "no forwarder named 'lab' is running (looked for {shown}/lab/control.sock): start one with `forwarder run --name lab --iface A,B`"
            )
        );

        let listen = |name: &str| {
            fs::create_dir(run_dir.join(name)).unwrap();
            UnixListener::bind(socket_path(run_dir, name)).unwrap()
        };
        drop(listen("lab"));
        let _other = listen("other");
        assert_eq!(
            absence(&lab),
            format!(
                "no forwarder named 'lab' is running (one has died and left {shown}/lab/control.sock): start one with `forwarder run --name lab --iface A,B`, or remove what it has left, which may still forward, with `forwarder --name lab unload`, or choose a running one with --name: other"
            )
        );
    }
}
