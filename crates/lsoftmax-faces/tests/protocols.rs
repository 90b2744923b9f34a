//! Verification by every protocol, against numpy and scikit-learn.

use lsoftmax_faces::{Embeddings, Pair, Protocol, VerifyError, verify, verify_with_pca};
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    columns: usize,
    embeddings: Vec<f32>,
    left: Vec<usize>,
    right: Vec<usize>,
    same: Vec<u8>,
    fold: Vec<usize>,
    results: Vec<Expected>,
}

#[derive(Deserialize)]
struct Expected {
    protocol: Protocol,
    dimension: Option<usize>,
    explained_variance: Option<Vec<f64>>,
    accuracy: f64,
    standard_error: Option<f64>,
    folds: Vec<lsoftmax_faces::FoldResult>,
    auc: Option<f64>,
    eer: Option<f64>,
    tar_at_far: Option<lsoftmax_faces::TarAtFar>,
}

impl Case {
    fn embeddings(&self) -> Embeddings {
        Embeddings::new(self.columns, self.embeddings.clone()).expect("finite rows")
    }

    fn pairs(&self) -> Vec<Pair> {
        (0..self.left.len())
            .map(|pair| Pair {
                left: self.left[pair],
                right: self.right[pair],
                same: self.same[pair] == 1,
                fold: self.fold[pair],
            })
            .collect()
    }
}

fn cases() -> Vec<Case> {
    let text = include_str!("../../../reference/fixtures/verification.json");
    serde_json::from_str::<Fixture>(text).expect("a valid fixture").cases
}

fn close(found: Option<f64>, expected: Option<f64>) -> bool {
    match (found, expected) {
        (Some(found), Some(expected)) => (found - expected).abs() < 1e-9,
        (None, None) => true,
        _ => false,
    }
}

#[test]
fn every_protocol_is_that_of_the_reference() {
    let cases = cases();
    assert!(cases.len() >= 13);
    for case in cases {
        for expected in &case.results {
            let what = format!("{}, {}", case.name, expected.protocol.name());
            let (embeddings, pairs) = (case.embeddings(), case.pairs());
            let found = match expected.dimension {
                Some(dimension) => verify_with_pca(&embeddings, &pairs, dimension),
                None => verify(&embeddings, &pairs, expected.protocol),
            };
            let found = found.expect(&what);
            let explained = found.pca.as_ref().map(|pca| &pca.explained_variance);
            for (found, expected) in explained
                .iter()
                .copied()
                .flatten()
                .zip(expected.explained_variance.iter().flatten())
            {
                assert!((found - expected).abs() < 1e-9, "{what}: {found}, {expected}");
            }
            assert!(close(Some(found.accuracy), Some(expected.accuracy)), "{what}: {found:?}");
            assert!(close(found.standard_error, expected.standard_error), "{what}: {found:?}");
            assert_eq!(found.folds.len(), expected.folds.len(), "{what}");
            for (found, expected) in found.folds.iter().zip(&expected.folds) {
                assert_eq!((found.fold, found.pairs), (expected.fold, expected.pairs), "{what}");
                assert!(
                    close(Some(found.threshold), Some(expected.threshold)),
                    "{what}: {found:?}, {expected:?}"
                );
                assert!(
                    close(Some(found.accuracy), Some(expected.accuracy)),
                    "{what}: {found:?}, {expected:?}"
                );
            }
            assert!(close(found.auc, expected.auc), "{what}: {:?}, {:?}", found.auc, expected.auc);
            assert!(close(found.eer, expected.eer), "{what}: {:?}, {:?}", found.eer, expected.eer);
            let rates = |found: &Option<lsoftmax_faces::TarAtFar>| {
                found.map(|tar| [tar.one_in_10, tar.one_in_100, tar.one_in_1000])
            };
            let (found, expected) = (rates(&found.tar_at_far), rates(&expected.tar_at_far));
            assert_eq!(found.is_some(), expected.is_some(), "{what}");
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                assert!(close(Some(*found), Some(*expected)), "{what}: {found}, {expected}");
            }
        }
    }
}

#[test]
fn one_fold_leaves_nothing_to_choose_a_threshold_on() {
    let case = cases().into_iter().find(|case| case.name == "one fold").expect("the case");
    for (name, protocol) in Protocol::ALL {
        let found = verify(&case.embeddings(), &case.pairs(), protocol);
        match protocol {
            Protocol::BestThreshold => assert_eq!(found.expect(name).standard_error, None),
            _ => assert!(matches!(found, Err(VerifyError::OneFold(_))), "{name}"),
        }
    }
}

#[test]
fn rows_and_pairs_that_do_not_exist_are_named() {
    let rows = Embeddings::new(2, vec![1.0, 0.0, f32::NAN, 1.0]);
    assert_eq!(
        rows.unwrap_err().to_string(),
        "number 0 of row 1 is NaN; only finite numbers can be compared"
    );
    let rows = Embeddings::new(2, vec![1.0, 0.0]).expect("a row");
    let pair = Pair { left: 0, right: 7, same: true, fold: 0 };
    let error = verify(&rows, &[pair], Protocol::BestThreshold).unwrap_err();
    assert!(matches!(error, VerifyError::Row { pair: 0, row: 7, rows: 1 }), "{error}");
    assert!(matches!(verify(&rows, &[], Protocol::SphereFace), Err(VerifyError::NoPairs)));
}

#[test]
fn all_principal_components_are_the_protocol_of_sphereface() {
    for case in cases()
        .iter()
        .filter(|case| ["ten folds", "folds of unequal size"].contains(&case.name.as_str()))
    {
        let (embeddings, pairs) = (case.embeddings(), case.pairs());
        let sphereface = verify(&embeddings, &pairs, Protocol::SphereFace).expect("a result");
        let all = verify_with_pca(&embeddings, &pairs, case.columns).expect("a result");
        assert_eq!(all.accuracy, sphereface.accuracy);
        for (one, other) in all.scores.iter().zip(&sphereface.scores) {
            assert!((one - other).abs() < 1e-9, "{one}, {other}");
        }
        let more = verify_with_pca(&embeddings, &pairs, case.columns + 1).unwrap_err();
        assert!(matches!(more, VerifyError::Dimension { .. }), "{more}");
    }
}
