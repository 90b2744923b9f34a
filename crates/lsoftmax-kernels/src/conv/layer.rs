//! One unit of a stack made ready: its maps, its strips and its packed weights.

use super::geometry::{Direction, Meeting, Side, Strips, Window, meetings};
use super::layout::{Entry, IMAGES, Map};
use super::stack::{Parameters, Stack};
use super::weights::{WeightShape, pack};
use super::words::Activations;
use crate::buffer::Buffer;

/// Channels below which images enter as patches.
const FEW_CHANNELS: usize = 16;

/// A unit's convolution as it is computed: for patches, one of 1x1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer {
    pub entry: Option<Entry>,
    /// What the convolution reads.
    pub input: Map,
    /// What it writes.
    pub output: Map,
    pub pooled: Map,
    pub window: Window,
    pub weight: WeightShape,
}

impl Layer {
    pub fn new(stack: &Stack, index: usize) -> Self {
        let unit = stack.units()[index];
        let shape = stack.unit_input(index);
        let output = Map::new(stack.convolved(index));
        let pooled = Map::new(stack.unit_output(index));
        let [high, wide] = unit.kernel;
        let few = index == 0 && shape[0] < FEW_CHANNELS && high * wide > 1;
        let (entry, input, [high, wide], padding, stride) = if few {
            let entry =
                Entry::Patches { kernel: unit.kernel, padding: unit.padding, stride: unit.stride };
            let input = Map { channels: shape[0] * high * wide, ..output };
            (Some(entry), input, [1, 1], 0, 1)
        } else {
            let entry = (index == 0).then_some(Entry::Plain);
            (entry, Map::new(shape), unit.kernel, unit.padding, unit.stride)
        };
        let side = |input, output, kernel| Side { input, output, kernel, padding, stride };
        let window = Window {
            vertical: side(input.height, output.height, high),
            horizontal: side(input.width, output.width, wide),
        };
        let taps = high * wide;
        let weight = WeightShape { filters: unit.filters, channels: input.channels, taps };
        Self { entry, input, output, pooled, window, weight }
    }

    /// Strips are longer where all sixteen images are there.
    fn strips<K: Activations>(&self, direction: Direction, images: usize) -> [Strips; 2] {
        let (from, to) = match direction {
            Direction::Forward => (self.input, self.output),
            Direction::Backward => (self.output, self.input),
        };
        let whole = Strips::new::<K>(&self.window, direction, from, to, true);
        let single = if images.is_multiple_of(IMAGES) {
            whole.clone()
        } else {
            Strips::new::<K>(&self.window, direction, from, to, false)
        };
        [whole, single]
    }
}

/// The convolution, or its gradient to the input, with packed weights.
pub(super) struct Packed {
    strips: [Strips; 2],
    pub right: Buffer,
}

impl Packed {
    pub fn new<K: Activations>(
        kernel: K,
        layer: &Layer,
        direction: Direction,
        images: usize,
        parameters: &Parameters<'_>,
    ) -> Self {
        let strips = layer.strips::<K>(direction, images);
        let right = pack(kernel, &strips[0], direction, layer.weight, parameters.weight);
        Self { strips, right }
    }

    /// The strips of a block with so many images.
    pub fn strips(&self, live: usize) -> &Strips {
        &self.strips[usize::from(live < IMAGES)]
    }
}

impl Layer {
    pub fn meetings<K: Activations>(&self) -> Vec<Vec<Meeting>> {
        meetings::<K>(&self.window, self.input, self.output)
    }
}
