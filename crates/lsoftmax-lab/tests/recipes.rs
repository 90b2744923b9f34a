//! Recipes: the built-in ones, the file format, and its errors.

use lsoftmax::{LambdaSchedule, Margin, Stage};
use lsoftmax_data::{Augment, DataSource, Shape};
use lsoftmax_lab::head::{HeadKind, HeadSettings};
use lsoftmax_lab::optimiser::{AdamW, Sgd};
use lsoftmax_lab::recipe::{Lambda, LearningRate, Objective, Recipe, RecipeError};

/// Every recipe in the program: its name, its directory and itself.
fn all() -> impl Iterator<Item = (&'static str, &'static str, Recipe)> {
    Recipe::NAMES.into_iter().flat_map(|name| {
        let (full, quick) = (Recipe::built_in(name).unwrap(), Recipe::quick(name).unwrap());
        [(name, "", full), (name, "quick/", quick)]
    })
}

fn file(name: &str, directory: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/");
    std::fs::read_to_string(format!("{root}{directory}{name}.toml")).unwrap()
}

/// A recipe's text with a line of it replaced.
fn with(line: &str, new: &str) -> String {
    let text = file("mnist", "");
    assert_eq!(text.matches(line).count(), 1, "{line}");
    text.replace(line, new)
}

fn l_softmax(m: f64) -> HeadSettings {
    HeadSettings::l_softmax(Margin::new(m).unwrap())
}

fn refused(text: &str) -> RecipeError {
    Recipe::from_toml(text, "mine.toml").unwrap_err()
}

/// λ at a step.
fn lambda(recipe: &Recipe, step: u64) -> f64 {
    recipe.lambda.schedule().expect("a schedule").at(step)
}

/// The position of a word in a text, by counting characters.
fn position(text: &str, word: &str) -> String {
    let (mut line, mut column) = (1, 1);
    for character in text[..text.find(word).unwrap()].chars() {
        (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    format!("line {line}, column {column}")
}

#[test]
fn every_recipe_file_is_built_in_under_its_name() {
    for directory in ["", "quick/"] {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/");
        let mut found: Vec<String> = std::fs::read_dir(format!("{root}{directory}"))
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
            .collect();
        found.sort();
        let mut names = Recipe::NAMES.to_vec();
        names.sort_unstable();
        assert_eq!(found, names, "{directory}");
    }
    for (name, directory, recipe) in all() {
        let expected = if directory.is_empty() { name.to_owned() } else { format!("{name}-quick") };
        assert_eq!(recipe.name, expected);
    }
}

#[test]
fn every_header_has_the_command_the_expected_result_and_the_length() {
    for (name, directory, recipe) in all() {
        let text = file(name, directory);
        let header: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        let commands: Vec<&str> =
            header.iter().filter_map(|line| line.strip_prefix("#   lsoftmax train ")).collect();
        let quick = if directory.is_empty() { "" } else { " --quick" };
        let margin = match (quick, recipe.loss) {
            ("", Objective::Head) => format!(" --margin {}", recipe.head.margin().value()),
            _ => String::new(),
        };
        assert_eq!(commands, [format!("{name}{quick}{margin}")]);
        let header = header.join(" ").replace("# ", "").replace(',', "");
        let (steps, batch) = (recipe.steps, recipe.batch as u64);
        let length = format!("Length: {steps} steps of {batch} are {} images.", steps * batch);
        assert!(header.contains(&length), "{name}: {header}");
        assert!(header.contains("Expected: "), "{name}");
        for expected in recipe.expected.values() {
            assert!(header.contains(&format!("{:.2} %", expected.test_error)), "{name}");
        }
    }
}

#[test]
fn every_recipe_survives_serialization() {
    for (name, _, recipe) in all() {
        let text = recipe.to_toml();
        assert_eq!(Recipe::from_toml(&text, name), Ok(recipe), "{text}");
    }
    let folder = Recipe::for_folder("a \"folder\"".into(), 3, 900, Recipe::FOLDER_SHAPE);
    let text = folder.to_toml();
    assert_eq!(Recipe::from_toml(&text, "folder"), Ok(folder), "{text}");
    let stages = vec![Stage { from: 0, value: 9.0 }, Stage { from: 700, value: 0.25 }];
    for lambda in [
        Lambda::Auto,
        Lambda::constant(3.5).unwrap(),
        LambdaSchedule::exponential(800.0, 0.99, 0.5).unwrap().into(),
        LambdaSchedule::staged(stages).unwrap().into(),
    ] {
        let recipe = Recipe { lambda, ..Recipe::built_in("mnist").unwrap() };
        let text = recipe.to_toml();
        assert_eq!(Recipe::from_toml(&text, "mine"), Ok(recipe), "{text}");
    }
    let mut longest = Recipe::built_in("mnist").unwrap().scaled(u64::MAX);
    (longest.seed, longest.validation) = (u64::MAX, usize::MAX);
    let text = longest.to_toml();
    assert_eq!(Recipe::from_toml(&text, "longest"), Ok(longest), "{text}");
}

#[test]
fn every_recipe_has_a_network_for_the_images_of_its_data() {
    for (name, _, recipe) in all() {
        let network = recipe.network.config().unwrap();
        let images = match recipe.data.to_string().as_str() {
            "mnist" => [1, 28, 28],
            "cifar10" | "cifar100" => [3, 32, 32],
            "faces" => [3, 112, 96],
            other => panic!("{name} has the data {other}"),
        };
        assert_eq!(network.input, images, "{name}");
        let is_folder = matches!(recipe.data, DataSource::Folder(_));
        assert_eq!(is_folder, recipe.data == "faces".into(), "{name}");
        network.stack().unwrap();
    }
}

#[test]
fn the_full_recipes_follow_the_paper() {
    let rates = LearningRate::Steps { rate: 0.1, factor: 0.1, at: vec![12_000, 15_000] };
    for name in Recipe::NAMES {
        let recipe = Recipe::built_in(name).unwrap();
        assert_eq!((recipe.batch, recipe.validation), (256, 5000), "{name}");
        let sgd = Sgd { momentum: 0.9, weight_decay: 5e-4, nesterov: false };
        assert_eq!(recipe.optimiser(), sgd.into(), "{name}");
        let augment = if name.contains("plus") { Augment::CIFAR10_PLUS } else { Augment::NONE };
        assert_eq!(recipe.augment, augment, "{name}");
        if !name.starts_with("lfw") {
            assert_eq!(recipe.steps, 18_000, "{name}");
        }
        // A sum over a hundred classes diverges at the paper's rate; see the recipe.
        let rate = match name {
            "cifar100-hinge" => 0.01,
            _ => 0.1,
        };
        if !["lfw", "lfw-contrastive", "mnist-2d"].contains(&name) {
            assert_eq!(recipe.learning_rate, rates.clone().with_rate(rate), "{name}");
        }
        assert_eq!(recipe.loss == Objective::Hinge, name.ends_with("-hinge"));
    }
    let lambda = |name| Recipe::built_in(name).unwrap().lambda;
    let power = |gamma, power, min| LambdaSchedule::power(1000.0, gamma, power, min).unwrap();
    assert_eq!(lambda("mnist"), power(1.04e-5, 35.0, 0.0).into());
    assert_eq!(lambda("cifar10"), power(8.3e-6, 45.0, 0.0).into());
    assert_eq!(lambda("cifar10-plus"), power(6.7e-6, 45.0, 0.0).into());
    assert_eq!(lambda("cifar100"), power(8.3e-6, 45.0, 5.0).into());
    assert_eq!(lambda("lfw"), power(0.12, 1.0, 5.0).into());
    // At the first drop of the learning rate λ is what it is there in the authors' files.
    for (name, gamma, first_drop, exponent) in [
        ("mnist", 2.5e-5, 5_000, 35.0),
        ("cifar10", 2e-5, 5_000, 45.0),
        ("cifar10-plus", 1e-5, 8_000, 45.0),
    ] {
        let authors = power(gamma, exponent, 0.0).at(first_drop);
        let Lambda::Schedule(schedule) = lambda(name) else { panic!("{name} has a schedule") };
        let ratio = schedule.at(12_000) / authors;
        assert!((0.95..1.05).contains(&ratio), "{name}: {ratio}");
    }
}

/// The paper's tables 2 to 4, in percent.
#[test]
fn expected_results_are_those_of_the_paper() {
    let table = [
        ("mnist", [Some(0.40), Some(0.32), Some(0.31), Some(0.31)]),
        ("mnist-hinge", [Some(0.47), None, None, None]),
        ("cifar10", [Some(9.05), Some(7.73), Some(7.66), Some(7.58)]),
        ("cifar10-hinge", [Some(9.91), None, None, None]),
        ("cifar10-plus", [Some(6.50), Some(6.01), Some(5.94), Some(5.92)]),
        ("cifar10-plus-hinge", [Some(6.96), None, None, None]),
        ("cifar100", [Some(32.74), Some(29.95), Some(29.87), Some(29.53)]),
        ("cifar100-hinge", [Some(32.90), None, None, None]),
        ("mnist-2d", [None; 4]),
        ("lfw", [None; 4]),
    ];
    for (name, errors) in table {
        let recipe = Recipe::built_in(name).unwrap();
        for (margin, error) in [1, 2, 3, 4].into_iter().zip(errors) {
            let expected = recipe.clone().with_head(l_softmax(margin.into())).expected_result();
            assert_eq!(expected.map(|expected| expected.test_error), error, "{name}, {margin}");
            let Some(expected) = expected else { continue };
            // Between 2 and 3 standard errors of an error rate on 10,000 images.
            let share = expected.test_error / 100.0;
            let errors = 200.0 * (share * (1.0 - share) / 10_000.0).sqrt();
            let within = errors..1.5 * errors;
            assert!(within.contains(&expected.tolerance), "{name}, {margin}: {within:?}");
        }
        assert_eq!(recipe.clone().with_head(l_softmax(1.5)).expected_result(), None);
        // A result of L-Softmax with m = 4 is none of A-Softmax with m = 4.
        let other = HeadSettings::new(HeadKind::ASoftmax, Some(4.0), None).unwrap();
        assert_eq!(recipe.with_head(other).expected_result(), None);
    }
}

#[test]
fn a_quick_recipe_is_the_full_one_scaled_with_smaller_batches_and_rates() {
    for name in Recipe::NAMES {
        let quick = Recipe::quick(name).unwrap();
        let mut full = Recipe::built_in(name).unwrap().scaled(quick.steps);
        assert!(quick.steps * (quick.batch as u64) <= 60_000, "{name}");
        // Where so few steps do not suffice for a small λ, it stays larger.
        let floor = if quick.data == "mnist".into() { 0.0 } else { 50.0 };
        for step in (0..quick.steps).filter(|_| quick.has_margin()) {
            let (found, scaled) = (lambda(&quick, step), lambda(&full, step).max(floor));
            assert!((found - scaled).abs() <= 1e-9 * scaled, "{name}: {found}, not {scaled}");
        }
        if quick.data != "mnist".into() {
            let rate = if name == "cifar100-hinge" { 0.01 } else { 0.1 };
            full.learning_rate = full.learning_rate.with_rate(rate * 64.0 / 256.0);
        }
        full.name.clone_from(&quick.name);
        full.source.clone_from(&quick.source);
        full.lambda = quick.lambda.clone();
        // The figures' curves need the full length.
        assert_eq!(full.test_curve, name.contains("-by-margin") || name.contains("-filters-"));
        full.test_curve = false;
        (full.batch, full.validation) = (64, quick.validation);
        (full.evaluate_every, full.log_every) = (quick.evaluate_every, quick.log_every);
        full.checkpoint_every = quick.checkpoint_every;
        assert_eq!(full, quick);
        assert!(quick.evaluate_every <= quick.steps && quick.log_every <= quick.steps, "{name}");
    }
}

#[test]
fn a_scaled_run_keeps_its_proportions() {
    let full = Recipe::built_in("cifar10").unwrap();
    for steps in [9_000, 1_800, 180, 36_000, 54_000] {
        let scaled = full.scaled(steps);
        scaled.check().unwrap();
        assert_eq!(scaled.steps, steps);
        let at = vec![steps * 2 / 3, steps * 5 / 6];
        assert_eq!(scaled.learning_rate, LearningRate::Steps { rate: 0.1, factor: 0.1, at });
        assert_eq!(scaled.evaluate_every, steps / 30);
        for part in 0..=18 {
            let (found, expected) =
                (lambda(&scaled, part * steps / 18), lambda(&full, part * 1_000));
            assert!((found - expected).abs() < 1e-9 * expected, "{steps}, {part}");
        }
        assert!(scaled.expected.is_empty());
        assert_eq!((scaled.batch, scaled.validation), (full.batch, full.validation));
    }
    assert_eq!(full.scaled(18_000), full);
}

#[test]
fn a_cosine_and_a_warmup_are_scaled_or_kept() {
    let cosine = |until| LearningRate::Cosine { rate: 0.1, min: 0.01, until };
    let full =
        Recipe { learning_rate: cosine(None), warmup: 900, ..Recipe::built_in("cifar10").unwrap() };
    full.check().unwrap();
    let short = full.scaled(1_800);
    assert_eq!((&short.learning_rate, short.warmup), (&cosine(None), 90));
    // A cosine that is kept ends where it would have ended.
    for steps in [1_800, 36_000] {
        let kept = full.with_steps(steps);
        kept.check().unwrap();
        assert_eq!((&kept.learning_rate, kept.warmup), (&cosine(Some(18_000)), 900));
        let halved = kept.scaled(steps / 2);
        assert_eq!((&halved.learning_rate, halved.warmup), (&cosine(Some(9_000)), 450));
    }
    assert_eq!(full.with_steps(18_000), full);
    for steps in [1, 2, 3, 19, 20, 21] {
        full.scaled(steps).check().unwrap();
        full.with_steps(steps).scaled(1).check().unwrap();
    }
}

#[test]
fn a_recipe_names_its_optimiser() {
    let text = Recipe::built_in("mnist").unwrap().to_toml();
    let without = text.replace("[sgd]\nmomentum = 0.9\nweight_decay = 0.0005\n", "");
    assert_ne!(text, without);
    assert_eq!(Recipe::from_toml(&without, "mine").unwrap().to_toml(), text);
    let adamw = Recipe::from_toml(&format!("{without}\n[adamw]\nweight_decay = 0.05"), "mine");
    let expected = AdamW { weight_decay: 0.05, ..AdamW::default() };
    assert_eq!(adamw.unwrap().optimiser(), expected.into());
}

#[test]
fn recipes_scaled_to_any_length_are_valid() {
    for (_, _, recipe) in all() {
        for steps in [0, 1, 2, 3, 7, 100, 17_999, u64::MAX] {
            let scaled = recipe.scaled(steps);
            assert_eq!(scaled.steps, steps.max(1));
            scaled.check().unwrap();
            assert_eq!(scaled.scaled(steps).steps, scaled.steps);
        }
    }
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
    assert!(told.ends_with("the keys here are momentum, nesterov, weight_decay"), "{told}");
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
    for text in ["", "source = \"me\""] {
        let told = refused(text).to_string();
        assert_eq!(told, "the recipe mine.toml is invalid: missing key `name`");
    }
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
fn an_objective_with_settings_of_its_own_comes_back_and_is_checked() {
    let with_loss = |loss: &str| with("loss = \"l-softmax\"", &format!("loss = {loss}"));
    let text = with_loss("{ contrastive = { weight = 0.5, margin = 1.5 } }");
    let recipe = Recipe::from_toml(&text, "mine.toml").unwrap();
    assert_eq!(recipe.loss, Objective::Contrastive { weight: 0.5, margin: 1.5 });
    assert_eq!(Recipe::from_toml(&recipe.to_toml(), "again"), Ok(recipe));
    for (loss, said) in [
        ("{ contrastive = { weight = 0.5, margin = 2 } }", "loss.contrastive.margin"),
        ("{ contrastive = { weight = -1, margin = 1 } }", "loss.contrastive.weight"),
        ("{ contrastive = { wait = 1, margin = 1 } }", "did you mean `weight`"),
        ("{ contrastive = { margin = 1 } }", "weight"),
        ("\"hing\"", "hinge"),
    ] {
        let sentence = refused(&with_loss(loss)).to_string();
        assert!(sentence.contains(said), "{said} in {sentence}");
    }
}

/// λ of the recipe for MNIST.
const LAMBDA: &str = "{ schedule = \"power\", base = 1000, gamma = 1.04e-5, power = 35, min = 0 }";

#[test]
fn lambda_is_automatic_a_number_or_a_schedule() {
    let read = |lambda: &str| Recipe::from_toml(&with(LAMBDA, lambda), "mine.toml").unwrap();
    let auto = read("\"auto\"");
    assert_eq!((&auto.lambda, auto.lambda.schedule()), (&Lambda::Auto, None));
    assert!(auto.to_toml().contains("\nlambda = \"auto\"\n"), "{}", auto.to_toml());
    assert_eq!(auto.scaled(300).lambda, Lambda::Auto);
    for number in ["5", "5.0", "0.5e1"] {
        let constant = read(number);
        assert_eq!(constant.lambda, Lambda::constant(5.0).unwrap());
        let text = constant.to_toml();
        assert!(text.contains("[lambda]\nschedule = \"constant\"\nvalue = 5.0\n"), "{text}");
        assert_eq!(constant, read("{ schedule = \"constant\", value = 5 }"));
    }
}

#[test]
fn a_test_curve_is_left_out_of_the_text_unless_set() {
    let plain = Recipe::built_in("mnist").unwrap();
    assert!(!plain.test_curve && !plain.to_toml().contains("test_curve"));
    let recipe = Recipe { test_curve: true, ..plain };
    assert_eq!(Recipe::from_toml(&recipe.to_toml(), "again"), Ok(recipe));
}

#[test]
fn accumulation_and_clipping_are_left_out_of_the_text_unless_set() {
    let plain = Recipe::built_in("mnist").unwrap();
    assert!(!plain.to_toml().contains("accumulate") && !plain.to_toml().contains("clip_norm"));
    let recipe = Recipe { accumulate: 4, clip_norm: Some(2.5), ..plain };
    assert_eq!(Recipe::from_toml(&recipe.to_toml(), "again"), Ok(recipe.clone()));
    for (key, recipe) in [
        ("accumulate", Recipe { accumulate: 0, ..recipe.clone() }),
        ("clip_norm", Recipe { clip_norm: Some(0.0), ..recipe.clone() }),
        ("clip_norm", Recipe { clip_norm: Some(f64::NAN), ..recipe }),
    ] {
        let sentence = recipe.check().unwrap_err().to_string();
        assert!(sentence.contains(&format!("`{key}` must be")), "{sentence}");
    }
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

#[test]
fn an_unknown_recipe_is_rejected_with_the_nearest_name() {
    for error in [Recipe::built_in("cifra10"), Recipe::quick("CIFAR10")] {
        let told = error.unwrap_err().to_string();
        assert!(told.contains("did you mean cifar10?") && told.contains("mnist-hinge"), "{told}");
    }
    for unrelated in ["resnet50", "imagenet", "vgg", ""] {
        let told = Recipe::built_in(unrelated).unwrap_err().to_string();
        assert!(!told.contains("did you mean") && told.contains("mnist-hinge"), "{told}");
    }
}

#[test]
fn one_image_per_batch_is_rejected_where_batch_norm_sees_one_value_per_channel() {
    let stages = |pools: usize, kernel: usize| {
        let pooled = vec!["{ filters = 4, units = 1 }".to_owned(); pools];
        let last = format!("{{ filters = 4, units = 1, kernel = {kernel}, pool = false }}");
        [pooled, vec![last]].concat().join(", ")
    };
    let recipe = |pools: usize, activation: &str, batch: usize| {
        let network = format!(
            "network = {{ input = [1, 28, 28], stages = [{}], features = {{ size = 4, activation = \"{activation}\" }} }}",
            stages(pools, 3)
        );
        let text = with("network = \"mnist\"", &network);
        Recipe::from_toml(&text.replace("batch = 256", &format!("batch = {batch}")), "mine.toml")
    };
    // The layer of features has one value per channel and image, unless it has no batch norm.
    let told = recipe(2, "prelu", 1).unwrap_err().to_string();
    assert!(told.contains("`batch` (line") && told.contains("at least 2"), "{told}");
    assert!(told.contains("batch norm") && told.contains("no variance"), "{told}");
    assert!(recipe(2, "prelu", 2).is_ok() && recipe(2, "none", 1).is_ok());
    // After five poolings of 28 x 28 a convolution has one output, after four it has four.
    assert!(recipe(4, "none", 1).is_ok() && recipe(5, "none", 1).is_err());
    assert!(recipe(5, "none", 2).is_ok());
}

#[test]
fn the_recipe_of_a_folder_depends_on_its_size() {
    let shape = Recipe::FOLDER_SHAPE;
    let folder = |classes, images| Recipe::for_folder("photos".into(), classes, images, shape);

    // 30 epochs of 27,000 images by 256 are 3,164 steps.
    let many = folder(10, 30_000);
    assert_eq!((many.steps, many.batch, many.validation), (3_164, 256, 3_000));
    assert_eq!((many.head.margin().value(), lambda(&many, u64::MAX)), (4.0, 0.0));
    // 30 epochs of 360 images by 64 are 168 steps.
    let few = folder(3, 400);
    assert_eq!((few.steps, few.batch, few.validation), (500, 64, 40));
    assert_eq!(lambda(&few, u64::MAX), 5.0);
    let classes = folder(1_000, 10_000_000);
    assert_eq!((classes.steps, lambda(&classes, u64::MAX)), (18_000, 5.0));
    assert_eq!(classes.network.config().unwrap().features.size, 512);
    // As in the paper, divided by 10 after two thirds and five sixths of the steps.
    let at = vec![333, 417];
    assert_eq!(few.learning_rate, LearningRate::Steps { rate: 0.025, factor: 0.1, at });
}

#[test]
fn the_recipe_of_every_folder_is_valid() {
    for (classes, images) in [(1, 1), (2, 9), (0, 0), (5, 64), (100_000, 10), (7, usize::MAX)] {
        for (channels, height, width) in
            [(3, 64, 64), (1, 28, 28), (3, 1, 1), (3, 5, 300), (3, 224, 224), (1, 4096, 4096)]
        {
            let shape = Shape { channels, height, width };
            let recipe = Recipe::for_folder("photos".into(), classes, images, shape);
            let told = recipe.check();
            assert!(told.is_ok(), "{classes}, {images}, {shape}: {told:?}");
        }
    }
}

#[test]
fn the_network_of_a_folder_has_as_many_poolings_as_the_size_needs() {
    let poolings = |side| {
        let shape = Shape { channels: 3, height: side, width: side };
        let network =
            Recipe::for_folder("photos".into(), 10, 5_000, shape).network.config().unwrap();
        let stack = network.stack().unwrap();
        let last = stack.unit_input(stack.units().len() - 1);
        (network.stages.iter().filter(|stage| stage.pool).count(), last[1])
    };
    assert_eq!(poolings(32), (3, 4));
    assert_eq!(poolings(28), (3, 4));
    assert_eq!(poolings(64), (4, 4));
    // For images larger than 64, the first convolution has a stride of 2.
    assert_eq!(poolings(65), (4, 3));
    assert_eq!(poolings(128), (4, 4));
    assert_eq!(poolings(224), (5, 4));
    assert_eq!(poolings(16), (2, 4));
    assert_eq!(poolings(4), (1, 2));
}
