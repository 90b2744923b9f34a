//! How each kernel path stores activations and multiplies them.

use super::geometry::ConvAxis;
use super::layout::{CHANNELS, IMAGES};
use crate::f32_kernel::{F32Encoding, F32Kernel, F32MicroKernel};
use crate::kernel::{Kernel, OperandWord, Simd};
use crate::lanes::{LANES, Lanes};

/// The registers of a path's channels.
pub(crate) type KernelLanes<K> = <<K as Kernel>::Simd as Simd>::Lanes;

const _: () = assert!(LANES == CHANNELS);

/// What a kernel path supplies for convolutions in addition to its products.
///
/// The weight gradient is a product whose depth is images and pixels. Its left operand are lines of the
/// input, its right operand lines of the output's gradient: a *line* is a row of pixels of one channel
/// group.
pub(crate) trait ConvKernel: Kernel {
    /// Words of one channel group of one image at one pixel.
    const ROW_WORDS: usize = CHANNELS / <Self::Word as OperandWord>::ELEMENTS;
    /// Words of depth of the sixteen images of a block.
    const IMAGE_WORDS: usize = IMAGES / <Self::Word as OperandWord>::ELEMENTS;

    /// Whether a map of few channels is folded (see `layout`): products of at most [`FOLDED`](super::layout::FOLDED) columns then write no
    /// others.
    const FOLDS: bool;

    /// Whether convolutions of 3x3 use Winograd's algorithm (see `winograd`).
    const WINOGRAD: bool;

    /// Words of depth in a segment of `channels` channels.
    fn depth(channels: usize) -> usize {
        channels.min(CHANNELS).div_ceil(<Self::Word as OperandWord>::ELEMENTS)
    }

    /// Converts 32 channels to words.
    fn encode(self, values: &[f32; CHANNELS], words: &mut [Self::Word]);

    /// Loads 32 channels. Their order is the path's own.
    fn decode(self, words: &[Self::Word]) -> KernelLanes<Self>;

    /// Converts lanes in the order of [`ConvKernel::decode`] to words.
    fn encode_lanes(self, lanes: KernelLanes<Self>, words: &mut [Self::Word]);

    /// Converts lanes of two steps of depth, such as two images, in the order of [`ConvKernel::decode`] to words of that
    /// depth: rows of 32 channels, `2 · ROW_WORDS` words in all.
    fn encode_depth_pair(
        self,
        first: KernelLanes<Self>,
        second: KernelLanes<Self>,
        words: &mut [Self::Word],
    );

    /// One number per channel, in the order of [`ConvKernel::decode`].
    fn ordered(self, values: &[f32; CHANNELS]) -> KernelLanes<Self>;

    /// The inverse of [`ConvKernel::ordered`].
    fn channels(self, lanes: KernelLanes<Self>) -> [f32; CHANNELS];

    /// Whether lines of the activations are operands of the weight gradient without packing.
    const LINES_IN_PLACE: bool;
    /// Whether a segment of the weight gradient is a pair of pixels (see [`PixelPairs`]) rather than a run
    /// of pixels.
    ///
    /// [`PixelPairs`]: super::pixel_pairs::PixelPairs
    const PIXEL_PAIRS: bool = false;
    /// The most pixels of a segment of the weight gradient.
    const SEGMENT_PIXELS: usize = usize::MAX;

    /// The row stride and the depth stride of the weight gradient's left operand, a map with `channels` per row.
    fn left_strides(channels: usize) -> (usize, usize) {
        (1, channels)
    }

    /// Rows of the weight gradient that are computed for `channels` channels of a group.
    fn gradient_rows(channels: usize) -> usize {
        channels
    }

    /// Words of a line as a left operand.
    fn left_line(axis: &ConvAxis, channels: usize) -> usize {
        axis.input * Self::IMAGE_WORDS * channels
    }

    /// Words of a line as a right operand.
    fn right_line(axis: &ConvAxis, channels: usize) -> usize {
        axis.output * Self::IMAGE_WORDS * channels
    }

    /// Packs a line as a left operand.
    fn pack_left_line(
        self,
        axis: &ConvAxis,
        channels: usize,
        line: &[Self::Word],
        out: &mut [Self::Word],
    );

    /// Packs a line as a right operand.
    fn pack_right_line(self, channels: usize, line: &[Self::Word], out: &mut [Self::Word]);
}

impl<S: F32MicroKernel, E: F32Encoding> ConvKernel for F32Kernel<S, E> {
    const FOLDS: bool = true;
    const WINOGRAD: bool = true;
    const LINES_IN_PLACE: bool = true;
    // Sums of 256 terms.
    const SEGMENT_PIXELS: usize = 16;

    #[inline(always)]
    fn encode(self, values: &[f32; CHANNELS], words: &mut [f32]) {
        for (word, value) in words[..CHANNELS].iter_mut().zip(values) {
            *word = E::encode(*value);
        }
    }

    #[inline(always)]
    fn decode(self, words: &[f32]) -> KernelLanes<Self> {
        self.simd().lanes(words.first_chunk().expect("a row of words"))
    }

    #[inline(always)]
    fn encode_lanes(self, lanes: KernelLanes<Self>, words: &mut [f32]) {
        self.encode(&lanes.to_array(), words);
    }

    #[inline(always)]
    fn encode_depth_pair(
        self,
        first: KernelLanes<Self>,
        second: KernelLanes<Self>,
        words: &mut [f32],
    ) {
        self.encode_lanes(first, words);
        self.encode_lanes(second, &mut words[CHANNELS..]);
    }

    #[inline(always)]
    fn ordered(self, values: &[f32; CHANNELS]) -> KernelLanes<Self> {
        self.simd().lanes(values)
    }

    #[inline(always)]
    fn channels(self, lanes: KernelLanes<Self>) -> [f32; CHANNELS] {
        lanes.to_array()
    }

    fn pack_left_line(self, _: &ConvAxis, _: usize, line: &[f32], out: &mut [f32]) {
        out.copy_from_slice(line);
    }

    fn pack_right_line(self, _: usize, line: &[f32], out: &mut [f32]) {
        out.copy_from_slice(line);
    }
}

#[cfg(target_arch = "x86_64")]
mod pairs {
    use std::arch::x86_64::*;

    use super::*;
    use crate::amx::Amx;
    use crate::avx512::{Avx512Lanes, transposed};
    use crate::avx512_bf16::{Avx512Bf16, interleaved};
    use crate::conv::layout::FOLDED;
    use crate::conv::pixel_pairs::{PAIR_WORDS, PixelPairs};
    use crate::kernel::Bf16Pair;

    /// Words of 32 channels.
    const ROW_WORDS: usize = CHANNELS / 2;
    /// Words of one pixel: 16 images of 32 channels.
    const PIXEL_WORDS: usize = IMAGES * ROW_WORDS;

    /// The lanes of even channels come before those of odd ones: in a pair of bf16 values they are the
    /// lower and the upper half.
    impl ConvKernel for Avx512Bf16 {
        const FOLDS: bool = true;
        const WINOGRAD: bool = true;
        const LINES_IN_PLACE: bool = false;

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
        fn decode(self, words: &[Bf16Pair]) -> Avx512Lanes {
            let words = &words[..ROW_WORDS];
            // SAFETY: the CPU supports the instructions, and there are 16 words.
            unsafe {
                let pairs = _mm512_loadu_si512(words.as_ptr().cast());
                let upper = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32 as i32));
                let lower = _mm512_slli_epi32::<16>(pairs);
                Avx512Lanes([_mm512_castsi512_ps(lower), _mm512_castsi512_ps(upper)])
            }
        }

        #[inline(always)]
        fn encode_lanes(self, Avx512Lanes([even, odd]): Avx512Lanes, words: &mut [Bf16Pair]) {
            const ORDER: [u16; 32] = interleaved(0, 16);
            let words = &mut words[..ROW_WORDS];
            // SAFETY: the CPU supports the instructions; an order fills a register, and there are 16 words.
            unsafe {
                let halves: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(odd, even));
                let order = _mm512_loadu_si512(ORDER.as_ptr().cast());
                let pairs = _mm512_permutexvar_epi16(order, halves);
                _mm512_storeu_si512(words.as_mut_ptr().cast(), pairs);
            }
        }

        #[inline(always)]
        fn encode_depth_pair(
            self,
            Avx512Lanes([first_even, first_odd]): Avx512Lanes,
            Avx512Lanes([second_even, second_odd]): Avx512Lanes,
            words: &mut [Bf16Pair],
        ) {
            const LOW: [u16; 32] = image_pairs(0);
            const HIGH: [u16; 32] = image_pairs(8);
            let words = &mut words[..2 * ROW_WORDS];
            // SAFETY: the CPU supports the instructions; an order fills a register, and there are 32 words.
            unsafe {
                let even = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(
                    second_even,
                    first_even,
                ));
                let odd = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(
                    second_odd, first_odd,
                ));
                let low = _mm512_loadu_si512(LOW.as_ptr().cast());
                let high = _mm512_loadu_si512(HIGH.as_ptr().cast());
                let low = _mm512_permutex2var_epi16(even, low, odd);
                let high = _mm512_permutex2var_epi16(even, high, odd);
                _mm512_storeu_si512(words.as_mut_ptr().cast(), low);
                _mm512_storeu_si512(words.as_mut_ptr().add(ROW_WORDS).cast(), high);
            }
        }

        #[inline(always)]
        fn ordered(self, values: &[f32; CHANNELS]) -> Avx512Lanes {
            // SAFETY: the CPU supports the instructions, and there are 32 values.
            unsafe {
                let low = _mm512_loadu_ps(values.as_ptr());
                let high = _mm512_loadu_ps(values.as_ptr().add(ROW_WORDS));
                let even =
                    _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
                let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
                Avx512Lanes([
                    _mm512_permutex2var_ps(low, even, high),
                    _mm512_permutex2var_ps(low, odd, high),
                ])
            }
        }

        #[inline(always)]
        fn channels(self, lanes: Avx512Lanes) -> [f32; CHANNELS] {
            let (ordered, mut values) = (lanes.to_array(), [0.0; CHANNELS]);
            for (i, two) in values.as_chunks_mut().0.iter_mut().enumerate() {
                *two = [ordered[i], ordered[ROW_WORDS + i]];
            }
            values
        }

        fn pack_left_line(
            self,
            _: &ConvAxis,
            channels: usize,
            line: &[Bf16Pair],
            out: &mut [Bf16Pair],
        ) {
            self.pack_right_line(channels, line, out);
        }

        fn pack_right_line(self, channels: usize, line: &[Bf16Pair], out: &mut [Bf16Pair]) {
            match channels {
                // SAFETY: `self` exists only where the CPU supports AVX-512.
                FOLDED => unsafe { pair_folded_images(line, out) },
                // SAFETY: as above.
                _ => unsafe { pair_images(line, out) },
            }
        }
    }

    impl ConvKernel for Amx {
        // A tile has sixteen words of depth, which are 32 channels.
        const FOLDS: bool = false;
        // AMX multiplies so fast that the transforms would take longer than they save, by estimate.
        const WINOGRAD: bool = false;
        const LINES_IN_PLACE: bool = false;
        const PIXEL_PAIRS: bool = true;

        fn left_strides(_: usize) -> (usize, usize) {
            (ROW_WORDS, 1)
        }

        // A tile has whole rows, so a segment is the whole channel group, padded with zeros.
        fn depth(_: usize) -> usize {
            ROW_WORDS
        }

        fn gradient_rows(_: usize) -> usize {
            CHANNELS
        }

        #[inline(always)]
        fn encode(self, values: &[f32; CHANNELS], words: &mut [Bf16Pair]) {
            self.simd().encode(values, words);
        }

        #[inline(always)]
        fn decode(self, words: &[Bf16Pair]) -> Avx512Lanes {
            self.simd().decode(words)
        }

        #[inline(always)]
        fn encode_lanes(self, lanes: Avx512Lanes, words: &mut [Bf16Pair]) {
            self.simd().encode_lanes(lanes, words);
        }

        #[inline(always)]
        fn encode_depth_pair(
            self,
            first: Avx512Lanes,
            second: Avx512Lanes,
            words: &mut [Bf16Pair],
        ) {
            self.simd().encode_depth_pair(first, second, words);
        }

        #[inline(always)]
        fn ordered(self, values: &[f32; CHANNELS]) -> Avx512Lanes {
            self.simd().ordered(values)
        }

        #[inline(always)]
        fn channels(self, lanes: Avx512Lanes) -> [f32; CHANNELS] {
            self.simd().channels(lanes)
        }

        fn left_line(axis: &ConvAxis, _: usize) -> usize {
            PixelPairs::new(axis).blocks() * PAIR_WORDS
        }

        fn right_line(axis: &ConvAxis, _: usize) -> usize {
            axis.output.next_multiple_of(2) * PIXEL_WORDS
        }

        fn pack_left_line(
            self,
            axis: &ConvAxis,
            _: usize,
            line: &[Bf16Pair],
            out: &mut [Bf16Pair],
        ) {
            let pairs = PixelPairs::new(axis);
            let pixel = |index: Option<usize>| line.as_chunks().0.get(index?);
            for (block, [first, second]) in pairs.needed() {
                let out = out[block * PAIR_WORDS..].first_chunk_mut().expect("a block");
                // SAFETY: `self` exists only where the CPU supports AVX-512.
                unsafe { transpose_images(pixel(first), pixel(second), out) };
            }
        }

        fn pack_right_line(self, channels: usize, line: &[Bf16Pair], out: &mut [Bf16Pair]) {
            let (out, padding) = out.split_at_mut(line.len());
            self.simd().pack_right_line(channels, line, out);
            padding.fill(Bf16Pair::default());
        }
    }

    /// The order that pairs the images of 16 channels, given their even channels from `start` on, first image first, and
    /// then their odd ones.
    const fn image_pairs(start: u16) -> [u16; 32] {
        let mut order = [0; 32];
        let mut channel = 0;
        while channel < 16 {
            let element = start + channel as u16 / 2 + 32 * (channel as u16 % 2);
            order[2 * channel] = element;
            order[2 * channel + 1] = element + 16;
            channel += 1;
        }
        order
    }

    /// Pairs adjacent images at each pixel, channel by channel: rows of 32 words.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn pair_images(pixels: &[Bf16Pair], out: &mut [Bf16Pair]) {
        assert_eq!(pixels.len(), out.len());
        let rows = pixels.as_chunks().0.iter().zip(out.as_chunks_mut::<{ 2 * ROW_WORDS }>().0);
        for (two, out) in rows {
            let [low, high] = paired(two);
            // SAFETY: the row holds two registers of words.
            unsafe {
                _mm512_storeu_si512(out.as_mut_ptr().cast(), low);
                _mm512_storeu_si512(out.as_mut_ptr().add(ROW_WORDS).cast(), high);
            }
        }
    }

    /// Pairs the two images of each row of a folded map, channel by channel: rows of 16 words.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn pair_folded_images(pixels: &[Bf16Pair], out: &mut [Bf16Pair]) {
        const ORDER: [u16; 32] = interleaved(0, 16);
        assert_eq!(pixels.len(), out.len());
        // SAFETY: an order is a register.
        let order = unsafe { _mm512_loadu_si512(ORDER.as_ptr().cast()) };
        let rows = pixels.as_chunks::<ROW_WORDS>().0.iter();
        for (row, out) in rows.zip(out.as_chunks_mut::<ROW_WORDS>().0) {
            // SAFETY: a row is a register.
            unsafe {
                let images = _mm512_loadu_si512(row.as_ptr().cast());
                let pairs = _mm512_permutexvar_epi16(order, images);
                _mm512_storeu_si512(out.as_mut_ptr().cast(), pairs);
            }
        }
    }

    /// Pairs two adjacent images: words of 16 channels, and of the other 16.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn paired(images: &[Bf16Pair; 2 * ROW_WORDS]) -> [__m512i; 2] {
        const LOW: [u16; 32] = interleaved(0, 32);
        const HIGH: [u16; 32] = interleaved(16, 48);
        // SAFETY: the images are two registers, and an order is one.
        unsafe {
            let first = _mm512_loadu_si512(images.as_ptr().cast());
            let second = _mm512_loadu_si512(images.as_ptr().add(ROW_WORDS).cast());
            let low = _mm512_loadu_si512(LOW.as_ptr().cast());
            let high = _mm512_loadu_si512(HIGH.as_ptr().cast());
            [
                _mm512_permutex2var_epi16(first, low, second),
                _mm512_permutex2var_epi16(first, high, second),
            ]
        }
    }

    /// Writes a pair of pixels as one row per channel: the image pairs of the first pixel, then those of the
    /// second. A missing pixel is zero.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn transpose_images(
        first: Option<&[Bf16Pair; PIXEL_WORDS]>,
        second: Option<&[Bf16Pair; PIXEL_WORDS]>,
        out: &mut [Bf16Pair; PAIR_WORDS],
    ) {
        let mut halves = [[_mm512_setzero_si512(); ROW_WORDS]; 2];
        for (start, pixel) in [(0, first), (ROW_WORDS / 2, second)] {
            for (row, two) in pixel.iter().flat_map(|pixel| pixel.as_chunks().0).enumerate() {
                [halves[0][start + row], halves[1][start + row]] = paired(two);
            }
        }
        for (half, out) in halves.into_iter().zip(out.as_chunks_mut::<{ PAIR_WORDS / 2 }>().0) {
            for (row, out) in transposed(half).into_iter().zip(out.as_chunks_mut::<ROW_WORDS>().0) {
                // SAFETY: a row fills a register.
                unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), row) };
            }
        }
    }
}
