//! Commands: shown, run, bounded, or become.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::workspace::shown;

/// What sudo drops and the daemon reads: the peer of this login (an interface that it comes over
/// is not touched unasked), and what to log.
const PASSED_ON: [&str; 2] = ["SSH_CONNECTION", "RUST_LOG"];

/// Runs a command whose output is the user's to see.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start `{}`", line(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", line(command));
    }
    Ok(())
}

/// Runs a command for its stdout; its stderr is part of the error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start `{}`", line(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().next_back().unwrap_or("it said nothing").to_owned();
        bail!("`{}` failed ({}): {said}", line(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command whose output is the user's to see, and ends it after `limit`.
pub(crate) fn run_within(command: &mut Command, limit: Duration) -> Result<()> {
    let mut child = command
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("start `{}`", line(command)))?;
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => bail!("`{}` failed ({status})", line(command)),
            None if Instant::now() >= deadline => {
                child.kill()?;
                child.wait()?;
                bail!("`{}` was ended after {} s", line(command), limit.as_secs());
            }
            None => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Becomes the program, with root's rights: by sudo, shown, where we have none. Returns only an
/// error. Being replaced, and not waited for, is what lets Ctrl-C reach the program.
pub(crate) fn become_root(program: &Path, arguments: &[OsString]) -> anyhow::Error {
    let mut command = if is_root() {
        Command::new(program)
    } else if on_path("sudo").is_some() {
        let passed_on: Vec<_> =
            PASSED_ON.iter().filter_map(|name| Some((*name, env::var_os(name)?))).collect();
        let mut command = Command::new("sudo");
        command.args(sudo_arguments(&passed_on, shown(program)));
        command
    } else {
        let mut command = Command::new(shown(program));
        let line = line(command.args(arguments));
        return anyhow!("this needs root and there is no sudo: become root, then run `{line}`");
    };
    command.args(arguments);
    eprintln!("{}", line(&command));
    let error = command.exec();
    anyhow!(error).context(format!("start `{}`", line(&command)))
}

/// The effective user, as the owner of our own entry in /proc.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    // A user's path often lacks the folders where ethtool and ip lie.
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// The command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

fn sudo_arguments(passed_on: &[(&str, OsString)], program: &Path) -> Vec<OsString> {
    let mut arguments = vec!["--".into()];
    if !passed_on.is_empty() {
        arguments.push("env".into());
    }
    for (name, value) in passed_on {
        let mut assignment = OsString::from(format!("{name}="));
        assignment.push(value);
        arguments.push(assignment);
    }
    // sudo looks a bare name up on the path, and this is a file.
    arguments.push(match program.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new(".").join(program).into(),
        _ => program.into(),
    });
    arguments
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:+@^%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("sudo");
        command.args(["--", "target/release/forwarder", "run", "--iface", "eth0,eth1", "it's", ""]);
        assert_eq!(
            line(&command),
            r"sudo -- target/release/forwarder run --iface eth0,eth1 'it'\''s' ''"
        );
    }

    #[test]
    fn sudo_gets_what_it_would_drop_as_an_argument() {
        let program = Path::new("target/release/forwarder");
        assert_eq!(sudo_arguments(&[], program), ["--", "target/release/forwarder"]);
        assert_eq!(
            sudo_arguments(&[("SSH_CONNECTION", "198.18.0.1 5 198.18.0.2 22".into())], program),
            ["--", "env", "SSH_CONNECTION=198.18.0.1 5 198.18.0.2 22", "target/release/forwarder"]
        );
        assert_eq!(sudo_arguments(&[], Path::new("forwarder")), ["--", "./forwarder"]);
    }

    #[test]
    fn a_command_that_hangs_is_ended() {
        let error = run_within(Command::new("sleep").arg("60"), Duration::from_millis(50));
        assert!(error.unwrap_err().to_string().contains("was ended"));
        run_within(&mut Command::new("true"), Duration::from_mins(1)).unwrap();
        let error = run_within(&mut Command::new("false"), Duration::from_mins(1));
        assert!(error.unwrap_err().to_string().contains("failed"));
    }
}
