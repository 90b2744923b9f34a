//! Every key of a recipe is known to the reader of recipes, also those that are usually left out.

use lsoftmax::{LambdaSchedule, Precision};
use lsoftmax_data::{Augment, Colour, Crop, Erase};
use lsoftmax_lab::head::{HeadKind, HeadSettings};
use lsoftmax_lab::optimiser::{AdamW, Sgd};
use lsoftmax_lab::recipe::{
    Expected, Init, Keep, LearningRate, NetworkChoice, Objective, OnDivergence, Recipe,
};

/// No `..`: a new field must be added here, with a value that is not its default.
#[test]
fn a_recipe_with_every_key_set_comes_back_from_its_toml() {
    let recipe = Recipe {
        name: "all".into(),
        source: "a test".into(),
        expected: [("2".to_owned(), Expected { test_error: 1.5, tolerance: 0.25 })].into(),
        data: "photos".into(),
        augment: Augment {
            pad: 2,
            flip: true,
            crop: Some(Crop { probability: 0.5, area: [0.25, 0.5], aspect: [0.5, 1.5] }),
            colour: Some(Colour {
                probability: 0.75,
                brightness: 0.5,
                contrast: 0.25,
                saturation: 0.125,
                hue: 0.0625,
            }),
            erase: Some(Erase { probability: 0.25, area: [0.125, 0.25], aspect: [0.5, 2.5] }),
        },
        validation: 7,
        network: NetworkChoice::Named("cifar10".into()),
        init: Some(Init { from: "runs/other".into(), freeze: 3, trunk_rate: 0.5 }),
        loss: Objective::Contrastive { weight: 0.5, margin: 1.25 },
        head: HeadSettings::new(HeadKind::ArcFace, Some(0.25), Some(16.0))
            .and_then(HeadSettings::with_learned_scale)
            .unwrap(),
        lambda: LambdaSchedule::exponential(100.0, 0.99, 0.5).unwrap().into(),
        batch: 33,
        accumulate: 3,
        clip_norm: Some(2.5),
        steps: 99,
        learning_rate: LearningRate::Plateau { rate: 0.5, factor: 0.25, patience: 4, drops: 2 },
        warmup: 8,
        sgd: Some(Sgd { momentum: 0.5, nesterov: true, weight_decay: 0.125 }),
        adamw: None,
        seed: 9,
        precision: Precision::F32,
        evaluate_every: 11,
        keep: Keep::Best,
        early_stopping: Some(4),
        average: Some(0.75),
        test_curve: true,
        log_every: 12,
        checkpoint_every: 13,
        on_divergence: OnDivergence::Rollback,
    };
    let text = recipe.to_toml();
    assert_eq!(Recipe::from_toml(&text, "all.toml").as_ref(), Ok(&recipe), "{text}");

    // Keys that exclude one of those above.
    let adamw = AdamW { beta1: 0.5, beta2: 0.75, epsilon: 1e-3, weight_decay: 0.5 };
    let cosine = LearningRate::Cosine { rate: 0.5, min: 0.25, until: Some(77) };
    let recipe = Recipe { learning_rate: cosine, ..recipe.with_optimiser(adamw) };
    let text = recipe.to_toml();
    assert_eq!(Recipe::from_toml(&text, "other.toml"), Ok(recipe), "{text}");
}
