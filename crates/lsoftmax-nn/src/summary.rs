//! A table of the layers of a network.

use std::fmt;

use lsoftmax_kernels::conv::{Pool, Stack, Unit};
use serde::Serialize;

use crate::description::parameters;
use crate::{NetworkConfig, NetworkError};

/// The layers of a network with their sizes; prints as a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkSummary {
    /// Channels, height and width of an image.
    pub input: [usize; 3],
    /// The layers, first to last.
    pub layers: Vec<LayerSummary>,
    /// The number of trainable parameters, without batch norm's running statistics.
    pub parameters: u64,
    /// The number of multiply-adds of the forward pass of an image.
    pub multiply_adds: u64,
}

/// A layer of a [`NetworkSummary`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayerSummary {
    /// The name, such as `conv1.2` (the second convolution of stage conv1), `conv2.shortcut` (a convolution that
    /// changes the size of a block's input), `pool1` or `features`.
    pub name: String,
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// The stride.
    pub stride: usize,
    /// Channels, height and width of the output.
    pub output: [usize; 3],
    /// The number of parameters, including those of batch norm and PReLU.
    pub parameters: u64,
    /// The number of multiply-adds of the convolution of an image, including padding.
    pub multiply_adds: u64,
    /// In a residual block, the layer whose output is added.
    pub adds: Option<String>,
}

impl NetworkConfig {
    /// The layers of the network with their sizes.
    ///
    /// # Errors
    /// When the layers do not fit together.
    pub fn summary(&self) -> Result<NetworkSummary, NetworkError> {
        let (stack, names) = self.named_stack()?;
        let mut layers = Vec::with_capacity(names.len() + self.stages.len());
        // Of each unit, the last layer: its pooling if it has one.
        let mut ends: Vec<String> = Vec::new();
        for (unit, name) in names.into_iter().enumerate() {
            let adds = stack.addend(unit).map(|addend| ends[addend].clone());
            ends.push(name.clone());
            layers.push(convolution(&stack, unit, name, adds));
            let layer = &layers[layers.len() - 1];
            let stage = layer.name.split('.').next().unwrap_or_default();
            let (name, kernel, stride) = match stack.units()[unit].pool {
                Pool::None => continue,
                Pool::Max => (stage.replace("conv", "pool"), [2, 2], 2),
                Pool::Average => ("average".to_owned(), [layer.output[1], layer.output[2]], 1),
            };
            ends[unit] = name.clone();
            let output = stack.unit_output(unit);
            layers.push(LayerSummary {
                name,
                kernel,
                stride,
                output,
                parameters: 0,
                multiply_adds: 0,
                adds: None,
            });
        }
        Ok(NetworkSummary {
            input: self.input,
            parameters: layers.iter().map(|layer| layer.parameters).sum(),
            multiply_adds: layers.iter().map(|layer| layer.multiply_adds).sum(),
            layers,
        })
    }
}

/// A unit without its pooling.
fn convolution(stack: &Stack, unit: usize, name: String, adds: Option<String>) -> LayerSummary {
    let Unit { kernel, stride, .. } = stack.units()[unit];
    LayerSummary {
        name,
        kernel,
        stride,
        output: stack.convolved(unit),
        parameters: parameters(stack, unit) as u64,
        multiply_adds: stack.multiply_adds(unit),
        adds,
    }
}

impl fmt::Display for NetworkSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heading =
            ["layer", "kernel", "stride", "output", "parameters", "multiply-adds", "adds"];
        let mut rows = vec![heading.map(str::to_owned)];
        rows.push(row("input", ["", "", &by(&self.input), "", "", ""]));
        for layer in &self.layers {
            let cells = [
                by(&layer.kernel),
                layer.stride.to_string(),
                by(&layer.output),
                grouped(layer.parameters),
                grouped(layer.multiply_adds),
                layer.adds.clone().unwrap_or_default(),
            ];
            rows.push(row(&layer.name, cells.each_ref().map(String::as_str)));
        }
        let (parameters, multiply_adds) = (grouped(self.parameters), grouped(self.multiply_adds));
        rows.push(row("total", ["", "", "", &parameters, &multiply_adds, ""]));

        // The last column is for residual networks.
        let columns = if self.layers.iter().any(|layer| layer.adds.is_some()) { 7 } else { 6 };
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: [usize; 7] = std::array::from_fn(width);
        let line = |row: &[String; 7]| {
            let cells = row[..columns].iter().zip(widths).skip(1);
            let cells: String = cells.map(|(cell, width)| format!("  {cell:>width$}")).collect();
            format!("{:<1$}{cells}", row[0], widths[0]).trim_end().to_owned()
        };
        f.write_str(&rows.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

fn row(name: &str, [a, b, c, d, e, f]: [&str; 6]) -> [String; 7] {
    [name, a, b, c, d, e, f].map(str::to_owned)
}

/// Formats sizes as 64x28x28.
fn by(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// Formats a number with thousands separators, as 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
