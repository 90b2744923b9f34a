//! What `lsoftmax eval` says and writes about a model.

mod program;

use std::fs;

use program::arrays::read_npy;
use program::run::{Reference, temporary_run, text_of};
use program::{assert_says, json, lsoftmax, lsoftmax_in, printed, refused};
use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn the_report_agrees_with_the_logits_and_with_itself() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    let path = |name: &str| text_of(&directory.path().join(name));
    let report = json(lsoftmax(&["eval", &text_of(&run), "--retrieval", "--top-k", "3", "--json"]));

    // The error and the top-k accuracy, from the logits that `embed` writes.
    let (features, logits) = (path("features.npy"), path("logits.npy"));
    printed(lsoftmax(&["embed", &text_of(&run), "mnist", "--out", &features, "--logits", &logits]));
    let data = lsoftmax_data::DataDir::find(Some("nowhere".into())).expect("a name is enough");
    let set = lsoftmax_data::MNIST.read(&data).expect("it is built in");
    let labels = set.test.expect("it has test images").labels().to_vec();
    let logits = read_npy(&directory.path().join("logits.npy"));
    let (mut right, mut in_top_3, mut confusion) = (0, 0, vec![vec![0u64; 10]; 10]);
    for (row, label) in logits.rows().zip(&labels) {
        let mut order: Vec<usize> = (0..10).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        let label = *label as usize;
        right += u32::from(order[0] == label);
        in_top_3 += u32::from(order[..3].contains(&label));
        confusion[label][order[0]] += 1;
    }
    assert_eq!(report["wrong"], 10_000 - right);
    assert_eq!(report["top"][0]["k"], 1);
    assert_eq!(report["top"][1]["k"], 3);
    assert!((number(&report["top"][1]["accuracy"]) - f64::from(in_top_3) / 1e4).abs() < 1e-12);
    assert_eq!(report["confusion"], serde_json::to_value(&confusion).expect("JSON"));

    let worst = report["confused"][0].clone();
    let largest = (0..10).flat_map(|label| (0..10).map(move |class| (label, class)));
    let largest = largest.filter(|(label, class)| label != class);
    let largest = largest.map(|(label, class)| confusion[label][class]).max();
    assert_eq!(worst["images"].as_u64(), largest);
    let retrieval = &report["retrieval"];
    assert_eq!(retrieval["queries"], 10_000);
    let [one, five] = ["recall_at_1", "recall_at_5"].map(|key| number(&retrieval[key]));
    assert!(0.5 < one && one < five && five <= 1.0, "{retrieval}");
    // The worst image first; none of them is right.
    let wrong = report["wrong_images"].as_array().expect("a list");
    assert_eq!(wrong.len(), 24);
    let probabilities: Vec<f64> =
        wrong.iter().map(|image| number(&image["label_probability"])).collect();
    assert!(probabilities.is_sorted(), "{probabilities:?}");
    for image in wrong {
        let index = image["index"].as_u64().expect("an index") as usize;
        assert_eq!(image["label"], labels[index].to_string());
        assert_ne!(image["label"], image["predicted"]);
    }
}

#[test]
fn details_pictures_and_a_page_are_written() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    let arguments = [
        "eval",
        "run",
        "--details",
        "--page",
        "new/page.html",
        "--confusion",
        "confusion.svg",
        "--wrong",
        "wrong.png",
        "--wrong-count",
        "8",
        "--top-k",
        "3",
        "--data-dir",
        "my data",
    ];
    let said = printed(lsoftmax_in(directory.path(), &arguments));
    assert_says(
        &said,
        &["% wrong", "top 3: ", "F1 ", "most confused: ", "recall@5", "label \\ predicted"],
    );
    assert_says(&said, &["new/page.html", "confusion.svg", "wrong.png"]);
    let page = fs::read_to_string(directory.path().join("new/page.html")).expect("a page");
    assert_says(
        &page,
        &["run on mnist", "Confusions", "Most wrong images", "data:image/png", "Held-out error"],
    );
    let command =
        "lsoftmax eval run --top-k 3 --wrong-count 8 --data-dir 'my data' --page new/page.html";
    assert_says(&page, &[command, "mean average precision"]);
    let twice = ["eval", "run", "--page", "x.svg", "--wrong", "./x.svg"];
    assert_says(refused(lsoftmax_in(directory.path(), &twice)), &["x.svg would be written twice"]);
    let svg = fs::read_to_string(directory.path().join("confusion.svg")).expect("a picture");
    assert_says(&svg, &["<svg", "data-plot=\"confusion\"", "predicted"]);
    let sheet = image::open(directory.path().join("wrong.png")).expect("a PNG");
    // Twice the size of six images of 112 with gaps; the digits are there, not only their captions.
    assert_eq!(sheet.width(), 2 * (2 * 20 + 6 * 132 - 20));
    let black = sheet.to_rgb8().pixels().filter(|pixel| pixel.0 == [0, 0, 0]).count();
    assert!(black > 100_000, "{black} black pixels");

    // A copied model has no log: its page has no curves.
    fs::remove_file(run.join("metrics.jsonl")).expect("it was there");
    printed(lsoftmax_in(directory.path(), &["eval", "run", "--page", "page.html"]));
    let page = fs::read_to_string(directory.path().join("page.html")).expect("a page");
    assert!(!page.contains("Held-out error"), "there are no curves");
}

#[test]
fn wrong_arguments_are_explained() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    for (arguments, words) in [
        (["--confusion", "matrix.pdf"], ["--confusion", ".svg or .png"]),
        (["--top-k", "0"], ["--top-k", "at least 1"]),
        (["--wrong-count", "-1"], ["--wrong-count", "at least 1"]),
    ] {
        let arguments = [&["eval", "run"], arguments.as_slice()].concat();
        assert_says(refused(lsoftmax_in(directory.path(), &arguments)), &words);
    }
}
