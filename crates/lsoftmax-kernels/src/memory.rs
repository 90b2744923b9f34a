//! Large buffers without a serial pass that zeroes them.
//!
//! A gradient of a hundred megabytes costs time before anything is computed: zeroing it on one
//! thread, then a page fault every 4 KB. Here each task fills its own part just before it writes it,
//! while that part is in its cache, and Linux is asked for huge pages.

use std::mem::MaybeUninit;

/// Below this a buffer is not worth a system call.
const WORTH_HUGE_PAGES: usize = 8 << 20;

/// A buffer whose parts are handed out to be filled, then taken as a whole.
pub(crate) struct Unfilled {
    values: Vec<f32>,
    len: usize,
}

/// A part of an [`Unfilled`] buffer.
pub(crate) struct Part<'a>(&'a mut [MaybeUninit<f32>]);

/// The parts of a buffer that are left to hand out.
pub(crate) struct Parts<'a>(&'a mut [MaybeUninit<f32>]);

impl Unfilled {
    pub fn new(len: usize) -> Self {
        let mut values = Vec::with_capacity(len);
        if len * size_of::<f32>() >= WORTH_HUGE_PAGES {
            advise_huge_pages(values.spare_capacity_mut());
        }
        Self { values, len }
    }

    pub fn parts(&mut self) -> Parts<'_> {
        Parts(&mut self.values.spare_capacity_mut()[..self.len])
    }

    /// The buffer as it stands.
    ///
    /// # Safety
    /// Every element has been handed out and [filled](Part::zeroed).
    pub unsafe fn assume_filled(mut self) -> Vec<f32> {
        // SAFETY: the capacity is at least `len`, and by the caller's promise all is written.
        unsafe { self.values.set_len(self.len) };
        self.values
    }
}

impl<'a> Parts<'a> {
    /// The next `len` elements, or as many as there are.
    pub fn take(&mut self, len: usize) -> Part<'a> {
        let all = std::mem::take(&mut self.0);
        let (part, rest) = all.split_at_mut(len.min(all.len()));
        self.0 = rest;
        Part(part)
    }

    /// All that is left, in parts of `len` elements.
    pub fn chunks(self, len: usize) -> impl Iterator<Item = Part<'a>> {
        self.0.chunks_mut(len).map(Part)
    }
}

impl<'a> Part<'a> {
    /// Fills the part with zeros.
    pub fn zeroed(self) -> &'a mut [f32] {
        for value in self.0.iter_mut() {
            value.write(0.0);
        }
        // SAFETY: every element has just been written, and the two types have one layout.
        unsafe { &mut *(std::ptr::from_mut(self.0) as *mut [f32]) }
    }
}

#[cfg(target_os = "linux")]
fn advise_huge_pages(memory: &mut [MaybeUninit<f32>]) {
    const PAGE: usize = 4096;
    let start = (memory.as_mut_ptr() as usize).next_multiple_of(PAGE);
    let end = memory.as_mut_ptr_range().end as usize / PAGE * PAGE;
    if start < end {
        // SAFETY: the whole pages of an allocation of ours; the advice changes no contents. A
        // refusal costs speed only.
        unsafe { libc::madvise(start as *mut _, end - start, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_: &mut [MaybeUninit<f32>]) {}
