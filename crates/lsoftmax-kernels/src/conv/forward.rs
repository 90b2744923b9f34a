//! The forward pass, in training (with the statistics of the batch) and in inference (with given ones).

use rayon::prelude::*;

use super::conv_kernel::ConvKernel;
use super::epilogue::{Affine, Epilogue, zero_padding_images};
use super::geometry::Direction;
use super::layer::{ConvLayer, PackedConv};
use super::layout::{CHANNELS, FeatureMap, IMAGES, live_images, pack_images};
use super::moments::BlockMoments;
use super::product::correlate;
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
    let count = stack.images(images)?;
    stack.check(parameters)?;
    stack.check_fixed(fixed)?;
    Ok(with_kernel!(engine, |kernel| run_training(
        kernel, engine, stack, images, count, parameters, fixed
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

/// Working memory of a thread.
#[derive(Default)]
struct StackForwardScratch {
    input: Buffer,
    convolved: Buffer,
    sums: Buffer,
}

fn run_training<K: ConvKernel>(
    kernel: K,
    engine: Engine,
    stack: &Stack,
    images: &[f32],
    count: usize,
    parameters: &[Parameters<'_>],
    fixed: &[Option<Moments>],
) -> StackForward {
    let mut convolved: Vec<Buffer> = Vec::new();
    let mut moments: Vec<Moments> = Vec::new();
    let mut previous: Option<(ConvLayer, Vec<Affine>)> = None;
    for (index, unit) in stack.units().iter().enumerate() {
        let layer = ConvLayer::new(stack, index);
        let packed = PackedConv::new(kernel, &layer, Direction::Forward, count, &parameters[index]);
        let source = InputSource { stack, images, previous: previous.as_ref(), index };
        let wants_moments = unit.norm && fixed[index].is_none();
        let words = layer.output.words::<K>();
        let mut z = Buffer::new(count.div_ceil(IMAGES) * words);
        let previous_z = convolved.last();
        let blocks = z.words_mut::<K::Word>().par_chunks_exact_mut(words).enumerate();
        let sums: Vec<BlockMoments> = blocks
            .map_init(StackForwardScratch::default, |scratch, (block, z)| {
                let live = live_images(block, count);
                scratch.input.resize(layer.input.words::<K>());
                source.read(kernel, &layer, previous_z, block, live, scratch.input.words_mut());
                let mut found = BlockMoments::new(layer.output.groups());
                let store = |group: usize, pixel: usize, rows: &mut [f32]| {
                    let bias = bias(parameters[index].bias, group);
                    kernel.vectorize(
                        #[inline(always)]
                        || {
                            add_bias(rows, bias);
                            if wants_moments {
                                found.add::<K::Simd>(group, rows);
                            }
                            write_rows(kernel, layer.output, live, group, pixel, rows, z);
                        },
                    );
                };
                let (strips, input) = (packed.strips(live), scratch.input.words());
                let right = packed.right.words();
                correlate(kernel, strips, input, right, live, &mut scratch.sums, store);
                zero_padding_images::<K>(z, live);
                found
            })
            .collect();
        let found = match &fixed[index] {
            Some(moments) => moments.clone(),
            None if unit.norm => BlockMoments::combine(&sums, unit.filters),
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
    StackForward { output, moments, fixed, convolved, engine, stack: stack.clone(), count }
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
    /// Writes one block of the unit's input, where `previous_z` is the previous unit's convolution.
    pub fn read<K: ConvKernel>(
        self,
        kernel: K,
        layer: &ConvLayer,
        previous_z: Option<&Buffer>,
        block: usize,
        live: usize,
        out: &mut [K::Word],
    ) {
        match (self.previous, previous_z) {
            (Some((previous, affine)), Some(z)) => {
                let words = previous.output.words::<K>();
                let z = &z.words()[block * words..][..words];
                epilogue(self.stack, self.index - 1, previous, affine).write(kernel, z, live, out);
            }
            _ => {
                let images = images_of_block(self.images, self.stack.input(), block, live);
                let transform = layer.transform.expect("the first unit reads images");
                pack_images(kernel, images, self.stack.input(), transform, layer.input, out);
            }
        }
    }

    /// Like [`InputSource::read`], where `previous_z` is the convolution of this block alone.
    fn read_in_block<K: ConvKernel>(
        self,
        kernel: K,
        layer: &ConvLayer,
        previous_z: &Buffer,
        block: usize,
        live: usize,
        out: &mut Buffer,
    ) {
        match self.previous {
            Some((previous, affine)) => {
                let epilogue = epilogue(self.stack, self.index - 1, previous, affine);
                epilogue.write(kernel, previous_z.words(), live, out.words_mut());
            }
            None => self.read(kernel, layer, None, block, live, out.words_mut()),
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
    map: FeatureMap,
    live: usize,
    group: usize,
    pixel: usize,
    rows: &[f32],
    out: &mut [K::Word],
) {
    let pixel_words = FeatureMap::pixel_words::<K>();
    let out = &mut out[(group * map.pixels() + pixel) * pixel_words..];
    let pixels = rows.chunks_exact(live * CHANNELS).zip(out.chunks_exact_mut(pixel_words));
    for (rows, out) in pixels {
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
                live,
                #[inline(always)]
                |group, pixel, image, a| {
                    let image = &mut output[image * size..][..size];
                    for (value, channel) in a.iter().zip(map.group(group)) {
                        image[channel * map.pixels() + pixel] = *value;
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
            let packed = PackedConv::new(kernel, &layer, Direction::Forward, count, parameters);
            (packed, (layer, Affine::new(unit.filters, parameters, moments)))
        })
        .collect();
    let size: usize = stack.output().iter().product();
    let mut output = Buffer::new(count * size);
    // A block of images passes through all units before the next one, so that its activations stay
    // in cache.
    let blocks = output.par_chunks_mut(IMAGES * size).enumerate();
    blocks.for_each_init(StackForwardScratch::default, |scratch, (block, output)| {
        let live = live_images(block, count);
        for (index, (packed, (layer, _))) in layers.iter().enumerate() {
            let previous = index.checked_sub(1).map(|previous| &layers[previous].1);
            let source = InputSource { stack, images, previous, index };
            scratch.input.resize(layer.input.words::<K>());
            source.read_in_block(
                kernel,
                layer,
                &scratch.convolved,
                block,
                live,
                &mut scratch.input,
            );
            scratch.convolved.resize(layer.output.words::<K>());
            let z = scratch.convolved.words_mut();
            let store = |group: usize, pixel: usize, rows: &mut [f32]| {
                let bias = bias(parameters[index].bias, group);
                kernel.vectorize(
                    #[inline(always)]
                    || {
                        add_bias(rows, bias);
                        write_rows(kernel, layer.output, live, group, pixel, rows, z);
                    },
                );
            };
            let (strips, input) = (packed.strips(live), scratch.input.words());
            let right = packed.right.words();
            correlate(kernel, strips, input, right, live, &mut scratch.sums, store);
        }
        let index = layers.len() - 1;
        let (layer, affine) = &layers[index].1;
        let last = epilogue(stack, index, layer, affine);
        unpack_block(kernel, last, scratch.convolved.words(), live, output);
    });
    output
}
