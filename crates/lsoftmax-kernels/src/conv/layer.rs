//! A unit's convolution, ready to run: its feature maps, strips and packed weights.

use super::conv_kernel::ConvKernel;
use super::geometry::{ConvAxes, ConvAxis, Direction, Strips, Waves};
use super::layout::{FeatureMap, InputTransform};
use super::stack::{Parameters, Stack};
use super::unit::Pool;
use super::weights::{WeightShape, pack_weights};
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
        Self { transform, input, output, pooled, axes, weight }
    }

    /// See [`Waves`]. `pool` says whether pooling follows the convolution; no block has more than `live` images.
    pub fn waves<K: ConvKernel>(&self, pool: bool, live: usize) -> Waves {
        Waves::new::<K>(&self.axes, [self.input, self.output], pool, live)
    }
}

/// A convolution, or its gradient with respect to the input, with packed weights.
pub(super) struct PackedConv {
    pub strips: Strips,
    pub right: Buffer,
}

impl PackedConv {
    pub fn new<K: ConvKernel>(
        kernel: K,
        layer: &ConvLayer,
        direction: Direction,
        parameters: &Parameters<'_>,
    ) -> Self {
        let (from, to) = match direction {
            Direction::Forward => (layer.input, layer.output),
            Direction::Backward => (layer.output, layer.input),
        };
        let strips = Strips::new::<K>(&layer.axes, direction, from, to);
        let right = pack_weights(kernel, &strips, direction, layer.weight, parameters.weight);
        Self { strips, right }
    }
}
