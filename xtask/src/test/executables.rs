//! The test programs that cargo builds.

use std::{
    fmt::{self, Display, Formatter},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{process, workspace::Workspace};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Executable {
    pub(crate) package: String,
    /// As cargo calls it: the library, the binary or the file below tests/.
    target: String,
    /// A file below tests/, and not the tests inside a library or a binary.
    pub(crate) is_integration: bool,
    file: PathBuf,
    /// Where cargo starts the tests of a package.
    folder: PathBuf,
}

/// Builds the tests of all packages but the eBPF program, which has none on the host.
pub(crate) fn build(workspace: &Workspace) -> Result<Vec<Executable>> {
    let mut command = workspace.cargo();
    command.args(["test", "--workspace", "--exclude=forwarder-ebpf", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = command.output().context("start cargo")?;
    if !output.status.success() {
        bail!("`{}` failed ({})", process::line(&command), output.status);
    }
    let text = String::from_utf8(output.stdout).context("read what cargo built")?;
    let mut executables = Vec::new();
    for line in text.lines() {
        executables.extend(parse(&serde_json::from_str(line).context("read what cargo built")?));
    }
    executables.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(executables)
}

pub(crate) fn doc_tests(workspace: &Workspace) -> Command {
    let mut command = workspace.cargo();
    command.args(["test", "--workspace", "--exclude=forwarder-ebpf", "--doc", "--quiet"]);
    command
}

impl Executable {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }

    /// Elsewhere a test may be ignored because it is a part of another.
    pub(crate) fn is_soak(&self) -> bool {
        self.target.starts_with("soak")
    }

    /// How many tests it would run.
    pub(crate) fn count(&self, arguments: &[String]) -> Result<u64> {
        let list =
            process::output(self.command().args(["--list", "--format=terse"]).args(arguments))?;
        Ok(list.lines().filter(|line| line.ends_with(": test")).map(|_| 1).sum())
    }
}

impl Display for Executable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.package, self.target)?;
        if self.is_integration { Ok(()) } else { f.write_str(" (unit tests)") }
    }
}

fn parse(message: &Value) -> Option<Executable> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    Some(Executable {
        package: package(message["package_id"].as_str()?)?.to_owned(),
        target: message["target"]["name"].as_str()?.to_owned(),
        is_integration: message["target"]["kind"][0] == "test",
        file: message["executable"].as_str()?.into(),
        folder,
    })
}

/// `path+file:///src/tests#forwarder-tests@0.1.0`, or `…/xtask#0.1.0` where the folder has the name.
fn package(id: &str) -> Option<&str> {
    let (url, fragment) = id.rsplit_once('#')?;
    match fragment.split_once('@') {
        Some((name, _)) => Some(name),
        None => url.rsplit('/').next(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(kind: &str, id: &str, test: bool) -> Value {
        json!({
            "reason": "compiler-artifact",
            "package_id": id,
            "manifest_path": "/src/tests/Cargo.toml",
            "target": { "kind": [kind], "name": "netns_forward" },
            "profile": { "test": test },
            "executable": "/target/debug/deps/netns_forward-1",
        })
    }

    #[test]
    fn a_test_program_is_told_from_other_artifacts() {
        let id = "path+file:///src/tests#forwarder-tests@0.1.0";
        let executable = parse(&message("test", id, true)).unwrap();
        assert_eq!(executable.package, "forwarder-tests");
        assert_eq!(executable.folder, Path::new("/src/tests"));
        assert!(executable.is_integration);
        assert_eq!(executable.to_string(), "forwarder-tests netns_forward");
        assert!(!parse(&message("lib", id, true)).unwrap().is_integration);
        assert_eq!(parse(&message("bin", id, false)), None);
        assert_eq!(parse(&json!({"reason": "build-finished", "success": true})), None);
    }

    #[test]
    fn a_package_may_be_named_by_its_folder() {
        assert_eq!(package("path+file:///src/xtask#0.1.0"), Some("xtask"));
        assert_eq!(
            package("path+file:///src/tests#forwarder-tests@0.1.0"),
            Some("forwarder-tests")
        );
    }
}
