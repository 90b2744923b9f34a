//! Winograd's algorithm from its definition, in f64, with the numbers that are multiplied rounded as the kernels round them.

use lsoftmax_kernels::Precision;
use lsoftmax_kernels::conv::Stack;
use lsoftmax_testing::{Congruential, Convolution};

use super::{rms, round, rounded as all_rounded};

const INPUT: [[f64; 4]; 4] =
    [[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, -1.0, 1.0, 0.0], [0.0, -1.0, 0.0, 1.0]];
const KERNEL: [[f64; 3]; 4] = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]];
const OUTPUT: [[f64; 4]; 2] = [[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, -1.0, 1.0]];

/// Whether the kernels compute a unit by this algorithm.
pub fn computes(stack: &Stack, index: usize) -> bool {
    let unit = stack.units()[index];
    let channels = stack.unit_input(index)[0];
    unit.kernel == [3, 3]
        && unit.stride == 1
        && unit.padding < 3
        && channels.min(unit.filters) >= 32
}

/// M X Mᵀ.
fn transform<const M: usize, const N: usize>(
    matrix: &[[f64; N]; M],
    values: &[[f64; N]; N],
) -> [[f64; M]; M] {
    let mut out = [[0.0; M]; M];
    for (row, out) in matrix.iter().zip(&mut out) {
        for (column, out) in matrix.iter().zip(out) {
            for (y, values) in values.iter().enumerate() {
                for (x, value) in values.iter().enumerate() {
                    *out += row[y] * value * column[x];
                }
            }
        }
    }
    out
}

fn transposed<const M: usize, const N: usize>(matrix: &[[f64; N]; M]) -> [[f64; M]; N] {
    std::array::from_fn(|row| std::array::from_fn(|column| matrix[column][row]))
}

fn rounded<const N: usize>(precision: Precision, values: [[f64; N]; N]) -> [[f64; N]; N] {
    values.map(|row| row.map(|value| round(precision, value)))
}

/// Some pixels of one plane, with zeros outside.
fn pixels<const N: usize>(
    plane: &[f64],
    [height, width]: [usize; 2],
    start: [isize; 2],
) -> [[f64; N]; N] {
    std::array::from_fn(|row| {
        std::array::from_fn(|column| {
            let (y, x) = (start[0] + row as isize, start[1] + column as isize);
            let inside = (0..height as isize).contains(&y) && (0..width as isize).contains(&x);
            if inside { plane[y as usize * width + x as usize] } else { 0.0 }
        })
    })
}

/// The first outputs of all tiles.
fn tiles([height, width]: [usize; 2]) -> impl Iterator<Item = [usize; 2]> {
    (0..height).step_by(2).flat_map(move |y| (0..width).step_by(2).map(move |x| [y, x]))
}

fn taps(weight: &[f64], index: usize) -> [[f64; 3]; 3] {
    std::array::from_fn(|row| std::array::from_fn(|column| weight[index * 9 + row * 3 + column]))
}

/// The transformed inputs of a tile, one per channel.
fn transformed_inputs(
    convolution: &Convolution,
    precision: Precision,
    image: &[f64],
    tile: [usize; 2],
) -> Vec<[[f64; 4]; 4]> {
    let [_, height, width] = convolution.input;
    let start = tile.map(|position| position as isize - convolution.padding as isize);
    let planes = image.chunks_exact(height * width);
    let inputs = planes.map(|plane| transform(&INPUT, &pixels(plane, [height, width], start)));
    inputs.map(|inputs| rounded(precision, inputs)).collect()
}

/// The convolution of some images.
pub fn output(
    convolution: &Convolution,
    precision: Precision,
    weight: &[f64],
    input: &[f64],
) -> Vec<f64> {
    let Convolution { input: [channels, height, width], filters, .. } = *convolution;
    let [_, high, wide] = convolution.output();
    let kernels: Vec<[[f64; 4]; 4]> = (0..filters * channels)
        .map(|index| rounded(precision, transform(&KERNEL, &taps(weight, index))))
        .collect();
    let mut out = Vec::new();
    for image in input.chunks_exact(channels * height * width) {
        let start = out.len();
        out.resize(start + filters * high * wide, 0.0);
        for [y, x] in tiles([high, wide]) {
            let inputs = transformed_inputs(convolution, precision, image, [y, x]);
            for filter in 0..filters {
                let mut sums = [[0.0; 4]; 4];
                for (input, kernel) in inputs.iter().zip(&kernels[filter * channels..]) {
                    for point in 0..16 {
                        sums[point / 4][point % 4] +=
                            input[point / 4][point % 4] * kernel[point / 4][point % 4];
                    }
                }
                for (row, values) in transform(&OUTPUT, &sums).iter().enumerate() {
                    for (column, value) in values.iter().enumerate() {
                        if y + row < high && x + column < wide {
                            let pixel = (y + row) * wide + x + column;
                            out[start + filter * high * wide + pixel] = *value;
                        }
                    }
                }
            }
        }
    }
    out
}

/// The gradient of the images: a convolution with the weights of exchanged channels and filters, flipped.
pub fn input_gradient(
    convolution: &Convolution,
    precision: Precision,
    weight: &[f64],
    gradient: &[f64],
) -> Vec<f64> {
    let Convolution { input: [channels, ..], filters, padding, .. } = *convolution;
    let mut flipped = vec![0.0; weight.len()];
    for (index, value) in weight.iter().enumerate() {
        let (filter, channel, tap) = (index / 9 / channels, index / 9 % channels, index % 9);
        flipped[(channel * filters + filter) * 9 + 8 - tap] = *value;
    }
    let back = Convolution {
        input: convolution.output(),
        filters: channels,
        padding: 2 - padding,
        ..*convolution
    };
    output(&back, precision, &flipped, gradient)
}

pub fn weight_gradient(
    convolution: &Convolution,
    precision: Precision,
    input: &[f64],
    gradient: &[f64],
) -> Vec<f64> {
    let Convolution { input: [channels, height, width], filters, .. } = *convolution;
    let [_, high, wide] = convolution.output();
    let mut sums = vec![[[0.0; 4]; 4]; filters * channels];
    let images = input.chunks_exact(channels * height * width);
    for (image, gradient) in images.zip(gradient.chunks_exact(filters * high * wide)) {
        for [y, x] in tiles([high, wide]) {
            let inputs = transformed_inputs(convolution, precision, image, [y, x]);
            for (filter, plane) in gradient.chunks_exact(high * wide).enumerate() {
                let outputs = pixels(plane, [high, wide], [y as isize, x as isize]);
                let outputs = rounded(precision, transform(&transposed(&OUTPUT), &outputs));
                for (sums, input) in sums[filter * channels..].iter_mut().zip(&inputs) {
                    for point in 0..16 {
                        sums[point / 4][point % 4] +=
                            input[point / 4][point % 4] * outputs[point / 4][point % 4];
                    }
                }
            }
        }
    }
    let taps = |sums: &[[f64; 4]; 4]| transform(&transposed(&KERNEL), sums);
    sums.iter().flat_map(|sums| taps(sums).into_iter().flatten().collect::<Vec<_>>()).collect()
}

/// The root mean square of the errors of a convolution whose operands are rounded to bf16: by definition, and by Winograd's
/// algorithm.
fn rounding_errors() -> [f64; 2] {
    let convolution =
        Convolution { input: [32, 12, 12], filters: 32, kernel: [3, 3], padding: 1, stride: 1 };
    let mut numbers = Congruential(7);
    let mut some =
        |len| -> Vec<f64> { numbers.singles(len, 0.0, 1.0).into_iter().map(f64::from).collect() };
    let (weight, input) = (some(32 * 32 * 9), all_rounded(Precision::Bf16, &some(32 * 12 * 12)));
    let direct = |weight: &[f64]| {
        let mut out = vec![0.0; 32 * 12 * 12];
        convolution.products(1, |o, k, i| out[o] += weight[k] * input[i]);
        out
    };
    let exact = direct(&weight);
    let error = |found: &[f64]| {
        rms(&found.iter().zip(&exact).map(|(found, exact)| found - exact).collect::<Vec<_>>())
    };
    let tiles = |precision| output(&convolution, precision, &weight, &input);
    assert!(error(&tiles(Precision::F32)) < 1e-12 * rms(&exact), "without rounding they are equal");
    [direct(&all_rounded(Precision::Bf16, &weight)), tiles(Precision::Bf16)]
        .map(|found| error(&found) / rms(&exact))
}

#[test]
fn rounding_errors_of_tiles_are_of_the_size_of_those_of_a_convolution() {
    let [direct, tiles] = rounding_errors();
    // The inputs of a unit are rounded in any case, so only weights are in the first.
    assert!((0.0012..0.0020).contains(&direct), "{direct}");
    // Five thirds of the errors of two operands if all numbers were distributed alike. Transformed ones are sums, whose relative
    // errors are about a sixth larger than those of the weights here.
    let expected = 5.0 / 3.0 * 2.0f64.sqrt() * direct;
    assert!((1.05..1.25).contains(&(tiles / expected)), "{tiles}, not {expected}");
}
