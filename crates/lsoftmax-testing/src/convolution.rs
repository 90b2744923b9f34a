//! A naive convolution, one product at a time.

/// The sizes of a convolution. Images are N x C x H x W, weights filters x channels x height x width.
#[derive(Clone, Copy, Debug)]
pub struct Convolution {
    /// Channels, height and width of an input image.
    pub input: [usize; 3],
    /// Output channels.
    pub filters: usize,
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// The number of zeros on every side of the input.
    pub padding: usize,
    /// The stride in both directions.
    pub stride: usize,
}

impl Convolution {
    /// Channels, height and width of an output image.
    pub fn output(&self) -> [usize; 3] {
        let [_, height, width] = self.input;
        let side =
            |side: usize, kernel: usize| (side + 2 * self.padding - kernel) / self.stride + 1;
        [self.filters, side(height, self.kernel[0]), side(width, self.kernel[1])]
    }

    /// Calls `visit(output, weight, input)` with the indices of every product. The products of one
    /// output are visited in the order of its weights.
    pub fn products(&self, images: usize, mut visit: impl FnMut(usize, usize, usize)) {
        let [channels, height, width] = self.input;
        let [filters, rows, columns] = self.output();
        let [kernel_height, kernel_width] = self.kernel;
        for n in 0..images {
            for f in 0..filters {
                for c in 0..channels {
                    for ky in 0..kernel_height {
                        for kx in 0..kernel_width {
                            let weight =
                                ((f * channels + c) * kernel_height + ky) * kernel_width + kx;
                            for row in 0..rows {
                                let y = (row * self.stride + ky).wrapping_sub(self.padding);
                                if y >= height {
                                    continue;
                                }
                                for column in 0..columns {
                                    let x = (column * self.stride + kx).wrapping_sub(self.padding);
                                    if x < width {
                                        let output =
                                            ((n * filters + f) * rows + row) * columns + column;
                                        let input = ((n * channels + c) * height + y) * width + x;
                                        visit(output, weight, input);
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
