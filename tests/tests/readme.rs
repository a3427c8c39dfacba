//! The README's commands, word for word and in their order, on the router of a lab.

use std::{env, ffi::OsString, fs, path::Path, time::Duration};

use forwarder_tests::{
    daemon::{Daemon, Forwarder, binary},
    lab::Lab,
    process::Process,
    require, skip,
};
use nix::sys::signal::Signal;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
const PATIENCE: Duration = Duration::from_secs(30);
const PACKETS: usize = 50;

/// What stands between two fences of language `sh`.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    /// Where it begins.
    line: usize,
    text: String,
}

#[test]
fn every_command_of_the_readme_works() {
    require!(skip::forwarder());
    let blocks = blocks(&fs::read_to_string(README).unwrap());
    if blocks.iter().any(|block| block.text.contains("curl ")) {
        require!(skip::command("curl", "--version"));
    }
    let starts = blocks.iter().filter(|block| block.start().is_some()).count();
    assert_eq!(starts, 1, "one block starts the daemon, of {blocks:#?}");
    assert!(blocks.len() > 5, "{blocks:#?}");

    let lab = Lab::router().static_neighbours().build().unwrap();
    let mut forwarder = Some(Forwarder::unnamed(&lab.router, binary()).unwrap());
    let run_dir = forwarder.as_ref().unwrap().run_dir().to_owned();
    let mut daemon: Option<Daemon> = None;
    let mut proven = false;
    for block in &blocks {
        if let Some(arguments) = block.start() {
            let forwarder = forwarder.take().unwrap();
            daemon = Some(forwarder.start_exactly(arguments).unwrap());
            continue;
        }
        // What the README has added so far must forward, before it is taken down.
        let ends = block.text.contains("forwarder unload");
        if ends {
            prove(&lab, daemon.as_ref().unwrap());
            proven = true;
        }
        block.run(&lab, &run_dir);
        if ends {
            let (finished, _) = daemon.take().unwrap().ended().unwrap();
            assert_eq!(finished.code(), 0, "{}", finished.stderr);
        }
    }
    assert!(proven, "no block ends with `forwarder unload`");
}

/// Packets from A to B are forwarded by XDP.
fn prove(lab: &Lab, daemon: &Daemon) {
    const PAYLOAD: &[u8] = b"as the README says";
    let (a, b) = (lab.a().wire("eth0").unwrap(), lab.b().wire("eth0").unwrap());
    let before = daemon.stats().unwrap();
    for frame in [Lab::frame4(0, 1), Lab::frame6(0, 1)] {
        let frame = frame.udp(1024, 9).payload(PAYLOAD);
        let frames = vec![frame.bytes(); PACKETS];
        let is_ours = |frame: &[u8]| frame.ends_with(PAYLOAD);
        let received = a.stream(&frames, &b, PATIENCE, is_ours).unwrap();
        assert_eq!(received, vec![Lab::forwarded(&frame, 1); PACKETS]);
    }
    let stats = daemon.stats().unwrap().since(&before);
    assert_eq!(stats.interface("eth0").redirected(), 2 * PACKETS as u64, "{stats:#?}");
}

impl Block {
    /// The arguments of `run`, of a block whose one command starts the daemon.
    fn start(&self) -> Option<&str> {
        let is_command = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
        let mut commands = self.text.lines().filter(is_command);
        let (command, None) = (commands.next()?, commands.next()) else { return None };
        let (program, arguments) = command.split_once(" run ")?;
        let starts = program == "cargo xtask" || program.ends_with("forwarder");
        starts.then(|| arguments.trim_end_matches([' ', '&']))
    }

    fn run(&self, lab: &Lab, run_dir: &Path) {
        let mut command = lab.router.command("bash");
        command.args(["-euo", "pipefail", "-c", &self.text]);
        command.env("PATH", path()).env("FORWARDER_RUN_DIR", run_dir);
        let finished = Process::spawn(command, Signal::SIGKILL).unwrap().finish(PATIENCE).unwrap();
        assert_eq!(finished.code(), 0, "README.md, line {}: {finished:#?}", self.line);
    }
}

/// With the folder of the forwarder in front.
fn path() -> OsString {
    let binary = binary();
    assert_eq!(binary.file_name().unwrap(), "forwarder", "the README calls it so");
    let folder = binary.canonicalize().unwrap().parent().unwrap().to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    env::join_paths([folder].into_iter().chain(env::split_paths(&path))).unwrap()
}

fn blocks(markdown: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, Block)> = None;
    for (number, line) in (1..).zip(markdown.lines()) {
        match (open.take(), line.strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some((language, Block { line: number, text: String::new() }));
            }
            (Some((language, block)), Some("")) => {
                blocks.extend((language == "sh").then_some(block));
            }
            (Some((language, mut block)), _) => {
                block.text.extend([line, "\n"]);
                open = Some((language, block));
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a fence does not end: {open:?}");
    blocks
}

#[test]
fn only_what_is_fenced_as_sh_is_run() {
    let markdown = "\
# Title\n```sh\none\n\ntwo \\\n  three\n```\n```console\n$ four\n```\n    five\n```\nsix\n```\n```sh\n\
forwarder run --iface eth0,eth1 &\n```\n```sh\n# a comment\ncargo xtask run --iface a,b\n```\n";
    let blocks = blocks(markdown);
    let texts: Vec<_> = blocks.iter().map(|block| (block.line, block.text.as_str())).collect();
    let start = "forwarder run --iface eth0,eth1 &\n";
    let build = "# a comment\ncargo xtask run --iface a,b\n";
    assert_eq!(texts, [(2, "one\n\ntwo \\\n  three\n"), (15, start), (18, build)]);
    let starts: Vec<_> = blocks.iter().map(Block::start).collect();
    assert_eq!(starts, [None, Some("--iface eth0,eth1"), Some("--iface a,b")]);
}
