//! docs/reference.md lists the keys of every JSON file of a run and of the results of its commands.
//!
//! Values are built without `..`: a new field must be added here, and then to the document.

use std::collections::BTreeSet;

use lsoftmax::Precision;
use lsoftmax_data::{HoldOut, Mean, Shape};
use lsoftmax_faces::NameMatch;
use lsoftmax_faces::list::{Excluded, ListReport, SamePhoto};
use lsoftmax_lab::analysis::{
    ClassScores, Classification, ConfusedPair, EvaluationReport, Retrieval, TopK, WrongImage,
};
use lsoftmax_lab::evaluate::Evaluation;
use lsoftmax_lab::head::{HeadKind, HeadSettings};
use lsoftmax_lab::inference::{EmbedReport, Prediction};
use lsoftmax_lab::model_file::ModelDescription;
use lsoftmax_lab::objective::BatchMetrics;
use lsoftmax_lab::plot::Plotted;
use lsoftmax_lab::recipe::Keep;
use lsoftmax_lab::report::{ResultRow, ResultTable, Written};
use lsoftmax_lab::run::{Environment, Metric, Rollback};
use lsoftmax_lab::runs::{RunListing, RunSetup, RunState};
use lsoftmax_lab::test_details::{Plane, TestDetails};
use lsoftmax_lab::train::{KeptModel, RunSummary};
use lsoftmax_nn::NetworkConfig;
use lsoftmax_testing::{assert_documented, key_paths};
use serde::Serialize;

const DOCUMENT: &str = include_str!("../../../docs/reference.md");

fn keys(value: &impl Serialize) -> BTreeSet<String> {
    key_paths(&serde_json::to_value(value).expect("JSON"))
}

#[track_caller]
fn check(heading: &str, value: &impl Serialize) {
    assert_documented(DOCUMENT, heading, &keys(value));
}

fn evaluation() -> Evaluation {
    Evaluation { images: 10, wrong: 1, error: 10.0, loss: 0.5, angle: 30.0 }
}

fn head() -> HeadSettings {
    HeadSettings::new(HeadKind::ArcFace, Some(0.5), Some(16.0))
        .and_then(HeadSettings::with_learned_scale)
        .expect("valid settings")
}

fn environment() -> Environment {
    Environment {
        cpu: "a CPU".into(),
        architecture: "x86_64".into(),
        system: "linux".into(),
        device: "cpu".into(),
        path: "avx2".into(),
        threads: 2,
        ranks: 4,
        version: "0.1.0".into(),
        commit: "0".into(),
    }
}

#[test]
fn the_keys_of_the_files_of_a_run_are_documented() {
    check("## environment.json", &environment());
    check(
        "## summary.json",
        &RunSummary {
            recipe: "mnist".into(),
            data: "mnist".into(),
            head: head(),
            seed: 1,
            steps: 2,
            batch: 3,
            validation: Some(evaluation()),
            test: Some(evaluation()),
            seconds: 1.5,
            rollbacks: 0,
            kept: Some(KeptModel { model: Keep::Best, step: 1, averaged: true }),
            extended_from: vec![1],
            environment: environment(),
        },
    );
    let plane = Plane { weights: vec![[0.0; 2]], labels: vec![0], features: vec![[1.0; 2]] };
    let details = TestDetails { wrong: vec![1], cosines: vec![vec![1.0]], plane: Some(plane) };
    check("## test.json", &details);
    let shape = Shape { channels: 1, height: 1, width: 1 };
    check(
        "## model.json",
        &ModelDescription {
            version: 2,
            recipe: "mnist".into(),
            data: "mnist".into(),
            seed: 1,
            digest: "0".into(),
            hold_out: HoldOut::OfAll,
            weights_sha256: Some("0".into()),
            network: NetworkConfig::mnist(),
            class_names: vec!["0".into()],
            classes: 1,
            head: head(),
            precision: Precision::F32,
            mean: Mean { shape, pixels: vec![0.0] },
        },
    );
}

#[test]
fn the_keys_of_the_log_are_documented() {
    let means = BatchMetrics {
        loss: 1.0,
        accuracy: 0.5,
        margin_accuracy: 0.25,
        angle: 60.0,
        feature_norm: 2.0,
    };
    let lines = [
        Metric::Training {
            step: 1,
            means,
            lambda: Some(5.0),
            learning_rate: 0.1,
            images_per_second: 100.0,
        },
        Metric::Validation { step: 1, loss: 1.0, error: 10.0 },
        Metric::Test { step: 1, loss: 1.0, error: 10.0 },
        Metric::Rollback(Rollback { step: 3, to: 2, lambda_floor: 1.0, reason: "NaN".into() }),
    ];
    // A new kind of line must be added above.
    for line in &lines {
        match line {
            Metric::Training { .. } | Metric::Validation { .. } => {}
            Metric::Test { .. } | Metric::Rollback(_) => {}
        }
    }
    let found: BTreeSet<String> = lines.iter().flat_map(keys).collect();
    assert_documented(DOCUMENT, "## metrics.jsonl", &found);
}

#[test]
fn the_keys_of_a_report_and_of_its_tables_are_documented() {
    let page = "report/index.html".into();
    let written = Written { page, figures: 1, documents: vec!["README.md".into()] };
    check("## report --json", &written);
    let row = ResultRow { cells: vec!["softmax".into()], runs: vec![(1, "mnist-m1-s1".into())] };
    let (title, head, notes) = ("Table 2".into(), vec!["seeds".into()], vec!["A note.".into()]);
    let tables = vec![ResultTable { title, head, rows: vec![row], notes }];
    let made = serde_json::json!({ "recorded": 1, "tables": tables });
    check("## reproduce --json", &made);
}

#[test]
fn the_keys_of_a_list_of_faces_are_documented() {
    let same =
        || vec![SamePhoto { one: "a.png".into(), other: "b.png".into(), bits: 0, exact: true }];
    let report = ListReport {
        people: 3,
        held_out_people: 1,
        images: [("train", 9)].into(),
        excluded: vec![Excluded {
            person: "ann".into(),
            evaluation: "Ann".into(),
            names: NameMatch::Same,
            images: 2,
        }],
        too_few: vec![("bob".into(), 1)],
        merged: vec![("cy".into(), vec!["cy".into(), "other_cy".into()])],
        in_evaluation: same(),
        conflicts: same(),
        duplicates: same(),
        evaluation_duplicates: same(),
    };
    check("## faces list --json", &report);
}

#[test]
fn the_keys_of_results_are_documented() {
    let classification = Classification {
        top: vec![TopK { k: 1, accuracy: 0.9 }],
        precision: 0.9,
        recall: 0.9,
        f1: 0.9,
        per_class: vec![ClassScores {
            name: "cat".into(),
            images: 1,
            predicted: 1,
            precision: 1.0,
            recall: 1.0,
            f1: 1.0,
        }],
        confusion: vec![vec![1]],
        confused: vec![ConfusedPair { label: "cat".into(), predicted: "dog".into(), images: 1 }],
    };
    let retrieval =
        Retrieval { queries: 1, recall_at_1: 1.0, recall_at_5: 1.0, mean_average_precision: 1.0 };
    let wrong = WrongImage {
        index: 0,
        file: Some("a.png".into()),
        label: "cat".into(),
        label_probability: 0.1,
        predicted: "dog".into(),
        probability: 0.9,
    };
    check(
        "## eval --json",
        &EvaluationReport {
            data: "mnist".into(),
            split: "test",
            evaluation: evaluation(),
            classification,
            retrieval: Some(retrieval),
            wrong_images: vec![wrong],
        },
    );
    let prediction = Prediction {
        image: "a.png".into(),
        class: 0,
        name: "cat".into(),
        probability: 0.9,
        angle: 10.0,
    };
    check("## predict --json", &[prediction]);
    check(
        "## embed --json",
        &EmbedReport {
            out: "features.npy".into(),
            images: 1,
            features: 2,
            logits: Some("logits.npy".into()),
            classes: 3,
            normalised: true,
            rows: "features.json".into(),
        },
    );
    check(
        "## runs --json",
        &[RunListing {
            run: "runs/mnist".into(),
            state: RunState::Damaged,
            problem: Some("it is damaged".into()),
            setup: Some(RunSetup {
                recipe: "mnist".into(),
                data: "mnist".into(),
                head: head(),
                seed: 1,
                steps: 2,
            }),
            step: 1,
            validation_error: Some(1.0),
            best_validation_error: Some(1.0),
            test_error: Some(1.0),
            loss: Some(1.0),
            seconds: Some(1.0),
        }],
    );
    check("## plot --json", &Plotted { out: "curves.html".into(), runs: 2 });
}
