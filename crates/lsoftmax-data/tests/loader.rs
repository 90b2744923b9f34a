//! Batches are a pure function of the step, and augmentation follows the paper.

use std::collections::BTreeSet;
use std::sync::Arc;

use lsoftmax_data::{
    Augment, Batch, Colour, Crop, Dataset, Erase, HoldOut, Images, LastBatch, Loader, LoaderError,
    Mean, Sampling, Shape,
};
use proptest::prelude::*;

const SHAPE: Shape = Shape { channels: 2, height: 6, width: 5 };

/// Images whose neighbouring pixels all differ, with distinct labels.
fn images(count: usize) -> Images {
    let pixels = (0..count * SHAPE.pixels()).map(|i| (i * 97 % 251) as u8).collect();
    Images::new(SHAPE, pixels, (100..100 + count as u32).collect()).expect("images")
}

fn loader(count: usize, sampling: Sampling) -> Arc<Loader> {
    let images = images(count);
    let mean = Mean::of(&images);
    Arc::new(Loader::new(images, mean, sampling).expect("a loader"))
}

fn sampling(batch: usize, last: LastBatch) -> Sampling {
    Sampling {
        last,
        ..Sampling::training(batch, 7, Augment { pad: 2, flip: true, ..Augment::NONE })
    }
}

const LASTS: [LastBatch; 3] = [LastBatch::Span, LastBatch::Keep, LastBatch::Drop];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_batch_is_the_same_on_any_number_of_threads_and_after_a_restart_at_any_step(
        count in 1usize..40, batch in 1usize..12, start in 0u64..60, threads in 0usize..5, last in 0usize..3,
    ) {
        let last = LASTS[last];
        prop_assume!(last != LastBatch::Drop || batch <= count);
        let steps = start..start + 9;
        // Each batch from a new loader.
        let alone: Vec<Batch> =
            steps.clone().map(|step| loader(count, sampling(batch, last)).batch(step)).collect();
        let shared = loader(count, sampling(batch, last));
        prop_assert_eq!(&shared.prefetch(steps.clone(), threads).collect::<Vec<_>>(), &alone);
        // Requests for other steps do not affect the batches.
        shared.batch(1_000_000);
        let again: Vec<Batch> = shared.prefetch(steps, threads).collect();
        prop_assert_eq!(again, alone);
    }
}

#[test]
fn every_epoch_has_every_sample_once_in_a_new_order() {
    for last in LASTS {
        let loader = loader(12, sampling(4, last));
        let epoch = |epoch: u64| -> Vec<u32> {
            let steps = epoch * 3..epoch * 3 + 3;
            loader.prefetch(steps, 1).flat_map(|batch| batch.indices).collect()
        };
        let mut orders = BTreeSet::new();
        for number in 0..20 {
            let order = epoch(number);
            assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), (0..12).collect());
            orders.insert(order);
        }
        assert_eq!(orders.len(), 20);
        assert_eq!(loader.batches_per_epoch(), 3);
    }
}

#[test]
fn the_last_batch_of_an_epoch_spans_shrinks_or_is_dropped() {
    let sizes = |last| -> Vec<usize> {
        loader(10, sampling(4, last)).prefetch(0..5, 0).map(|batch| batch.labels.len()).collect()
    };
    assert_eq!(sizes(LastBatch::Span), [4, 4, 4, 4, 4]);
    assert_eq!(sizes(LastBatch::Keep), [4, 4, 2, 4, 4]);
    assert_eq!(sizes(LastBatch::Drop), [4, 4, 4, 4, 4]);

    // With `Span`, five batches of four are two epochs of ten; with `Drop`, an epoch is two batches.
    let seen = |last, steps| -> Vec<u32> {
        loader(10, sampling(4, last))
            .prefetch(0..steps, 0)
            .flat_map(|batch| batch.indices)
            .collect()
    };
    let spanned = seen(LastBatch::Span, 5);
    for epoch in spanned.chunks(10) {
        assert_eq!(epoch.iter().collect::<BTreeSet<_>>().len(), 10);
    }
    assert_eq!(seen(LastBatch::Keep, 3), spanned[..10], "the order is that of the epoch");
    assert_eq!(seen(LastBatch::Drop, 2), spanned[..8]);
}

#[test]
fn labels_stay_with_their_images() {
    for batch in loader(10, sampling(3, LastBatch::Span)).prefetch(0..20, 2) {
        assert!(
            batch.labels.iter().zip(&batch.indices).all(|(label, index)| *label == 100 + index)
        );
    }
}

#[test]
fn another_seed_gives_another_order() {
    let with = |seed| loader(50, Sampling::training(50, seed, Augment::NONE)).batch(0).indices;
    assert_eq!(with(1), with(1));
    assert_ne!(with(1), with(2));
}

/// The mean, by the definition.
fn mean(images: &Images) -> Vec<f64> {
    let size = images.shape().pixels();
    let sum = |pixel| (0..images.len()).map(|i| f64::from(images.image(i)[pixel])).sum::<f64>();
    (0..size).map(|pixel| sum(pixel) / images.len() as f64).collect()
}

#[test]
fn evaluation_has_each_image_once_in_order_minus_the_mean_and_scaled() {
    let set = images(10);
    let mean = mean(&set);
    let loader = loader(10, Sampling::evaluation(4));
    let batches: Vec<Batch> = loader.prefetch(0..loader.batches_per_epoch(), 2).collect();
    let indices: Vec<u32> = batches.iter().flat_map(|batch| batch.indices.clone()).collect();
    assert_eq!(indices, (0..10).collect::<Vec<_>>());
    let pixels: Vec<f32> = batches.iter().flat_map(|batch| batch.pixels.clone()).collect();
    for (i, pixel) in pixels.iter().enumerate() {
        let expected = (f64::from(set.pixels()[i]) - mean[i % SHAPE.pixels()]) / 256.0;
        assert!((f64::from(*pixel) - expected).abs() < 1e-6, "pixel {i}: {pixel}, {expected}");
    }
}

/// All possible augmentations of an image: every crop of the padded image, mirrored or not.
fn views(plain: &[f32], shape: Shape, pad: usize) -> Vec<Vec<f32>> {
    let Shape { channels, height, width } = shape;
    let (high, wide) = (height + 2 * pad, width + 2 * pad);
    let mut padded = vec![0.0; channels * high * wide];
    for c in 0..channels {
        for y in 0..height {
            for x in 0..width {
                padded[(c * high + y + pad) * wide + x + pad] = plain[(c * height + y) * width + x];
            }
        }
    }
    let mut views = Vec::new();
    for (top, left) in (0..=2 * pad).flat_map(|top| (0..=2 * pad).map(move |left| (top, left))) {
        for mirrored in [false, true] {
            let at = |c: usize, y: usize, x: usize| {
                let x = if mirrored { width - 1 - x } else { x };
                padded[(c * high + y + top) * wide + x + left]
            };
            let rows = (0..channels).flat_map(|c| (0..height).map(move |y| (c, y)));
            let pixels = rows.flat_map(|(c, y)| (0..width).map(move |x| (c, y, x)));
            views.push(pixels.map(|(c, y, x)| at(c, y, x)).collect());
        }
    }
    views
}

#[test]
fn augmented_images_are_uniformly_random_crops_mirrored_with_probability_one_half() {
    let plain = loader(1, Sampling::evaluation(1)).batch(0).pixels;
    assert!(plain.iter().all(|pixel| *pixel == 0.0), "one image is its own mean");

    let set = images(1);
    let zero = Mean { shape: SHAPE, pixels: vec![0.0; SHAPE.pixels()] };
    let pad = 2;
    let evaluation = Loader::new(set.clone(), zero.clone(), Sampling::evaluation(1)).expect("one");
    let views = views(&evaluation.batch(0).pixels, SHAPE, pad);
    let training = Sampling::training(1, 3, Augment { pad, flip: true, ..Augment::NONE });
    let training = Loader::new(set, zero, training).expect("one");
    let mut counts = vec![0; views.len()];
    let epochs = 100 * views.len();
    for step in 0..epochs as u64 {
        let pixels = training.batch(step).pixels;
        let view = views.iter().position(|view| *view == pixels).expect("a crop of the image");
        counts[view] += 1;
    }
    // Chi-squared with 49 degrees of freedom exceeds 86 in one of a thousand seeds.
    let chi: f64 = counts.iter().map(|n| (f64::from(*n) - 100.0).powi(2) / 100.0).sum();
    assert!(chi < 86.0, "{chi}: {counts:?}");
}

#[test]
fn a_sample_differs_from_epoch_to_epoch_and_from_its_neighbours() {
    let set = Images::new(SHAPE, [images(1).image(0); 8].concat(), vec![0; 8]).expect("images");
    let zero = Mean { shape: SHAPE, pixels: vec![0.0; SHAPE.pixels()] };
    let sampling = Sampling::training(8, 3, Augment { pad: 2, flip: true, ..Augment::NONE });
    let loader = Loader::new(set, zero, sampling).expect("a loader");
    let distinct = |batch: Batch| {
        let pixels = batch.pixels.chunks(SHAPE.pixels());
        pixels
            .map(|image| image.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
            .collect::<BTreeSet<_>>()
    };
    let (first, second) = (distinct(loader.batch(0)), distinct(loader.batch(1)));
    assert!(first.len() > 4 && first != second);
}

#[test]
fn the_mean_survives_serialization() {
    let mean = Mean::of(&images(7));
    let text = serde_json::to_string(&mean).expect("JSON");
    assert_eq!(serde_json::from_str::<Mean>(&text).expect("a mean"), mean);
}

#[test]
fn invalid_batch_sizes_padding_and_means_are_rejected() {
    let new = |count, mean, sampling| Loader::new(images(count), mean, sampling).map(|_| ());
    let mean = Mean::of(&images(3));
    let good = Sampling::training(2, 0, Augment::NONE);
    assert!(new(3, mean.clone(), good).is_ok());
    assert!(matches!(new(0, mean.clone(), good), Err(LoaderError::NoImages)));
    let zero = Sampling { batch: 0, ..good };
    assert!(matches!(new(3, mean.clone(), zero), Err(LoaderError::Batch { .. })));
    let drop = Sampling { batch: 4, last: LastBatch::Drop, ..good };
    assert!(matches!(new(3, mean.clone(), drop), Err(LoaderError::Batch { largest: 3, .. })));
    assert!(new(3, mean.clone(), Sampling { batch: 4, ..good }).is_ok(), "more than an epoch");
    let wide = Sampling { augment: Augment { pad: 5, ..Augment::NONE }, ..good };
    assert!(matches!(new(3, mean.clone(), wide), Err(LoaderError::Augment { .. })));
    let other = Shape { channels: 1, height: 1, width: 1 };
    let small = Mean { shape: other, pixels: vec![0.0] };
    assert!(matches!(new(3, small, good), Err(LoaderError::Mean { .. })));
    let short = Mean { shape: SHAPE, pixels: vec![0.0; 3] };
    let error = new(3, short, good).expect_err("too few pixels");
    assert!(matches!(error, LoaderError::MeanPixels { pixels: 3, .. }));
    assert!(error.to_string().contains("has 3 pixels"), "{error}");
}

#[test]
fn dropping_the_batches_ends_their_threads() {
    let loader = loader(10, sampling(4, LastBatch::Span));
    let mut batches = loader.prefetch(0..u64::MAX, 3);
    batches.next();
    drop(batches);
    let started = std::time::Instant::now();
    while Arc::strong_count(&loader) > 1 {
        assert!(started.elapsed().as_secs() < 10, "the threads still hold the images");
        std::thread::yield_now();
    }
}

#[test]
fn held_out_images_complement_the_rest_and_depend_only_on_the_seed() {
    let set = images(50);
    let (train, validation) = set.hold_out(5, 1).expect("a split");
    assert_eq!((train.len(), validation.len()), (45, 5));
    let mut labels = [train.labels(), validation.labels()].concat();
    labels.sort_unstable();
    assert_eq!(labels, set.labels());
    for index in 0..5 {
        let original = validation.labels()[index] as usize - 100;
        assert_eq!(validation.image(index), set.image(original));
    }
    assert_eq!(set.hold_out(5, 1).expect("a split"), (train.clone(), validation));
    assert_ne!(set.hold_out(5, 2).expect("a split").0, train);
    assert_eq!(set.hold_out(0, 1).expect("a split").0, set);
    assert!(set.hold_out(50, 1).is_err() && set.hold_out(usize::MAX, 1).is_err());
}

/// Images with these numbers of images per class.
fn classes(sizes: &[usize]) -> Images {
    let labels: Vec<u32> = sizes.iter().zip(0..).flat_map(|(n, class)| vec![class; *n]).collect();
    let pixels = (0..labels.len()).map(|image| image as u8).collect();
    Images::new(Shape { channels: 1, height: 1, width: 1 }, pixels, labels).expect("images")
}

fn counts(images: &Images, classes: usize) -> Vec<usize> {
    let count = |class| images.labels().iter().filter(|label| **label == class).count();
    (0..classes as u32).map(count).collect()
}

#[test]
fn images_are_held_out_of_every_class_in_proportion() {
    let set = classes(&[100, 50, 10, 2, 1]);
    let (train, validation) = set.hold_out_of_classes(32, 1).expect("a split");
    assert_eq!(counts(&validation, 5), [20, 10, 2, 0, 0]);
    assert_eq!(counts(&train, 5), [80, 40, 8, 2, 1]);
    let mut pixels = [train.pixels(), validation.pixels()].concat();
    pixels.sort_unstable();
    assert_eq!(pixels, set.pixels());
    assert_eq!(set.hold_out_of_classes(32, 1).expect("a split"), (train.clone(), validation));
    assert_ne!(set.hold_out_of_classes(32, 2).expect("a split").0, train);
    // One image of every class always remains.
    let (train, _) = set.hold_out_of_classes(158, 1).expect("a split");
    assert_eq!(counts(&train, 5), [1; 5]);
    let error = set.hold_out_of_classes(159, 1).expect_err("too many").to_string();
    assert!(error.contains("at least one of each") && error.contains("at most 158"), "{error}");
}

#[test]
fn test_images_are_split_off_in_proportion_if_there_are_none() {
    let dataset = |sizes: &[usize]| Dataset {
        name: "photos".into(),
        classes: sizes.len(),
        class_names: sizes.iter().map(usize::to_string).collect(),
        train: classes(sizes),
        test: None,
    };
    let split = dataset(&[60, 30, 10]).with_test(HoldOut::OfClasses, 7).expect("a split");
    assert_eq!(counts(&split.test.expect("test images"), 3), [6, 3, 1]);
    assert_eq!(counts(&split.train, 3), [54, 27, 9]);
    let single = dataset(&[1; 30]).with_test(HoldOut::OfClasses, 7).expect("no split");
    assert!(single.test.is_none() && single.train.len() == 30);
}

fn all_augmentations() -> Augment {
    Augment {
        crop: Some(Crop { probability: 0.75, ..Crop::default() }),
        colour: Some(Colour {
            brightness: 0.4,
            contrast: 0.4,
            saturation: 0.4,
            hue: 0.1,
            ..Colour::default()
        }),
        erase: Some(Erase::default()),
        ..Augment::CIFAR10_PLUS
    }
}

/// Random colour images.
fn photographs(count: usize) -> Images {
    let shape = Shape { channels: 3, height: 16, width: 12 };
    let bytes =
        (0..count * shape.pixels()).map(|i| ((i as u64 * i as u64 * 2_654_435_761) >> 13) as u8);
    Images::new(shape, bytes.collect(), vec![0; count]).unwrap()
}

#[test]
fn every_augmentation_is_a_function_of_seed_epoch_and_image() {
    let images = photographs(6);
    let mean = Mean::of(&images);
    let loader = |batch, seed| {
        let sampling = Sampling::training(batch, seed, all_augmentations());
        Arc::new(Loader::new(images.clone(), mean.clone(), sampling).unwrap())
    };
    // By epoch and image, whatever the size of the batch and the number of threads.
    let by_image = |batch: usize, threads: usize, seed: u64| {
        let mut found = std::collections::BTreeMap::new();
        let loader = loader(batch, seed);
        for part in loader.prefetch(0..(24 / batch) as u64, threads) {
            let samples = part.pixels.chunks_exact(part.shape.pixels()).zip(&part.indices);
            for (position, (pixels, index)) in samples.enumerate() {
                let epoch = (part.number as usize * batch + position) / 6;
                found.insert((epoch, *index), pixels.to_vec());
            }
        }
        found
    };
    let expected = by_image(1, 0, 5);
    assert_eq!(expected.len(), 24);
    assert!(expected.values().flatten().all(|pixel| pixel.is_finite() && pixel.abs() <= 1.0));
    assert_eq!(by_image(4, 2, 5), expected);
    assert_eq!(by_image(8, 3, 5), expected);
    let other = by_image(1, 0, 6);
    assert!(expected.iter().all(|(key, pixels)| other[key] != *pixels), "another seed");
    for image in 0..6 {
        assert_ne!(expected[&(0, image)], expected[&(1, image)], "another epoch");
    }
}

#[test]
fn an_augmentation_does_not_change_the_random_numbers_of_the_others() {
    let images = photographs(4);
    let zeros = Mean { shape: images.shape(), pixels: vec![0.0; images.shape().pixels()] };
    let batch = |augment: Augment| {
        let sampling = Sampling::training(4, 5, augment);
        Loader::new(images.clone(), zeros.clone(), sampling).unwrap().batch(3)
    };
    let plain = batch(Augment::CIFAR10_PLUS);
    // Never, or by nothing: the bits of the plain images.
    let never = Augment {
        crop: Some(Crop { probability: 0.0, ..Crop::default() }),
        colour: Some(Colour::default()),
        erase: Some(Erase { probability: 0.0, ..Erase::default() }),
        ..Augment::CIFAR10_PLUS
    };
    assert_eq!(batch(never), plain);
    // What is not erased is as it was.
    let erase = Some(Erase { probability: 1.0, ..Erase::default() });
    let erased = batch(Augment { erase, ..Augment::CIFAR10_PLUS });
    let pixels = images.shape().pixels();
    for (plain, erased) in plain.pixels.chunks_exact(pixels).zip(erased.pixels.chunks_exact(pixels))
    {
        let changed = plain.iter().zip(erased).filter(|(plain, erased)| plain != erased);
        let changed: Vec<_> = changed.collect();
        assert!(changed.iter().all(|(_, erased)| **erased == 0.0));
        let share = changed.len() as f64 / pixels as f64;
        assert!(share > 0.0 && share < 0.36, "{share}");
    }
    // A brighter image, cropped and mirrored as before.
    let colour = Some(Colour { brightness: 0.5, ..Colour::default() });
    let brighter = batch(Augment { colour, ..Augment::CIFAR10_PLUS });
    for (plain, bright) in
        plain.pixels.chunks_exact(pixels).zip(brighter.pixels.chunks_exact(pixels))
    {
        let white = 255.0 / 256.0;
        let pairs = plain.iter().zip(bright).filter(|(_, bright)| **bright < 0.99 * white);
        let factors: Vec<f32> =
            pairs.filter(|(plain, _)| **plain > 0.1).map(|(a, b)| b / a).collect();
        let (least, most) = (
            factors.iter().copied().fold(9.0, f32::min),
            factors.iter().copied().fold(0.0, f32::max),
        );
        assert!(
            factors.len() > 50 && most - least < 1e-4 && (0.5..=1.5).contains(&least),
            "{least} to {most}"
        );
    }
}

#[test]
fn shares_of_a_batch_are_the_whole_batch_with_the_labels_of_all() {
    let whole = loader(30, sampling(12, LastBatch::Span));
    let share = |range| {
        let images = images(30);
        let mean = Mean::of(&images);
        let loader = Loader::new(images, mean, sampling(12, LastBatch::Span)).expect("a loader");
        loader.with_share(range)
    };
    let shares = [share(0..5), share(5..12)];
    for number in 0..6 {
        let expected = whole.batch(number);
        let found = shares.each_ref().map(|share| share.batch(number));
        assert_eq!([&found[0].pixels[..], &found[1].pixels].concat(), expected.pixels);
        for found in found {
            assert_eq!(
                (found.labels, found.indices),
                (expected.labels.clone(), expected.indices.clone())
            );
        }
    }
}
