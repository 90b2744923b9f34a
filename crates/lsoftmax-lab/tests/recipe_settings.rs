//! The settings of a recipe: their forms, their defaults, and how they depend on each other.

mod recipe_text;

use lsoftmax_lab::optimiser::AdamW;
use lsoftmax_lab::recipe::{AutoRule, Lambda, LearningRate, Objective, Recipe};
use recipe_text::{LAMBDA, refused, with};

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

#[test]
fn lambda_is_automatic_a_number_or_a_schedule() {
    let read = |lambda: &str| Recipe::from_toml(&with(LAMBDA, lambda), "mine.toml").unwrap();
    let auto = read("\"auto\"");
    assert_eq!((&auto.lambda, auto.lambda.schedule()), (&Lambda::AUTO, None));
    // A run's own recipe says which rule it had.
    let text = auto.to_toml();
    assert!(
        text.contains("[lambda]\nschedule = \"auto\"\nkeep = 0.97\nend = 2.0\nfloor = 1.0\n"),
        "{text}"
    );
    assert_eq!(auto, read("{ schedule = \"auto\" }"));
    for (other, keep, end, floor) in [
        ("{ schedule = \"auto\", keep = 0.9 }", 0.9, 2.0, 1.0),
        ("{ schedule = \"auto\", end = 1000 }", 0.97, 1000.0, 1.0),
        ("{ schedule = \"auto\", floor = 0 }", 0.97, 2.0, 0.0),
    ] {
        let other = read(other);
        assert_eq!(other.lambda, Lambda::Auto(AutoRule { keep, end, floor }));
        assert!(!other.is_same_experiment(&Recipe { lambda: Lambda::AUTO, ..other.clone() }));
    }
    assert_eq!(auto.scaled(300).lambda, Lambda::AUTO);
    for keep in [0.0, -0.1, 1.01, f64::NAN] {
        let rule = AutoRule { keep, ..AutoRule::default() };
        let recipe = Recipe { lambda: Lambda::Auto(rule), ..auto.clone() };
        let sentence = recipe.check().unwrap_err().to_string();
        assert!(sentence.contains("`lambda.keep` must be above 0 and at most 1"), "{sentence}");
    }
    for end in [0.0, -1.0, 1001.0, f64::NAN] {
        let rule = AutoRule { end, ..AutoRule::default() };
        let recipe = Recipe { lambda: Lambda::Auto(rule), ..auto.clone() };
        let sentence = recipe.check().unwrap_err().to_string();
        assert!(sentence.contains("`lambda.end` must be from 0.001 to 1000"), "{sentence}");
    }
    for floor in [-1.0, 1001.0, f64::NAN] {
        let rule = AutoRule { floor, ..AutoRule::default() };
        let recipe = Recipe { lambda: Lambda::Auto(rule), ..auto.clone() };
        let sentence = recipe.check().unwrap_err().to_string();
        assert!(sentence.contains("`lambda.floor` must be from 0 to 1000"), "{sentence}");
    }
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
