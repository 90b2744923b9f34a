//! A unit's convolution, ready to run: its feature maps, strips and packed weights.

use std::ops::Range;

use super::conv_kernel::ConvKernel;
use super::geometry::{ConvAxes, ConvAxis, Direction, Strips, Waves};
use super::layout::{FeatureMap, InputTransform};
use super::product::correlate;
use super::stack::{Parameters, Stack};
use super::unit::Pool;
use super::weights::{WeightShape, pack_weights};
use super::winograd::{SIDE, Tiles};
use super::winograd_conv::{WinogradConv, WinogradScratch};
use crate::buffer::Buffer;

/// Images with fewer channels are transformed by im2col.
const IM2COL_CHANNELS: usize = 16;

/// A unit's convolution as it is computed: after im2col, a 1x1 convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConvLayer {
    /// For the first unit, how it reads the images.
    pub transform: Option<InputTransform>,
    /// What the convolution reads.
    pub input: FeatureMap,
    /// What it writes.
    pub output: FeatureMap,
    /// The unit's output, before an average of all its pixels.
    pub pooled: FeatureMap,
    pub axes: ConvAxes,
    pub weight: WeightShape,
    /// The tiles of Winograd's algorithm, if it is used.
    pub tiles: Option<Tiles>,
}

impl ConvLayer {
    pub fn new<K: ConvKernel>(stack: &Stack, index: usize) -> Self {
        let unit = stack.units()[index];
        let shape = stack.unit_input(index);
        let output = FeatureMap::of::<K>(stack.convolved(index));
        let pooled = match unit.pool {
            Pool::Max => FeatureMap::of::<K>(stack.unit_output(index)),
            Pool::None | Pool::Average => output,
        };
        let [high, wide] = unit.kernel;
        let im2col = index == 0 && shape[0] < IM2COL_CHANNELS && high * wide > 1;
        let (transform, input, [high, wide], padding, stride) = if im2col {
            let transform = InputTransform::Im2col {
                kernel: unit.kernel,
                padding: unit.padding,
                stride: unit.stride,
            };
            let channels = shape[0] * high * wide;
            let input = FeatureMap::new([channels, output.height, output.width]);
            (Some(transform), input, [1, 1], 0, 1)
        } else {
            let (transform, input) = match index {
                0 => (Some(InputTransform::Identity), FeatureMap::new(shape)),
                _ => (None, FeatureMap::of::<K>(shape)),
            };
            (transform, input, unit.kernel, unit.padding, unit.stride)
        };
        let axis = |input, output, kernel| ConvAxis { input, output, kernel, padding, stride };
        let axes = ConvAxes {
            vertical: axis(input.height, output.height, high),
            horizontal: axis(input.width, output.width, wide),
        };
        let taps = high * wide;
        let weight = WeightShape { filters: unit.filters, channels: input.channels, taps };
        let tiles = match K::WINOGRAD {
            true => Tiles::new([high, wide], (padding, stride), input, output),
            false => None,
        };
        Self { transform, input, output, pooled, axes, weight, tiles }
    }

    /// Rows of the output, and of the gradient of the input, are computed in multiples of this many, except for the last.
    pub fn row_granularity(&self) -> usize {
        self.tiles.map_or(1, |_| SIDE)
    }

    /// The number of first rows of the input's gradient that can be computed once those of the output are known up to
    /// `end`.
    pub fn complete(&self, end: usize) -> usize {
        match self.axes.vertical.complete(end) {
            rows if rows < self.input.height => rows - rows % self.row_granularity(),
            rows => rows,
        }
    }

    /// See [`Waves`]. `pool` says whether pooling follows the convolution; no block has more than `live` images.
    pub fn waves<K: ConvKernel>(&self, pool: bool, live: usize) -> Waves {
        match self.tiles {
            Some(_) => Waves::of_tiles(&self.axes),
            None => Waves::new::<K>(&self.axes, [self.input, self.output], pool, live),
        }
    }
}

/// A convolution, or its gradient with respect to the input, with packed weights.
pub(super) enum PackedConv {
    Direct { strips: Strips, right: Buffer },
    Winograd(WinogradConv),
}

impl PackedConv {
    pub fn new<K: ConvKernel>(
        kernel: K,
        layer: &ConvLayer,
        direction: Direction,
        parameters: &Parameters<'_>,
    ) -> Self {
        if let Some(tiles) = layer.tiles {
            let tiles = match direction {
                Direction::Forward => tiles,
                Direction::Backward => tiles.backward(),
            };
            let weight = parameters.weight;
            return Self::Winograd(WinogradConv::new(kernel, tiles, direction, weight));
        }
        let (from, to) = match direction {
            Direction::Forward => (layer.input, layer.output),
            Direction::Backward => (layer.output, layer.input),
        };
        let strips = Strips::new::<K>(&layer.axes, direction, from, to);
        let right = pack_weights(kernel, &strips, direction, layer.weight, parameters.weight);
        Self::Direct { strips, right }
    }

    /// Computes some rows: of the convolution's output, or of its gradient with respect to the input. They start at a
    /// multiple of [`ConvLayer::row_granularity`].
    ///
    /// Calls `store(group, pixel, sums)` with the sums of a few pixels, rows of 32 numbers as in the map: all rows of
    /// the first pixel with live images, then of the next.
    pub fn correlate<K: ConvKernel>(
        &self,
        kernel: K,
        rows: &Range<usize>,
        from: &[K::Word],
        live: usize,
        scratch: &mut WinogradScratch,
        store: impl FnMut(usize, usize, &mut [f32]),
    ) {
        match self {
            Self::Direct { strips, right } => {
                correlate(kernel, strips, rows, from, right.words(), live, store);
            }
            Self::Winograd(conv) => conv.correlate(kernel, rows, from, live, scratch, store),
        }
    }
}
