//! Child processes that end when we do, however we end, and that nobody waits for in vain.

use std::{
    io::{self, Read},
    marker::PhantomData,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::{
    errno::Errno,
    sys::{
        prctl,
        signal::{Signal, kill},
    },
    unistd::{Pid, getpid, getppid},
};

use crate::wait::wait_until;

/// How long a dropped child may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// A running child, with what it has said so far. When dropped it gets its last signal, and is
/// killed if that was not enough.
#[derive(Debug)]
pub struct Process {
    child: Child,
    last: Signal,
    stdout: Captured,
    stderr: Captured,
    /// The kernel's death signal is bound to the thread that spawned the child.
    not_send: PhantomData<*const ()>,
}

/// How a child ended, and all that it said.
#[derive(Clone, Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command to its end and gives back its stdout; anything but success is an error that
/// quotes its stderr.
pub fn output(command: Command, timeout: Duration) -> Result<String> {
    let what = format!("{command:?}");
    let finished = Process::spawn(command, Signal::SIGKILL)?.finish(timeout)?;
    if !finished.status.success() {
        bail!("{what}: {}: {}", finished.status, finished.stderr.trim());
    }
    Ok(finished.stdout)
}

/// The exit code, or 128 + the signal that ended it, as shells say it.
pub fn code(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// Has the kernel send this signal to the child as soon as the thread that spawned it is gone.
pub fn die_with_us(command: &mut Command, signal: Signal) {
    let parent = getpid();
    let closure = move || {
        prctl::set_pdeathsig(signal)?;
        // The parent may have died before the call; 0 is a parent outside our PID namespace.
        let now = getppid();
        if now == parent || now.as_raw() == 0 { Ok(()) } else { Err(Errno::ESRCH.into()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(closure) };
}

impl Process {
    /// `last` is the signal that it gets when it is dropped, or when this thread is gone.
    pub fn spawn(mut command: Command, last: Signal) -> Result<Self> {
        die_with_us(&mut command, last);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
        let stdout = Captured::read(child.stdout.take());
        let stderr = Captured::read(child.stderr.take());
        Ok(Self { child, last, stdout, stderr, not_send: PhantomData })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.pid().try_into()?);
        kill(pid, signal).with_context(|| format!("send {signal} to process {pid}"))
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Result<Option<Finished>> {
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        // What it left in the pipes; a grandchild that keeps one open is not waited for.
        let drained = || Ok((self.stdout.complete() && self.stderr.complete()).then_some(()));
        let _ = wait_until("the end of its output", Duration::from_secs(1), drained);
        Ok(Some(Finished { status, stdout: self.stdout(), stderr: self.stderr() }))
    }

    /// Waits for its end, and kills it when time is up.
    pub fn finish(mut self, timeout: Duration) -> Result<Finished> {
        let what = format!("process {} to end", self.pid());
        wait_until(&what, timeout, || self.ended())
            .with_context(|| format!("it said: {}{}", self.stdout(), self.stderr()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors are those of a child that has ended already.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.signal(self.last);
        }
        let ended = || Ok(self.child.try_wait()?.map(drop));
        let _ = wait_until("a child's end", PATIENCE, ended);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Finished {
    /// See [`code`].
    pub fn code(&self) -> i32 {
        code(self.status)
    }
}

/// What comes out of a pipe, read by a thread of its own so that no child blocks on a full one.
#[derive(Debug)]
struct Captured {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<io::Result<()>>,
}

impl Captured {
    fn read(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let Some(mut pipe) = pipe else { return Ok(()) };
            let mut chunk = [0; 4096];
            loop {
                let length = pipe.read(&mut chunk)?;
                if length == 0 {
                    return Ok(());
                }
                let mut bytes = shared.lock().unwrap_or_else(PoisonError::into_inner);
                bytes.extend_from_slice(&chunk[..length]);
            }
        });
        Self { bytes, reader }
    }

    fn text(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn complete(&self) -> bool {
        self.reader.is_finished()
    }
}
