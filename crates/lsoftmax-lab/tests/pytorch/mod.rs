//! The weights, images and labels of the PyTorch fixtures (reference/README.md describes them).

use burn::module::Param;
use burn::tensor::{Device, Int, Tensor, TensorData};
use lsoftmax::{Execution, Margin, Precision};
use lsoftmax_lab::batch::LabelledImages;
use lsoftmax_lab::head::HeadSettings;
use lsoftmax_lab::model::Classifier;
use lsoftmax_nn::NetworkConfig;
use serde::de::DeserializeOwned;

/// The cases of a fixture.
pub fn cases<T: DeserializeOwned>(name: &str) -> Vec<T> {
    #[derive(serde::Deserialize)]
    struct Fixture<T> {
        cases: Vec<T>,
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reference/fixtures");
    let text = std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
    serde_json::from_str::<Fixture<T>>(&text).unwrap().cases
}

fn splitmix64(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add((index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn tensor<const D: usize>(seed: u64, shape: [usize; D], scale: f64, device: &Device) -> Tensor<D> {
    let value = |i| ((splitmix64(seed, i) >> 40) as f64 / (1u64 << 23) as f64 - 1.0) * scale;
    let count = shape.iter().product::<usize>() as u64;
    let values: Vec<f32> = (0..count).map(|i| value(i) as f32).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// The model, in f32.
pub fn model(config: &NetworkConfig, classes: usize, margin: f64, device: &Device) -> Classifier {
    let head = HeadSettings::l_softmax(Margin::new(margin).unwrap());
    let execution = Execution::new(Precision::F32);
    let mut model = Classifier::new(config, classes, head, execution, device).unwrap();
    for (index, unit) in model.network.units.iter_mut().enumerate() {
        let shape @ [_, channels, height, width] = unit.weight.dims();
        let scale = (6.0 / (channels * height * width) as f64).sqrt();
        let weight = tensor(1000 + index as u64, shape, scale, device);
        unit.weight = Param::from_tensor(weight);
    }
    let scale = (3.0 / config.features.size as f64).sqrt();
    let weight = tensor(2000, [classes, config.features.size], scale, device);
    model.head.weight = Param::from_tensor(weight);
    model
}

/// The images of a step.
pub fn images(config: &NetworkConfig, batch: usize, step: u64, device: &Device) -> Tensor<4> {
    let [channels, height, width] = config.input;
    tensor(3000 + step, [batch, channels, height, width], 1.0, device)
}

fn labels(batch: usize, classes: usize, step: u64, device: &Device) -> Tensor<1, Int> {
    let label = |i| ((splitmix64(4000 + step, i) >> 40) % classes as u64) as i64;
    let labels: Vec<i64> = (0..batch as u64).map(label).collect();
    Tensor::from_data(TensorData::new(labels, [batch]), device)
}

/// The batch of a step.
pub fn batch(
    config: &NetworkConfig,
    (batch, classes): (usize, usize),
    step: u64,
    device: &Device,
) -> LabelledImages {
    let images = images(config, batch, step, device);
    LabelledImages { images, labels: labels(batch, classes, step, device) }
}
