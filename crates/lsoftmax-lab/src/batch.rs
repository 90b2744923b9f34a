//! A batch of labelled images as tensors.

use burn::tensor::{Device, Int, Tensor, TensorData};
use lsoftmax_data::{Batch, Shape};

/// Images and labels on a device.
#[derive(Clone, Debug)]
pub struct LabelledImages {
    /// `[images, channels, height, width]`; of several ranks, each has its share of them.
    pub images: Tensor<4>,
    /// `[images]`, one class per image of the whole batch.
    pub labels: Tensor<1, Int>,
}

impl LabelledImages {
    /// Moves a loader's batch to a device.
    pub fn new(batch: Batch, device: &Device) -> Self {
        let labels: Vec<i64> = batch.labels.iter().map(|label| i64::from(*label)).collect();
        let shape = [labels.len()];
        let labels = Tensor::from_data(TensorData::new(labels, shape), device);
        Self { images: images(batch, device), labels }
    }
}

/// The images of a batch alone, for inference.
pub(crate) fn images(batch: Batch, device: &Device) -> Tensor<4> {
    let Shape { channels, height, width } = batch.shape;
    let shape = [batch.pixels.len() / batch.shape.pixels(), channels, height, width];
    Tensor::from_data(TensorData::new(batch.pixels, shape), device)
}
