//! `cargo xtask layers`: who may depend on whom, and who may name what.

mod sources;

use std::fmt::{self, Display, Formatter};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::workspace::Workspace;

/// Check the directions of dependencies
///
/// forwarder-ebpf and forwarder stand on forwarder-common, the tests on all of them, xtask on
/// none. Only some folders may name aya, netlink crates or `unsafe`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(workspace: &Workspace, _: Args) -> Result<()> {
    let mut faults = dependencies(&packages(&workspace.metadata)?);
    faults.extend(sources::faults(&sources::read(&workspace.root)?));
    for fault in &faults {
        println!("{fault}");
    }
    if !faults.is_empty() {
        bail!("the layers do not hold");
    }
    println!("the layers hold");
    Ok(())
}

/// Of ours, what a package may depend on; and whether it may take crates from elsewhere at will.
struct Layer {
    package: &'static str,
    ours: &'static [&'static str],
    foreign: Foreign,
}

enum Foreign {
    Any,
    /// By name, and whether it must be optional.
    Only(&'static [(&'static str, bool)]),
}

const LAYERS: [Layer; 5] = [
    Layer {
        package: "forwarder-common",
        ours: &[],
        foreign: Foreign::Only(&[("zerocopy", false), ("network-types", false), ("aya", true)]),
    },
    Layer { package: "forwarder-ebpf", ours: &["forwarder-common"], foreign: Foreign::Any },
    Layer { package: "forwarder", ours: &["forwarder-common"], foreign: Foreign::Any },
    Layer {
        package: "forwarder-tests",
        ours: &["forwarder-common", "forwarder"],
        foreign: Foreign::Any,
    },
    Layer { package: "xtask", ours: &[], foreign: Foreign::Any },
];

#[derive(Clone, Debug)]
struct Package {
    name: String,
    manifest: String,
    dependencies: Vec<Dependency>,
}

#[derive(Clone, Debug)]
struct Dependency {
    name: String,
    is_dev: bool,
    optional: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    place: String,
    what: String,
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let root = metadata["workspace_root"].as_str().context("read cargo metadata")?;
    let packages = metadata["packages"].as_array().context("read cargo metadata")?;
    packages.iter().map(|value| package(value, root).context("read cargo metadata")).collect()
}

fn package(value: &Value, root: &str) -> Option<Package> {
    let dependency = |value: &Value| {
        Some(Dependency {
            name: value["name"].as_str()?.to_owned(),
            is_dev: value["kind"] == "dev",
            optional: value["optional"].as_bool()?,
        })
    };
    let manifest = value["manifest_path"].as_str()?;
    Some(Package {
        name: value["name"].as_str()?.to_owned(),
        manifest: manifest.strip_prefix(root)?.trim_start_matches('/').to_owned(),
        dependencies: value["dependencies"]
            .as_array()?
            .iter()
            .map(dependency)
            .collect::<Option<_>>()?,
    })
}

fn dependencies(packages: &[Package]) -> Vec<Fault> {
    let is_ours = |name: &str| packages.iter().any(|package| package.name == name);
    let mut faults = Vec::new();
    for package in packages {
        let mut fault = |what| faults.push(Fault { place: package.manifest.clone(), what });
        let Some(layer) = LAYERS.iter().find(|layer| layer.package == package.name) else {
            fault(format!("{} has no layer: give it one in xtask/src/layers.rs", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            if is_ours(&dependency.name) {
                if !layer.ours.contains(&dependency.name.as_str()) {
                    fault(format!("{} may not depend on {}", package.name, dependency.name));
                }
            } else if !dependency.is_dev
                && let Foreign::Only(only) = layer.foreign
            {
                match only.iter().find(|(name, _)| *name == dependency.name) {
                    None => fault(format!(
                        "{} takes no crate from elsewhere but {}: {} is not among them",
                        package.name,
                        only.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
                        dependency.name
                    )),
                    Some((name, true)) if !dependency.optional => {
                        fault(format!("{name} must be optional in {}", package.name));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependency(name: &str) -> Dependency {
        Dependency { name: name.to_owned(), is_dev: false, optional: false }
    }

    fn optional(name: &str) -> Dependency {
        Dependency { optional: true, ..dependency(name) }
    }

    fn dev(name: &str) -> Dependency {
        Dependency { is_dev: true, ..dependency(name) }
    }

    /// The workspace as it should be, with one package that has other dependencies.
    fn faults(changed: &str, dependencies: &[Dependency]) -> Vec<String> {
        let usual = [
            ("forwarder-common", vec![dependency("zerocopy"), optional("aya"), dev("proptest")]),
            ("forwarder-ebpf", vec![dependency("forwarder-common"), dependency("aya-ebpf")]),
            ("forwarder", vec![dependency("forwarder-common"), dependency("tokio")]),
            ("forwarder-tests", vec![dependency("forwarder"), dev("proptest")]),
            ("xtask", vec![dependency("clap")]),
        ];
        let mut packages: Vec<_> = usual
            .into_iter()
            .map(|(name, dependencies)| Package {
                name: name.to_owned(),
                manifest: format!("{name}/Cargo.toml"),
                dependencies,
            })
            .collect();
        match packages.iter_mut().find(|package| package.name == changed) {
            Some(package) => package.dependencies = dependencies.to_vec(),
            None => packages.push(Package {
                name: changed.to_owned(),
                manifest: format!("{changed}/Cargo.toml"),
                dependencies: dependencies.to_vec(),
            }),
        }
        super::dependencies(&packages).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_intended_directions_are_allowed() {
        let common = [dependency("zerocopy"), dependency("network-types"), optional("aya")];
        assert_eq!(faults("forwarder-common", &common), [""; 0]);
        let tests = [dependency("forwarder-common"), dependency("forwarder"), dependency("nix")];
        assert_eq!(faults("forwarder-tests", &tests), [""; 0]);
    }

    #[test]
    fn every_other_direction_is_a_fault() {
        let table = [
            ("xtask", dependency("forwarder-common"), "xtask may not depend on forwarder-common"),
            ("xtask", dev("forwarder"), "xtask may not depend on forwarder"),
            (
                "forwarder",
                dependency("forwarder-ebpf"),
                "forwarder may not depend on forwarder-ebpf",
            ),
            ("forwarder", dev("forwarder-tests"), "forwarder may not depend on forwarder-tests"),
            (
                "forwarder-ebpf",
                dependency("forwarder"),
                "forwarder-ebpf may not depend on forwarder",
            ),
            (
                "forwarder-common",
                dependency("forwarder"),
                "forwarder-common may not depend on forwarder",
            ),
            ("forwarder-common", dependency("aya"), "aya must be optional in forwarder-common"),
            (
                "forwarder-common",
                dependency("libc"),
                "forwarder-common takes no crate from elsewhere but zerocopy, network-types, aya: \
                 libc is not among them",
            ),
        ];
        for (package, dependency, what) in table {
            assert_eq!(
                faults(package, &[dependency]),
                [format!("{package}/Cargo.toml: {what}")],
                "{package}"
            );
        }
    }

    #[test]
    fn a_new_package_needs_a_layer() {
        let what = "new/Cargo.toml: new has no layer: give it one in xtask/src/layers.rs";
        assert_eq!(faults("new", &[]), [what]);
    }
}
