//! `lsoftmax network`.

mod program;

use program::run::{Reference, TINY, recipe, temporary_run, text_of};
use program::{assert_says, json, lsoftmax, printed, refused};

#[test]
fn a_network_is_printed_by_its_name_its_recipe_and_its_run() {
    let table = printed(lsoftmax(&["network", "mnist-2d"]));
    let words = ["layer", "multiply-adds", "input", "conv1.1", "5x5", "pool3", "features", "total"];
    assert_says(&table, &words);

    // 1 x 28 x 28 -> 8 x 14 x 14 -> 8 x 7 x 7 -> 8, each with batch norm (2) and PReLU (1) per channel.
    let (directory, run) = temporary_run();
    let file = recipe(directory.path(), TINY);
    let summary = json(lsoftmax(&["network", &file, "--json"]));
    let weights = [8 * 9, 8 * 8 * 9, 8 * 8 * 7 * 7];
    let vectors = 3 * 3 * 8;
    assert_eq!(summary["parameters"], weights.iter().sum::<u64>() + vectors);
    let products = 28 * 28 * weights[0] + 14 * 14 * weights[1] + weights[2];
    assert_eq!(summary["multiply_adds"], products);
    let last = summary["layers"].as_array().and_then(|layers| layers.last()).expect("layers");
    assert_eq!(last["output"], serde_json::json!([8, 1, 1]));

    Reference::get().put(&run);
    assert_eq!(json(lsoftmax(&["network", &text_of(&run), "--json"])), summary);
    assert_says(refused(lsoftmax(&["network", "resnet50"])), &["resnet50", "mnist-2d"]);
    assert_says(refused(lsoftmax(&["network", "none.toml"])), &["none.toml", "cannot be read"]);
}
