//! A recipe for a folder of one's own images.

use lsoftmax::LambdaSchedule;
use lsoftmax_data::{Augment, DataSource, Shape};
use lsoftmax_nn::{FeaturesConfig, NetworkConfig, StageConfig};

use super::{NetworkChoice, Recipe};

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
    pub fn for_folder(folder: DataSource, classes: usize, images: usize, shape: Shape) -> Self {
        let validation = images / 10;
        let training = images - validation;
        let batch = if training < MANY_IMAGES { 64 } else { 256 };
        let steps = (training.saturating_mul(EPOCHS) / batch).clamp(FEWEST_STEPS, MOST_STEPS);
        let hard = classes >= MANY_CLASSES || images / classes.max(1) < MANY_IMAGES_OF_A_CLASS;
        let lambda_min = if hard { 5.0 } else { 0.0 };
        let mut full = Self::built_in("cifar10-plus").expect("the built-in recipes are valid");
        full.name = folder.name();
        full.source = "defaults for a folder of images, after the paper's CIFAR10+".to_owned();
        full.expected.clear();
        full.data = folder;
        full.augment = Augment { pad: shape.height.min(shape.width) / 8, flip: true };
        full.validation = validation;
        full.network = NetworkChoice::Described(network(shape, classes));
        full.lambda =
            LambdaSchedule::power(1000.0, 2e-5, 45.0, lambda_min).expect("it is a schedule");
        full.batch = batch;
        (full.log_every, full.checkpoint_every) = (60, 600);
        // In proportion to the batch, so that an epoch moves the weights as far.
        full.learning_rate = full.learning_rate.with_rate(0.1 * batch as f64 / 256.0);
        full.scaled(steps as u64)
    }
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
