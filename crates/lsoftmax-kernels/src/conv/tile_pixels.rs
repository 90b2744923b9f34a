//! The pixels of tiles as Winograd's algorithm reads them from a block of images, and the layout of what it multiplies.

use super::conv_kernel::{ConvKernel, KernelLanes};
use super::layout::{CHANNELS, FeatureMap, IMAGES};
use crate::kernel::OperandWord;

/// Some rows of a block's feature map: all, or a ring in which row `y` is at `y % slots`.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a, W> {
    pub words: &'a [W],
    pub map: FeatureMap,
    pub slots: usize,
}

impl<'a, W: OperandWord> Lines<'a, W> {
    /// All rows of a map.
    pub fn whole(map: FeatureMap, words: &'a [W]) -> Self {
        Self { words, map, slots: map.height }
    }

    /// The words of a pixel of one channel group.
    #[inline(always)]
    fn pixel<K: ConvKernel<Word = W>>(&self, group: usize, [y, x]: [usize; 2]) -> &'a [W] {
        let words = self.map.pixel_words::<K>();
        let row = group * self.slots + y % self.slots;
        &self.words[(row * self.map.width + x) * words..][..words]
    }

    /// The words of some pixels of one channel group, and `zeros` where there is none.
    #[inline(always)]
    pub fn pixels<K: ConvKernel<Word = W>, const N: usize>(
        &self,
        group: usize,
        pixels: &[[Option<[usize; 2]>; N]; N],
        zeros: &'a [W],
    ) -> [[&'a [W]; N]; N] {
        let mut words = [[zeros; N]; N];
        for (words, pixels) in words.iter_mut().zip(pixels) {
            for (words, pixel) in words.iter_mut().zip(pixels) {
                if let Some(pixel) = pixel {
                    *words = self.pixel::<K>(group, *pixel);
                }
            }
        }
        words
    }
}

/// Decodes one image of some pixels.
#[inline(always)]
pub(super) fn decode<K: ConvKernel, const N: usize>(
    kernel: K,
    pixels: &[[&[K::Word]; N]; N],
    image: usize,
) -> [[KernelLanes<K>; N]; N] {
    let first = kernel.decode(&pixels[0][0][image * K::ROW_WORDS..]);
    let mut lanes = [[first; N]; N];
    for row in 0..N {
        for column in 0..N {
            lanes[row][column] = kernel.decode(&pixels[row][column][image * K::ROW_WORDS..]);
        }
    }
    lanes
}

/// Zeros in place of the pixels that a map does not have.
pub(super) fn zero_pixel<K: ConvKernel>() -> [K::Word; IMAGES * CHANNELS] {
    [K::Word::default(); IMAGES * CHANNELS]
}

/// Words of a cache line.
pub(super) const LINE: usize = 16;

/// Words of one point's operand, which has one row per tile and image: `[channel group][row][32 channels]`. It is a cache line
/// longer, because at a distance of a power of two all points of a tile would share a few lines of the L1 cache.
pub(super) fn point_words<K: ConvKernel>(map: FeatureMap, rows: usize) -> usize {
    map.groups() * rows * K::ROW_WORDS + LINE
}
