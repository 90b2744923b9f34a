//! Table 5: losses on faces, which are verified on LFW.

use lsoftmax::LambdaSchedule;
use lsoftmax_data::{Augment, Colour, Crop, Erase};

use super::experiments::study;
use super::{Row, lambda};
use crate::head::{HeadKind, HeadSettings};
use crate::recipe::{Expected, Lambda, Recipe};

/// Every loss on one budget, those of the paper and its successors. The paper's accuracies are of other training data.
pub(super) fn table5() -> Vec<Row> {
    let group = "faces";
    let of_paper = |accuracy: f64| Expected { test_error: 100.0 - accuracy, tolerance: 0.5 };
    let margins =
        [(1.0, 96.53), (2.0, 97.81), (3.0, 98.27), (4.0, 98.71)].map(|(m, accuracy)| Row {
            paper: Some(of_paper(accuracy)),
            lfw: true,
            ..Row::with_margin(group, &study("lfw-small"), m)
        });
    let contrastive = Row {
        name: "softmax + contrastive".into(),
        paper: Some(of_paper(97.31)),
        lfw: true,
        ..Row::softmax(group, &study("lfw-small-contrastive"))
    };
    // What the batches of the contrastive loss do without it.
    let by_person = Recipe { images_per_class: Some(4), ..study("lfw-small") };
    let by_person = Row {
        name: "softmax, 64 people x 4 images".into(),
        variant: "by-person".into(),
        lfw: true,
        ..Row::softmax(group, &by_person)
    };
    // λ falls as early as in SphereFace-20: 1 / step.
    let early = LambdaSchedule::power(1000.0, 0.07775, 1.0, 5.0).expect("a valid schedule");
    let (recipe, early) = (study("lfw-small"), Lambda::Schedule(early));
    let lambdas = [
        lambda::auto_of_nine_tenths(group, &recipe, 4.0),
        Row::with_lambda(group, &recipe, 2.0, ("early-lambda", "λ = 5 early"), early),
    ];
    let lambdas = lambdas.map(|row| Row { lfw: true, ..row });
    // At s = 64, the scale of their papers, CosFace and ArcFace have their whole margin and large gradients from the first step on.
    let successors = [
        ("A-Softmax, m = 4", HeadKind::ASoftmax, None),
        ("CosFace, m = 0.35, s = 16", HeadKind::CosFace, Some(16.0)),
        ("ArcFace, m = 0.5, s = 16", HeadKind::ArcFace, Some(16.0)),
        ("CosFace, m = 0.35, s = 64", HeadKind::CosFace, None),
        ("ArcFace, m = 0.5, s = 64", HeadKind::ArcFace, None),
    ];
    let successors = successors.map(|(label, kind, scale)| {
        let head = HeadSettings::new(kind, None, scale).expect("the settings are valid");
        Row { lfw: true, ..Row::new(group, label, study("lfw-small").with_head(head)) }
    });
    let rows = margins.into_iter().chain(lambdas).chain([contrastive, by_person]).chain(successors);
    rows.chain(augmented_faces()).collect()
}

/// Faces with more augmentation than the paper's: with few people a network learns those people by heart, and a margin makes it worse.
fn augmented_faces() -> [Row; 4] {
    let crop = Crop { area: [0.75, 1.0], aspect: [0.9, 1.1], ..Crop::default() };
    let colour = Colour { brightness: 0.3, contrast: 0.3, saturation: 0.3, ..Colour::default() };
    let erase = Erase { area: [0.02, 0.2], ..Erase::default() };
    let recipe = study("lfw-small");
    let augment =
        Augment { crop: Some(crop), colour: Some(colour), erase: Some(erase), ..recipe.augment };
    let recipe = Recipe { augment, ..recipe };
    let group = "faces, augmented";
    let row = |m| Row::with_margin(group, &recipe, m);
    let head = HeadSettings::new(HeadKind::ASoftmax, None, None).expect("the settings are valid");
    let a_softmax = Row::new(group, "A-Softmax, m = 4", recipe.clone().with_head(head));
    let rows = [row(1.0), row(2.0), row(4.0), a_softmax];
    rows.map(|row| Row { variant: "augmented".into(), lfw: true, ..row })
}
