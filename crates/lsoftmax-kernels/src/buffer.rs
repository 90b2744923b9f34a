//! Large buffers whose memory is reused.
//!
//! A fresh buffer of a hundred megabytes is slow to use for the first time: the operating system
//! clears it page by page. A training step needs the same buffers as the step before, so a dropped
//! [`Buffer`] returns to a pool, and the next one of its size is taken from there. The phases of a
//! step need buffers of different sizes; free and used buffers together never exceed twice the peak of
//! the used ones.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::kernel::OperandWord;

/// Sixteen floats: a cache line, and a vector register.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct CacheLine([f32; LINE]);

/// Floats per line.
const LINE: usize = 16;
/// Buffers of fewer lines are not pooled.
const MIN_POOLED_LINES: usize = 1 << 8;
/// Allocations of at least this many bytes ask Linux for huge pages.
#[cfg(target_os = "linux")]
const MIN_HUGE_PAGE_BYTES: usize = 8 << 20;

/// Floats aligned to 64 bytes. The contents of a new buffer are unspecified.
#[derive(Debug, Default)]
pub struct Buffer {
    lines: Vec<CacheLine>,
    len: usize,
}

impl std::fmt::Debug for CacheLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

struct BufferPool {
    free: Vec<Vec<CacheLine>>,
    /// Lines in live buffers.
    in_use: usize,
    /// The maximum of `in_use` so far.
    peak: usize,
}

static POOL: Mutex<BufferPool> = Mutex::new(BufferPool { free: Vec::new(), in_use: 0, peak: 0 });

fn pool() -> MutexGuard<'static, BufferPool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the memory of all unused buffers to the operating system.
pub fn release_buffers() {
    let mut pool = pool();
    pool.free.clear();
    pool.peak = pool.in_use;
}

impl Buffer {
    /// A buffer of `len` floats.
    pub fn new(len: usize) -> Self {
        let need = len.div_ceil(LINE);
        let lines = if need < MIN_POOLED_LINES { None } else { pool().take(need) };
        Self { lines: lines.unwrap_or_else(|| fresh(need)), len }
    }

    /// Changes the length to `len` floats, whose contents are unspecified.
    pub(crate) fn resize(&mut self, len: usize) {
        if len <= self.lines.len() * LINE {
            self.len = len;
        } else {
            *self = Self::new(len);
        }
    }

    pub(crate) fn words<W: OperandWord>(&self) -> &[W] {
        // SAFETY: a word has 32 bits, like a float, every bit pattern is valid, and the lines are
        // aligned.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), self.len) }
    }

    pub(crate) fn words_mut<W: OperandWord>(&mut self) -> &mut [W] {
        // SAFETY: as in `words`; the bits of any word are also a valid float.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), self.len) }
    }

    fn is_pooled(&self) -> bool {
        self.lines.len() >= MIN_POOLED_LINES
    }
}

impl BufferPool {
    /// The smallest free block that fits and is at most twice as large as needed.
    fn take(&mut self, need: usize) -> Option<Vec<CacheLine>> {
        let fits = |block: &Vec<CacheLine>| (need..=need * 2).contains(&block.len());
        let free = self.free.iter().enumerate().filter(|(_, block)| fits(block));
        let found = free.min_by_key(|(_, block)| block.len()).map(|(index, _)| index);
        let block = found.map(|index| self.free.remove(index));
        self.in_use += block.as_ref().map_or(need, Vec::len);
        self.peak = self.peak.max(self.in_use);
        block
    }

    /// Keeps a block, and frees the oldest ones if the pool is too large.
    fn give(&mut self, block: Vec<CacheLine>) {
        self.in_use -= block.len();
        self.free.push(block);
        while self.free.iter().map(Vec::len).sum::<usize>() + self.in_use > 2 * self.peak {
            self.free.remove(0);
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.is_pooled() {
            pool().give(std::mem::take(&mut self.lines));
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: a line is sixteen floats without padding, and `len` fits in the lines.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and the lines are borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

fn fresh(lines: usize) -> Vec<CacheLine> {
    if lines == 0 {
        return Vec::new();
    }
    let layout = std::alloc::Layout::array::<CacheLine>(lines).expect("a buffer fits in memory");
    // SAFETY: the layout is not empty. The block is zeroed, which is valid for lines, and has the
    // layout with which Vec will free it.
    unsafe {
        let block = std::alloc::alloc_zeroed(layout).cast::<CacheLine>();
        if block.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        #[cfg(target_os = "linux")]
        advise_huge_pages(block as usize, layout.size());
        Vec::from_raw_parts(block, lines, lines)
    }
}

#[cfg(target_os = "linux")]
fn advise_huge_pages(start: usize, bytes: usize) {
    const PAGE: usize = 4096;
    let (first, end) = (start.next_multiple_of(PAGE), (start + bytes) / PAGE * PAGE);
    if bytes >= MIN_HUGE_PAGE_BYTES && first < end {
        // SAFETY: these are whole pages of one allocation, and the advice does not change their
        // contents. A refusal only costs speed.
        unsafe { libc::madvise(first as *mut _, end - first, libc::MADV_HUGEPAGE) };
    }
}

/// Buffers as the storage of Burn's CPU tensors.
#[cfg(feature = "burn")]
mod tensor {
    use std::mem::MaybeUninit;

    use burn_std::{AccessError, AccessPolicy, AllocationController, AllocationProperty, Bytes};

    use super::{Buffer, CacheLine};

    struct BufferStorage(Buffer);

    impl Buffer {
        /// The buffer as a tensor's bytes, without a copy. It returns to the pool when the tensor is
        /// dropped.
        pub fn into_bytes(self) -> Bytes {
            let len = self.len * size_of::<f32>();
            // SAFETY: every float of a buffer is initialised.
            unsafe { Bytes::from_controller(Box::new(BufferStorage(self)), len) }
        }
    }

    impl AllocationController for BufferStorage {
        fn alloc_align(&self) -> usize {
            align_of::<CacheLine>()
        }

        fn property(&self) -> AllocationProperty {
            AllocationProperty::Other
        }

        fn memory(&self, _: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
            let floats: &[f32] = &self.0;
            // SAFETY: this is the same memory as bytes, which have no alignment or invalid values.
            Ok(unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), size_of_val(floats)) })
        }

        unsafe fn memory_mut(
            &mut self,
            _: AccessPolicy,
        ) -> Result<&mut [MaybeUninit<u8>], AccessError> {
            let floats: &mut [f32] = &mut self.0;
            // SAFETY: as in `memory`; the caller writes only initialised bytes, all of which are
            // valid floats.
            Ok(unsafe {
                std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), size_of_val(floats))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A single test, because the pool is shared by the whole process.
    #[test]
    fn a_buffer_of_the_same_size_comes_from_the_pool_and_the_pool_stays_bounded() {
        let len = MIN_POOLED_LINES * LINE + 5;
        let mut first = Buffer::new(len);
        assert!(first.iter().all(|value| *value == 0.0));
        assert_eq!(first.as_ptr() as usize % 64, 0);
        first[len - 1] = 7.0;
        let place = first.as_ptr();
        drop(first);
        let second = Buffer::new(len);
        assert_eq!(second.as_ptr(), place);
        assert_eq!(second[len - 1], 7.0);

        let kept = || pool().free.iter().map(Vec::len).sum::<usize>();
        drop(second);
        for factor in [3, 9, 27] {
            drop(Buffer::new(factor * len));
            assert!(kept() <= 2 * pool().peak);
            assert_eq!(pool().in_use, 0);
        }
        drop(Buffer::new(10));
        release_buffers();
        assert_eq!(kept(), 0);
    }
}
