//! The study of heads: L-Softmax and its successors on MNIST.

use super::Row;
use super::experiments::study;
use crate::head::{HeadKind, HeadSettings};
use crate::recipe::Recipe;

/// Every head on MNIST, in the plane and with the whole network. In the plane ten classes are 36° apart,
/// so that a margin of CosFace above 1 − cos 36° = 0.19 could not be satisfied by all of them.
pub(super) fn heads() -> Vec<Row> {
    let of_network = |group, recipe: Recipe, [cosface, arcface, scale]: [f64; 3]| {
        let heads = [
            (HeadKind::Softmax, None, None),
            (HeadKind::LSoftmax, Some(4.0), None),
            (HeadKind::ASoftmax, Some(4.0), None),
            (HeadKind::NormSoftmax, None, Some(scale)),
            (HeadKind::CosFace, Some(cosface), Some(scale)),
            (HeadKind::ArcFace, Some(arcface), Some(scale)),
        ];
        heads.map(|(kind, margin, scale)| {
            let head = HeadSettings::new(kind, margin, scale).expect("the settings are valid");
            Row::new(group, head.to_string(), recipe.clone().with_head(head)).without_paper()
        })
    };
    let quick = Recipe::quick("mnist").expect("the built-in recipes are valid");
    let plane = of_network("plane", study("mnist-plane"), [0.1, 0.2, 4.0]);
    plane.into_iter().chain(of_network("MNIST", quick, [0.35, 0.5, 16.0])).collect()
}
