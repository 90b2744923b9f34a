//! The recipe that fits a folder of images.

mod recipe_text;

use lsoftmax_data::Shape;
use lsoftmax_lab::recipe::{LearningRate, Recipe};
use recipe_text::lambda;

#[test]
fn the_recipe_of_a_folder_depends_on_its_size() {
    let shape = Recipe::FOLDER_SHAPE;
    let folder = |classes, images| Recipe::for_folder("photos".into(), classes, images, shape);

    // 30 epochs of 27,000 images by 256 are 3,164 steps.
    let many = folder(10, 30_000);
    assert_eq!((many.steps, many.batch, many.validation), (3_164, 256, 3_000));
    assert_eq!((many.head.margin().value(), lambda(&many, u64::MAX)), (4.0, 0.0));
    // 30 epochs of 360 images by 64 are 168 steps.
    let few = folder(3, 400);
    assert_eq!((few.steps, few.batch, few.validation), (500, 64, 40));
    assert_eq!(lambda(&few, u64::MAX), 5.0);
    let classes = folder(1_000, 10_000_000);
    assert_eq!((classes.steps, lambda(&classes, u64::MAX)), (18_000, 5.0));
    assert_eq!(classes.network.config().unwrap().features.size, 512);
    // As in the paper, divided by 10 after two thirds and five sixths of the steps.
    let at = vec![333, 417];
    assert_eq!(few.learning_rate, LearningRate::Steps { rate: 0.025, factor: 0.1, at });
}

#[test]
fn the_recipe_of_every_folder_is_valid() {
    for (classes, images) in [(1, 1), (2, 9), (0, 0), (5, 64), (100_000, 10), (7, usize::MAX)] {
        for (channels, height, width) in
            [(3, 64, 64), (1, 28, 28), (3, 1, 1), (3, 5, 300), (3, 224, 224), (1, 4096, 4096)]
        {
            let shape = Shape { channels, height, width };
            let recipe = Recipe::for_folder("photos".into(), classes, images, shape);
            let told = recipe.check();
            assert!(told.is_ok(), "{classes}, {images}, {shape}: {told:?}");
        }
    }
}

#[test]
fn the_network_of_a_folder_has_as_many_poolings_as_the_size_needs() {
    let poolings = |side| {
        let shape = Shape { channels: 3, height: side, width: side };
        let network =
            Recipe::for_folder("photos".into(), 10, 5_000, shape).network.config().unwrap();
        let stack = network.stack().unwrap();
        let last = stack.unit_input(stack.units().len() - 1);
        (network.stages.iter().filter(|stage| stage.pool).count(), last[1])
    };
    assert_eq!(poolings(32), (3, 4));
    assert_eq!(poolings(28), (3, 4));
    assert_eq!(poolings(64), (4, 4));
    // For images larger than 64, the first convolution has a stride of 2.
    assert_eq!(poolings(65), (4, 3));
    assert_eq!(poolings(128), (4, 4));
    assert_eq!(poolings(224), (5, 4));
    assert_eq!(poolings(16), (2, 4));
    assert_eq!(poolings(4), (1, 2));
}
