//! A table of the layers of a network.

use std::fmt;

use lsoftmax_kernels::conv::{Stack, Unit};
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
    /// The name, such as `conv1.2` (the second convolution of stage conv1), `pool1` or `features`.
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
}

impl NetworkConfig {
    /// The layers of the network with their sizes.
    ///
    /// # Errors
    /// When the layers do not fit together.
    pub fn summary(&self) -> Result<NetworkSummary, NetworkError> {
        let stack = self.stack()?;
        let mut layers = Vec::with_capacity(stack.units().len() + self.stages.len());
        let mut unit = 0;
        for (index, stage) in self.stages.iter().enumerate() {
            let name = self.stage_name(index);
            for number in 1..=stage.units {
                layers.push(convolution(&stack, unit, format!("{name}.{number}")));
                unit += 1;
            }
            if stage.pool {
                layers.push(pool(name.replace("conv", "pool"), stack.unit_output(unit - 1)));
            }
        }
        layers.push(convolution(&stack, unit, "features".to_owned()));
        Ok(NetworkSummary {
            input: self.input,
            parameters: layers.iter().map(|layer| layer.parameters).sum(),
            multiply_adds: layers.iter().map(|layer| layer.multiply_adds).sum(),
            layers,
        })
    }
}

/// A unit without its pooling.
fn convolution(stack: &Stack, unit: usize, name: String) -> LayerSummary {
    let Unit { kernel, stride, .. } = stack.units()[unit];
    LayerSummary {
        name,
        kernel,
        stride,
        output: stack.convolved(unit),
        parameters: parameters(stack, unit) as u64,
        multiply_adds: stack.multiply_adds(unit),
    }
}

fn pool(name: String, output: [usize; 3]) -> LayerSummary {
    LayerSummary { name, kernel: [2, 2], stride: 2, output, parameters: 0, multiply_adds: 0 }
}

impl fmt::Display for NetworkSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heading = ["layer", "kernel", "stride", "output", "parameters", "multiply-adds"];
        let mut rows = vec![heading.map(str::to_owned)];
        rows.push(row("input", "", "", &by(&self.input), "", ""));
        for layer in &self.layers {
            rows.push(row(
                &layer.name,
                &by(&layer.kernel),
                &layer.stride.to_string(),
                &by(&layer.output),
                &grouped(layer.parameters),
                &grouped(layer.multiply_adds),
            ));
        }
        let (parameters, multiply_adds) = (grouped(self.parameters), grouped(self.multiply_adds));
        rows.push(row("total", "", "", "", &parameters, &multiply_adds));

        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        let line = |row: &[String; 6]| {
            let cells = row.iter().zip(widths).skip(1);
            let cells: String = cells.map(|(cell, width)| format!("  {cell:>width$}")).collect();
            format!("{:<1$}{cells}", row[0], widths[0]).trim_end().to_owned()
        };
        f.write_str(&rows.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

fn row(a: &str, b: &str, c: &str, d: &str, e: &str, f: &str) -> [String; 6] {
    [a, b, c, d, e, f].map(str::to_owned)
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
