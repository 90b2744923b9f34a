//! Winograd's algorithm F(2x2, 3x3): a 3x3 convolution with 16 multiplications for 2x2 outputs instead of 36.
//!
//! In one dimension, two outputs y of a kernel g on four inputs d are
//!
//! y = Aᵀ ((G g) ⊙ (Bᵀ d)), with
//!
//! ```text
//!      1  0 −1  0        1   0   0         1 0
//! Bᵀ = 0  1  1  0    G = ½   ½   ½     A = 1 1
//!      0 −1  1  0        ½  −½   ½         1 −1
//!      0 −1  0  1        0   0   1         0 1
//! ```
//!
//! In two dimensions every transform is applied to columns, then to rows: y = Aᵀ ((G g Gᵀ) ⊙ (Bᵀ d B)) A on a *tile* of
//! 2x2 outputs and 4x4 inputs. The sum over channels is taken between the products and the last transform, so for each
//! of the 16 *points* of a tile it is a matrix product of transformed inputs and weights: 4/9 of the
//! multiplications of a convolution.
//!
//! The gradient of the input is the same with the weights flipped. That of the weights follows from the formula:
//! Gᵀ (Σ (Bᵀ d B) ⊙ (A ∂y Aᵀ)) G, a sum over images and tiles.
//!
//! Tiles start at even rows and columns of what is computed, whatever part of it is. An output reads no input outside of
//! its own 3x3 window, so that infinities do not spread.

use super::layout::FeatureMap;
use crate::lanes::Lanes;

/// Rows and columns of outputs of a tile.
pub(super) const SIDE: usize = 2;
/// Rows and columns of inputs of a tile.
pub(super) const WINDOW: usize = 4;
/// Products of a tile.
pub(super) const POINTS: usize = WINDOW * WINDOW;
/// Taps of the kernel in each direction.
pub(super) const KERNEL: usize = 3;
/// Taps of the kernel.
pub(super) const TAPS: usize = KERNEL * KERNEL;

/// The fewest channels of a map: those of a row. With fewer, transforms and products would be of zeros.
const MIN_CHANNELS: usize = 32;

/// Applies a transform to all columns, then to all rows.
#[inline(always)]
fn in_both_directions<T: Copy, const M: usize, const N: usize>(
    values: [[T; M]; M],
    transform: impl Fn([T; M]) -> [T; N],
) -> [[T; N]; N] {
    let mut rows = [[values[0][0]; M]; N];
    for column in 0..M {
        let mut whole = [values[0][0]; M];
        for row in 0..M {
            whole[row] = values[row][column];
        }
        let transformed = transform(whole);
        for row in 0..N {
            rows[row][column] = transformed[row];
        }
    }
    let mut out = [[values[0][0]; N]; N];
    for row in 0..N {
        out[row] = transform(rows[row]);
    }
    out
}

/// Bᵀ d B.
#[inline(always)]
pub(super) fn transform_input<L: Lanes>(inputs: [[L; WINDOW]; WINDOW]) -> [[L; WINDOW]; WINDOW] {
    in_both_directions(
        inputs,
        #[inline(always)]
        |[a, b, c, d]| [a.sub(c), b.add(c), c.sub(b), d.sub(b)],
    )
}

/// Aᵀ m A.
#[inline(always)]
pub(super) fn transform_products<L: Lanes>(products: [[L; WINDOW]; WINDOW]) -> [[L; SIDE]; SIDE] {
    in_both_directions(
        products,
        #[inline(always)]
        |[a, b, c, d]| [a.add(b.add(c)), b.sub(c).add(d)],
    )
}

/// A ∂y Aᵀ.
#[inline(always)]
pub(super) fn transform_gradient<L: Lanes>(gradient: [[L; SIDE]; SIDE]) -> [[L; WINDOW]; WINDOW] {
    in_both_directions(
        gradient,
        #[inline(always)]
        |[a, b]| [a, a.add(b), a.sub(b), b],
    )
}

/// G g Gᵀ. All lanes of `half` are ½.
#[inline(always)]
pub(super) fn transform_kernel<L: Lanes>(
    kernel: [[L; KERNEL]; KERNEL],
    half: L,
) -> [[L; WINDOW]; WINDOW] {
    in_both_directions(
        kernel,
        #[inline(always)]
        |[a, b, c]| {
            let outer = a.add(c);
            [a, half.mul(outer.add(b)), half.mul(outer.sub(b)), c]
        },
    )
}

/// Gᵀ u G. All lanes of `half` are ½.
#[inline(always)]
pub(super) fn transform_sums<L: Lanes>(
    sums: [[L; WINDOW]; WINDOW],
    half: L,
) -> [[L; KERNEL]; KERNEL] {
    in_both_directions(
        sums,
        #[inline(always)]
        |[a, b, c, d]| {
            let both = half.mul(b.add(c));
            [a.add(both), half.mul(b.sub(c)), d.add(both)]
        },
    )
}

/// The tiles of a 3x3 convolution with a stride of 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles {
    /// The feature map that is read.
    pub from: FeatureMap,
    /// The feature map that is written.
    pub to: FeatureMap,
    pub padding: usize,
}

impl Tiles {
    /// The tiles of a convolution, if it has a kernel of 3x3, a stride of 1 and enough channels.
    pub fn new(
        kernel: [usize; 2],
        (padding, stride): (usize, usize),
        from: FeatureMap,
        to: FeatureMap,
    ) -> Option<Self> {
        let fits = kernel == [KERNEL; 2] && padding < KERNEL && stride == 1;
        let wide = |map: FeatureMap| !map.folded && map.channels >= MIN_CHANNELS;
        (fits && wide(from) && wide(to)).then_some(Self { from, to, padding })
    }

    /// The tiles of the gradient of the input.
    pub fn backward(self) -> Self {
        Self { from: self.to, to: self.from, padding: KERNEL - 1 - self.padding }
    }

    /// The tiles of a row of tiles.
    pub fn per_row(&self) -> usize {
        self.to.width.div_ceil(SIDE)
    }

    /// The input pixels of a tile, by row and column of its first output; none outside of the input.
    pub fn window(&self, [y, x]: [usize; 2]) -> [[Option<[usize; 2]>; WINDOW]; WINDOW] {
        let inside = |position: usize, size: usize| {
            position.checked_sub(self.padding).filter(|position| *position < size)
        };
        let mut window = [[None; WINDOW]; WINDOW];
        for (row, pixels) in window.iter_mut().enumerate() {
            for (column, pixel) in pixels.iter_mut().enumerate() {
                let y = inside(y + row, self.from.height);
                let x = inside(x + column, self.from.width);
                *pixel = y.zip(x).map(|(y, x)| [y, x]);
            }
        }
        window
    }

    /// The output pixels of a tile; none outside of the output.
    pub fn outputs(&self, [y, x]: [usize; 2]) -> [[Option<[usize; 2]>; SIDE]; SIDE] {
        let mut outputs = [[None; SIDE]; SIDE];
        for (row, pixels) in outputs.iter_mut().enumerate() {
            for (column, pixel) in pixels.iter_mut().enumerate() {
                let [y, x] = [y + row, x + column];
                *pixel = (y < self.to.height && x < self.to.width).then_some([y, x]);
            }
        }
        outputs
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lanes::{LANES, PlainLanes};

    fn lanes(values: &[[f32; LANES]]) -> Vec<PlainLanes> {
        values.iter().map(|values| PlainLanes(*values)).collect()
    }

    fn square<T: Copy, const N: usize>(values: &[T]) -> [[T; N]; N] {
        std::array::from_fn(|row| std::array::from_fn(|column| values[row * N + column]))
    }

    /// Numbers whose sums and products are exact.
    fn integers(count: usize) -> impl Strategy<Value = Vec<f32>> {
        proptest::collection::vec((-16i8..17).prop_map(f32::from), count)
    }

    proptest! {
        #[test]
        fn transformed_products_are_the_convolution(
            inputs in integers(POINTS * LANES),
            kernel in integers(TAPS),
        ) {
            let inputs: Vec<[f32; LANES]> = inputs.as_chunks().0.to_vec();
            let kernels: Vec<_> = kernel.iter().map(|tap| PlainLanes([*tap; LANES])).collect();
            let weights = transform_kernel(square(&kernels), PlainLanes([0.5; LANES]));
            let mut points = transform_input(square::<_, WINDOW>(&lanes(&inputs)));
            for (points, weights) in points.iter_mut().zip(weights) {
                for (point, weight) in points.iter_mut().zip(weights) {
                    *point = point.mul(weight);
                }
            }
            let outputs = transform_products(points);
            for (y, outputs) in outputs.iter().enumerate() {
                for (x, output) in outputs.iter().enumerate() {
                    for (lane, output) in output.0.into_iter().enumerate() {
                        let products = (0..TAPS).map(|tap| {
                            let [row, column] = [y + tap / KERNEL, x + tap % KERNEL];
                            kernel[tap] * inputs[row * WINDOW + column][lane]
                        });
                        prop_assert_eq!(output, products.sum::<f32>());
                    }
                }
            }
        }

        #[test]
        fn transformed_gradients_are_the_gradient_of_the_kernel(
            inputs in integers(POINTS * LANES),
            gradient in integers(SIDE * SIDE * LANES),
        ) {
            let inputs: Vec<[f32; LANES]> = inputs.as_chunks().0.to_vec();
            let gradient: Vec<[f32; LANES]> = gradient.as_chunks().0.to_vec();
            let left = transform_input(square::<_, WINDOW>(&lanes(&inputs)));
            let right = transform_gradient(square::<_, SIDE>(&lanes(&gradient)));
            let products = std::array::from_fn(|row| {
                std::array::from_fn(|column| left[row][column].mul(right[row][column]))
            });
            let found = transform_sums(products, PlainLanes([0.5; LANES]));
            for lane in 0..LANES {
                for tap in 0..TAPS {
                    let [ky, kx] = [tap / KERNEL, tap % KERNEL];
                    let products = (0..SIDE * SIDE).map(|output| {
                        let [y, x] = [output / SIDE + ky, output % SIDE + kx];
                        gradient[output][lane] * inputs[y * WINDOW + x][lane]
                    });
                    prop_assert_eq!(found[ky][kx].0[lane], products.sum::<f32>());
                }
            }
        }
    }
}
