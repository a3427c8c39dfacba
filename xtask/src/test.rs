//! `cargo xtask test`: host tests as the user, then the tests that need a kernel, as root.

mod executables;
mod machine;
mod report;

use std::{env, ffi::OsString, process::Command, time::Duration};

use anyhow::{Result, bail};

use crate::{
    build, process,
    workspace::{Object, Profile, Workspace},
};
use executables::Executable;
use report::Tally;

/// The tests that need a kernel: programs, network namespaces, the real binary.
const KERNEL_TESTS: &str = "forwarder-tests";
/// Each makes namespaces and traffic of its own: more at once would disturb their waiting.
const KERNEL_THREADS: u32 = 2;
/// A test program that takes longer hangs.
const LIMIT: Duration = Duration::from_mins(15);

/// Build everything and run all tests
///
/// Unit and property tests run as you. The tests of the package forwarder-tests load programs and
/// make network namespaces: they run as root, by `sudo -n` when you are not. What cannot run is
/// skipped, named and counted; with CI=true a skip is a failure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only what needs no eBPF toolchain and no root
    #[arg(long)]
    fast: bool,
    /// Only tests whose name contains one of these
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, args: Args) -> Result<()> {
    workspace.refuse_sudo()?;
    if !args.fast {
        programs(workspace)?;
    }
    let (kernel, host): (Vec<_>, Vec<_>) =
        executables::build(workspace)?.into_iter().partition(needs_root);
    let mut tally = Tally::default();
    for executable in &host {
        println!("\n{executable}");
        let mut command = executable.command();
        // A skip is said on stdout, which libtest keeps to itself when a test passes.
        tally += report::watch(command.arg("--show-output").args(&args.filters), LIMIT)?;
    }
    println!("\ndocumentation tests");
    let mut command = executables::doc_tests(workspace);
    tally += report::watch(command.arg("--").args(&args.filters), LIMIT)?;
    if !args.fast {
        let mut arguments = args.filters.clone();
        arguments.push(format!("--test-threads={KERNEL_THREADS}"));
        arguments.push("--show-output".to_owned());
        tally += in_the_kernel(workspace, &kernel, &arguments)?;
    }
    conclude(tally, &args.filters)
}

/// The long tests, for `cargo xtask soak`.
pub(crate) fn soak(workspace: &Workspace, filters: &[String], limit: Duration) -> Result<()> {
    programs(workspace)?;
    let is_long = |executable: &Executable| needs_root(executable) && executable.is_soak();
    let kernel: Vec<_> = executables::build(workspace)?.into_iter().filter(is_long).collect();
    if kernel.is_empty() {
        bail!("there are no long tests: none of the files tests/tests/soak*.rs is there");
    }
    let mut tally = Tally::default();
    let mut arguments = filters.to_vec();
    arguments.extend(["--ignored", "--test-threads=1", "--show-output"].map(str::to_owned));
    let tests = Kernel::new(workspace, limit)?;
    for executable in &kernel {
        tally += tests.run(executable, &arguments)?;
    }
    conclude(tally, filters)
}

/// What the kernel tests start and load.
fn programs(workspace: &Workspace) -> Result<()> {
    build::objects(workspace, &[Object::Release, Object::Trace, Object::Bench])?;
    build::binaries(workspace, Profile::Release, false)
}

fn needs_root(executable: &Executable) -> bool {
    executable.package == KERNEL_TESTS && executable.is_integration
}

fn in_the_kernel(
    workspace: &Workspace,
    kernel: &[Executable],
    arguments: &[String],
) -> Result<Tally> {
    let tests = Kernel::new(workspace, LIMIT)?;
    let mut tally = Tally::default();
    for executable in kernel {
        tally += tests.run(executable, arguments)?;
    }
    Ok(tally)
}

/// How the tests that need a kernel are started here.
struct Kernel {
    rights: Rights,
    environment: Vec<(String, OsString)>,
    limit: Duration,
}

enum Rights {
    Root,
    Sudo,
    None,
}

impl Kernel {
    fn new(workspace: &Workspace, limit: Duration) -> Result<Self> {
        let rights = if process::is_root() {
            Rights::Root
        } else if process::output(Command::new("sudo").args(["-n", "true"])).is_ok() {
            Rights::Sudo
        } else {
            Rights::None
        };
        let tools = machine::prepare(workspace)?;
        let mut environment: Vec<(String, OsString)> = vec![
            ("PATH".into(), tools),
            ("FORWARDER_BIN".into(), workspace.binary("forwarder", Profile::Release).into()),
            (
                "FORWARDER_LAB_BIN".into(),
                workspace.binary("forwarder-lab", Profile::Release).into(),
            ),
        ];
        for (variable, object) in Object::VARIABLES {
            environment.push((variable.into(), workspace.object(object).into()));
        }
        if is_ci() {
            environment.push(("FORWARDER_REQUIRE_ALL".into(), "1".into()));
        }
        Ok(Self { rights, environment, limit })
    }

    fn run(&self, executable: &Executable, arguments: &[String]) -> Result<Tally> {
        println!("\n{executable}");
        let mut command = match self.rights {
            Rights::Root => executable.command(),
            Rights::Sudo => self.sudo(executable),
            Rights::None => {
                let skipped = executable.count(arguments)?;
                if skipped > 0 {
                    println!(
                        "SKIP {executable}: its {skipped} tests need root, or sudo without a password"
                    );
                }
                return Ok(Tally { skipped, ..Tally::default() });
            }
        };
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        report::watch(command.args(arguments), self.limit)
    }

    /// By `env`, since sudo may be told to pass no environment on.
    fn sudo(&self, executable: &Executable) -> Command {
        let inner = executable.command();
        let mut command = Command::new("sudo");
        command.args(["-n", "--", "env"]);
        if let Some(folder) = inner.get_current_dir() {
            command.current_dir(folder);
        }
        for (name, value) in &self.environment {
            let mut assignment = OsString::from(format!("{name}="));
            assignment.push(value);
            command.arg(assignment);
        }
        command.arg(inner.get_program());
        command
    }
}

fn conclude(tally: Tally, filters: &[String]) -> Result<()> {
    println!("\n{tally}");
    if tally.failed > 0 {
        bail!("tests failed");
    }
    if tally.skipped > 0 && is_ci() {
        bail!("tests were skipped, and CI=true wants all of them");
    }
    if tally == Tally::default() && !filters.is_empty() {
        bail!("no test has a name with {}", filters.join(" or "));
    }
    Ok(())
}

fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| value == "true")
}
