//! How each kernel path stores activations and multiplies them.

use super::epilogue::channel_row;
use super::layout::{CHANNELS, IMAGES};
use crate::f32_kernel::{F32Encoding, F32Kernel, F32MicroKernel};
use crate::kernel::{Kernel, OperandWord};

/// Strides, in words, of an operand whose depth is images.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageStrides {
    /// From one channel to the next.
    pub channel: usize,
    /// From one word of depth to the next.
    pub depth: usize,
    /// From one pixel to the next in its row.
    pub pixel: usize,
    /// From one row of pixels to the next.
    pub line: usize,
}

/// What a kernel path supplies for convolutions in addition to its products.
pub(crate) trait ConvKernel: Kernel {
    /// Words of one channel group of one image at one pixel.
    const ROW_WORDS: usize = CHANNELS / <Self::Word as OperandWord>::ELEMENTS;
    /// Words of depth of the sixteen images of a block.
    const IMAGE_WORDS: usize = IMAGES / <Self::Word as OperandWord>::ELEMENTS;

    /// Words of the output, the right operand of the weight gradient, that are processed for all taps and
    /// channels before the next ones, so that they stay in cache: by default in the L1 cache.
    const CHUNK_WORDS: usize = 4096;

    /// Words of depth in a segment of `channels` channels.
    fn depth(channels: usize) -> usize {
        channels.min(CHANNELS).div_ceil(<Self::Word as OperandWord>::ELEMENTS)
    }

    /// Converts 32 channels to words.
    fn encode(self, values: &[f32; CHANNELS], words: &mut [Self::Word]);

    /// Converts words to 32 channels.
    fn decode(self, words: &[Self::Word]) -> [f32; CHANNELS];

    /// Whether operands whose depth is images are the activations themselves, without packing.
    const IMAGES_IN_PLACE: bool;

    /// Packs a row of pixels of one channel group as a right operand whose depth is images.
    fn pack_images_right(self, line: &[Self::Word], out: &mut [Self::Word]);

    /// The strides of [`ConvKernel::pack_images_left`]; a row of pixels takes `line` words.
    fn left_strides(width: usize) -> ImageStrides;

    /// Packs a row of pixels of one channel group as a left operand whose depth is images and whose
    /// rows are channels.
    fn pack_images_left(self, line: &[Self::Word], out: &mut [Self::Word]);
}

impl<S: F32MicroKernel, E: F32Encoding> ConvKernel for F32Kernel<S, E> {
    const IMAGES_IN_PLACE: bool = true;

    #[inline(always)]
    fn encode(self, values: &[f32; CHANNELS], words: &mut [f32]) {
        for (word, value) in words[..CHANNELS].iter_mut().zip(values) {
            *word = E::encode(*value);
        }
    }

    #[inline(always)]
    fn decode(self, words: &[f32]) -> [f32; CHANNELS] {
        let words = &words[..CHANNELS];
        channel_row(|i| words[i])
    }

    fn pack_images_right(self, line: &[f32], out: &mut [f32]) {
        out.copy_from_slice(line);
    }

    fn left_strides(width: usize) -> ImageStrides {
        let pixel = IMAGES * CHANNELS;
        ImageStrides { channel: 1, depth: CHANNELS, pixel, line: width * pixel }
    }

    fn pack_images_left(self, line: &[f32], out: &mut [f32]) {
        out.copy_from_slice(line);
    }
}

#[cfg(target_arch = "x86_64")]
mod pairs {
    use std::arch::x86_64::*;

    use super::*;
    use crate::amx::Amx;
    use crate::avx512_bf16::{Avx512Bf16, interleaved};
    use crate::bf16;
    use crate::kernel::Bf16Pair;

    /// Words of 32 channels.
    const ROW_WORDS: usize = CHANNELS / 2;
    /// Words of one pixel: 16 images of 32 channels.
    const PIXEL_WORDS: usize = IMAGES * ROW_WORDS;

    impl ConvKernel for Avx512Bf16 {
        const IMAGES_IN_PLACE: bool = false;

        #[inline(always)]
        fn encode(self, values: &[f32; CHANNELS], words: &mut [Bf16Pair]) {
            let words = &mut words[..ROW_WORDS];
            // SAFETY: the CPU supports the instructions; there are 32 values and 16 words.
            unsafe {
                let low = _mm512_loadu_ps(values.as_ptr());
                let high = _mm512_loadu_ps(values.as_ptr().add(16));
                let pairs: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
                _mm512_storeu_si512(words.as_mut_ptr().cast(), pairs);
            }
        }

        #[inline(always)]
        fn decode(self, words: &[Bf16Pair]) -> [f32; CHANNELS] {
            let words = &words[..ROW_WORDS];
            channel_row(|i| bf16::value(words[i / 2][i % 2]))
        }

        fn pack_images_right(self, line: &[Bf16Pair], out: &mut [Bf16Pair]) {
            // SAFETY: `self` exists only where the CPU supports AVX-512.
            unsafe { pair_images(line, out) }
        }

        fn left_strides(width: usize) -> ImageStrides {
            ImageStrides {
                channel: 1,
                depth: CHANNELS,
                pixel: PIXEL_WORDS,
                line: width * PIXEL_WORDS,
            }
        }

        fn pack_images_left(self, line: &[Bf16Pair], out: &mut [Bf16Pair]) {
            self.pack_images_right(line, out);
        }
    }

    impl ConvKernel for Amx {
        const IMAGES_IN_PLACE: bool = false;
        // Loading and storing the sums costs more than operands in the L2 cache.
        const CHUNK_WORDS: usize = 65_536;

        // A tile has whole rows, so a segment is the whole channel group, padded with zeros.
        fn depth(_: usize) -> usize {
            ROW_WORDS
        }

        #[inline(always)]
        fn encode(self, values: &[f32; CHANNELS], words: &mut [Bf16Pair]) {
            self.simd().encode(values, words);
        }

        #[inline(always)]
        fn decode(self, words: &[Bf16Pair]) -> [f32; CHANNELS] {
            self.simd().decode(words)
        }

        fn pack_images_right(self, line: &[Bf16Pair], out: &mut [Bf16Pair]) {
            self.simd().pack_images_right(line, out);
        }

        fn left_strides(width: usize) -> ImageStrides {
            // The stride avoids powers of two, which would map all rows to a few cache sets.
            let channel = (width * Self::IMAGE_WORDS).next_multiple_of(16) + 16;
            let line = CHANNELS * channel;
            ImageStrides { channel, depth: 1, pixel: Self::IMAGE_WORDS, line }
        }

        fn pack_images_left(self, line: &[Bf16Pair], out: &mut [Bf16Pair]) {
            let stride = out.len() / CHANNELS;
            for (index, pixel) in line.chunks_exact(PIXEL_WORDS).enumerate() {
                // SAFETY: `self` exists only where the CPU supports AVX-512.
                unsafe { transpose_images(pixel, &mut out[index * Self::IMAGE_WORDS..], stride) };
            }
        }
    }

    /// Pairs adjacent images at each pixel, channel by channel: rows of 32 words.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn pair_images(pixels: &[Bf16Pair], out: &mut [Bf16Pair]) {
        assert_eq!(pixels.len(), out.len());
        const LOW: [u16; 32] = interleaved(0, 32);
        const HIGH: [u16; 32] = interleaved(16, 48);
        for (two, out) in
            pixels.chunks_exact(2 * ROW_WORDS).zip(out.chunks_exact_mut(2 * ROW_WORDS))
        {
            // SAFETY: both chunks hold two registers of words.
            unsafe {
                let low = _mm512_loadu_si512(LOW.as_ptr().cast());
                let high = _mm512_loadu_si512(HIGH.as_ptr().cast());
                let first = _mm512_loadu_si512(two.as_ptr().cast());
                let second = _mm512_loadu_si512(two.as_ptr().add(ROW_WORDS).cast());
                let out = out.as_mut_ptr();
                _mm512_storeu_si512(out.cast(), _mm512_permutex2var_epi16(first, low, second));
                let rest = _mm512_permutex2var_epi16(first, high, second);
                _mm512_storeu_si512(out.add(ROW_WORDS).cast(), rest);
            }
        }
    }

    /// Writes a pixel's channels as rows of eight words, each a pair of images, `stride` words apart.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn transpose_images(pixel: &[Bf16Pair], out: &mut [Bf16Pair], stride: usize) {
        let mut paired = [Bf16Pair::default(); PIXEL_WORDS];
        pair_images(pixel, &mut paired);
        for (channel, out) in out.chunks_mut(stride).take(CHANNELS).enumerate() {
            for (words, out) in paired.chunks_exact(CHANNELS).zip(out) {
                *out = words[channel];
            }
        }
    }
}
