//! Frames: a length of four bytes in network order, then so many bytes.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

/// Bytes of the longest payload. What is longer is cut into several frames by its sender.
pub const FRAME_MAX: usize = 256 << 10;

const LENGTH_SIZE: usize = size_of::<u32>();

#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {0} bytes is longer than the limit of {FRAME_MAX}")]
    TooLong(u64),
    #[error("the connection ended in the middle of a frame")]
    CutOff,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Cuts a stream of bytes into frames, and makes one of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameCodec;

impl Decoder for FrameCodec {
    type Item = Bytes;
    type Error = FrameError;

    /// Refuses a length above the limit before a byte of its payload is waited for.
    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        let Some(length) = bytes.first_chunk::<LENGTH_SIZE>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length);
        let size = usize::try_from(length)
            .ok()
            .filter(|size| *size <= FRAME_MAX)
            .ok_or(FrameError::TooLong(u64::from(length)))?;
        if bytes.len() < LENGTH_SIZE + size {
            bytes.reserve(LENGTH_SIZE + size - bytes.len());
            return Ok(None);
        }
        bytes.advance(LENGTH_SIZE);
        Ok(Some(bytes.split_to(size).freeze()))
    }

    fn decode_eof(&mut self, bytes: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        match self.decode(bytes)? {
            None if !bytes.is_empty() => Err(FrameError::CutOff),
            frame => Ok(frame),
        }
    }
}

impl Encoder<&[u8]> for FrameCodec {
    type Error = FrameError;

    fn encode(&mut self, payload: &[u8], bytes: &mut BytesMut) -> Result<(), FrameError> {
        let too_long = || FrameError::TooLong(payload.len() as u64);
        let length = u32::try_from(payload.len()).map_err(|_| too_long())?;
        if payload.len() > FRAME_MAX {
            return Err(too_long());
        }
        bytes.reserve(LENGTH_SIZE + payload.len());
        bytes.put_u32(length);
        bytes.put_slice(payload);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(payloads: &[Vec<u8>]) -> BytesMut {
        let mut bytes = BytesMut::new();
        for payload in payloads {
            FrameCodec.encode(payload, &mut bytes).unwrap();
        }
        bytes
    }

    fn decoded(bytes: &mut BytesMut) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| FrameCodec.decode(bytes).unwrap())
            .map(|frame| frame.to_vec())
            .collect()
    }

    #[test]
    fn the_longest_frame_passes_and_one_byte_more_does_not() {
        let longest = vec![7; FRAME_MAX];
        assert_eq!(decoded(&mut encoded(std::slice::from_ref(&longest))), [longest]);

        let longer = vec![7; FRAME_MAX + 1];
        let mut bytes = BytesMut::new();
        let error = FrameCodec.encode(&longer, &mut bytes).unwrap_err();
        assert_eq!(error.to_string(), "a frame of 262145 bytes is longer than the limit of 262144");
        assert!(bytes.is_empty(), "half a frame was written");
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_anything_is_read() {
        let mut bytes = BytesMut::new();
        bytes.put_u32(1 << 20);
        let error = FrameCodec.decode(&mut bytes).unwrap_err();
        assert!(matches!(error, FrameError::TooLong(length) if length == 1 << 20), "{error}");
        assert!(bytes.capacity() < 1 << 20, "room was made for it");
    }

    #[test]
    fn an_end_inside_a_frame_is_an_error_and_one_between_frames_is_not() {
        let whole = encoded(&[b"status".to_vec()]);
        for cut in 1..whole.len() {
            let mut bytes = BytesMut::from(&whole[..cut]);
            let error = FrameCodec.decode_eof(&mut bytes).unwrap_err();
            assert!(matches!(error, FrameError::CutOff), "{cut} bytes: {error}");
        }
        assert!(FrameCodec.decode_eof(&mut BytesMut::new()).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn frames_survive_any_split_of_the_bytes(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
            splits in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let stream = encoded(&payloads);
            let mut cuts: Vec<usize> =
                splits.iter().map(|split| split.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();

            let (mut buffer, mut frames) = (BytesMut::new(), Vec::new());
            for piece in cuts.windows(2) {
                buffer.extend_from_slice(&stream[piece[0]..piece[1]]);
                frames.extend(decoded(&mut buffer));
            }
            prop_assert_eq!(frames, payloads);
            prop_assert!(buffer.is_empty());
        }

        #[test]
        fn garbage_is_a_frame_or_an_error_and_never_a_panic(
            garbage in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let mut buffer = BytesMut::from(&garbage[..]);
            while let Ok(Some(frame)) = FrameCodec.decode_eof(&mut buffer) {
                prop_assert!(frame.len() <= FRAME_MAX);
            }
        }
    }
}
