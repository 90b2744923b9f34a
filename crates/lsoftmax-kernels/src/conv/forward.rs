//! The forward pass, in training (with the statistics of the batch) and in inference (with given ones).

use std::ops::Range;

use rayon::prelude::*;

use super::conv_kernel::ConvKernel;
use super::epilogue::{Affine, Epilogue};
use super::geometry::{Direction, bands};
use super::layer::{ConvLayer, PackedConv};
use super::layout::{CHANNELS, FeatureMap, IMAGES, MapRows, live_images, pack_images};
use super::moments::BlockMoments;
use super::product::correlate;
use super::share::BatchShare;
use super::stack::{Moments, Parameters, Stack, StackError};
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
        return Err(StackError::Share { expected, found });
    }
    stack.check(parameters)?;
    stack.check_fixed(fixed)?;
    Ok(with_kernel!(engine, |kernel| run_training(
        kernel, engine, stack, images, parameters, fixed, share
    )))
}

/// The output of a stack in inference, N x C x H x W, with the given statistics.
///
/// # Errors
/// When the sizes of images, parameters or statistics do not match the stack.
pub fn infer(
    engine: Engine,
    stack: &Stack,
    images: &[f32],
    parameters: &[Parameters<'_>],
    moments: &[Moments],
) -> Result<Buffer, StackError> {
    let count = stack.images(images)?;
    stack.check(parameters)?;
    stack.check_moments(moments)?;
    Ok(with_kernel!(engine, |kernel| run_inference(
        kernel, stack, images, count, parameters, moments
    )))
}

/// Working memory of a thread in inference.
#[derive(Default)]
struct BlockScratch {
    input: Buffer,
    /// The convolution of the previous unit.
    z: Buffer,
    /// The convolution of the current unit.
    next: Buffer,
}

/// A unit's convolution, ready to run.
struct UnitForward<'a> {
    layer: &'a ConvLayer,
    packed: &'a PackedConv,
    source: InputSource<'a>,
    bias: &'a [f32],
    /// Whether to compute statistics.
    wants_moments: bool,
}

/// Bytes of its input that a band of rows reads, so that they are in the L2 cache when they are multiplied.
const BAND_BYTES: usize = 256 << 10;

impl UnitForward<'_> {
    /// The convolution of all images, and the statistics of each task. `previous_z` is the convolution of the
    /// previous unit.
    fn run<K: ConvKernel>(
        &self,
        kernel: K,
        previous_z: Option<&Buffer>,
        (count, share): (usize, &BatchShare),
        z: &mut Buffer,
    ) -> Vec<BlockMoments> {
        let output = self.layer.output;
        let blocks = count.div_ceil(IMAGES);
        z.resize(blocks * output.words::<K>());
        let sections = share.sections(output.height, 1);
        let tasks = MapRows::<K>::divided(output, z.words_mut(), &sections);
        let tasks = tasks.into_par_iter().enumerate();
        let moments = tasks.map_init(Buffer::default, |input, (task, mut z)| {
            let (block, rows) = (task / sections.len(), &sections[task % sections.len()]);
            let previous_z = previous_z.map(|z| self.source.previous_block::<K>(z, block));
            self.rows(kernel, (block, live_images(block, count)), rows, previous_z, input, &mut z)
        });
        moments.collect()
    }

    /// The convolution of some rows of a block, and their statistics. `previous_z` is the convolution of the
    /// previous unit for this block.
    fn rows<K: ConvKernel>(
        &self,
        kernel: K,
        (block, live): (usize, usize),
        rows: &Range<usize>,
        previous_z: Option<&[K::Word]>,
        input: &mut Buffer,
        z: &mut MapRows<'_, K>,
    ) -> BlockMoments {
        let Self { layer, packed, .. } = self;
        let row_bytes = layer.input.words::<K>() / layer.input.height * size_of::<K::Word>();
        input.resize(layer.input.words::<K>());
        let mut found = BlockMoments::new(layer.output.groups());
        for band in bands(&layer.axes.vertical, rows.clone(), BAND_BYTES / row_bytes) {
            let mut map = MapRows::whole(layer.input, input.words_mut());
            let from = (block, live, previous_z);
            self.source.read(kernel, layer, from, band.inputs, &mut map);
            let store = |group: usize, pixel: usize, rows: &mut [f32]| {
                let bias = bias(self.bias, group);
                kernel.vectorize(
                    #[inline(always)]
                    || {
                        add_bias(rows, bias);
                        if self.wants_moments {
                            found.add(kernel.simd(), group, rows);
                        }
                        write_rows(kernel, live, group, pixel, rows, z);
                    },
                );
            };
            let right = packed.right.words();
            correlate(kernel, &packed.strips, &band.outputs, input.words(), right, live, store);
        }
        found
    }
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
    let count = share.images().len();
    let mut convolved: Vec<Buffer> = Vec::new();
    let mut moments: Vec<Moments> = Vec::new();
    let mut previous: Option<(ConvLayer, Vec<Affine>)> = None;
    for (index, unit) in stack.units().iter().enumerate() {
        let layer = ConvLayer::new(stack, index);
        let step = UnitForward {
            layer: &layer,
            packed: &PackedConv::new(kernel, &layer, Direction::Forward, &parameters[index]),
            source: InputSource { stack, images, previous: previous.as_ref(), index },
            bias: parameters[index].bias,
            wants_moments: unit.norm && fixed[index].is_none(),
        };
        let mut z = Buffer::default();
        let tasks = step.run(kernel, convolved.last(), (count, share), &mut z);
        let found = match &fixed[index] {
            Some(moments) => moments.clone(),
            None if unit.norm => BlockMoments::combine(&tasks, unit.filters, share),
            None => Moments::default(),
        };
        previous = Some((layer, Affine::new(unit.filters, &parameters[index], &found)));
        moments.push(found);
        convolved.push(z);
    }
    let (layer, affine) = previous.as_ref().expect("a stack has units");
    let last = epilogue(stack, stack.units().len() - 1, layer, affine);
    let z = convolved.last().expect("a stack has units");
    let output = unpack_images(kernel, last, z, count);
    let fixed = fixed.iter().map(Option::is_some).collect();
    let (stack, share) = (stack.clone(), share.clone());
    StackForward { output, moments, fixed, convolved, engine, stack, count, share }
}

/// The epilogue of a unit.
pub(super) fn epilogue<'a>(
    stack: &Stack,
    index: usize,
    layer: &ConvLayer,
    affine: &'a [Affine],
) -> Epilogue<'a> {
    let pool = stack.units()[index].pool;
    Epilogue { affine, pool, map: layer.output, pooled: layer.pooled }
}

/// Where a unit's input comes from: the images, or the convolution of the previous unit.
#[derive(Clone, Copy)]
pub(super) struct InputSource<'a> {
    pub stack: &'a Stack,
    pub images: &'a [f32],
    /// The previous unit, unless this is the first.
    pub previous: Option<&'a (ConvLayer, Vec<Affine>)>,
    pub index: usize,
}

impl InputSource<'_> {
    /// One block of the previous unit's convolution.
    pub fn previous_block<'z, K: ConvKernel>(&self, z: &'z Buffer, block: usize) -> &'z [K::Word] {
        let words = self.previous.map_or(0, |(previous, _)| previous.output.words::<K>());
        &z.words()[block * words..][..words]
    }

    /// Writes some rows of the unit's input for a block with `live` images, where `previous_z` is the previous
    /// unit's convolution for this block.
    pub fn read<K: ConvKernel>(
        &self,
        kernel: K,
        layer: &ConvLayer,
        (block, live, previous_z): (usize, usize, Option<&[K::Word]>),
        rows: Range<usize>,
        out: &mut MapRows<'_, K>,
    ) {
        match (self.previous, previous_z) {
            (Some((previous, affine)), Some(z)) => {
                let epilogue = epilogue(self.stack, self.index - 1, previous, affine);
                epilogue.write(kernel, z, rows, live, out);
            }
            _ => {
                let images = images_of_block(self.images, self.stack.input(), block, live);
                let transform = layer.transform.expect("the first unit reads images");
                pack_images(kernel, images, self.stack.input(), transform, layer.input, rows, out);
            }
        }
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
fn bias(bias: &[f32], group: usize) -> Option<[f32; CHANNELS]> {
    let bias = bias.get(group * CHANNELS..)?;
    (!bias.is_empty()).then(|| std::array::from_fn(|c| bias.get(c).copied().unwrap_or(0.0)))
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

/// Encodes a strip's rows, `live` per pixel, into a feature map.
#[inline(always)]
pub(super) fn write_rows<K: ConvKernel>(
    kernel: K,
    live: usize,
    group: usize,
    pixel: usize,
    rows: &[f32],
    out: &mut MapRows<'_, K>,
) {
    let out = out.pixels_mut(group, pixel).chunks_exact_mut(FeatureMap::pixel_words::<K>());
    for (rows, out) in rows.chunks_exact(live * CHANNELS).zip(out) {
        let rows = rows.as_chunks::<CHANNELS>().0;
        for (row, words) in rows.iter().zip(out.chunks_exact_mut(K::ROW_WORDS)) {
            kernel.encode(row, words);
        }
    }
}

/// The output of the last unit, N x C x H x W.
fn unpack_images<K: ConvKernel>(kernel: K, last: Epilogue<'_>, z: &Buffer, count: usize) -> Buffer {
    let size = last.pooled.channels * last.pooled.pixels();
    let mut output = Buffer::new(count * size);
    let words = last.map.words::<K>();
    output.par_chunks_mut(IMAGES * size).enumerate().for_each(|(block, output)| {
        let z = &z.words()[block * words..][..words];
        unpack_block(kernel, last, z, live_images(block, count), output);
    });
    output
}

/// The output of one block of images.
fn unpack_block<K: ConvKernel>(
    kernel: K,
    last: Epilogue<'_>,
    z: &[K::Word],
    live: usize,
    output: &mut [f32],
) {
    let map = last.pooled;
    let size = map.channels * map.pixels();
    kernel.vectorize(
        #[inline(always)]
        || {
            last.outputs(
                kernel,
                z,
                0..map.height,
                live,
                #[inline(always)]
                |group, pixel, image, a| {
                    let image = &mut output[image * size..][..size];
                    for (value, channel) in kernel.channels(a).into_iter().zip(map.group(group)) {
                        image[channel * map.pixels() + pixel] = value;
                    }
                },
            );
        },
    );
}

fn run_inference<K: ConvKernel>(
    kernel: K,
    stack: &Stack,
    images: &[f32],
    count: usize,
    parameters: &[Parameters<'_>],
    moments: &[Moments],
) -> Buffer {
    let units = stack.units().iter().zip(parameters).zip(moments).enumerate();
    let layers: Vec<_> = units
        .map(|(index, ((unit, parameters), moments))| {
            let layer = ConvLayer::new(stack, index);
            let packed = PackedConv::new(kernel, &layer, Direction::Forward, parameters);
            (packed, (layer, Affine::new(unit.filters, parameters, moments)))
        })
        .collect();
    let steps = layers.iter().enumerate().map(|(index, (packed, (layer, _)))| {
        let previous = index.checked_sub(1).map(|previous| &layers[previous].1);
        let source = InputSource { stack, images, previous, index };
        UnitForward { layer, packed, source, bias: parameters[index].bias, wants_moments: false }
    });
    let steps: Vec<_> = steps.collect();
    let index = layers.len() - 1;
    let (layer, affine) = &layers[index].1;
    let last = epilogue(stack, index, layer, affine);

    // Without statistics no result depends on the division into tasks, so the number of threads may decide.
    let (blocks, threads) = (count.div_ceil(IMAGES), rayon::current_num_threads());
    if blocks.is_multiple_of(threads) || blocks >= 4 * threads {
        return infer_by_block(kernel, &steps, last, count);
    }
    let (mut z, mut next) = (Buffer::default(), Buffer::default());
    let share = BatchShare::alone(count);
    for (index, step) in steps.iter().enumerate() {
        step.run(kernel, (index > 0).then_some(&z), (count, &share), &mut next);
        std::mem::swap(&mut z, &mut next);
    }
    unpack_images(kernel, last, &z, count)
}

/// A block of images passes through all units before the next one, so that its activations stay in cache.
fn infer_by_block<K: ConvKernel>(
    kernel: K,
    steps: &[UnitForward<'_>],
    last: Epilogue<'_>,
    count: usize,
) -> Buffer {
    let size = last.pooled.channels * last.pooled.pixels();
    let mut output = Buffer::new(count * size);
    let blocks = output.par_chunks_mut(IMAGES * size).enumerate();
    blocks.for_each_init(
        BlockScratch::default,
        |BlockScratch { input, z, next }, (block, output)| {
            let live = live_images(block, count);
            for (index, step) in steps.iter().enumerate() {
                let map = step.layer.output;
                next.resize(map.words::<K>());
                let mut out = MapRows::whole(map, next.words_mut());
                let previous = (index > 0).then(|| z.words());
                step.rows(kernel, (block, live), &(0..map.height), previous, input, &mut out);
                std::mem::swap(z, next);
            }
            unpack_block(kernel, last, z.words(), live, output);
        },
    );
    output
}
