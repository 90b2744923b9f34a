//! The backward pass of one unit.
//!
//! A task processes some blocks of images, or some rows of one block. It goes through the rows in waves: it
//! computes dz from z and the gradient dy of the unit's output, recomputes the unit's input from the previous
//! unit's z, and from the two computes the gradients of weights and input. While the input's gradient and the
//! previous unit's z are in cache, it also computes the sums that the previous unit's batch norm needs. So
//! each stored convolution is read twice, and each gradient between two units is written once and read once.

use std::ops::Range;

use rayon::prelude::*;

use super::conv_kernel::ConvKernel;
use super::epilogue::{GradientSums, NormBackward};
use super::forward::{InputSource, write_rows};
use super::geometry::{Direction, Waves};
use super::layer::{ConvLayer, PackedConv};
use super::layout::{
    CHANNELS, FeatureMap, IMAGES, Im2col, InputTransform, MapRows, add_to_image, live_images,
};
use super::ready_stack::{BackwardInputs, ReadyStack, total};
use super::shortcut::{StoredOutput, Upstream};
use super::stack::Uses;
use super::unit::Pool;
use super::weight_gradient::{WeightGradient, WeightGradientScratch};
use super::weights::{add_siblings, packed_gradient_len, unpack_weight_gradient};
use super::winograd_conv::WinogradScratch;
use crate::buffer::Buffer;
use crate::lanes::Lanes;

/// The gradients of a unit's parameters; empty for those that it does not have.
#[derive(Debug, Default)]
pub struct UnitGradients {
    /// Filters x channels x height x width.
    pub weight: Buffer,
    /// One per filter. Zero with batch norm by the statistics of the batch, which cancels any bias.
    pub bias: Vec<f32>,
    /// One per filter.
    pub gamma: Vec<f32>,
    /// One per filter.
    pub beta: Vec<f32>,
    /// One per filter.
    pub slope: Vec<f32>,
}

/// The most partial sums of a weight gradient of `len` floats in all ranks, each by one task: a power of two, from
/// 4 to 32.
fn most_parts(len: usize) -> usize {
    let parts_of = |bytes: usize| bytes / (4 * len);
    1 << parts_of(64 << 20).clamp(4, 8).max(parts_of(16 << 20).min(32)).ilog2()
}

/// Which gradient of its input a unit computes.
#[derive(Clone, Copy)]
pub(super) enum WantedInput {
    Output(OutputTerms),
    Images,
    None,
}

/// The terms of the gradient of an output that one unit adds.
#[derive(Clone, Copy)]
pub(super) struct OutputTerms {
    /// The unit whose output it is.
    pub unit: usize,
    /// Whether this completes the gradient.
    pub completes: bool,
    /// The residual unit that adds the output, if its term is added now.
    pub adder: Option<usize>,
}

impl OutputTerms {
    /// Those that unit `reader` adds.
    pub fn new(ready: &ReadyStack<'_>, reader: usize, unit: usize) -> Self {
        let Uses { readers, adder } = ready.inputs.stack.uses(unit);
        let completes = readers.first() == Some(&reader);
        Self { unit, completes, adder: adder.filter(|_| completes) }
    }
}

/// The backward pass of one unit.
pub(super) struct UnitBackwardPass<'a> {
    pub ready: &'a ReadyStack<'a>,
    pub index: usize,
    pub layer: &'a ConvLayer,
    pub norm: &'a [NormBackward],
    /// The unit whose gradient is that of this unit's output: itself, or the one that adds it.
    pub upstream: usize,
    /// Gradients of all outputs.
    pub dy: &'a [Option<Buffer>],
    pub wanted: WantedInput,
    /// Whether other terms of the input's gradient have been written.
    pub adds: bool,
}

/// Working memory of a thread.
#[derive(Default)]
struct StackBackwardScratch {
    dz: Buffer,
    weight: WeightGradientScratch,
    winograd: WinogradScratch,
}

/// Some waves of a block, and where its results go.
struct SectionTask<'a, K: ConvKernel> {
    block: usize,
    live: usize,
    /// The waves, by index.
    waves: Range<usize>,
    /// The rows of the input's gradient that these waves complete, if it is wanted.
    dx: Option<MapRows<'a, K>>,
    /// The gradient of the block's images, if it is wanted.
    images: &'a mut [f32],
}

impl UnitBackwardPass<'_> {
    /// Computes the gradient of the weights and, if it is wanted, that of the input; the sums of the unit that
    /// it reads, if this completes the gradient of its output.
    pub fn run<K: ConvKernel>(
        &self,
        kernel: K,
        input_gradient: &mut Option<Buffer>,
    ) -> (Buffer, Vec<GradientSums>) {
        let BackwardInputs { stack, count, parameters, forward, .. } = *self.ready.inputs;
        let (layer, share) = (self.layer, &forward.share);
        let blocks = count.div_ceil(IMAGES);
        let pool = stack.units()[self.index].pool == Pool::Max;
        let waves = layer.waves::<K>(pool, live_images(0, share.total()));
        // Pixels of the images get gradients from several rows, so a block of them is one task.
        let sections = match self.wanted {
            WantedInput::Images => std::iter::once(0..waves.waves.len()).collect(),
            _ => share.sections(waves.waves.len(), waves.rows),
        };
        let packed = (!matches!(self.wanted, WantedInput::None))
            .then(|| PackedConv::new(kernel, layer, Direction::Backward, &parameters[self.index]));
        let words = match self.wanted {
            WantedInput::Output(_) => layer.input.words::<K>(),
            _ => 0,
        };
        let mut dx = input_gradient.take().unwrap_or_else(|| Buffer::new(blocks * words));
        let size: usize = match self.wanted {
            WantedInput::Images => stack.input().iter().product(),
            _ => 0,
        };
        let mut images = Buffer::new(count * size);
        images.fill(0.0);
        let tasks = {
            let rows: Vec<_> =
                sections.iter().map(|waves_of| self.input_rows(&waves, waves_of)).collect();
            let mut dx = MapRows::<K>::divided(layer.input, dx.words_mut(), &rows).into_iter();
            let mut images = &mut images[..];
            let tasks = (0..blocks * sections.len()).map(|task| {
                let block = task / sections.len();
                let live = live_images(block, count);
                let images = images.split_off_mut(..live * size).unwrap_or_default();
                let waves = sections[task % sections.len()].clone();
                SectionTask { block, live, waves, dx: dx.next(), images }
            });
            tasks.collect::<Vec<_>>()
        };

        let len = packed_gradient_len(layer.input, layer.output, layer.weight.taps);
        let nodes = share.parts(sections.len(), most_parts(len));
        let mut weight = Buffer::new(nodes.len() * len);
        let mut tasks = tasks.into_iter();
        let parts: Vec<(&mut [f32], Vec<SectionTask<'_, K>>)> = weight
            .chunks_exact_mut(len)
            .zip(&nodes)
            .map(|(weight, node)| (weight, tasks.by_ref().take(node.leaves.len()).collect()))
            .collect();
        let sums: Vec<Vec<Vec<GradientSums>>> = parts
            .into_par_iter()
            .map_init(StackBackwardScratch::default, |scratch, (weight, tasks)| {
                let StackBackwardScratch { dz, weight: gradient, winograd } = scratch;
                let mut gradient = WeightGradient::new::<K>(layer, &waves, gradient, weight);
                let sums = tasks.into_iter().map(|task| {
                    let scratch = (&mut *dz, &mut *winograd);
                    self.section(kernel, &waves, packed.as_ref(), task, scratch, &mut gradient)
                });
                let sums = sums.collect();
                gradient.finish(kernel);
                sums
            })
            .collect();

        let ids: Vec<u64> = nodes.iter().map(|node| node.id).collect();
        let weight = self.sum_weight(&weight, len, &ids, sections.len());
        *input_gradient = match self.wanted {
            WantedInput::Output(_) => Some(dx),
            WantedInput::Images => Some(images),
            WantedInput::None => None,
        };
        let sums = match self.wanted {
            WantedInput::Output(OutputTerms { completes: true, .. }) => {
                total(sums.concat(), layer.input, share)
            }
            _ => Vec::new(),
        };
        (weight, sums)
    }

    /// The weight gradient: the sum of the parts of all ranks, of which this one has the nodes `ids`.
    fn sum_weight(&self, parts: &[f32], len: usize, ids: &[u64], sections: usize) -> Buffer {
        let ConvLayer { input, output, weight, .. } = *self.layer;
        let share = &self.ready.inputs.forward.share;
        if !share.is_divided() {
            return unpack_weight_gradient(parts, len, ids, input, output, weight);
        }
        let nodes = add_siblings(parts, len, ids, share.nodes(sections));
        let sum = share.sum(sections, &nodes, len);
        unpack_weight_gradient(&sum, len, &[1], input, output, weight)
    }

    /// The rows of the input's gradient that some waves complete.
    fn input_rows(&self, waves: &Waves, range: &Range<usize>) -> Range<usize> {
        let [first, last] = [range.start, range.end - 1].map(|wave| &waves.waves[wave].outputs);
        self.layer.complete(first.start)..self.layer.complete(last.end)
    }

    /// Computes a task: adds to the weight gradient, writes the input's gradient, and returns the sums of the unit that it
    /// reads.
    fn section<K: ConvKernel>(
        &self,
        kernel: K,
        waves: &Waves,
        packed: Option<&PackedConv>,
        mut task: SectionTask<'_, K>,
        (dz, winograd): (&mut Buffer, &mut WinogradScratch),
        gradient: &mut WeightGradient<'_>,
    ) -> Vec<GradientSums> {
        let Self { ready, layer, index, .. } = *self;
        let BackwardInputs { stack, images, .. } = *ready.inputs;
        let SectionTask { block, live, .. } = task;
        let ConvLayer { axes, input, output, .. } = layer;
        dz.resize(output.words::<K>());
        let StoredOutput { epilogue, words: z } = ready.convolved::<K>(index, block);
        let upstream = ready.upstream::<K>(self.upstream, self.gradient_of(self.upstream), block);
        let source = InputSource { stack, images, units: &ready.units, index };
        let read = source.stored_output(|saved| ready.block::<K>(block, saved));

        let mut sums = Vec::new();
        let dx_rows = self.input_rows(waves, &task.waves);
        let mut dx_start = dx_rows.start;
        // The first rows of the input's gradient also read rows of dz before the first wave.
        let first = &waves.waves[task.waves.start].outputs;
        let mut dz_start = match &task.dx {
            Some(_) => first.start.min(axes.vertical.outputs(&dx_rows).start),
            None => first.start,
        };
        let mut lines_read = 0;
        for wave in &waves.waves[task.waves.clone()] {
            let pooled = match epilogue.pool {
                true => dz_start / 2..wave.outputs.end.div_ceil(2),
                false => dz_start..wave.outputs.end,
            };
            let mut map = MapRows::whole(*output, dz.words_mut());
            epilogue.gradient(kernel, (z, upstream), self.norm, pooled, live, &mut map);
            dz_start = wave.outputs.end;

            let lines = axes.vertical.inputs(&wave.outputs);
            for y in lines.start.max(lines_read)..lines.end {
                gradient.take_row(kernel, y, |out| match &read {
                    Some(read) => read.write(kernel, y..y + 1, live, None, out),
                    None => source.read_images(kernel, layer, (block, live), y..y + 1, out),
                });
            }
            lines_read = lines.end;
            gradient.add(kernel, wave, dz.words(), live);

            if let (Some(dx), Some(packed)) = (&mut task.dx, packed) {
                let rows = dx_start..layer.complete(wave.outputs.end).max(dx_start);
                dx_start = rows.end;
                let (terms, pixel_rows) = (self.other_terms::<K>(block), input.rows(live));
                let store = |group: usize, pixel: usize, rows: &mut [f32]| {
                    kernel.vectorize(
                        #[inline(always)]
                        || terms.write_rows(kernel, pixel_rows, group, pixel, rows, dx),
                    );
                };
                packed.correlate(kernel, &rows, dz.words(), live, winograd, store);
                self.add_input_sums(kernel, (block, live), rows, dx, &mut sums);
            }
        }
        if let (None, Some(packed)) = (&task.dx, packed) {
            self.image_gradient(kernel, packed, live, dz.words(), winograd, task.images);
        }
        sums
    }

    /// The gradient of a unit's output.
    fn gradient_of(&self, unit: usize) -> &Buffer {
        self.dy[unit].as_ref().expect("the gradient is complete and was not dropped")
    }

    /// The terms of the input's gradient other than this unit's own.
    fn other_terms<K: ConvKernel>(&self, block: usize) -> OtherTerms<'_, K> {
        let adder = match self.wanted {
            WantedInput::Output(terms) => terms.adder,
            _ => None,
        };
        let sum = |unit| self.ready.upstream::<K>(unit, self.gradient_of(unit), block);
        OtherTerms { written: self.adds, sum: adder.map(sum) }
    }

    /// Adds the sums of the unit that this one reads, over some rows of the gradient of its output.
    fn add_input_sums<K: ConvKernel>(
        &self,
        kernel: K,
        (block, live): (usize, usize),
        rows: Range<usize>,
        dx: &MapRows<'_, K>,
        sums: &mut Vec<GradientSums>,
    ) {
        let WantedInput::Output(OutputTerms { unit, completes: true, .. }) = self.wanted else {
            return;
        };
        let words = self.ready.words::<K>(unit, block);
        sums.resize(words.sums(), GradientSums::default());
        words.add_sums(kernel, |group, pixel| dx.pixel(group, pixel), rows, live, sums);
    }

    pub fn parameter_gradients(&self, weight: Buffer, sums: &[GradientSums]) -> UnitGradients {
        let BackwardInputs { forward, stack, .. } = *self.ready.inputs;
        let unit = stack.units()[self.index];
        let affine = &self.ready.units[self.index].affine;
        let per_filter = |wanted: bool, value: &dyn Fn(usize, usize) -> f64| -> Vec<f32> {
            let filters = if wanted { unit.filters } else { 0 };
            (0..filters).map(|f| value(f / CHANNELS, f % CHANNELS) as f32).collect()
        };
        // The statistics of the batch cancel any bias.
        let cancelled = unit.norm && !forward.fixed[self.index];
        let bias = |group: usize, c: usize| match cancelled {
            true => 0.0,
            false => f64::from(affine[group].scale[c]) * sums[group].du[c],
        };
        UnitGradients {
            weight,
            bias: per_filter(unit.bias, &bias),
            gamma: per_filter(unit.norm, &|group, c| sums[group].du_hat[c]),
            beta: per_filter(unit.norm, &|group, c| sums[group].du[c]),
            slope: per_filter(unit.has_slopes(), &|group, c| sums[group].dy_u[c]),
        }
    }

    /// Adds the gradient of one block of images to `images`.
    fn image_gradient<K: ConvKernel>(
        &self,
        kernel: K,
        packed: &PackedConv,
        live: usize,
        dz: &[K::Word],
        scratch: &mut WinogradScratch,
        images: &mut [f32],
    ) {
        let map: FeatureMap = self.layer.input;
        let shape = self.ready.inputs.stack.input();
        packed.correlate(kernel, &(0..map.height), dz, live, scratch, |group, pixel, rows| {
            for (row, values) in rows.as_chunks::<CHANNELS>().0.iter().enumerate() {
                let (pixel, image) = (pixel + row / live, row % live);
                match self.layer.transform {
                    Some(InputTransform::Im2col { kernel: window, padding, stride }) => {
                        let im2col = Im2col { shape, window, padding, stride };
                        im2col.add_to_image(values, map, group, pixel, image, images);
                    }
                    _ => add_to_image(values, map, group, pixel, image, images),
                }
            }
        });
    }
}

/// Terms that are added to a unit's term of the gradient of its input.
struct OtherTerms<'a, K: ConvKernel> {
    /// Whether some have been written where the gradient goes.
    written: bool,
    /// The gradient of a sum.
    sum: Option<Upstream<'a, K>>,
}

impl<K: ConvKernel> OtherTerms<'_, K> {
    /// Adds the terms to a strip's rows, so many per pixel, and encodes the sums into a feature map.
    #[inline(always)]
    fn write_rows(
        &self,
        kernel: K,
        pixel_rows: usize,
        group: usize,
        pixel: usize,
        rows: &[f32],
        out: &mut MapRows<'_, K>,
    ) {
        if !self.written && self.sum.is_none() {
            return write_rows(kernel, pixel_rows, group, pixel, rows, out);
        }
        let sum = self.sum.map(|sum| sum.group(kernel, group));
        let pixel_words = out.pixel_words();
        let out = out.pixels_mut(group, pixel).chunks_exact_mut(pixel_words);
        let pixels = rows.chunks_exact(pixel_rows * CHANNELS).zip(out);
        for (pixel, (rows, out)) in (pixel..).zip(pixels) {
            let rows =
                rows.as_chunks::<CHANNELS>().0.iter().zip(out.chunks_exact_mut(K::ROW_WORDS));
            for (index, (row, words)) in rows.enumerate() {
                let mut lanes = kernel.ordered(row);
                if self.written {
                    lanes = lanes.add(kernel.decode(words));
                }
                if let Some(sum) = &sum {
                    lanes = lanes.add(sum.at(kernel, pixel, index));
                }
                kernel.encode_lanes(lanes, words);
            }
        }
    }
}
