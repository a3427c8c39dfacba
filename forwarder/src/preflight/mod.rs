//! What is checked before anything is touched.
//!
//! Facts are gathered first (`interface`, `peer`, `host`, `login`); the rules that judge
//! them are pure. Every problem is reported at once, each with its remedy.

pub mod attach;
pub mod bypass;
mod cpus;
pub mod forwarding;
mod host;
mod interface;
mod login;
mod peer;
mod problem;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod live_tests;

use std::{fmt, path::PathBuf};

pub use cpus::{Cpus, parse_cpu_list};
pub use interface::{Controller, Facts, warnings};
pub use peer::{Peer, Place};
pub use problem::Problem;

use crate::{
    bypass::Finding,
    config::{Config, Steering},
    netlink::{Generic, LinkDetails, RequestError, Requests},
};

/// Where this machine is read.
#[derive(Clone, Debug)]
pub struct Machine {
    pub proc: PathBuf,
    pub sys: PathBuf,
    /// Directories of network namespaces by name.
    pub namespaces: Vec<PathBuf>,
    /// How this process was called, for messages that tell how to call it again.
    pub command: String,
}

impl Machine {
    pub fn this() -> Self {
        let arguments: Vec<_> = std::env::args().collect();
        Self {
            proc: "/proc".into(),
            sys: "/sys".into(),
            namespaces: vec!["/run/netns".into(), "/run/docker/netns".into()],
            command: arguments.join(" "),
        }
    }
}

/// Nothing stands against forwarding.
#[derive(Clone, Debug)]
pub struct Report {
    /// In the order in which they were named.
    pub interfaces: Vec<Facts>,
    pub warnings: Vec<String>,
    pub cpus: Cpus,
    /// What will be bypassed, all of it allowed.
    pub bypassed: Vec<Finding>,
}

/// All that stands against forwarding, at least one.
#[derive(Debug, thiserror::Error)]
pub struct PreflightError {
    pub problems: Vec<Problem>,
}

impl fmt::Display for PreflightError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl From<Problem> for PreflightError {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

impl From<RequestError> for PreflightError {
    fn from(error: RequestError) -> Self {
        Problem::from(error).into()
    }
}

/// Checks what comes before all else: without privileges the rest cannot even be read.
pub fn check_privileges(machine: &Machine) -> Result<(), PreflightError> {
    let host = host::Host::read(machine);
    refuse(host::check_privileges(&host, &machine.command).err())
}

/// Checks everything, in the network namespace of the calling thread. `own_programs` are the ids of
/// XDP programs that an earlier run of this forwarder has left, and that will be replaced.
pub async fn check(
    config: &Config,
    machine: &Machine,
    own_programs: &[u32],
) -> Result<Report, PreflightError> {
    check_privileges(machine)?;
    let host = host::Host::read(machine);

    let (requests, generic) = (Requests::open()?, Generic::open()?);
    let links = requests.links().await?;
    let (named, mut problems) = interface::select(&config.interfaces, &links);
    problems.extend(host::check_kernel(&host));
    let cpus = Cpus::read(&machine.sys).map_err(Problem::Cpus)?;
    if let Steering::Cpus(wanted) = &config.steering {
        problems.extend(cpus.check(wanted));
    }

    let mut interfaces = Vec::new();
    for details in named {
        let facts = Facts::read(details, &links, machine, &requests, &generic).await?;
        problems.extend(interface::check(&facts, config, own_programs));
        interfaces.push(facts);
    }
    let ports: Vec<u32> = interfaces.iter().map(Facts::ifindex).collect();
    let bypassed = match bypass::Scanner::open(machine.proc.clone()) {
        Ok(mut scanner) => scanner.scan(&ports).await,
        Err(error) => return Err(Problem::Unreadable(error).into()),
    };
    problems.extend(bypass::check(&bypassed, &config.bypass));
    if !config.yes {
        problems.extend(check_login(machine, &requests, &interfaces).await);
    }
    refuse(problems)?;

    let mut warnings = host::warnings(&host);
    warnings.extend(interfaces.iter().flat_map(|facts| interface::warnings(facts, config.mode)));
    let default_routes = requests.default_route_interfaces().await?;
    warnings.extend(default_route_warnings(&interfaces, &default_routes));
    Ok(Report { interfaces, warnings, cpus, bypassed })
}

fn refuse(problems: impl IntoIterator<Item = Problem>) -> Result<(), PreflightError> {
    let problems: Vec<_> = problems.into_iter().collect();
    if problems.is_empty() { Ok(()) } else { Err(PreflightError { problems }) }
}

async fn check_login(
    machine: &Machine,
    requests: &Requests,
    interfaces: &[Facts],
) -> Option<Problem> {
    let login = login::find(&machine.proc)?;
    let towards = match &login.scope {
        Some(name) => interfaces.iter().find(|facts| facts.details.link.name == *name)?.ifindex(),
        // Whoever cannot be reached from here has not come in here.
        None => requests.interface_towards(login.client).await.ok()??,
    };
    let facts = interfaces.iter().find(|facts| facts.ifindex() == towards)?;
    Some(Problem::Login { interface: facts.details.link.name.clone(), client: login.client })
}

fn default_route_warnings(interfaces: &[Facts], default_routes: &[u32]) -> Vec<String> {
    let leaves_by = |facts: &&Facts| default_routes.contains(&facts.ifindex());
    let sentence = |facts: &Facts| {
        let name = &facts.details.link.name;
        format!(
            "this machine's default route leaves by {name}: its own traffic passes the forwarder"
        )
    };
    interfaces.iter().filter(leaves_by).map(sentence).collect()
}

fn find(links: &[LinkDetails], ifindex: u32) -> Option<&LinkDetails> {
    links.iter().find(|details| details.link.ifindex == ifindex)
}
