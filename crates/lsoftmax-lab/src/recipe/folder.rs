//! The default recipe for a folder of images.

use lsoftmax::LambdaSchedule;
use lsoftmax_data::{Augment, DataSource, Shape};
use lsoftmax_nn::{FeaturesConfig, NetworkConfig, StageConfig};

use super::{NetworkChoice, Recipe};

/// The approximate number of epochs.
const EPOCHS: usize = 30;

/// The maximum number of steps, as in the paper.
const MOST_STEPS: usize = 18_000;

/// The minimum number of steps, needed for small folders.
const FEWEST_STEPS: usize = 500;

/// From this number of classes on, or below this number of images per class, λ stays at 5 or above.
const MANY_CLASSES: usize = 50;
const MANY_IMAGES_PER_CLASS: usize = 500;

/// From this number of training images on, batches are as large as in the paper.
const MANY_IMAGES: usize = 10_000;

/// For images larger than this, the first convolution has a stride of 2.
const LARGE_SIDE: usize = 64;

/// The largest height and width of the input of the feature layer, as in the paper's networks.
const LAST_SIDE: usize = 4;

impl Recipe {
    /// The default size to which images of a folder are resized.
    pub const FOLDER_SHAPE: Shape = Shape { channels: 3, height: 64, width: 64 };

    /// A recipe for a folder of `images` images of `classes` classes, resized to `shape`.
    ///
    /// It is the paper's recipe for CIFAR10+, adapted to the folder: as many pooling layers as the size
    /// needs, about 30 epochs, a tenth of the images held out, random crops and flips (set
    /// `augment.flip` to false where left and right matter). m is 4; with many classes, or few images
    /// per class, λ stays at 5 or above.
    pub fn for_folder(folder: DataSource, classes: usize, images: usize, shape: Shape) -> Self {
        // A tenth is also split off for testing, and one image of every class remains to train on.
        let validation = (images / 10).min(images.saturating_sub(images / 10 + classes));
        let training = images - validation;
        let batch = if training < MANY_IMAGES { 64 } else { 256 };
        let steps = (training.saturating_mul(EPOCHS) / batch).clamp(FEWEST_STEPS, MOST_STEPS);
        let hard = classes >= MANY_CLASSES || images / classes.max(1) < MANY_IMAGES_PER_CLASS;
        let lambda_min = if hard { 5.0 } else { 0.0 };
        let mut full = Self::built_in("cifar10-plus").expect("the built-in recipes are valid");
        full.name = folder.name();
        full.source = "defaults for a folder of images, after the paper's CIFAR10+".to_owned();
        full.expected.clear();
        full.data = folder;
        full.augment =
            Augment { pad: shape.height.min(shape.width) / 8, flip: true, ..Augment::NONE };
        full.validation = validation;
        full.network = NetworkChoice::Described(network(shape, classes));
        let lambda = LambdaSchedule::power(1000.0, 2e-5, 45.0, lambda_min);
        full.lambda = lambda.expect("it is a schedule").into();
        full.batch = batch;
        (full.log_every, full.checkpoint_every) = (60, 600);
        // The learning rate is proportional to the batch size.
        full.learning_rate = full.learning_rate.with_rate(0.1 * batch as f64 / 256.0);
        full.scaled(steps as u64)
    }
}

/// The paper's network for CIFAR10, with pooling until the last feature map is at most 4 x 4.
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
