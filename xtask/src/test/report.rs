//! Runs a test program, shows what it says, and counts.
//!
//! A test that cannot run here prints `SKIP name: reason` and returns: libtest calls that passed,
//! this does not.

use std::{
    collections::BTreeSet,
    fmt::{self, Display, Formatter},
    io::{BufRead as _, BufReader, Write, stdout},
    ops::AddAssign,
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use crate::process;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Runs a test program to its end, or to the limit, and shows what it says.
pub(crate) fn watch(command: &mut Command, limit: Duration) -> Result<Tally> {
    follow(command, limit, &mut stdout())
}

fn follow(command: &mut Command, limit: Duration, shown: &mut impl Write) -> Result<Tally> {
    let (output, input) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
    let mut child =
        command.spawn().with_context(|| format!("start `{}`", process::line(command)))?;
    // Closes our copies of the writing end.
    command.stdout(Stdio::null()).stderr(Stdio::null());

    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
        lines.try_for_each(|line| sender.send(String::from_utf8_lossy(&line).into_owned()))
    });
    let deadline = Instant::now() + limit;
    let mut report = Report::default();
    let mut status = None;
    loop {
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => {
                if report.line(&line) {
                    writeln!(shown, "{line}")?;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            // Something that the tests left running may hold the pipe: the end is when the
            // program has ended and all is quiet.
            Err(RecvTimeoutError::Timeout) if status.is_some() => break,
            Err(RecvTimeoutError::Timeout) => status = child.try_wait()?,
        }
        if status.is_none() && Instant::now() >= deadline {
            child.kill()?;
            writeln!(shown, "ended after {} s: it hangs", limit.as_secs())?;
            break;
        }
    }
    let status = match status {
        Some(status) => status,
        None => child.wait()?,
    };
    let (tally, is_complete) = report.tally(status.success());
    if !is_complete {
        writeln!(shown, "FAILED: `{}` ended without a result ({status})", process::line(command))?;
    }
    Ok(tally)
}

/// What was read of a program's output.
#[derive(Debug, Default)]
struct Report {
    tally: Tally,
    skips: BTreeSet<String>,
    results: usize,
    runs: usize,
    /// Among what the passed tests printed, which is read for skips and not shown.
    in_successes: bool,
}

impl Report {
    /// Reads a line of libtest; true when it is worth showing.
    fn line(&mut self, line: &str) -> bool {
        if let Some(at) = line.find("SKIP ").filter(|&at| at == 0 || line.starts_with("test ")) {
            return self.skips.insert(line[at..].trim_end().to_owned());
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.results += 1;
            self.tally.passed += count(result, "passed");
            self.tally.failed += count(result, "failed");
            self.in_successes = false;
        } else if line == "successes:" || line == "failures:" {
            self.in_successes = line == "successes:";
        } else if !self.in_successes && is_start(line) {
            self.runs += 1;
        }
        !self.in_successes && !line.trim().is_empty()
    }

    /// The sum, and whether the program came to its end: one that dies in the middle is a failure,
    /// whatever its tests said before.
    fn tally(self, success: bool) -> (Tally, bool) {
        let mut tally = self.tally;
        let skipped = self.skips.len().try_into().unwrap_or(u64::MAX);
        tally.skipped = tally.passed.min(skipped);
        tally.passed -= tally.skipped;
        let is_complete = self.results == self.runs && (success || tally.failed > 0);
        if !is_complete {
            tally.failed += 1;
        }
        (tally, is_complete)
    }
}

/// `running 3 tests`.
fn is_start(line: &str) -> bool {
    let Some(count) = line.strip_prefix("running ") else { return false };
    count.split_once(' ').is_some_and(|(count, tests)| {
        count.parse::<u64>().is_ok() && matches!(tests.trim_end(), "test" | "tests")
    })
}

/// The number before a word: `ok. 3 passed; 0 failed; 1 ignored; …`.
fn count(result: &str, word: &str) -> u64 {
    let mut words = result.split([' ', ';']).filter(|word| !word.is_empty());
    let mut before = "";
    words
        .find_map(|next| {
            let number = (next == word).then(|| before.parse().unwrap_or(0));
            before = next;
            number
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, success: bool) -> (Tally, bool) {
        let mut report = Report::default();
        for line in text.lines() {
            report.line(line);
        }
        report.tally(success)
    }

    fn tally(passed: u64, failed: u64, skipped: u64) -> Tally {
        Tally { passed, failed, skipped }
    }

    const PASSED: &str = "\nrunning 3 tests\ntest a ... ok\ntest b ... ignored\ntest c ... ok\n\n\
        test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";

    #[test]
    fn results_are_summed() {
        assert_eq!(read(PASSED, true), (tally(2, 0, 0), true));
        assert_eq!(read(&PASSED.repeat(2), true), (tally(4, 0, 0), true));
        let failed = "running 2 tests\ntest result: FAILED. 1 passed; 1 failed; 0 ignored;\n";
        assert_eq!(read(failed, false), (tally(1, 1, 0), true));
        assert_eq!(read("", true), (tally(0, 0, 0), true));
    }

    #[test]
    fn a_skip_is_no_pass_and_counts_once() {
        let skips = "SKIP a: no ethtool\ntest c ... SKIP c: no promtool\nSKIP a: no ethtool\n";
        let text = format!("{skips}{PASSED}");
        assert_eq!(read(&text, true), (tally(0, 0, 2), true));
        assert_eq!(read(&format!("we SKIP nothing\n{PASSED}"), true), (tally(2, 0, 0), true));
    }

    #[test]
    fn what_passed_tests_print_is_read_for_skips_and_not_shown() {
        let text = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nsuccesses:\n\n\
            ---- a stdout ----\nchatter\nrunning 9 tests\nSKIP a: no ping\n\n\nsuccesses:\n    a\n\n\
            failures:\n\n---- b stdout ----\nwhy\n\n\nfailures:\n    b\n\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored;\n";
        let mut report = Report::default();
        let shown: Vec<_> = text.lines().filter(|line| report.line(line)).collect();
        let expected = [
            "running 2 tests",
            "test a ... ok",
            "test b ... FAILED",
            "SKIP a: no ping",
            "failures:",
            "---- b stdout ----",
            "why",
            "failures:",
            "    b",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored;",
        ];
        assert_eq!(shown, expected);
        assert_eq!(report.tally(false), (tally(0, 1, 1), true));
    }

    #[test]
    fn a_program_that_dies_has_failed() {
        assert_eq!(read("running 2 tests\ntest a ... ok\n", false), (tally(0, 1, 0), false));
        assert_eq!(read("running 2 tests\ntest a ... ok\n", true), (tally(0, 1, 0), false));
        assert_eq!(read("error: no such option\n", false), (tally(0, 1, 0), false));
    }

    #[test]
    fn a_program_is_watched_to_its_end() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo \"$1\"; echo SKIP a: why >&2; sleep 60 & echo left $!"]);
        let (start, mut shown) = (Instant::now(), Vec::new());
        let sum = follow(command.args(["sh", PASSED]), Duration::from_secs(30), &mut shown);
        // What is left running holds the pipe, and is not waited for.
        let took = start.elapsed();
        let shown = String::from_utf8(shown).unwrap();
        let left = shown.lines().find_map(|line| line.strip_prefix("left ")).unwrap();
        process::run(Command::new("kill").arg(left)).unwrap();
        assert_eq!(sum.unwrap(), tally(1, 0, 1));
        assert!(shown.contains("\ntest c ... ok\n"), "{shown}");
        assert!(took < Duration::from_secs(30), "{took:?}");
    }

    #[test]
    fn a_program_that_hangs_is_ended_and_has_failed() {
        let (mut command, mut shown) = (Command::new("sleep"), Vec::new());
        let sum = follow(command.arg("60"), Duration::from_millis(1), &mut shown).unwrap();
        assert_eq!(sum, tally(0, 1, 0));
        assert!(String::from_utf8(shown).unwrap().starts_with("ended after 0 s: it hangs"));
    }
}
