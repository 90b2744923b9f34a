//! The forward pass in training, with the statistics of the batch.

use std::ops::Range;

use rayon::prelude::*;

use super::conv_kernel::ConvKernel;
use super::geometry::{Direction, bands};
use super::layer::{ConvLayer, PackedConv};
use super::layout::{CHANNELS, FeatureMap, IMAGES, MapRows, live_images, pack_images};
use super::moments::BlockMoments;
use super::output::{BlockOutput, ReadyUnit, Saved};
use super::share::BatchShare;
use super::shortcut::KeptRows;
use super::stack::{Moments, Parameters, Stack, StackError};
use super::unit::Pool;
use super::winograd_conv::WinogradScratch;
use crate::buffer::Buffer;
use crate::engine::Engine;
use crate::engine::with_kernel;

/// The result of [`forward`]: output, batch statistics, and what [`backward`](super::backward()) needs.
#[derive(Debug)]
pub struct StackForward {
    /// N x C x H x W. The backward pass does not need it, so it may be moved out.
    pub output: Buffer,
    /// Each unit's statistics: those of the batch, unless fixed ones were given.
    pub moments: Vec<Moments>,
    /// Whether each unit's statistics were given.
    pub(super) fixed: Vec<bool>,
    /// Each unit's convolution, in the blocked layout.
    pub(super) convolved: Vec<Buffer>,
    /// The sums of residual units, in the same layout; empty for the others.
    pub(super) sums: Vec<Buffer>,
    pub(super) engine: Engine,
    pub(super) stack: Stack,
    /// The number of images.
    pub(super) count: usize,
    /// Which images of the batch they are.
    pub(super) share: BatchShare,
}

/// The forward pass of a stack in training, with the statistics of this batch.
///
/// # Errors
/// When the sizes of images or parameters do not match the stack.
pub fn forward(
    engine: Engine,
    stack: &Stack,
    images: &[f32],
    parameters: &[Parameters<'_>],
) -> Result<StackForward, StackError> {
    let none = vec![None; stack.units().len()];
    forward_with_fixed(engine, stack, images, parameters, &none)
}

/// As [`forward`], where the units with `fixed` statistics use those instead of the batch's: the frozen
/// units of a network that is being fine-tuned.
///
/// # Errors
/// When the sizes of images, parameters or statistics do not match the stack.
pub fn forward_with_fixed(
    engine: Engine,
    stack: &Stack,
    images: &[f32],
    parameters: &[Parameters<'_>],
    fixed: &[Option<Moments>],
) -> Result<StackForward, StackError> {
    let share = BatchShare::alone(stack.images(images)?);
    forward_shared(engine, stack, images, parameters, fixed, &share)
}

/// As [`forward_with_fixed`], of the images that are this rank's share of a batch, with the statistics of the whole
/// batch. All ranks call it, and so the backward pass.
///
/// # Errors
/// When the sizes of images, parameters or statistics do not match the stack or the share.
pub fn forward_shared(
    engine: Engine,
    stack: &Stack,
    images: &[f32],
    parameters: &[Parameters<'_>],
    fixed: &[Option<Moments>],
    share: &BatchShare,
) -> Result<StackForward, StackError> {
    let (found, expected) = (stack.images(images)?, share.images().len());
    if found != expected {
        return Err(StackError::Share { rank: share.rank(), expected, found });
    }
    stack.check(parameters)?;
    stack.check_fixed(fixed)?;
    Ok(with_kernel!(engine, |kernel| run_training(
        kernel, engine, stack, images, parameters, fixed, share
    )))
}

/// A unit's convolution, ready to run.
pub(super) struct UnitForward<'a> {
    pub layer: &'a ConvLayer,
    pub packed: &'a PackedConv,
    pub source: InputSource<'a>,
    pub bias: &'a [f32],
    /// Whether to compute statistics.
    pub wants_moments: bool,
}

/// Working memory of a thread.
#[derive(Default)]
pub(super) struct ForwardScratch {
    /// The unit's input, as far as it has been written.
    input: Buffer,
    winograd: WinogradScratch,
}

/// Bytes of its input that a band of rows reads, so that they are in the L2 cache when they are multiplied.
const BAND_BYTES: usize = 256 << 10;

/// A block of images: its index, and how many of its images are live.
type Block = (usize, usize);

impl UnitForward<'_> {
    /// The convolution of all images, and the statistics of each task. `words` has what is stored of a block.
    /// The sum that the unit reads for the first time is written to `sum`, if it is given.
    pub fn run<'w, K: ConvKernel>(
        &self,
        kernel: K,
        words: impl Fn(usize, Saved) -> &'w [K::Word] + Sync,
        (count, share): (usize, &BatchShare),
        z: &mut Buffer,
        sum: Option<&mut Buffer>,
    ) -> Vec<BlockMoments> {
        let ConvLayer { input, output, .. } = *self.layer;
        let blocks = count.div_ceil(IMAGES);
        z.resize(blocks * output.words::<K>());
        let sections = self.sections(share);
        let kept = sum.map(|sum| {
            sum.resize(blocks * input.words::<K>());
            let rows = self.kept_rows(&sections);
            let sums = MapRows::<K>::divided(input, sum.words_mut(), &rows);
            let rows = rows.into_iter().cycle();
            sums.into_iter().zip(rows).map(|(sums, rows)| KeptRows { rows, sums })
        });
        let mut kept = kept.into_iter().flatten();
        let tasks = MapRows::<K>::divided(output, z.words_mut(), &sections).into_iter();
        let tasks: Vec<_> = tasks.map(|z| (z, kept.next())).collect();
        let tasks = tasks.into_par_iter().enumerate();
        let moments =
            tasks.map_init(ForwardScratch::default, |scratch, (task, (mut z, mut kept))| {
                let (block, rows) = (task / sections.len(), &sections[task % sections.len()]);
                let input = self.source.output(|saved| words(block, saved));
                let block = (block, live_images(block, count));
                self.rows(kernel, block, rows, input.as_ref(), kept.as_mut(), scratch, &mut z)
            });
        moments.collect()
    }

    /// The rows of the output that each task of a block computes.
    fn sections(&self, share: &BatchShare) -> Vec<Range<usize>> {
        let (rows, height) = (self.layer.row_granularity(), self.layer.output.height);
        let sections = share.sections(height.div_ceil(rows), rows).into_iter();
        sections.map(|Range { start, end }| start * rows..height.min(end * rows)).collect()
    }

    /// The rows of its input that each section stores: all of them, each by the first section that reads it.
    fn kept_rows(&self, sections: &[Range<usize>]) -> Vec<Range<usize>> {
        let axis = &self.layer.axes.vertical;
        let start = |index: usize| match sections.get(index) {
            Some(_) if index == 0 => 0,
            Some(rows) => axis.inputs(rows).start,
            None => axis.input,
        };
        (0..sections.len()).map(|index| start(index)..start(index + 1)).collect()
    }

    /// The convolution of some rows of a block, and their statistics. `input` is the output that it reads,
    /// unless it reads images.
    #[allow(clippy::too_many_arguments, reason = "of a task, and its memory")]
    pub fn rows<K: ConvKernel>(
        &self,
        kernel: K,
        (block, live): Block,
        rows: &Range<usize>,
        input: Option<&BlockOutput<'_, K>>,
        mut kept: Option<&mut KeptRows<'_, K>>,
        scratch: &mut ForwardScratch,
        z: &mut MapRows<'_, K>,
    ) -> BlockMoments {
        let Self { layer, packed, .. } = self;
        let row_bytes = layer.input.words::<K>() / layer.input.height * size_of::<K::Word>();
        let ForwardScratch { input: map_words, winograd } = scratch;
        map_words.resize(layer.input.words::<K>());
        let mut found = BlockMoments::new(layer.output);
        let (axis, most, granularity) =
            (&layer.axes.vertical, BAND_BYTES / row_bytes, layer.row_granularity());
        let mut bands = bands(axis, rows.clone(), most, granularity);
        if let (Some(kept), Some(last)) = (&kept, bands.last_mut()) {
            // A kernel that is smaller than its stride does not read the last rows.
            last.inputs.end = last.inputs.end.max(kept.rows.end);
        }
        for band in bands {
            let mut map = MapRows::whole(layer.input, map_words.words_mut());
            match input {
                Some(input) => {
                    input.write(kernel, band.inputs, live, kept.as_deref_mut(), &mut map)
                }
                None => {
                    self.source.read_images(kernel, layer, (block, live), band.inputs, &mut map)
                }
            }
            let store = |group: usize, pixel: usize, rows: &mut [f32]| {
                let bias = bias(self.bias, group, layer.output);
                kernel.vectorize(
                    #[inline(always)]
                    || {
                        add_bias(rows, bias);
                        if self.wants_moments {
                            found.add(kernel.simd(), group, rows, live);
                        }
                        write_rows(kernel, layer.output.rows(live), group, pixel, rows, z);
                    },
                );
            };
            packed.correlate(kernel, &band.outputs, map_words.words(), live, winograd, store);
        }
        found
    }
}

/// What the forward pass has stored so far.
struct Activations {
    convolved: Vec<Buffer>,
    sums: Vec<Buffer>,
}

impl Activations {
    fn block<K: ConvKernel>(&self, units: &[ReadyUnit], block: usize, saved: Saved) -> &[K::Word] {
        saved_block::<K>(&self.convolved, &self.sums, units, block, saved)
    }
}

/// One block of what is stored.
pub(super) fn saved_block<'a, K: ConvKernel>(
    convolved: &'a [Buffer],
    sums: &'a [Buffer],
    units: &[ReadyUnit],
    block: usize,
    saved: Saved,
) -> &'a [K::Word] {
    let (buffer, unit) = match saved {
        Saved::Convolution(unit) => (&convolved[unit], unit),
        Saved::Sum(unit) => (&sums[unit], unit),
    };
    let words = units[unit].layer.output.words::<K>();
    &buffer.words()[block * words..][..words]
}

fn run_training<K: ConvKernel>(
    kernel: K,
    engine: Engine,
    stack: &Stack,
    images: &[f32],
    parameters: &[Parameters<'_>],
    fixed: &[Option<Moments>],
    share: &BatchShare,
) -> StackForward {
    let (count, len) = (share.images().len(), stack.units().len());
    let mut stored = Activations { convolved: Vec::new(), sums: Vec::new() };
    stored.sums.resize_with(len, Buffer::default);
    let mut moments: Vec<Moments> = Vec::new();
    let mut units: Vec<ReadyUnit> = Vec::new();
    for (index, unit) in stack.units().iter().enumerate() {
        let layer = ConvLayer::new::<K>(stack, index);
        let source = InputSource { stack, images, units: &units, index };
        let new_sum = source.first_sum();
        let step = UnitForward {
            layer: &layer,
            packed: &PackedConv::new(kernel, &layer, Direction::Forward, &parameters[index]),
            source,
            bias: parameters[index].bias,
            wants_moments: unit.norm && fixed[index].is_none(),
        };
        let (mut z, mut sum) = (Buffer::default(), Buffer::default());
        let words = |block, saved| stored.block::<K>(&units, block, saved);
        let found = step.run(kernel, words, (count, share), &mut z, new_sum.map(|_| &mut sum));
        let found = match &fixed[index] {
            Some(moments) => moments.clone(),
            None if unit.norm => BlockMoments::combine(&found, unit.filters, share),
            None => Moments::default(),
        };
        units.push(ReadyUnit::new(stack, index, layer, &parameters[index], &found));
        moments.push(found);
        stored.convolved.push(z);
        if let Some(unit) = new_sum {
            stored.sums[unit] = sum;
        }
    }
    let last = InputSource { stack, images, units: &units, index: len };
    let mut sum = Buffer::default();
    let words = |block, saved| stored.block::<K>(&units, block, saved);
    let new_sum = last.first_sum().map(|_| &mut sum);
    let output = unpack_images(kernel, &last, words, count, new_sum);
    stored.sums[len - 1] = sum;
    let fixed = fixed.iter().map(Option::is_some).collect();
    let Activations { convolved, sums } = stored;
    let (stack, share) = (stack.clone(), share.clone());
    StackForward { output, moments, fixed, convolved, sums, engine, stack, count, share }
}

/// Where the input of unit `index` comes from: the images, or the output of an earlier unit. One past the last
/// unit, it is the output of the stack.
#[derive(Clone, Copy)]
pub(super) struct InputSource<'a> {
    pub stack: &'a Stack,
    pub images: &'a [f32],
    pub units: &'a [ReadyUnit],
    pub index: usize,
}

impl<'a> InputSource<'a> {
    /// The unit whose output is read.
    fn unit(&self) -> Option<usize> {
        let last = self.stack.units().len() - 1;
        if self.index > last { Some(last) } else { self.stack.source(self.index) }
    }

    /// The unit whose output is read, if that is a sum that no unit before this one has read.
    pub fn first_sum(&self) -> Option<usize> {
        let is_first = |unit: &usize| {
            let first = self.stack.uses(*unit).readers.first();
            first.is_none_or(|first| *first == self.index)
        };
        self.unit().filter(is_first).filter(|unit| self.stack.addend(*unit).is_some())
    }

    /// The output of a block that is read in the forward pass, unless it is images.
    pub fn output<K: ConvKernel>(
        &self,
        words: impl Fn(Saved) -> &'a [K::Word],
    ) -> Option<BlockOutput<'a, K>> {
        let first = self.first_sum().is_some();
        Some(BlockOutput::new(self.stack, self.units, self.unit()?, first, words))
    }

    /// The same after the forward pass, when all sums are stored.
    pub fn stored_output<K: ConvKernel>(
        &self,
        words: impl Fn(Saved) -> &'a [K::Word],
    ) -> Option<BlockOutput<'a, K>> {
        Some(BlockOutput::new(self.stack, self.units, self.unit()?, false, words))
    }

    /// Writes some rows of a block of images as a unit's input.
    pub fn read_images<K: ConvKernel>(
        &self,
        kernel: K,
        layer: &ConvLayer,
        (block, live): Block,
        rows: Range<usize>,
        out: &mut MapRows<'_, K>,
    ) {
        let images = images_of_block(self.images, self.stack.input(), block, live);
        let transform = layer.transform.expect("the first unit reads images");
        pack_images(kernel, images, self.stack.input(), transform, layer.input, rows, out);
    }
}

/// The images of a block.
pub(super) fn images_of_block(
    images: &[f32],
    shape: [usize; 3],
    block: usize,
    live: usize,
) -> &[f32] {
    let size: usize = shape.iter().product();
    &images[block * IMAGES * size..][..live * size]
}

/// The bias of a channel group, if the unit has one.
fn bias(bias: &[f32], group: usize, map: FeatureMap) -> Option<[f32; CHANNELS]> {
    let bias = bias.get(group * CHANNELS..).filter(|bias| !bias.is_empty())?;
    Some(std::array::from_fn(|lane| bias.get(lane % map.row_channels()).copied().unwrap_or(0.0)))
}

#[inline(always)]
fn add_bias(rows: &mut [f32], bias: Option<[f32; CHANNELS]>) {
    if let Some(bias) = bias {
        for row in rows.as_chunks_mut::<CHANNELS>().0 {
            for (value, bias) in row.iter_mut().zip(bias) {
                *value += bias;
            }
        }
    }
}

/// Encodes a strip's rows, so many per pixel, into a feature map.
#[inline(always)]
pub(super) fn write_rows<K: ConvKernel>(
    kernel: K,
    pixel_rows: usize,
    group: usize,
    pixel: usize,
    rows: &[f32],
    out: &mut MapRows<'_, K>,
) {
    let pixel_words = out.pixel_words();
    let out = out.pixels_mut(group, pixel).chunks_exact_mut(pixel_words);
    for (rows, out) in rows.chunks_exact(pixel_rows * CHANNELS).zip(out) {
        let rows = rows.as_chunks::<CHANNELS>().0;
        for (row, words) in rows.iter().zip(out.chunks_exact_mut(K::ROW_WORDS)) {
            kernel.encode(row, words);
        }
    }
}

/// The output of the stack, N x C x H x W. The sum of the last unit is written to `sum`, if it is given.
pub(super) fn unpack_images<'w, K: ConvKernel>(
    kernel: K,
    last: &InputSource<'w>,
    words: impl Fn(usize, Saved) -> &'w [K::Word] + Sync,
    count: usize,
    sum: Option<&mut Buffer>,
) -> Buffer {
    let size: usize = last.stack.output().iter().product();
    let mut output = Buffer::new(count * size);
    let map = last.units[last.index - 1].layer.output;
    let kept = sum.map(|sum| {
        sum.resize(count.div_ceil(IMAGES) * map.words::<K>());
        let rows = 0..map.height;
        let sums = MapRows::<K>::divided(map, sum.words_mut(), std::slice::from_ref(&rows));
        sums.into_iter().map(move |sums| KeptRows { rows: rows.clone(), sums })
    });
    let mut kept = kept.into_iter().flatten();
    let blocks: Vec<_> =
        output.chunks_mut(IMAGES * size).map(|output| (output, kept.next())).collect();
    blocks.into_par_iter().enumerate().for_each(|(block, (output, mut kept))| {
        let result = last.output(|saved| words(block, saved)).expect("the output of a unit");
        unpack_block(kernel, last, &result, live_images(block, count), kept.as_mut(), output);
    });
    output
}

/// The output of one block of images.
pub(super) fn unpack_block<K: ConvKernel>(
    kernel: K,
    last: &InputSource<'_>,
    result: &BlockOutput<'_, K>,
    live: usize,
    kept: Option<&mut KeptRows<'_, K>>,
    output: &mut [f32],
) {
    let map = last.units[last.index - 1].layer.pooled;
    let average = last.stack.units()[last.index - 1].pool == Pool::Average;
    let pixels = if average { 1 } else { map.pixels() };
    let size = map.channels * pixels;
    let rows = 0..map.height;
    if average {
        output.fill(0.0);
    }
    kernel.vectorize(
        #[inline(always)]
        || {
            result.outputs(
                kernel,
                rows,
                live,
                kept,
                #[inline(always)]
                |group, pixel, row, a| {
                    let values = kernel.channels(a);
                    for (lane, image, channel) in map.places(group, row, live) {
                        let image = &mut output[image * size..][..size];
                        match average {
                            true => image[channel] += values[lane],
                            false => image[channel * pixels + pixel] = values[lane],
                        }
                    }
                },
            );
        },
    );
    if average {
        output.iter_mut().for_each(|sum| *sum /= map.pixels() as f32);
    }
}
