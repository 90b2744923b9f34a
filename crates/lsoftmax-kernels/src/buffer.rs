//! Large buffers that are used again.
//!
//! A fresh buffer of a hundred megabytes costs time before anything is computed: the system clears
//! it, page by page. A training step needs the same buffers as the step before, so a [`Buffer`] that
//! is dropped goes to a pool, and the next one of its size comes from there. The phases of a step need
//! buffers of different sizes; with those in use, the pool never keeps more than twice what has been
//! in use at one time.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::kernel::Word;

/// Sixteen floats: a cache line, and a vector register.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// Floats of a line.
const LINE: usize = 16;
/// Lines below which a buffer is not worth keeping.
const WORTH_KEEPING: usize = 1 << 8;
/// Bytes from which Linux is asked for huge pages.
#[cfg(target_os = "linux")]
const WORTH_HUGE_PAGES: usize = 8 << 20;

/// Floats aligned to 64 bytes. What a new buffer contains is not specified.
#[derive(Debug, Default)]
pub struct Buffer {
    lines: Vec<Line>,
    len: usize,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

struct Pool {
    free: Vec<Vec<Line>>,
    /// Lines in buffers that are alive, and the most there have been.
    in_use: usize,
    most: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), in_use: 0, most: 0 });

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the memory of all buffers that are not in use back to the system.
pub fn release_buffers() {
    let mut pool = pool();
    pool.free.clear();
    pool.most = pool.in_use;
}

impl Buffer {
    /// A buffer of `len` floats.
    pub fn new(len: usize) -> Self {
        let need = len.div_ceil(LINE);
        let lines = if need < WORTH_KEEPING { None } else { pool().take(need) };
        Self { lines: lines.unwrap_or_else(|| fresh(need)), len }
    }

    /// Makes room for `len` floats, whose contents are not specified.
    pub(crate) fn resize(&mut self, len: usize) {
        if len <= self.lines.len() * LINE {
            self.len = len;
        } else {
            *self = Self::new(len);
        }
    }

    pub(crate) fn words<W: Word>(&self) -> &[W] {
        // SAFETY: a word has 32 bits, as a float has, any bits are one, and the lines are aligned.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), self.len) }
    }

    pub(crate) fn words_mut<W: Word>(&mut self) -> &mut [W] {
        // SAFETY: as in `words`; any word is a float, too.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), self.len) }
    }

    fn is_pooled(&self) -> bool {
        self.lines.len() >= WORTH_KEEPING
    }
}

impl Pool {
    /// The smallest free block that fits and is not much too large.
    fn take(&mut self, need: usize) -> Option<Vec<Line>> {
        let fits = |block: &Vec<Line>| (need..=need * 2).contains(&block.len());
        let free = self.free.iter().enumerate().filter(|(_, block)| fits(block));
        let found = free.min_by_key(|(_, block)| block.len()).map(|(index, _)| index);
        let block = found.map(|index| self.free.remove(index));
        self.in_use += block.as_ref().map_or(need, Vec::len);
        self.most = self.most.max(self.in_use);
        block
    }

    /// Keeps a block; the oldest go when too much is kept.
    fn give(&mut self, block: Vec<Line>) {
        self.in_use -= block.len();
        self.free.push(block);
        while self.free.iter().map(Vec::len).sum::<usize>() + self.in_use > 2 * self.most {
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

fn fresh(lines: usize) -> Vec<Line> {
    if lines == 0 {
        return Vec::new();
    }
    let layout = std::alloc::Layout::array::<Line>(lines).expect("a buffer fits in memory");
    // SAFETY: the layout is not empty; the block is advised on before it is touched, comes zeroed,
    // which is a valid Line, and has the very layout that Vec will free it with.
    unsafe {
        let block = std::alloc::alloc_zeroed(layout).cast::<Line>();
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
    if bytes >= WORTH_HUGE_PAGES && first < end {
        // SAFETY: whole pages of one allocation; the advice changes no contents, and a refusal
        // costs speed only.
        unsafe { libc::madvise(first as *mut _, end - first, libc::MADV_HUGEPAGE) };
    }
}

/// Buffers as the storage of Burn's CPU tensors.
#[cfg(feature = "burn")]
mod tensor {
    use std::mem::MaybeUninit;

    use burn_std::{AccessError, AccessPolicy, AllocationController, AllocationProperty, Bytes};

    use super::{Buffer, Line};

    struct Storage(Buffer);

    impl Buffer {
        /// The buffer as a tensor's bytes, without a copy. It returns to the pool with the tensor.
        pub fn into_bytes(self) -> Bytes {
            let len = self.len * size_of::<f32>();
            // SAFETY: every float of a buffer is initialised.
            unsafe { Bytes::from_controller(Box::new(Storage(self)), len) }
        }
    }

    impl AllocationController for Storage {
        fn alloc_align(&self) -> usize {
            align_of::<Line>()
        }

        fn property(&self) -> AllocationProperty {
            AllocationProperty::Other
        }

        fn memory(&self, _: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
            let floats: &[f32] = &self.0;
            // SAFETY: the same memory as bytes, which need no alignment and may be anything.
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

    // One test, since the pool is the process's own.
    #[test]
    fn a_buffer_of_the_same_size_comes_from_the_pool_and_the_pool_stays_bounded() {
        let len = WORTH_KEEPING * LINE + 5;
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
            assert!(kept() <= 2 * pool().most);
            assert_eq!(pool().in_use, 0);
        }
        drop(Buffer::new(10));
        release_buffers();
        assert_eq!(kept(), 0);
    }
}
