//! The built-in recipes: complete, as in the paper, and scaled.

mod recipe_text;

use lsoftmax::{LambdaSchedule, Margin, Stage};
use lsoftmax_data::{Augment, DataSource};
use lsoftmax_lab::head::{HeadKind, HeadSettings};
use lsoftmax_lab::optimiser::Sgd;
use lsoftmax_lab::recipe::{Lambda, LearningRate, Objective, Recipe};
use recipe_text::{file, lambda};

/// Every recipe in the program: its name, its directory and itself.
fn all() -> impl Iterator<Item = (&'static str, &'static str, Recipe)> {
    Recipe::NAMES.into_iter().flat_map(|name| {
        let (full, quick) = (Recipe::built_in(name).unwrap(), Recipe::quick(name).unwrap());
        [(name, "", full), (name, "quick/", quick)]
    })
}

fn l_softmax(m: f64) -> HeadSettings {
    HeadSettings::l_softmax(Margin::new(m).unwrap())
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
        Lambda::AUTO,
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
            "faces-list" => [3, 112, 96],
            other => panic!("{name} has the data {other}"),
        };
        assert_eq!(network.input, images, "{name}");
        let is_folder = matches!(recipe.data, DataSource::Folder(_));
        assert_eq!(is_folder, recipe.data == "faces-list".into(), "{name}");
        network.stack().unwrap();
    }
}

/// The recipes of the large-margin softmax paper.
fn of_the_paper() -> impl Iterator<Item = &'static str> {
    Recipe::NAMES.into_iter().filter(|name| !name.contains("resnet"))
}

#[test]
fn the_residual_recipe_follows_its_paper() {
    let recipe = Recipe::built_in("cifar10-resnet20").unwrap();
    assert_eq!((recipe.batch, recipe.validation, recipe.steps), (128, 5000, 64_000));
    let sgd = Sgd { momentum: 0.9, weight_decay: 1e-4, ..Sgd::default() };
    assert_eq!(recipe.optimiser(), sgd.into());
    assert_eq!(recipe.augment, Augment::CIFAR10_PLUS);
    let rates = LearningRate::Steps { rate: 0.1, factor: 0.1, at: vec![32_000, 48_000] };
    assert_eq!(recipe.learning_rate, rates);
    // λ at the first drop is that of the paper's network with the same data.
    let plus = Recipe::built_in("cifar10-plus").unwrap();
    let ratio = lambda(&recipe, 32_000) / lambda(&plus, 12_000);
    assert!((0.97..1.03).contains(&ratio), "{ratio}");
    let softmax = recipe.with_head(l_softmax(1.0));
    assert_eq!(softmax.expected_result().map(|expected| expected.test_error), Some(8.75));
}

#[test]
fn the_full_recipes_follow_the_paper() {
    let rates = LearningRate::Steps { rate: 0.1, factor: 0.1, at: vec![12_000, 15_000] };
    for name in of_the_paper() {
        let recipe = Recipe::built_in(name).unwrap();
        let is_of_faces = name.starts_with("lfw");
        let validation = if is_of_faces { 1000 } else { 5000 };
        assert_eq!((recipe.batch, recipe.validation), (256, validation), "{name}");
        let sgd = Sgd { momentum: 0.9, weight_decay: 5e-4, ..Sgd::default() };
        assert_eq!(recipe.optimiser(), sgd.into(), "{name}");
        let augment = match is_of_faces {
            true => Augment { flip: true, ..Augment::NONE },
            false if name.contains("plus") => Augment::CIFAR10_PLUS,
            false => Augment::NONE,
        };
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
    assert_eq!(lambda("mnist"), Lambda::AUTO);
    assert_eq!(lambda("cifar10"), power(8.3e-6, 45.0, 0.0).into());
    assert_eq!(lambda("cifar10-plus"), power(6.7e-6, 45.0, 0.0).into());
    assert_eq!(lambda("cifar100"), power(8.3e-6, 45.0, 5.0).into());
    assert_eq!(lambda("lfw"), power(0.12, 1.0, 5.0).into());
    // At the first drop of the learning rate λ is what it is there in the authors' files.
    for (name, gamma, first_drop, exponent) in
        [("cifar10", 2e-5, 5_000, 45.0), ("cifar10-plus", 1e-5, 8_000, 45.0)]
    {
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
        let scheduled = quick.has_margin() && full.lambda.schedule().is_some();
        for step in (0..quick.steps).filter(|_| scheduled) {
            let (found, scaled) = (lambda(&quick, step), lambda(&full, step).max(floor));
            assert!((found - scaled).abs() <= 1e-9 * scaled, "{name}: {found}, not {scaled}");
        }
        let by_batch = 64.0 / full.batch as f64;
        let rate = match name {
            "mnist" | "mnist-hinge" => 0.1,
            "mnist-2d" => 0.01,
            "cifar100-hinge" => 0.01 * by_batch,
            _ => 0.1 * by_batch,
        };
        full.learning_rate = full.learning_rate.with_rate(rate);
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
