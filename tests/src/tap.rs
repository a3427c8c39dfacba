//! A tap whose other end is a test: it holds as many frames as its queue is long, and no more
//! until somebody reads.

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
};

use anyhow::{Context, Result};

const FRAME_MAX: usize = 2048;

/// Gone when it is dropped.
#[derive(Debug)]
pub struct Tap(File);

impl Tap {
    /// In this thread's namespace: see [`crate::host::Host::run`].
    pub fn new(name: &str) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open("/dev/net/tun").context("open /dev/net/tun")?;
        // SAFETY: zeros are a value of each of its members.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_TAP | libc::IFF_NO_PI)?;
        // SAFETY: the request outlives the call, and has the layout that TUNSETIFF expects.
        match unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } {
            0 => Ok(Self(file)),
            _ => Err(std::io::Error::last_os_error()).context(format!("make the tap {name}")),
        }
    }

    /// Takes out the frames that are there.
    pub fn frames(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        let mut frame = [0; FRAME_MAX];
        loop {
            match self.0.read(&mut frame) {
                Ok(length) => frames.push(frame[..length].to_vec()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(frames),
                Err(error) => return Err(error).context("read from the tap"),
            }
        }
    }
}
