//! A recipe for a folder of one's own images.

use lsoftmax::{LambdaSchedule, Margin, Precision};
use lsoftmax_nn::{FeaturesConfig, NetworkConfig, StageConfig};

use super::{LearningRate, Loss, NetworkChoice, OnDivergence, Recipe};
use crate::data::{Augment, Shape};
use crate::model::Sgd;

/// How often every image is seen, about.
const EPOCHS: usize = 30;

/// The paper's steps, the most that are taken.
const MOST_STEPS: usize = 18_000;

/// The fewest steps: with less, small folders would not be learned.
const FEWEST_STEPS: usize = 500;

/// From here on there are many classes, or images of a class, to judge the margin by.
const MANY_CLASSES: usize = 50;
const MANY_IMAGES_OF_A_CLASS: usize = 500;

/// From here on there are images enough for the paper's batches.
const MANY_IMAGES: usize = 10_000;

/// Larger images are halved by the first convolution.
const LARGE_SIDE: usize = 64;

/// The largest map that the layer of features sees, as in the paper's networks.
const LAST_SIDE: usize = 4;

impl Recipe {
    /// The size to which images of a folder are brought unless said otherwise.
    pub const FOLDER_SHAPE: Shape = Shape { channels: 3, height: 64, width: 64 };

    /// Where to start from with a folder of `images` labelled images of `classes` classes, brought to
    /// `shape`.
    ///
    /// It is the paper's recipe for CIFAR10+ to the folder's measure: a network pooled as often as the
    /// size needs, about 30 epochs, a tenth of the images held out, moved and mirrored views (set
    /// `augment.flip` to false where left and right matter). m is 4; with many classes, or few images
    /// of each, λ stays at 5 or above.
    pub fn for_folder(folder: &str, classes: usize, images: usize, shape: Shape) -> Self {
        let validation = images / 10;
        let training = images - validation;
        let batch = if training < MANY_IMAGES { 64 } else { 256 };
        let steps = (training.saturating_mul(EPOCHS) / batch).clamp(FEWEST_STEPS, MOST_STEPS);
        let hard = classes >= MANY_CLASSES || images / classes.max(1) < MANY_IMAGES_OF_A_CLASS;
        let lambda_min = if hard { 5.0 } else { 0.0 };
        let full = Self {
            name: name_of(folder),
            source: "defaults for a folder of images, after the paper's CIFAR10+".to_owned(),
            expected: Default::default(),
            data: folder.to_owned(),
            augment: Augment { pad: shape.height.min(shape.width) / 8, flip: true },
            validation,
            network: NetworkChoice::Described(network(shape, classes)),
            loss: Loss::LSoftmax,
            margin: Margin::new(4).expect("4 is a margin"),
            lambda: LambdaSchedule::power(1000.0, 2e-5, 45.0, lambda_min)
                .expect("it is a schedule"),
            batch,
            steps: MOST_STEPS as u64,
            learning_rate: LearningRate::Steps {
                // In proportion to the batch, so that an epoch moves the weights as far.
                rate: 0.1 * batch as f64 / 256.0,
                factor: 0.1,
                at: vec![12_000, 15_000],
            },
            sgd: Sgd::default(),
            seed: 1,
            precision: Precision::Bf16,
            evaluate_every: 600,
            log_every: 60,
            checkpoint_every: 600,
            on_divergence: OnDivergence::Stop,
        };
        full.scaled(steps as u64)
    }
}

impl Recipe {
    /// The recipe for other data than its own, of which nothing is expected, under another name.
    pub fn with_data(mut self, data: &str) -> Self {
        let of_data = name_of(data);
        // A recipe that is called after its data is called after the new ones.
        self.name =
            if self.name == self.data { of_data } else { format!("{}-{of_data}", self.name) };
        self.data = data.to_owned();
        self.expected.clear();
        self
    }
}

/// What a recipe for data is called: as the set, or as the folder.
fn name_of(data: &str) -> String {
    let name = std::path::Path::new(data).file_name().and_then(|name| name.to_str());
    let name: String =
        name.unwrap_or("").chars().filter(|c| !c.is_control() && *c != '\\').collect();
    if name.is_empty() { "folder".into() } else { name }
}

/// The paper's network for CIFAR10, pooled until its last map is at most 4 x 4.
fn network(shape: Shape, classes: usize) -> NetworkConfig {
    let Shape { channels, height, width } = shape;
    let larger = height.max(width);
    let stride = if larger > LARGE_SIDE { 2 } else { 1 };
    let first = StageConfig { stride, pool: false, ..StageConfig::new(64, 1) };
    let mut side = larger.div_ceil(stride);
    let mut stages = vec![first];
    let mut filters = [64, 96].into_iter();
    while side > LAST_SIDE || stages.len() == 1 {
        stages.push(StageConfig::new(filters.next().unwrap_or(128), 4));
        side = side.div_ceil(2);
    }
    let features = FeaturesConfig::new(if classes < MANY_CLASSES { 256 } else { 512 });
    NetworkConfig { input: [channels, height, width], stages, features }
}
