//! Memory that is more than Rust knows of: a map's, shared with the programs, and the heap as the C
//! library keeps it.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _},
    sync::atomic::AtomicU32,
};

use aya::maps::MapData;
use memmap2::{MmapOptions, MmapRaw};

/// The one element of an array map that was made with `BPF_F_MMAPABLE`, as words that programs
/// read while they are written.
#[derive(Debug)]
pub struct Memory {
    mapping: MmapRaw,
    words: usize,
}

impl Memory {
    /// The first `words` words of the map's element. The map lives as long as its mapping.
    pub fn of(map: &MapData, words: usize) -> io::Result<Self> {
        let fd = map.fd().as_fd().as_raw_fd();
        let mapping = MmapOptions::new().len(words * size_of::<u32>()).map_raw(fd)?;
        Ok(Self { mapping, words })
    }
}

impl AsRef<[AtomicU32]> for Memory {
    #[expect(unsafe_code, reason = "nobody else knows what a mapping holds")]
    #[expect(clippy::cast_ptr_alignment, reason = "it starts at a page")]
    fn as_ref(&self) -> &[AtomicU32] {
        let words = self.mapping.as_ptr().cast::<AtomicU32>();
        // SAFETY: the mapping starts at a page, is as long as `of` asked for, is there as long as
        // `self`, and may be written; whoever shares it writes whole words too, and any are valid.
        unsafe { std::slice::from_raw_parts(words, self.words) }
    }
}

/// Gives the kernel back what the heap holds and nobody uses. A load of a million routes leaves a
/// hundred megabytes of it, which the C library keeps for the next one. Takes some milliseconds for
/// each hundred megabytes.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "a call of the C library (malloc_trim(3))")]
pub fn trim_heap() {
    // SAFETY: it takes any number, locks what it looks at, and moves nothing that is in use.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
pub fn trim_heap() {}
