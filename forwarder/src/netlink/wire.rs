//! Netlink messages and attributes as bytes. Any bytes are read without a panic: what is cut off
//! or lies about its length is not there.

use std::io;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkBuffer, NlasIterator};

const HEADER_LEN: usize = 16;
const ATTRIBUTE_HEADER_LEN: usize = 4;
const ALIGNMENT: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    /// Port of the socket that asked, or whose request caused this notification.
    pub(super) port: u32,
    pub(super) body: &'a [u8],
}

impl Message<'_> {
    /// Whether it is an answer to the request of this number that came from this port.
    pub(super) fn answers(&self, port: u32, sequence: u32) -> bool {
        (self.port, self.sequence) == (port, sequence)
    }
}

/// The messages of one datagram, up to the first that is malformed.
pub(super) fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let header = NetlinkBuffer::new_checked(rest).ok()?;
        let length = header.length() as usize;
        let message = Message {
            kind: header.message_type(),
            flags: header.flags(),
            sequence: header.sequence_number(),
            port: header.port_number(),
            body: rest.get(HEADER_LEN..length)?,
        };
        rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes behind a message's own header, or within another attribute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    pub(super) fn after(header_len: usize, body: &'a [u8]) -> Self {
        Self(body.get(header_len..).unwrap_or_default())
    }

    /// Kind and value of each, up to the first that is malformed.
    pub(super) fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        NlasIterator::new(self.0).map_while(Result::ok).filter_map(|attribute| {
            let (kind, length) = (attribute.kind(), usize::from(attribute.length()));
            Some((kind, attribute.into_inner().get(ATTRIBUTE_HEADER_LEN..length)?))
        })
    }

    pub(super) fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.iter().find_map(|(found, value)| (found == kind).then_some(value))
    }

    pub(super) fn nested(self, kind: u16) -> Option<Self> {
        self.get(kind).map(Self)
    }

    pub(super) fn u32(self, kind: u16) -> Option<u32> {
        u32_at(self.get(kind)?, 0)
    }

    pub(super) fn text(self, kind: u16) -> Option<&'a str> {
        text(self.get(kind)?)
    }
}

/// Text up to its NUL, if it is UTF-8.
pub(super) fn text(value: &[u8]) -> Option<&str> {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    std::str::from_utf8(value.get(..end)?).ok()
}

/// For messages without which nobody knows the whole.
pub(super) fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a malformed netlink message")
}

pub(super) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

pub(super) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

/// A message to the kernel.
#[derive(Clone, Debug)]
pub(super) struct Request(Vec<u8>);

impl Request {
    /// `header` is the message's own, for example an `ndmsg`.
    pub(super) fn new(kind: u16, flags: u16, header: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER_LEN];
        let mut fixed = NetlinkBuffer::new(&mut bytes);
        fixed.set_message_type(kind);
        fixed.set_flags(flags | NLM_F_REQUEST);
        bytes.extend_from_slice(header);
        Self(bytes)
    }

    pub(super) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        push_attribute(&mut self.0, kind, value);
        self
    }

    pub(super) fn add_flags(&mut self, flags: u16) {
        let mut header = NetlinkBuffer::new(&mut self.0);
        let flags = header.flags() | flags;
        header.set_flags(flags);
    }

    /// Its bytes, under this sequence number.
    #[expect(clippy::cast_possible_truncation, reason = "a few dozen bytes")]
    pub(super) fn encode(&mut self, sequence: u32) -> &[u8] {
        let length = self.0.len() as u32;
        let mut header = NetlinkBuffer::new(&mut self.0);
        header.set_length(length);
        header.set_sequence_number(sequence);
        &self.0
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a few dozen bytes")]
pub(super) fn push_attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = (ATTRIBUTE_HEADER_LEN + value.len()) as u16;
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut request =
            Request::new(28, 0x400, &[7; 12]).attribute(1, &[198, 18, 0, 1]).attribute(2, b"odd\0");
        request.add_flags(4);
        let mut datagram = request.encode(9).to_vec();
        datagram.extend_from_slice(Request::new(29, 0, &[8; 3]).encode(10));

        let read: Vec<_> = messages(&datagram).collect();
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].kind, read[0].flags, read[0].sequence), (28, 0x405, 9));
        assert_eq!(read[0].body[..12], [7; 12]);
        let attributes = Attributes::after(12, read[0].body);
        assert_eq!(attributes.u32(1), Some(u32::from_ne_bytes([198, 18, 0, 1])));
        assert_eq!(attributes.text(2), Some("odd"));
        assert_eq!(attributes.get(3), None);
        assert_eq!((read[1].kind, read[1].body), (29, &[8; 3][..]));
    }

    #[test]
    fn a_message_is_read_if_and_only_if_it_fits() {
        let whole = Request::new(16, 0, &[0; 16]).attribute(3, b"eth0\0").encode(1).to_vec();
        for length in 0..whole.len() {
            assert_eq!(messages(&whole[..length]).count(), 0, "{length} bytes");
        }
        assert_eq!(messages(&whole).count(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            for message in messages(&bytes) {
                for (_, value) in Attributes::after(4, message.body).iter() {
                    prop_assert!(Attributes(value).iter().count() <= value.len() / 4);
                }
            }
            for (kind, value) in Attributes(&bytes).iter() {
                prop_assert!(value.len() + 4 <= bytes.len());
                let _ = Attributes(&bytes).text(kind);
            }
        }
    }
}
