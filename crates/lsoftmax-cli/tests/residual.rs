//! Residual networks through the program: trained, resumed, used, exported and fine-tuned.

mod program;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use program::arrays::read_safetensors;
use program::run::{
    TINY, done, recipe, result, resume, temporary_run, text_of, train, undo_the_end,
};
use program::{assert_says, json, lsoftmax, lsoftmax_in, printed, refused};

/// [`TINY`] with blocks of both kinds, one of them with a projection, and features that are averages.
fn text() -> String {
    let network = "{ input = [1, 28, 28], stages = [\
        { filters = 8, units = 1, stride = 2 }, \
        { filters = 8, units = 2, residual = \"sphereface\" }, \
        { filters = 12, units = 4, stride = 2, activation = \"relu\", residual = \"resnet\" }], \
        features = { size = 12, layer = \"average\" } }";
    let start = TINY.find("network = ").expect("a network");
    let end = start + TINY[start..].find('\n').expect("a line");
    let text = format!("{}network = {network}{}", &TINY[..start], &TINY[end..]);
    text.replace("steps = 120", "steps = 100").replace("at = [100]", "at = [80]")
}

fn tensors(run: &Path) -> BTreeMap<String, Vec<f32>> {
    let tensors = read_safetensors(&run.join("model.safetensors"));
    tensors.into_iter().map(|(name, tensor)| (name, tensor.values)).collect()
}

#[test]
fn a_residual_network_is_trained_resumed_used_exported_and_fine_tuned() {
    let (directory, run) = temporary_run();
    let (recipe, out) = (recipe(directory.path(), &text()), text_of(&run));
    done(train(&[&recipe, "--out", &out]));
    let expected = result(&run);
    undo_the_end(&run);
    done(resume(&run));
    assert_eq!(result(&run), expected);

    // It learns: a network that does not would have an error of 90 %.
    let found = json(lsoftmax(&["eval", &out, "--json"]));
    assert!(found["error"].as_f64().expect("a number") < 45.0, "{found}");
    let table = printed(lsoftmax(&["network", &out]));
    assert_says(&table, &["adds", "conv3.shortcut", "conv2.1", "average"]);

    // Stem, block of two, two blocks of two with a projection: its weights have the names of units.
    let weights = tensors(&run);
    let names: Vec<_> = weights.keys().filter(|name| name.ends_with(".weight")).collect();
    assert_eq!(names.len(), 1 + 2 + 5 + 1);
    assert!(weights.contains_key("units.1.slope") && !weights.contains_key("units.3.slope"));
    assert_eq!(weights["units.4.weight"].len(), 8 * 12);

    let path = directory.path();
    let embed = ["embed", "run", "mnist", "--out", "features.npy"];
    printed(lsoftmax_in(path, &embed));
    for (arguments, ops) in [
        (&["export", "run", "--out", "model.onnx"][..], &["Add", "Relu", "PRelu", "Gemm"][..]),
        (
            &["export", "run", "--out", "f.onnx", "--embeddings"],
            &["GlobalAveragePool", "units.7.sum"],
        ),
    ] {
        printed(lsoftmax_in(path, arguments));
        let bytes = fs::read(path.join(arguments[3])).expect("a file");
        for op in ops {
            assert!(bytes.windows(op.len()).any(|window| window == op.as_bytes()), "{op}");
        }
    }

    // Frozen up to the projection, which is the fifth unit, the others learn.
    let tuned = directory.path().join("tuned");
    let options = ["--init", &out, "--freeze", "5", "--steps", "8", "--seed", "9"];
    done(train(&[&[recipe.as_str(), "--out", &text_of(&tuned)], &options[..]].concat()));
    for (name, values) in tensors(&tuned) {
        let unit: Option<usize> = name
            .strip_prefix("units.")
            .and_then(|rest| rest.split('.').next().and_then(|number| number.parse().ok()));
        let frozen = unit.is_some_and(|unit| unit < 5);
        assert_eq!(weights[&name] == values, frozen, "{name}");
    }
    let words = [&recipe, "--init", &out, "--freeze", "9"];
    let sentence = refused(train(&words).output().expect("it starts"));
    assert_says(sentence, &["init.freeze", "at most 8", "but is 9"]);
}

#[test]
fn a_residual_network_that_does_not_fit_is_refused_with_its_stage() {
    let (directory, _) = temporary_run();
    let refusal = |from: &str, to: &str| {
        let text = text();
        assert!(text.contains(from), "{from}");
        let recipe = recipe(directory.path(), &text.replace(from, to));
        refused(train(&[&recipe]).output().expect("it starts"))
    };
    assert_says(refusal("units = 4", "units = 3"), &["conv3", "even", "but is 3"]);
    assert_says(refusal("size = 12", "size = 8"), &["average", "must be 12", "but is 8"]);
    assert_says(refusal("\"resnet\"", "\"renset\""), &["renset", "resnet", "sphereface"]);
    assert_says(
        refusal("residual = \"resnet\"", "resdiual = \"resnet\""),
        &["resdiual", "residual"],
    );
}
