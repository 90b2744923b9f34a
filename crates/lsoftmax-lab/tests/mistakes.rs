//! Mistakes of earlier implementations that concern recipes and optimisers; the head's tests have the others.

use burn::module::Param;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use lsoftmax::{Execution, Margin, Precision};
use lsoftmax_data::{Augment, Images, Loader, Mean, SCALE, Sampling, Shape};
use lsoftmax_lab::batch::LabelledImages;
use lsoftmax_lab::head::HeadSettings;
use lsoftmax_lab::learner::{Learner, StepSettings};
use lsoftmax_lab::model::Classifier;
use lsoftmax_lab::objective::Objective;
use lsoftmax_lab::optimiser::Sgd;
use lsoftmax_lab::recipe::Recipe;
use lsoftmax_nn::{FeaturesConfig, NetworkConfig};
use lsoftmax_testing::assert_close;

/// With gradients of zero a step multiplies what is decayed by 1 − rate · decay and leaves the rest alone.
#[test]
fn mistake_09_weight_decay_never_passed_to_the_optimiser() {
    check_decay(Sgd { weight_decay: 0.5, ..Sgd::default() }, 0.95);
    let of_head = Sgd { weight_decay: 0.5, head_weight_decay: Some(2.0), ..Sgd::default() };
    check_decay(of_head, 0.8);
    check_decay(Sgd { head_weight_decay: Some(0.0), ..of_head }, 1.0);
}

/// One step at a rate of 0.1 multiplies the network's weights by 0.95 and the head's by `head_factor`.
fn check_decay(sgd: Sgd, head_factor: f32) {
    let features = FeaturesConfig::linear(2);
    let network = NetworkConfig { input: [1, 2, 2], stages: vec![], features };
    let device = Device::flex().autodiff();
    let execution = Execution::new(Precision::F32);
    let softmax = HeadSettings::l_softmax(Margin::ONE);
    let mut model = Classifier::new(&network, 2, softmax, execution, &device).unwrap();
    let unit = &mut model.network.units[0];
    let bias = TensorData::new(vec![3.0f32, -5.0], [2]);
    unit.bias = Some(Param::from_tensor(Tensor::from_data(bias, &device)));
    let values = |model: &Classifier| {
        let unit = &model.network.units[0];
        let weight = unit.weight.val().into_data().iter::<f32>().collect::<Vec<_>>();
        let bias = unit.bias.as_ref().unwrap().val().into_data().iter::<f32>().collect::<Vec<_>>();
        let head = model.head.weight.val().into_data().iter::<f32>().collect::<Vec<_>>();
        (weight, bias, head)
    };
    let mut learner = Learner::new(model, &sgd.into(), Objective::Head);
    let before = values(learner.model());
    let batch = LabelledImages {
        images: Tensor::zeros([2, 1, 2, 2], &device),
        labels: Tensor::from_ints([0, 1], &device),
    };
    let settings = StepSettings { lambda: 0.0, rate: 0.1, step: 0 };
    let stepped = learner.step_with(std::iter::once(batch), settings, |model, gradients| {
        let unit = &model.network.units[0];
        let mut zeros = GradientsParams::new();
        zeros.register(unit.weight.id, unit.weight.val().inner().zeros_like());
        let bias = unit.bias.as_ref().unwrap();
        zeros.register(bias.id, bias.val().inner().zeros_like());
        zeros.register(model.head.weight.id, model.head.weight.val().inner().zeros_like());
        *gradients = zeros;
        Ok(())
    });
    stepped.unwrap();
    let after = values(learner.model());
    let decayed = |values: &[f32], factor: f32| -> Vec<f32> {
        values.iter().map(|value| value * factor).collect()
    };
    assert_close("weights", &after.0, &decayed(&before.0, 0.95), 1e-6);
    assert_close("the head's weights", &after.2, &decayed(&before.2, head_factor), 1e-6);
    assert_eq!(after.1, before.1, "a bias is not decayed");
}

/// Every image of an epoch is the image itself where a recipe does not augment, and some are mirrored
/// where it does.
#[test]
fn mistake_10_a_recipe_without_augmentation_that_mirrors() {
    let shape = Shape { channels: 1, height: 6, width: 6 };
    let pixels: Vec<u8> = (0..40 * 36).map(|pixel| (pixel * 7 % 251) as u8).collect();
    let images = Images::new(shape, pixels, vec![0; 40]).unwrap();
    let mean = Mean { shape, pixels: vec![0.0; 36] };
    for name in Recipe::NAMES {
        for recipe in [Recipe::built_in(name).unwrap(), Recipe::quick(name).unwrap()] {
            let sampling = Sampling::training(40, recipe.seed, recipe.augment);
            let loader = Loader::new(images.clone(), mean.clone(), sampling).unwrap();
            let changed = (0..5).flat_map(|batch| {
                let batch = loader.batch(batch);
                let seen = batch.pixels.chunks(36).zip(batch.indices.clone());
                let is_changed = |(seen, index): (&[f32], u32)| {
                    let plain = images.image(index as usize).iter();
                    !plain.map(|pixel| f32::from(*pixel) * SCALE).eq(seen.iter().copied())
                };
                seen.map(is_changed).collect::<Vec<_>>()
            });
            let changed = changed.filter(|changed| *changed).count();
            let augments = recipe.augment != Augment::NONE;
            // Faces, and images for ResNet-20, are mirrored by intent, as their recipes say.
            let intended = ["plus", "lfw", "resnet"].iter().any(|word| name.contains(word));
            assert_eq!(augments, intended, "{name}");
            assert_eq!(augments, changed > 0, "{name}: {changed} images are changed");
        }
    }
}
