//! Scores by class and nearest neighbours against scikit-learn.

use lsoftmax_lab::analysis::{Classification, ClassificationSums, Retrieval};
use lsoftmax_testing::SplitMix;
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    classification: Vec<ClassificationCase>,
    retrieval: Vec<RetrievalCase>,
}

#[derive(Deserialize)]
struct ClassificationCase {
    name: String,
    logits: Vec<Vec<f32>>,
    labels: Vec<u32>,
    k: usize,
    top_k: f64,
    precision: Vec<f64>,
    recall: Vec<f64>,
    f1: Vec<f64>,
    support: Vec<u32>,
    r#macro: [f64; 3],
    confusion: Vec<Vec<u32>>,
}

#[derive(Deserialize)]
struct RetrievalCase {
    name: String,
    width: usize,
    features: Vec<f32>,
    labels: Vec<u32>,
    queries: usize,
    recall_at_1: f64,
    recall_at_5: f64,
    mean_average_precision: f64,
}

fn fixture() -> Fixture {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reference/fixtures/evaluation.json");
    let text = std::fs::read_to_string(path).expect("the fixtures are checked in");
    serde_json::from_str(&text).expect("JSON")
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|class| format!("class {class}")).collect()
}

#[track_caller]
fn assert_equal(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() < 1e-12, "{what}: {found}, not {expected}");
}

#[test]
fn scores_by_class_are_those_of_scikit_learn() {
    for case in fixture().classification {
        let classes = case.logits[0].len();
        let mut sums = ClassificationSums::new(classes, case.k);
        for (logits, label) in case.logits.iter().zip(&case.labels) {
            sums.add(*label, logits);
        }
        let Classification { top, precision, recall, f1, per_class, confusion, confused } =
            sums.classification(&names(classes));
        assert_eq!(confusion, case.confusion, "{}", case.name);
        assert_eq!((top[0].k, top[1].k), (1, case.k), "{}", case.name);
        assert_equal(top[1].accuracy, case.top_k, &case.name);
        let right: u32 = (0..classes).map(|class| confusion[class][class]).sum();
        assert_equal(top[0].accuracy, f64::from(right) / case.labels.len() as f64, &case.name);
        for (found, expected) in [precision, recall, f1].into_iter().zip(case.r#macro) {
            assert_equal(found, expected, &case.name);
        }
        for (class, scores) in per_class.iter().enumerate() {
            assert_equal(scores.precision, case.precision[class], &case.name);
            assert_equal(scores.recall, case.recall[class], &case.name);
            assert_equal(scores.f1, case.f1[class], &case.name);
            assert_eq!(scores.images, case.support[class], "{}", case.name);
            let column: u32 = case.confusion.iter().map(|row| row[class]).sum();
            assert_eq!(scores.predicted, column, "{}", case.name);
        }
        // The pairs are the largest entries beside the diagonal, in decreasing order.
        let mut counts: Vec<u32> = Vec::new();
        for (label, row) in case.confusion.iter().enumerate() {
            let others =
                row.iter().enumerate().filter(|(class, count)| *class != label && **count > 0);
            counts.extend(others.map(|(_, count)| *count));
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts.truncate(20);
        let found: Vec<u32> = confused.iter().map(|pair| pair.images).collect();
        assert_eq!(found, counts, "{}", case.name);
        for pair in &confused {
            let class = |name: &str| names(classes).iter().position(|known| known == name).unwrap();
            let count = case.confusion[class(&pair.label)][class(&pair.predicted)];
            assert_eq!(pair.images, count, "{}", case.name);
        }
    }
}

#[test]
fn neighbours_are_those_of_scikit_learn() {
    for case in fixture().retrieval {
        let found = Retrieval::of(&case.features, case.width, &case.labels).expect("queries");
        assert_eq!(found.queries, case.queries, "{}", case.name);
        assert_equal(found.recall_at_1, case.recall_at_1, &case.name);
        assert_equal(found.recall_at_5, case.recall_at_5, &case.name);
        assert_equal(found.mean_average_precision, case.mean_average_precision, &case.name);
    }
}

#[test]
fn neighbours_in_several_blocks_are_those_of_the_definition() {
    const WIDTH: usize = 6;
    let mut random = SplitMix(9);
    let labels: Vec<u32> = (0..700).map(|image| image % 7).collect();
    let noise = random.normals(labels.len() * WIDTH);
    let feature = |at: usize| {
        let (class, place) = (labels[at / WIDTH] as usize, at % WIDTH);
        (noise[at] + if class == place { 2.0 } else { 0.0 }) as f32
    };
    let features: Vec<f32> = (0..labels.len() * WIDTH).map(feature).collect();
    let rows: Vec<&[f32]> = features.chunks(WIDTH).collect();
    let dot = |a: &[f32], b: &[f32]| {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
    };
    let (mut at_1, mut precisions) = (0.0, 0.0);
    for (query, row) in rows.iter().enumerate() {
        let mut others: Vec<(f64, u32)> = (0..labels.len())
            .filter(|other| *other != query)
            .map(|other| {
                (dot(row, rows[other]) / dot(rows[other], rows[other]).sqrt(), labels[other])
            })
            .collect();
        others.sort_by(|a, b| b.0.total_cmp(&a.0));
        let same: Vec<bool> = others.iter().map(|(_, label)| *label == labels[query]).collect();
        at_1 += f64::from(u8::from(same[0])) / labels.len() as f64;
        let ranks: Vec<usize> = (0..same.len()).filter(|rank| same[*rank]).collect();
        let precision = |(hits, rank): (usize, &usize)| (hits + 1) as f64 / (rank + 1) as f64;
        let average = ranks.iter().enumerate().map(precision).sum::<f64>() / ranks.len() as f64;
        precisions += average / labels.len() as f64;
    }
    let found = Retrieval::of(&features, WIDTH, &labels).expect("queries");
    assert_eq!(found.queries, 700);
    assert!((found.recall_at_1 - at_1).abs() < 2e-3, "{found:?}, not {at_1}");
    assert!(
        (found.mean_average_precision - precisions).abs() < 1e-5,
        "{found:?}, not {precisions}"
    );
}

#[test]
fn images_without_company_cannot_be_searched() {
    assert_eq!(Retrieval::of(&[1.0, 0.0, 0.0, 1.0], 2, &[0, 1]), None);
    assert_eq!(Retrieval::of(&[], 2, &[]), None);
    // Zero features have a cosine of 0 to all: the order is that of the images.
    let found = Retrieval::of(&[0.0; 6], 2, &[0, 1, 0]).expect("queries");
    assert_eq!((found.queries, found.recall_at_1, found.recall_at_5), (2, 0.5, 1.0));
}
