//! Batches of P classes with K images each.

use std::collections::{BTreeMap, BTreeSet};

use lsoftmax_data::{Augment, Images, Loader, LoaderError, Mean, Sampling, Shape};

const SHAPE: Shape = Shape { channels: 1, height: 2, width: 2 };

/// Seven classes of 3 to 9 images.
fn images() -> Images {
    let labels: Vec<u32> = (0..7).flat_map(|class| vec![class; 3 + class as usize]).collect();
    Images::new(SHAPE, (0..4 * labels.len()).map(|byte| byte as u8).collect(), labels)
        .expect("images")
}

fn loader(batch: usize, per_class: usize, seed: u64) -> Result<Loader, LoaderError> {
    let sampling = Sampling::training(batch, seed, Augment { pad: 1, flip: true, ..Augment::NONE });
    let sampling = Sampling { images_per_class: Some(per_class), ..sampling };
    Loader::new(images(), Mean::of(&images()), sampling)
}

#[test]
fn a_batch_has_as_many_images_of_as_many_classes() {
    let loader = loader(12, 4, 5).expect("a loader");
    for number in 0..50 {
        let batch = loader.batch(number);
        let mut counts = BTreeMap::new();
        batch.labels.iter().for_each(|label| *counts.entry(*label).or_insert(0) += 1);
        assert_eq!(counts.values().collect::<Vec<_>>(), [&4, &4, &4], "batch {number}");
        // The class with three images has one of them twice; larger ones have none twice within an epoch.
        for (label, index) in batch.labels.iter().zip(&batch.indices) {
            assert_eq!(images().labels()[*index as usize], *label);
        }
    }
}

#[test]
fn a_batch_is_a_function_of_its_number_and_the_seed() {
    let one = loader(12, 4, 5).expect("a loader");
    let other = loader(12, 4, 5).expect("a loader");
    for number in [49, 0, 7] {
        assert_eq!(one.batch(number), other.batch(number));
    }
    assert_ne!(one.batch(3).indices, loader(12, 4, 6).expect("a loader").batch(3).indices);
    assert_ne!(one.batch(3).indices, one.batch(4).indices);
}

#[test]
fn all_images_of_a_class_are_seen_before_any_comes_again() {
    // One batch per round has all classes, so the rounds of a class follow each other.
    let loader = loader(7, 1, 9).expect("a loader");
    for class in 0..7u32 {
        let size = 3 + class as u64;
        let seen: BTreeSet<u32> = (0..size)
            .map(|number| {
                let batch = loader.batch(number);
                let place = batch.labels.iter().position(|label| *label == class);
                batch.indices[place.expect("every class is in every batch")]
            })
            .collect();
        assert_eq!(seen.len() as u64, size, "class {class}");
    }
}

#[test]
fn classes_are_drawn_equally_often() {
    let loader = loader(6, 2, 1).expect("a loader");
    let mut counts = [0u32; 7];
    for number in 0..7_000 {
        loader.batch(number).labels.iter().for_each(|label| counts[*label as usize] += 1);
    }
    // Six of seven classes are in each round of two batches.
    for count in counts {
        assert!((5_700..6_300).contains(&count), "{counts:?}");
    }
}

#[test]
fn a_batch_that_cannot_be_made_is_refused() {
    for (batch, per_class) in [(12, 5), (16, 2), (4, 0)] {
        let error = loader(batch, per_class, 1).expect_err("it cannot be made");
        assert!(matches!(error, LoaderError::ImagesPerClass { classes: 7, .. }), "{error}");
    }
}
