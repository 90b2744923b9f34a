//! What a kernel path adds to its products so that activations can be its operands.

use super::layout::{CHANNELS, IMAGES};
use super::pointwise::row_of;
use crate::f32_words::{F32, F32Vectors, F32Words};
use crate::kernel::{Kernel, Word};

/// Where words lie in an operand whose depth is images: steps in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageSteps {
    /// From one channel to the next.
    pub channel: usize,
    /// From one word of depth to the next.
    pub depth: usize,
    /// From one pixel to the next of its row.
    pub pixel: usize,
    /// From one row of pixels to the next.
    pub line: usize,
}

/// A kernel path on activations.
pub(crate) trait Activations: Kernel {
    /// Words of 32 channels of one image at one pixel.
    const WORDS: usize = CHANNELS / <Self::Word as Word>::ELEMENTS;
    /// Words of depth in the sixteen images of a block.
    const IMAGE_WORDS: usize = IMAGES / <Self::Word as Word>::ELEMENTS;
    /// Words of depth in a segment of `channels` channels.
    fn depth(channels: usize) -> usize {
        channels.min(CHANNELS).div_ceil(<Self::Word as Word>::ELEMENTS)
    }

    /// 32 channels as words.
    fn encode(self, values: &[f32; CHANNELS], words: &mut [Self::Word]);

    /// 32 channels from words.
    fn decode(self, words: &[Self::Word]) -> [f32; CHANNELS];

    /// Whether activations can be multiplied over images as they lie.
    const IMAGES_IN_PLACE: bool;

    /// A row of pixels (tiles of one group of channels) as a right operand whose depth is images.
    fn images_right(self, line: &[Self::Word], out: &mut [Self::Word]);

    /// The steps of [`Activations::images_left`]. A line takes `line` words.
    fn left_steps(width: usize) -> ImageSteps;

    /// A row of pixels as a left operand whose depth is images, its rows the channels.
    fn images_left(self, line: &[Self::Word], out: &mut [Self::Word]);
}

impl<V: F32Vectors, E: F32Words> Activations for F32<V, E> {
    const IMAGES_IN_PLACE: bool = true;

    #[inline(always)]
    fn encode(self, values: &[f32; CHANNELS], words: &mut [f32]) {
        for (word, value) in words[..CHANNELS].iter_mut().zip(values) {
            *word = E::word(*value);
        }
    }

    #[inline(always)]
    fn decode(self, words: &[f32]) -> [f32; CHANNELS] {
        let words = &words[..CHANNELS];
        row_of(|i| words[i])
    }

    fn images_right(self, line: &[f32], out: &mut [f32]) {
        out.copy_from_slice(line);
    }

    fn left_steps(width: usize) -> ImageSteps {
        let pixel = IMAGES * CHANNELS;
        ImageSteps { channel: 1, depth: CHANNELS, pixel, line: width * pixel }
    }

    fn images_left(self, line: &[f32], out: &mut [f32]) {
        out.copy_from_slice(line);
    }
}

#[cfg(target_arch = "x86_64")]
mod pairs {
    use std::arch::x86_64::*;

    use super::*;
    use crate::amx::Amx;
    use crate::avx512_bf16::Avx512Bf16;
    use crate::bf16;
    use crate::kernel::Pair;

    /// Words of 32 channels.
    const WORDS: usize = CHANNELS / 2;
    /// Words of a tile: 16 images of 32 channels.
    const TILE: usize = IMAGES * WORDS;

    impl Activations for Avx512Bf16 {
        const IMAGES_IN_PLACE: bool = false;

        #[inline(always)]
        fn encode(self, values: &[f32; CHANNELS], words: &mut [Pair]) {
            let words = &mut words[..WORDS];
            // SAFETY: the CPU has the instructions, both halves of the values and of the words are
            // there.
            unsafe {
                let low = _mm512_loadu_ps(values.as_ptr());
                let high = _mm512_loadu_ps(values.as_ptr().add(16));
                let pairs: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
                _mm512_storeu_si512(words.as_mut_ptr().cast(), pairs);
            }
        }

        #[inline(always)]
        fn decode(self, words: &[Pair]) -> [f32; CHANNELS] {
            let words = &words[..WORDS];
            row_of(|i| bf16::value(words[i / 2][i % 2]))
        }

        fn images_right(self, line: &[Pair], out: &mut [Pair]) {
            // SAFETY: `self` is only made where the CPU has these.
            unsafe { pair_images(line, out) }
        }

        fn left_steps(width: usize) -> ImageSteps {
            ImageSteps { channel: 1, depth: CHANNELS, pixel: TILE, line: width * TILE }
        }

        fn images_left(self, line: &[Pair], out: &mut [Pair]) {
            self.images_right(line, out);
        }
    }

    impl Activations for Amx {
        const IMAGES_IN_PLACE: bool = false;

        // A tile register takes whole rows, so the whole group, of which the rest is zeros.
        fn depth(_: usize) -> usize {
            WORDS
        }

        #[inline(always)]
        fn encode(self, values: &[f32; CHANNELS], words: &mut [Pair]) {
            self.vectors().encode(values, words);
        }

        #[inline(always)]
        fn decode(self, words: &[Pair]) -> [f32; CHANNELS] {
            self.vectors().decode(words)
        }

        fn images_right(self, line: &[Pair], out: &mut [Pair]) {
            self.vectors().images_right(line, out);
        }

        fn left_steps(width: usize) -> ImageSteps {
            // Rows keep clear of powers of two, which would crowd a few sets of the cache.
            let channel = (width * Self::IMAGE_WORDS).next_multiple_of(16) + 16;
            let line = CHANNELS * channel;
            ImageSteps { channel, depth: 1, pixel: Self::IMAGE_WORDS, line }
        }

        fn images_left(self, line: &[Pair], out: &mut [Pair]) {
            let step = out.len() / CHANNELS;
            for (pixel, tile) in line.chunks_exact(TILE).enumerate() {
                // SAFETY: the CPU has AVX-512; `step` holds every pixel's words.
                unsafe { transpose_images(tile, &mut out[pixel * Self::IMAGE_WORDS..], step) };
            }
        }
    }

    /// Neighbouring images of a tile become pairs, channel by channel: rows of 32 words.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn pair_images(tiles: &[Pair], out: &mut [Pair]) {
        assert_eq!(tiles.len(), out.len());
        // Places of the pairs' halves in (first image, second image): 0, 32, 1, 33, …
        let order = |start: u16| -> [u16; 32] {
            std::array::from_fn(|i| start + i as u16 / 2 + 32 * (i as u16 % 2))
        };
        let (low, high) = (order(0), order(16));
        for (two, out) in tiles.chunks_exact(2 * WORDS).zip(out.chunks_exact_mut(2 * WORDS)) {
            // SAFETY: two registers' worth of words on either side.
            unsafe {
                let low = _mm512_loadu_si512(low.as_ptr().cast());
                let high = _mm512_loadu_si512(high.as_ptr().cast());
                let first = _mm512_loadu_si512(two.as_ptr().cast());
                let second = _mm512_loadu_si512(two.as_ptr().add(WORDS).cast());
                let out = out.as_mut_ptr();
                _mm512_storeu_si512(out.cast(), _mm512_permutex2var_epi16(first, low, second));
                let rest = _mm512_permutex2var_epi16(first, high, second);
                _mm512_storeu_si512(out.add(WORDS).cast(), rest);
            }
        }
    }

    /// The tile's channels as rows of eight words, each a pair of images, `step` words apart.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn transpose_images(tile: &[Pair], out: &mut [Pair], step: usize) {
        let mut paired = [Pair::default(); TILE];
        pair_images(tile, &mut paired);
        for (channel, out) in out.chunks_mut(step).take(CHANNELS).enumerate() {
            for (words, out) in paired.chunks_exact(CHANNELS).zip(out) {
                *out = words[channel];
            }
        }
    }
}
