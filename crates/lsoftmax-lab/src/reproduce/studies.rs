//! The project's own studies, of λ and of heads: which runs they need.

use lsoftmax::{LambdaSchedule, Precision, Stage};
use lsoftmax_nn::Activation;

use super::Row;
use super::experiments::{built_in, study, with_lambda, with_margin};
use crate::head::{HeadKind, HeadSettings};
use crate::optimiser::Sgd;
use crate::recipe::{AutoRule, Lambda, LearningRate, NetworkChoice, Recipe};

/// λ for small networks and few images, where every schedule can be tried with several seeds: the recipe's and the automatic
/// one on every data set, others on two of them.
pub(super) fn lambda() -> Vec<Row> {
    let [cifar10, mnist, fashion] = ["CIFAR10, small", "MNIST, small", "Fashion-MNIST, small"];
    let others = [("CIFAR100, small", "cifar100-small"), ("faces, small", "faces-small")];
    let without_floor =
        |group, name| [4.0, 2.0, 3.0].map(|m| auto_without_floor(group, &study(name), m));
    let mut rows = recipe_and_auto(cifar10, &study("cifar10-small"));
    rows.extend(schedules(cifar10, &study("cifar10-small"), 45.0, 3e-4));
    rows.extend(recipe_and_auto(mnist, &study("mnist-small")));
    rows.extend(without_floor(mnist, "mnist-small"));
    rows.extend(schedules(mnist, &study("mnist-small"), 35.0, 7.5e-4));
    rows.extend(recipe_and_auto(fashion, &study("fashion-mnist-small")));
    rows.extend(without_floor(fashion, "fashion-mnist-small"));
    rows.extend(others.into_iter().flat_map(|(group, name)| recipe_and_auto(group, &study(name))));
    rows
}

/// Softmax, and m = 4, 2 and 3 with the recipe's λ, which is tied to the learning rate, the automatic one, and that without its
/// bounds, with two thresholds.
fn recipe_and_auto(group: &'static str, recipe: &Recipe) -> Vec<Row> {
    let margins = [4.0, 2.0, 3.0].into_iter().flat_map(|m| {
        [
            tied(group, recipe, m),
            auto(group, recipe, m),
            auto_by_accuracy(group, recipe, m),
            auto_of_nine_tenths(group, recipe, m),
        ]
    });
    std::iter::once(softmax(group, recipe)).chain(margins).collect()
}

/// Softmax, where the paper has no result.
fn softmax(group: &'static str, recipe: &Recipe) -> Row {
    Row { paper: None, ..with_margin(group, recipe.clone(), 1.0) }
}

/// A margin with the λ of the small networks' and CIFAR10's recipes, which is tied to the learning rate.
fn tied(group: &'static str, recipe: &Recipe, m: f64) -> Row {
    with_lambda(group, recipe, m, ("", "λ tied to the rate"), recipe.lambda.clone())
}

/// A margin with the automatic λ.
fn auto(group: &'static str, recipe: &Recipe, m: f64) -> Row {
    with_lambda(group, recipe, m, ("auto", "λ auto"), Lambda::AUTO)
}

/// The same without its lower bound, so that λ may fall to nothing at the initial learning rate. Only on MNIST and Fashion-MNIST does
/// it fall that far.
fn auto_without_floor(group: &'static str, recipe: &Recipe, m: f64) -> Row {
    let lambda = Lambda::Auto(AutoRule { floor: 0.0, ..AutoRule::default() });
    with_lambda(group, recipe, m, ("auto-no-floor", "λ auto, no floor"), lambda)
}

/// Without its upper bound as well, by the accuracy alone.
fn auto_by_accuracy(group: &'static str, recipe: &Recipe, m: f64) -> Row {
    let lambda = Lambda::Auto(AutoRule { keep: 0.97, end: 1000.0, floor: 0.0 });
    with_lambda(group, recipe, m, ("auto0.97", "λ by accuracy, 0.97"), lambda)
}

/// By the accuracy alone, with a threshold of nine tenths.
pub(super) fn auto_of_nine_tenths(group: &'static str, recipe: &Recipe, m: f64) -> Row {
    let lambda = Lambda::Auto(AutoRule { keep: 0.9, end: 1000.0, floor: 0.0 });
    with_lambda(group, recipe, m, ("auto0.9", "λ by accuracy, 0.9"), lambda)
}

/// m = 4 with other schedules: a search over base, γ, power and minimum. A schedule by power is given by its value at the first
/// drop of the learning rate, from which γ follows.
fn schedules(group: &'static str, recipe: &Recipe, power: f64, authors_gamma: f64) -> Vec<Row> {
    let LearningRate::Steps { at: drops, .. } = &recipe.learning_rate else {
        unreachable!("the learning rate of the study drops at steps");
    };
    let (first_drop, second_drop) = (drops[0], drops[1]);
    let falling = |base: f64, at_first_drop: f64, power: f64, min: f64| {
        let gamma = ((base / at_first_drop).powf(1.0 / power) - 1.0) / first_drop as f64;
        LambdaSchedule::power(base, four_digits(gamma), power, min)
    };
    let stages = [(0, 20.0), (first_drop, 2.0), (second_drop, 0.0)];
    let stages = stages.map(|(from, value)| Stage { from, value });
    let alternatives = [
        ("drop5", "5 at the first drop", falling(1000.0, 5.0, power, 0.0)),
        ("drop2", "2 at the first drop", falling(1000.0, 2.0, power, 0.0)),
        ("drop1", "1 at the first drop", falling(1000.0, 1.0, power, 0.0)),
        ("drop0.5", "0.5 at the first drop", falling(1000.0, 0.5, power, 0.0)),
        ("drop0.25", "0.25 at the first drop", falling(1000.0, 0.25, power, 0.0)),
        (
            "authors-gamma",
            "the authors' γ",
            LambdaSchedule::power(1000.0, authors_gamma, power, 0.0),
        ),
        ("floor0.5", "1 at the first drop, at least 0.5", falling(1000.0, 1.0, power, 0.5)),
        ("base100", "from 100, 1 at the first drop", falling(100.0, 1.0, power, 0.0)),
        ("power5", "power 5, 1 at the first drop", falling(1000.0, 1.0, 5.0, 0.0)),
        ("stages", "20, 2, 0 with the rate", LambdaSchedule::staged(stages.to_vec())),
        ("constant5", "5 throughout", LambdaSchedule::constant(5.0)),
    ];
    let row = |(variant, words, schedule): (_, &str, Result<_, _>)| {
        let lambda = Lambda::Schedule(schedule.expect("the schedules of the study are valid"));
        with_lambda(group, recipe, 4.0, (variant, &format!("λ {words}")), lambda)
    };
    alternatives.map(row).to_vec()
}

/// A number of four digits. Powers differ in their last bits between platforms, and a record belongs to a row only if its recipe
/// is the row's to the bit.
fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().expect("a formatted number is one")
}

/// What else may decide whether a margin lowers the error, each with small networks and a λ by the accuracy: the learning rate, the
/// feature layer, weight decay.
pub(super) fn conditions() -> Vec<Row> {
    type Change = fn(&mut Recipe);
    let conditions: [(&str, [&str; 2], Change); 6] = [
        ("rate0.03", ["MNIST, rate 0.03", "CIFAR10, rate 0.03"], |recipe| set_rate(recipe, 0.03)),
        ("linear-features", ["MNIST, linear features", "CIFAR10, linear features"], |recipe| {
            set_activation(recipe, Activation::None);
        }),
        (
            "linear-features-rate0.01",
            ["MNIST, linear features, rate 0.01", "CIFAR10, linear features, rate 0.01"],
            |recipe| {
                set_activation(recipe, Activation::None);
                set_rate(recipe, 0.01);
            },
        ),
        ("relu-features", ["MNIST, ReLU features", "CIFAR10, ReLU features"], |recipe| {
            set_activation(recipe, Activation::Relu);
        }),
        (
            "no-head-decay",
            ["MNIST, no weight decay in the head", "CIFAR10, no weight decay in the head"],
            |recipe| recipe.sgd = Some(Sgd { head_weight_decay: Some(0.0), ..Sgd::default() }),
        ),
        ("no-decay", ["MNIST, no weight decay", "CIFAR10, no weight decay"], |recipe| {
            recipe.sgd = Some(Sgd { weight_decay: 0.0, ..Sgd::default() });
        }),
    ];
    let of_set = |set: usize, group, name: &str| {
        let recipe = study(name);
        let unchanged = [softmax(group, &recipe), auto_of_nine_tenths(group, &recipe, 4.0)];
        let changed = conditions.iter().flat_map(move |(variant, groups, change)| {
            let mut recipe = recipe.clone();
            change(&mut recipe);
            let group = groups[set];
            [softmax(group, &recipe), auto_of_nine_tenths(group, &recipe, 4.0)]
                .map(|row| Row { variant, ..row })
        });
        unchanged.into_iter().chain(changed)
    };
    let mnist = of_set(0, "MNIST", "mnist-small");
    mnist.chain(of_set(1, "CIFAR10", "cifar10-small")).collect()
}

/// Weight decay in short runs: the paper's, and more of it, with small networks and with the paper's. In proportion to the length,
/// it would be 0.003 in 3,000 steps, 0.0075 in 1,200 and 0.015 in 600.
pub(super) fn decay() -> Vec<Row> {
    type WithMargin = fn(&'static str, &Recipe, f64) -> Row;
    let (tied, no_floor): (WithMargin, WithMargin) = (tied, auto_without_floor);
    let (cifar10, small, mnist) =
        (built_in("cifar10").scaled(3_000), study("cifar10-small"), study("mnist-small"));
    let groups = [
        ("CIFAR10, weight decay 0.0005", &cifar10, tied, None, 5e-4),
        ("CIFAR10, weight decay 0.003", &cifar10, tied, Some("decay0.003"), 3e-3),
        ("CIFAR10, small, weight decay 0.0005", &small, tied, None, 5e-4),
        ("CIFAR10, small, weight decay 0.003", &small, tied, Some("decay0.003"), 3e-3),
        ("CIFAR10, small, weight decay 0.008", &small, tied, Some("decay0.008"), 8e-3),
        ("CIFAR10, small, weight decay 0.016", &small, tied, Some("decay0.016"), 1.6e-2),
        ("MNIST, small, weight decay 0.0005", &mnist, no_floor, None, 5e-4),
        ("MNIST, small, weight decay 0.003", &mnist, no_floor, Some("decay0.003"), 3e-3),
        ("MNIST, small, weight decay 0.008", &mnist, no_floor, Some("decay0.008"), 8e-3),
        ("MNIST, small, weight decay 0.016", &mnist, no_floor, Some("decay0.016"), 1.6e-2),
    ];
    let rows = groups.into_iter().flat_map(|(group, recipe, margin, variant, weight_decay)| {
        let sgd = Some(Sgd { weight_decay, ..Sgd::default() });
        let recipe = Recipe { sgd, ..recipe.clone() };
        let rows = [softmax(group, &recipe), margin(group, &recipe, 4.0)];
        rows.map(|row| Row { variant: variant.unwrap_or(row.variant), ..row })
    });
    rows.collect()
}

/// What may lie between the errors on CIFAR10 and the paper's: one change each, at a sixth of the paper's length, and all those of
/// the authors' file.
pub(super) fn distance() -> Vec<Row> {
    type Change = fn(&mut Recipe);
    let changes: [(&str, &str, Change); 5] = [
        ("CIFAR10", "", |_| {}),
        ("CIFAR10, weight decay 0.003", "decay0.003", |recipe| {
            recipe.sgd = Some(Sgd { weight_decay: 3e-3, ..Sgd::default() });
        }),
        ("CIFAR10, all 50,000 images", "all-images", |recipe| recipe.validation = 0),
        ("CIFAR10, f32", "f32", |recipe| recipe.precision = Precision::F32),
        ("CIFAR10, mirrored", "mirrored", |recipe| recipe.augment.flip = true),
    ];
    let of_paper = changes.into_iter().flat_map(|(group, variant, change)| {
        [1.0, 4.0].map(|m| {
            let row = with_margin(group, built_in("cifar10"), m);
            let mut recipe = row.recipe.scaled(3_000);
            change(&mut recipe);
            Row { recipe, variant, ..row }
        })
    });
    let authors = "CIFAR10, the authors' file";
    of_paper.chain([1.0, 4.0].map(|m| with_margin(authors, study("cifar10-authors"), m))).collect()
}

/// Changes the learning rate before its drops.
fn set_rate(recipe: &mut Recipe, value: f64) {
    if let LearningRate::Steps { rate, .. } = &mut recipe.learning_rate {
        *rate = value;
    }
}

/// Changes the activation of the feature layer; without one it has no batch norm either.
fn set_activation(recipe: &mut Recipe, activation: Activation) {
    if let NetworkChoice::Described(network) = &mut recipe.network {
        network.features.activation = activation;
    }
}

/// The authors' γ, the γ that gives λ the authors' value when the learning rate drops first, and the automatic λ, with the paper's networks.
pub(super) fn lambda_full() -> Vec<Row> {
    let of_set = |group, name: &str, power, gammas: [f64; 2]| {
        let recipe = built_in(name);
        let [authors, at_drop] = gammas.map(|gamma| {
            let schedule = LambdaSchedule::power(1000.0, gamma, power, 0.0);
            Lambda::Schedule(schedule.expect("the schedules are valid"))
        });
        let rows =
            [("authors-gamma", "the authors' γ", authors), ("tied", "λ tied to the rate", at_drop)];
        let rows = rows.map(|(variant, words, lambda)| {
            with_lambda(group, &recipe, 4.0, (variant, words), lambda)
        });
        let automatic =
            [auto, auto_by_accuracy, auto_of_nine_tenths].map(|row| row(group, &recipe, 4.0));
        let softmax = std::iter::once(softmax(group, &recipe));
        softmax.chain(rows).chain(automatic).collect::<Vec<_>>()
    };
    let mut mnist = of_set("MNIST", "mnist", 35.0, [2.5e-5, 1.04e-5]);
    mnist.push(auto_without_floor("MNIST", &built_in("mnist"), 4.0));
    [mnist, of_set("CIFAR10", "cifar10", 45.0, [2e-5, 8.3e-6])].concat()
}

/// Every head on MNIST, in the plane and with the whole network. In the plane ten classes are 36° apart,
/// so that a margin of CosFace above 1 − cos 36° = 0.19 could not be satisfied by all of them.
pub(super) fn heads() -> Vec<Row> {
    let of_network = |group, recipe: Recipe, [cosface, arcface, scale]: [f64; 3]| {
        let heads = [
            (HeadKind::Softmax, None, None),
            (HeadKind::LSoftmax, Some(4.0), None),
            (HeadKind::ASoftmax, Some(4.0), None),
            (HeadKind::NormSoftmax, None, Some(scale)),
            (HeadKind::CosFace, Some(cosface), Some(scale)),
            (HeadKind::ArcFace, Some(arcface), Some(scale)),
        ];
        heads.map(|(kind, margin, scale)| {
            let head = HeadSettings::new(kind, margin, scale).expect("the settings are valid");
            let recipe = recipe.clone().with_head(head);
            Row { group, label: head.to_string(), recipe, variant: "", paper: None, lfw: false }
        })
    };
    let quick = Recipe::quick("mnist").expect("the built-in recipes are valid");
    let plane = of_network("plane", study("mnist-plane"), [0.1, 0.2, 4.0]);
    plane.into_iter().chain(of_network("MNIST", quick, [0.35, 0.5, 16.0])).collect()
}
