//! What the reader of recipes says about keys, values and syntax that are wrong.

mod recipe_text;

use lsoftmax_lab::recipe::Recipe;
use recipe_text::{LAMBDA, refused, with};

/// The position of a word in a text, by counting characters.
fn position(text: &str, word: &str) -> String {
    let (mut line, mut column) = (1, 1);
    for character in text[..text.find(word).unwrap()].chars() {
        (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    format!("line {line}, column {column}")
}

#[test]
fn an_unknown_key_is_rejected_with_the_nearest_known_one() {
    let text = with("learning_rate =", "learning_rat =");
    assert_eq!(
        refused(&text).to_string(),
        format!(
            "the recipe mine.toml has the unknown key `learning_rat` at {}: did you mean `learning_rate`?",
            position(&text, "learning_rat =")
        )
    );
    for (line, new, key, meant) in [
        ("gamma =", "gama =", "lambda.gama", "gamma"),
        ("min = 0", "mim = 0", "lambda.mim", "min"),
        ("factor =", "facto =", "learning_rate.facto", "factor"),
        ("momentum =", "Momentun =", "sgd.Momentun", "momentum"),
        ("1 = { test_error =", "1 = { test_eror =", "expected.1.test_eror", "test_error"),
        ("seed =", "sede =", "sede", "seed"),
        (
            "data =",
            "augment = { pad = 1, flip = true, flips = 1 }\ndata =",
            "augment.flips",
            "flip",
        ),
    ] {
        let told = refused(&with(line, new)).to_string();
        assert!(told.contains(&format!("unknown key `{key}` at line ")), "{told}");
        assert!(told.ends_with(&format!("did you mean `{meant}`?")), "{told}");
    }
}

#[test]
fn an_unknown_key_of_a_described_network_is_found_at_any_depth() {
    let described = |stage: &str, features: &str| {
        let stages = format!("[{{ filters = 8, units = 1 }}, {{ {stage} }}]");
        let network =
            format!("{{ input = [1, 28, 28], stages = {stages}, features = {{ {features} }} }}");
        with("network = \"mnist\"", &format!("network = {network}"))
    };
    let good = described("filters = 8, units = 1, pool = false", "size = 4, activation = \"none\"");
    Recipe::from_toml(&good, "mine.toml").unwrap();
    let stage = refused(&described("filtres = 8, units = 1", "size = 4")).to_string();
    assert!(stage.contains("unknown key `network.stages.filtres`"), "{stage}");
    assert!(stage.ends_with("did you mean `filters`?"), "{stage}");
    let features = refused(&described("filters = 8, units = 1", "sice = 4")).to_string();
    assert!(features.contains("`network.features.sice`"), "{features}");
}

#[test]
fn a_key_without_similar_ones_is_rejected_with_all_known_ones() {
    let told = refused(&with("momentum =", "dampening = 0, momentum =")).to_string();
    assert!(
        told.ends_with("the keys here are momentum, nesterov, weight_decay, head_weight_decay"),
        "{told}"
    );
    // A key of another schedule is unknown in this one.
    let told = refused(&with("factor = 0.1,", "factor = 0.1, patience = 3,")).to_string();
    assert!(told.contains("unknown key `learning_rate.patience`"), "{told}");
}

#[test]
fn a_value_of_the_wrong_type_is_rejected_with_key_and_position() {
    for (line, new, key, value, message) in [
        ("batch = 256", "batch = \"many\"", "batch", "\"many\"", "expected an integer"),
        ("steps = 18000", "steps = -1", "steps", "-1", "expected an integer"),
        ("steps = 18000", "steps = 1.5", "steps", "1.5", "expected an integer"),
        ("network = \"mnist\"", "network = 7", "network", "7\n", "the name or the description"),
        (
            "margin = 4",
            "margin = 0.5",
            "margin",
            "0.5",
            "the margin must be a number from 1 to 1000",
        ),
        (
            "margin = 4",
            "margin = nan",
            "margin",
            "nan",
            "the margin must be a number from 1 to 1000",
        ),
        (
            "loss = \"l-softmax\"",
            "loss = \"softmax\"",
            "loss",
            "\"softmax\"",
            "unknown choice `softmax`",
        ),
        ("\"bf16\"", "\"f16\"", "precision", "\"f16\"", "unknown choice `f16`"),
        (
            "power = 35",
            "power = -35",
            "lambda",
            "{ schedule = \"power\"",
            "power of the λ schedule must be",
        ),
        (LAMBDA, "\"atuo\"", "lambda", "\"atuo\"", "unknown choice `atuo`, expected `auto`"),
        (LAMBDA, "true", "lambda", "true", "expected \"auto\", a number or a schedule"),
        (LAMBDA, "-1", "lambda", "-1", "λ must be a finite number of at least 0, but is -1"),
        (LAMBDA, "inf", "lambda", "inf", "λ must be a finite number of at least 0, but is inf"),
        (
            "log_every =",
            "test_curve = 1\nlog_every =",
            "test_curve",
            "1\nlog_every",
            "expected true or false",
        ),
        ("\"power\"", "\"cosine\"", "lambda.schedule", "\"cosine\"", "unknown choice `cosine`"),
        (
            "rate = 0.1",
            "rate = \"x\"",
            "learning_rate",
            "{ schedule = \"steps\"",
            "expected a number",
        ),
        ("momentum = 0.9", "momentum = \"x\"", "sgd.momentum", "\"x\"", "expected a number"),
    ] {
        let text = with(line, new);
        let told = refused(&text).to_string();
        let start =
            format!("the recipe mine.toml is invalid in `{key}` at {}: ", position(&text, value));
        assert!(told.starts_with(&start) && told.contains(message), "{told}\n{start}");
    }
}

#[test]
fn a_missing_key_is_named() {
    let told = refused(&with("steps = 18000", "")).to_string();
    assert_eq!(told, "the recipe mine.toml is invalid: missing key `steps`");
    let told = refused(&with(", at = [12000, 15000]", "")).to_string();
    assert!(
        told.contains("in `learning_rate` at line ") && told.ends_with("missing key `at`"),
        "{told}"
    );
    let told = refused("").to_string();
    assert_eq!(told, "the recipe mine.toml is invalid: missing key `name`");
}

#[test]
fn invalid_toml_is_rejected_with_the_position() {
    let told = refused(&with("steps = 18000", "steps = 18000 18000")).to_string();
    let start = "the recipe mine.toml is not TOML at line ";
    assert!(told.starts_with(start), "{told}");
    for text in ["[", "a = ", "= 1", "\u{0}", "a = \"", "[[[[", "λ = 1"] {
        assert!(refused(text).to_string().starts_with(start), "{text}: {}", refused(text));
    }
    let twice = refused(&with("seed = 1", "seed = 1\nseed = 2")).to_string();
    assert!(twice.starts_with(start) && twice.contains("duplicate key"), "{twice}");
}

#[test]
fn a_setting_out_of_range_is_rejected_with_its_range() {
    let plateau = "schedule = \"plateau\", patience = 0, drops = 2, rate = 0.1, factor = 0.1";
    let steps = "schedule = \"steps\", rate = 0.1, factor = 0.1, at = [12000, 15000]";
    let late = "schedule = \"cosine\", rate = 0.1 }\nwarmup = 18000 #";
    let patient = plateau.replace("patience = 0", "patience = 1");
    for (line, new, key, problem) in [
        ("batch = 256", "batch = 0", "batch", "must be from 1 to 65536, but is 0"),
        ("batch = 256", "batch = 65537", "batch", "but is 65537"),
        ("steps = 18000", "steps = 0", "steps", "must be at least 1, but is 0"),
        ("steps = 18000", "steps = 15000", "learning_rate.at", "below 15000, the number of steps"),
        ("at = [12000, 15000]", "at = [0, 15000]", "learning_rate.at", "but is [0, 15000]"),
        ("at = [12000, 15000]", "at = [15000, 15000]", "learning_rate.at", "must be increasing"),
        ("rate = 0.1", "rate = 0", "learning_rate.rate", "must be above 0 and finite, but is 0"),
        ("rate = 0.1", "rate = inf", "learning_rate.rate", "but is inf"),
        ("rate = 0.1", "rate = nan", "learning_rate.rate", "but is NaN"),
        ("factor = 0.1", "factor = -1", "learning_rate.factor", "but is -1"),
        (steps, plateau, "learning_rate.patience", "must be at least 1"),
        ("momentum = 0.9", "momentum = 1", "sgd.momentum", "at least 0 and below 1, but is 1"),
        ("weight_decay = 5e-4", "weight_decay = -1", "sgd.weight_decay", "but is -1"),
        ("momentum = 0.9", "momentum = 0, nesterov = true", "sgd.nesterov", "needs a momentum"),
        ("\nsgd =", "\nadamw = {}\nsgd =", "adamw", "cannot be used with `sgd`"),
        ("\nsgd = { momentum = 0.9,", "\nadamw = { beta2 = 1,", "adamw.beta2", "below 1, but is 1"),
        ("\nsgd = { momentum = 0.9,", "\nadamw = { epsilon = 0,", "adamw.epsilon", "but is 0"),
        (steps, "schedule = \"cosine\", rate = 0.1, min = 0.2", "learning_rate.min", "but is 0.2"),
        (steps, late, "warmup", "less than 18000, the end of the cosine, but is 18000"),
        ("\nsteps", "\nearly_stopping = 0\nsteps", "early_stopping", "at least 1, but is 0"),
        ("\nsteps", "\naverage = 1\nsteps", "average", "above 0 and below 1, but is 1"),
        ("validation = 5000", "validation = 0\nkeep = \"best\"", "validation", "the best model"),
        ("validation = 5000", "validation = 0\nearly_stopping = 2", "validation", "stop early"),
        ("\nsteps", "\ninit = { from = \"\" }\nsteps", "init.from", "but is empty"),
        ("\nsteps", "\ninit = { from = \"a\", freeze = 12 }\nsteps", "init.freeze", "at most 11,"),
        ("\nsteps", "\ninit = { from = \"a\", trunk_rate = 0 }\nsteps", "init.trunk_rate", "is 0"),
        ("evaluate_every = 600", "evaluate_every = 0", "evaluate_every", "but is 0"),
        ("log_every = 20", "log_every = 0", "log_every", "but is 0"),
        ("checkpoint_every = 200", "checkpoint_every = 0", "checkpoint_every", "but is 0"),
        (
            "network = \"mnist\"",
            "network = \"mnit\"",
            "network",
            "the networks are mnist-2d, mnist,",
        ),
        ("name = \"mnist\"", "name = \"a/b\"", "name", "valid directory name"),
        ("name = \"mnist\"", "name = \"..\"", "name", "valid directory name"),
        ("name = \"mnist\"", "name = \"\"", "name", "but is \"\""),
        ("data = \"mnist\"", "data = \"\"", "data", "but is empty"),
        (
            "data =",
            "augment = { pad = 28, flip = true }\ndata =",
            "augment.pad",
            "less than the sides",
        ),
        (
            "data =",
            "augment = { colour = { brightness = 0.4, hue = 0.1 } }\ndata =",
            "augment.colour.hue",
            "images of 1 channels, which have no colours",
        ),
        (
            "data =",
            "augment = { erase = { area = [0.5, 0.2] } }\ndata =",
            "augment.erase.area",
            "the second not less than the first, but is [0.5, 0.2]",
        ),
        (
            "data =",
            "augment = { crop = { probability = 1.5 } }\ndata =",
            "augment.crop.probability",
            "from 0 to 1, but is 1.5",
        ),
        ("1 = { test_error", "0 = { test_error", "expected.0", "is not a margin"),
        ("1 = { test_error", "x = { test_error", "expected.x", "is not a margin"),
        ("test_error = 0.40", "test_error = 101", "expected.1.test_error", "from 0 to 100"),
        ("0.40, tolerance = 0.15", "0.40, tolerance = nan", "expected.1.tolerance", "but is NaN"),
    ] {
        let told = refused(&with(line, new)).to_string();
        let start = format!("the recipe mine.toml cannot be run: `{key}` (line ");
        assert!(told.starts_with(&start) && told.contains(problem), "{told}");
    }
    let text = with(steps, &patient).replace("validation = 5000", "validation = 0");
    let told = refused(&text).to_string();
    assert!(told.contains("`validation` (line ") && told.contains("plateau"), "{told}");
    let without = with("validation = 5000", "validation = 0");
    assert_eq!(Recipe::from_toml(&without, "mine.toml").unwrap().validation, 0);
}

#[test]
fn the_position_of_a_setting_is_that_of_its_value() {
    let text = with("momentum = 0.9", "momentum = 1.25");
    let told = refused(&text).to_string();
    assert!(told.contains(&format!("({})", position(&text, "1.25"))), "{told}");
}

#[test]
fn a_recipe_whose_fields_were_set_is_checked_under_its_name() {
    let mut recipe = Recipe::built_in("mnist").unwrap();
    recipe.steps = 100;
    let told = recipe.check().unwrap_err().to_string();
    assert!(told.starts_with("the recipe mnist cannot be run: `learning_rate.at` must"), "{told}");
}
