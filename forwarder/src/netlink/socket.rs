//! A netlink socket: notifications one datagram at a time, or requests and their answers.

use std::{future::poll_fn, io, os::fd::BorrowedFd, time::Duration};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP,
};
use netlink_sys::{AsyncSocket, SocketAddr, TokioSocket};
use nix::{
    sched::{CloneFlags, setns},
    sys::socket::{setsockopt, sockopt},
};
use tokio::time::sleep;

use super::{
    decode::LINK_HEADER_LEN,
    wire::{Message, Request, messages, u32_at},
};

/// More than the kernel puts into one datagram (32 KiB in a dump; one message in a notification).
const DATAGRAM_MAX: usize = 256 << 10;
/// How often a list is asked for that changes while the kernel writes it.
const DUMP_ATTEMPTS_MAX: u32 = 32;
const DUMP_PAUSE: Duration = Duration::from_millis(5);
const CHANGING: &str = "it changed each time while the kernel wrote it";

pub(super) struct Socket {
    inner: TokioSocket,
    port: u32,
    sequence: u32,
    /// A request was given up before its last answer.
    unfinished: bool,
    buffer: Vec<u8>,
}

impl Socket {
    /// For requests.
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let mut inner = TokioSocket::new(protocol)?;
        let port = inner.socket_mut().bind_auto()?.port_number();
        // Errors do not bring back the request, and dumps are filtered by the kernel.
        inner.socket_ref().set_cap_ack(true)?;
        inner.socket_ref().set_netlink_get_strict_chk(true)?;
        Ok(Self {
            inner,
            port,
            sequence: 0,
            unfinished: false,
            buffer: Vec::with_capacity(DATAGRAM_MAX),
        })
    }

    /// For requests in another network namespace. The calling thread stays where it is.
    pub(super) fn open_in(namespace: BorrowedFd<'_>, protocol: isize) -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::current();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(namespace, CloneFlags::CLONE_NEWNET)?;
                let _guard = runtime.enter();
                Self::open(protocol)
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// For notifications of these groups, with room for this many bytes of them.
    pub(super) fn subscribe(groups: &[u32], receive_buffer: usize) -> io::Result<Self> {
        Self::subscribe_to(netlink_sys::protocols::NETLINK_ROUTE, groups, receive_buffer)
    }

    /// Likewise, of another protocol.
    pub(super) fn subscribe_to(
        protocol: isize,
        groups: &[u32],
        receive_buffer: usize,
    ) -> io::Result<Self> {
        let socket = Self::open(protocol)?;
        let inner = socket.inner.socket_ref();
        // Beyond net.core.rmem_max only with CAP_NET_ADMIN of the host; what can be had is enough.
        setsockopt(inner, sockopt::RcvBufForce, &receive_buffer)
            .or_else(|_| setsockopt(inner, sockopt::RcvBuf, &receive_buffer))?;
        for &group in groups {
            inner.add_membership(group)?;
        }
        Ok(socket)
    }

    pub(super) fn port(&self) -> u32 {
        self.port
    }

    /// The next datagram. Nothing is lost when this future is dropped.
    ///
    /// # Errors
    ///
    /// ENOBUFS: notifications were lost.
    pub(super) async fn receive(&mut self) -> io::Result<&[u8]> {
        let Self { inner, buffer, .. } = self;
        buffer.clear();
        let sender = poll_fn(|context| inner.poll_recv_from(context, buffer)).await?;
        if buffer.len() == buffer.capacity() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a truncated netlink datagram"));
        }
        // Another process can send to our port; only the kernel is to be believed.
        Ok(if sender.port_number() == 0 { buffer } else { &[] })
    }

    /// Asks for something whose answer, with this sequence number, comes behind all notifications
    /// that wait already.
    pub(super) fn mark(&mut self) -> io::Result<u32> {
        // In every network namespace it is the loopback interface.
        const LOOPBACK: [u8; 4] = 1u32.to_ne_bytes();
        let mut header = [0; LINK_HEADER_LEN];
        header[4..8].copy_from_slice(&LOOPBACK);
        let mut request = Request::new(libc::RTM_GETLINK, 0, &header);
        self.sequence = self.sequence.wrapping_add(1);
        let kernel = SocketAddr::new(0, 0);
        self.inner.socket_ref().send_to(request.encode(self.sequence), &kernel, 0)?;
        Ok(self.sequence)
    }

    /// What `decode` makes of the answers to a request for one thing.
    pub(super) async fn request<T>(
        &mut self,
        request: Request,
        decode: impl Fn(&Message<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        self.exchange(request, NLM_F_ACK, decode).await
    }

    /// What `decode` makes of a complete list.
    pub(super) async fn dump<T>(
        &mut self,
        request: Request,
        decode: impl Fn(&Message<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        for attempt in 1..=DUMP_ATTEMPTS_MAX {
            match self.exchange(request.clone(), NLM_F_DUMP, &decode).await {
                // Somebody is at work: the more often it happens, the longer.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    sleep(DUMP_PAUSE * attempt).await;
                }
                result => return result,
            }
        }
        Err(io::Error::other(CHANGING))
    }

    /// Likewise, a part at a time, as it comes: to be called until it gives [`Part::End`].
    pub(super) async fn dump_part<T>(
        &mut self,
        dump: &mut Dump,
        decode: impl Fn(&Message<'_>) -> Option<T>,
    ) -> io::Result<Part<T>> {
        if !dump.is_asked {
            if dump.attempts > DUMP_ATTEMPTS_MAX {
                return Err(io::Error::other(CHANGING));
            }
            sleep(DUMP_PAUSE * dump.attempts).await;
            dump.attempts += 1;
            (dump.is_asked, dump.is_interrupted) = (true, false);
            self.ask(dump.request.clone(), NLM_F_DUMP).await?;
            return Ok(Part::Begin);
        }
        let (port, sequence) = (self.port, self.sequence);
        let mut answers = Answers { list: Vec::new(), interrupted: dump.is_interrupted };
        let end = messages(self.receive().await?)
            .filter(|message| message.answers(port, sequence))
            .find_map(|message| answers.take(&message, &decode));
        dump.is_interrupted = answers.interrupted;
        if let Some(end) = end {
            self.unfinished = false;
            end?;
            dump.is_asked = false;
            dump.is_complete = !dump.is_interrupted;
        }
        Ok(if dump.is_complete { Part::End(answers.list) } else { Part::Some(answers.list) })
    }

    async fn exchange<T>(
        &mut self,
        request: Request,
        flags: u16,
        decode: impl Fn(&Message<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        self.ask(request, flags).await?;
        self.answers(decode).await
    }

    async fn ask(&mut self, mut request: Request, flags: u16) -> io::Result<()> {
        if self.unfinished {
            // The kernel refuses a list while another has not been read to its end.
            let _ = self.answers(|_| None::<()>).await;
        }
        self.sequence = self.sequence.wrapping_add(1);
        request.add_flags(flags);
        let kernel = SocketAddr::new(0, 0);
        self.inner.socket_ref().send_to(request.encode(self.sequence), &kernel, 0)?;
        self.unfinished = true;
        Ok(())
    }

    async fn answers<T>(
        &mut self,
        decode: impl Fn(&Message<'_>) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        let (port, sequence) = (self.port, self.sequence);
        let mut answers = Answers { list: Vec::new(), interrupted: false };
        loop {
            let end = messages(self.receive().await?)
                .filter(|message| message.answers(port, sequence))
                .find_map(|message| answers.take(&message, &decode));
            if let Some(end) = end {
                self.unfinished = false;
                end?;
                return answers.complete();
            }
        }
    }
}

/// A list that is read in parts.
#[derive(Debug)]
pub(super) struct Dump {
    request: Request,
    attempts: u32,
    is_asked: bool,
    is_interrupted: bool,
    is_complete: bool,
}

#[derive(Debug)]
pub(super) enum Part<T> {
    /// It begins; and again where it changed meanwhile: what came before may be out of date.
    Begin,
    Some(Vec<T>),
    /// The last part.
    End(Vec<T>),
}

impl Dump {
    pub(super) fn new(request: Request) -> Self {
        Self { request, attempts: 0, is_asked: false, is_interrupted: false, is_complete: false }
    }
}

struct Answers<T> {
    list: Vec<T>,
    interrupted: bool,
}

impl<T> Answers<T> {
    /// The outcome, if this message is the last.
    fn take(
        &mut self,
        message: &Message<'_>,
        decode: impl Fn(&Message<'_>) -> Option<T>,
    ) -> Option<io::Result<()>> {
        self.interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
        match message.kind {
            NLMSG_NOOP => None,
            // Both begin with a negative errno, or zero.
            NLMSG_ERROR | NLMSG_DONE => {
                let errno = u32_at(message.body, 0).unwrap_or(0).cast_signed().wrapping_neg();
                Some(if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) })
            }
            _ => {
                self.list.extend(decode(message));
                None
            }
        }
    }

    fn complete(self) -> io::Result<Vec<T>> {
        if self.interrupted { Err(io::ErrorKind::Interrupted.into()) } else { Ok(self.list) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the last message says and whether the list counts, or that it was not the last.
    fn outcome(kind: u16, flags: u16, body: &[u8]) -> String {
        let mut answers = Answers { list: Vec::new(), interrupted: false };
        let message = Message { kind, flags, sequence: 1, port: 1, body };
        match answers.take(&message, |_| Some(())) {
            None => format!("{} so far", answers.list.len()),
            Some(Err(error)) => format!("errno {}", error.raw_os_error().unwrap()),
            Some(Ok(())) => answers.complete().map_or("incomplete", |_| "complete").to_owned(),
        }
    }

    #[test]
    fn an_answer_ends_with_its_outcome() {
        let errno = (-libc::ENOENT).to_ne_bytes();
        let cases: [(u16, u16, &[u8], &str); 7] = [
            (libc::RTM_NEWLINK, 0, &[], "1 so far"),
            (NLMSG_NOOP, 0, &[], "0 so far"),
            (NLMSG_ERROR, 0, &[0; 4], "complete"),
            (NLMSG_ERROR, 0, &errno, "errno 2"),
            (NLMSG_DONE, 0, &[0; 4], "complete"),
            (NLMSG_DONE, 0, &errno, "errno 2"),
            (NLMSG_DONE, NLM_F_DUMP_INTR, &[0; 4], "incomplete"),
        ];
        for (kind, flags, body, expected) in cases {
            assert_eq!(outcome(kind, flags, body), expected, "kind {kind}, flags {flags}");
        }
    }
}
