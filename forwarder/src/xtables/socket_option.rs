//! A socket option that is a question with its answer in one buffer, which no crate has a safe call
//! for.
#![expect(unsafe_code, reason = "getsockopt(2) reads and writes the buffer it is given")]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// What can be asked: both answers are bytes of the kernel's that point nowhere.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    /// `IPT_SO_GET_INFO`, which `IP6T_SO_GET_INFO` equals.
    Info,
    /// `IPT_SO_GET_ENTRIES`, likewise.
    Entries,
}

/// The family of a socket, and of what it is asked about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Level {
    Ipv4,
    Ipv6,
}

/// Asks with what is in the buffer, and gives back how many bytes of it are the answer.
///
/// # Errors
///
/// Those of getsockopt(2).
pub(super) fn ask(
    socket: BorrowedFd<'_>,
    level: Level,
    question: Question,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut length = libc::socklen_t::try_from(buffer.len()).map_err(too_long)?;
    let level = match level {
        Level::Ipv4 => libc::SOL_IP,
        Level::Ipv6 => libc::SOL_IPV6,
    };
    let option = match question {
        Question::Info => 64,
        Question::Entries => 65,
    };
    let start = buffer.as_mut_ptr().cast();
    // SAFETY: the kernel writes no further than `length` bytes into the buffer, all of which are
    // ours and hold something, and a length into `length`.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, start, &raw mut length) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((length as usize).min(buffer.len()))
}
