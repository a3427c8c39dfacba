//! A frame as the kernel hands it over: the only place where bytes become headers.

use core::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

/// What a type must be to be laid over frame bytes: any bit pattern, no padding, alignment 1.
pub trait Header: FromBytes + IntoBytes + Immutable + Unaligned {}
impl<T: FromBytes + IntoBytes + Immutable + Unaligned> Header for T {}

/// A borrowed frame, kept as the `start` and `end` pointers that the verifier tracks.
///
/// Where a frame spans several buffers, the two enclose the first one alone.
pub struct Packet<'frame> {
    start: *mut u8,
    end: *mut u8,
    len: usize,
    frame: PhantomData<&'frame mut [u8]>,
}

impl<'frame> Packet<'frame> {
    /// Wraps a frame that lives on the host, in a test or a fuzzer.
    pub fn from_slice(frame: &'frame mut [u8]) -> Self {
        let (len, range) = (frame.len(), frame.as_mut_ptr_range());
        // SAFETY: the range is the slice, borrowed exclusively for `'frame`.
        unsafe { Self::from_range(range.start, range.end, len) }
    }

    /// Wraps the first buffer of a frame of `len` bytes.
    pub fn from_first_buffer(first: &'frame mut [u8], len: usize) -> Self {
        Self { len, ..Self::from_slice(first) }
    }

    /// Wraps the bytes from `start` up to `end`, the first of `len` bytes.
    ///
    /// # Safety
    ///
    /// The range must be readable, writable and not otherwise borrowed for `'frame`.
    #[inline(always)]
    pub unsafe fn from_range(start: *mut u8, end: *mut u8, len: usize) -> Self {
        Self { start, end, len, frame: PhantomData }
    }

    /// The frame's length in bytes, over all of its buffers.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it spans several buffers.
    #[inline(always)]
    pub fn has_frags(&self) -> bool {
        self.end.addr().wrapping_sub(self.start.addr()) < self.len
    }

    /// Returns the header at `offset`, or `None` where the first buffer ends before it does.
    #[inline(always)]
    pub fn header<T: Header>(&self, offset: usize) -> Option<&T> {
        let header = self.checked::<T>(offset)?;
        // SAFETY: `checked` found the bytes inside the frame; `Header` allows any bytes.
        Some(unsafe { &*header })
    }

    /// Like [`header`](Self::header), to be written through.
    #[inline(always)]
    pub fn header_mut<T: Header>(&mut self, offset: usize) -> Option<&mut T> {
        let header = self.checked::<T>(offset)?;
        // SAFETY: as in `header`, and `&mut self` rules out a second view.
        Some(unsafe { &mut *header })
    }

    /// The comparison must be made on pointers: the verifier learns the bound from it.
    #[inline(always)]
    fn checked<T>(&self, offset: usize) -> Option<*mut T> {
        let header = self.start.wrapping_add(offset);
        (header.wrapping_add(size_of::<T>()) <= self.end).then_some(header.cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_seen_exactly_when_it_fits() {
        let mut frame = [0u8; 40];
        for len in 0..=frame.len() {
            let mut packet = Packet::from_slice(&mut frame[..len]);
            for offset in 0..=len + 8 {
                let fits = offset + 4 <= len;
                assert_eq!(packet.header::<[u8; 4]>(offset).is_some(), fits, "{offset} in {len}");
                assert_eq!(packet.header_mut::<[u8; 4]>(offset).is_some(), fits);
            }
        }
    }

    #[test]
    fn a_frame_over_several_buffers_is_seen_as_such() {
        let mut first = [0u8; 40];
        let packet = Packet::from_first_buffer(&mut first, 9000);
        assert!(packet.has_frags());
        assert_eq!(packet.len(), 9000);
        assert!(packet.header::<[u8; 4]>(37).is_none());
        assert!(!Packet::from_slice(&mut first).has_frags());
    }
}
