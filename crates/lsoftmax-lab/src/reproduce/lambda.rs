//! The studies of λ: which runs they need.

use lsoftmax::{LambdaSchedule, Stage};

use super::Row;
use super::experiments::{built_in, study};
use crate::recipe::{AutoRule, Lambda, LearningRate, Recipe};

/// Rows of a data set with a kind of λ.
type RowsOfLambda = fn(&str, &Recipe) -> Vec<Row>;

/// λ for small networks and few images, where every schedule can be tried with several seeds: the recipe's, which is tied to the
/// learning rate, and the automatic one on every data set, others on some of them.
pub(super) fn small_networks() -> Vec<Row> {
    let of_set = |(group, name): (&str, &str), others: &[RowsOfLambda]| {
        let recipe = study(name);
        let margins = [4.0, 2.0, 3.0].into_iter();
        let both = margins.flat_map(|m| [tied(group, &recipe, m), auto(group, &recipe, m)]);
        let others = others.iter().flat_map(|row| row(group, &recipe));
        std::iter::once(Row::softmax(group, &recipe)).chain(both).chain(others).collect::<Vec<_>>()
    };
    let thresholds: RowsOfLambda =
        |group, recipe| [0.97, 0.9].map(|keep| by_accuracy(group, recipe, 4.0, keep)).to_vec();
    [
        of_set(
            ("CIFAR10, small", "cifar10-small"),
            &[thresholds, |group, recipe| schedules(group, recipe, 45.0, 3e-4)],
        ),
        of_set(
            ("MNIST, small", "mnist-small"),
            &[thresholds, margins_without_floor, |group, recipe| {
                schedules(group, recipe, 35.0, 7.5e-4)
            }],
        ),
        of_set(
            ("Fashion-MNIST, small", "fashion-mnist-small"),
            &[thresholds, margins_without_floor],
        ),
        of_set(("CIFAR100, small", "cifar100-small"), &[]),
        of_set(("faces, small", "faces-small"), &[]),
    ]
    .concat()
}

/// The words for a λ that is tied to the learning rate.
pub(crate) const TIED: &str = "λ tied to the rate";

/// A margin with the λ of the small networks' and CIFAR10's recipes, which is tied to the learning rate.
pub(super) fn tied(group: &str, recipe: &Recipe, m: f64) -> Row {
    Row::with_lambda(group, recipe, m, ("", TIED), recipe.lambda.clone())
}

/// A margin with the automatic λ.
fn auto(group: &str, recipe: &Recipe, m: f64) -> Row {
    Row::with_lambda(group, recipe, m, ("auto", "λ auto"), Lambda::AUTO)
}

/// The same without its lower bound, so that λ may fall to nothing at the initial learning rate. Only on MNIST and Fashion-MNIST does
/// it fall that far.
pub(super) fn auto_without_floor(group: &str, recipe: &Recipe, m: f64) -> Row {
    let lambda = Lambda::Auto(AutoRule { floor: 0.0, ..AutoRule::default() });
    Row::with_lambda(group, recipe, m, ("auto-no-floor", "λ auto, no floor"), lambda)
}

/// m = 4, 2 and 3 without the lower bound.
fn margins_without_floor(group: &str, recipe: &Recipe) -> Vec<Row> {
    [4.0, 2.0, 3.0].map(|m| auto_without_floor(group, recipe, m)).to_vec()
}

/// Without both bounds, by the accuracy alone: λ falls as long as this fraction of the correctly classified images remains so.
fn by_accuracy(group: &str, recipe: &Recipe, m: f64, keep: f64) -> Row {
    let lambda = Lambda::Auto(AutoRule { keep, end: 1000.0, floor: 0.0 });
    let (variant, words) = (format!("auto{keep}"), format!("λ by accuracy, {keep}"));
    Row::with_lambda(group, recipe, m, (&variant, &words), lambda)
}

/// By the accuracy alone, with a threshold of nine tenths.
pub(super) fn auto_of_nine_tenths(group: &str, recipe: &Recipe, m: f64) -> Row {
    by_accuracy(group, recipe, m, 0.9)
}

/// m = 4 with other schedules: a search over base, γ, power and minimum. A schedule by power is given by its value at the first
/// drop of the learning rate, from which γ follows.
fn schedules(group: &str, recipe: &Recipe, power: f64, authors_gamma: f64) -> Vec<Row> {
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
        Row::with_lambda(group, recipe, 4.0, (variant, &format!("λ {words}")), lambda)
    };
    alternatives.map(row).to_vec()
}

/// A number of four digits. Powers differ in their last bits between platforms, and a record belongs to a row only if its recipe
/// is the row's to the bit.
fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().expect("a formatted number is one")
}

/// The authors' γ, the γ that gives λ the authors' value when the learning rate drops first, and the automatic λ, with the paper's networks.
pub(super) fn paper_networks() -> Vec<Row> {
    let of_gamma = |group, recipe: &Recipe, power, gamma, words| {
        let schedule = LambdaSchedule::power(1000.0, gamma, power, 0.0);
        let lambda = Lambda::Schedule(schedule.expect("the schedules are valid"));
        Row::with_lambda(group, recipe, 4.0, words, lambda)
    };
    let of_set = |group, name: &str, power, [authors, at_drop]: [f64; 2]| {
        let recipe = built_in(name);
        let authors = of_gamma(group, &recipe, power, authors, ("authors-gamma", "the authors' γ"));
        let at_drop = of_gamma(group, &recipe, power, at_drop, ("tied", TIED));
        let automatic = [
            auto(group, &recipe, 4.0),
            by_accuracy(group, &recipe, 4.0, 0.97),
            by_accuracy(group, &recipe, 4.0, 0.9),
        ];
        let softmax = Row::softmax(group, &recipe).without_paper();
        [softmax, authors, at_drop].into_iter().chain(automatic).collect::<Vec<_>>()
    };
    let mut mnist = of_set("MNIST", "mnist", 35.0, [2.5e-5, 1.04e-5]);
    mnist.extend(margins_without_floor("MNIST", &built_in("mnist")));
    // The recipe of Figure 2 has a smaller λ than others, and keeps it.
    let (group, plane) = ("MNIST, two features", built_in("mnist-2d"));
    let own = ("", "λ 2 at the first drop");
    let two_features = [
        Row::softmax(group, &plane).without_paper(),
        Row::with_lambda(group, &plane, 4.0, own, plane.lambda.clone()),
        of_gamma(group, &plane, 35.0, 1.04e-5, ("tied", TIED)),
    ];
    [mnist, two_features.into(), of_set("CIFAR10", "cifar10", 45.0, [2e-5, 8.3e-6])].concat()
}
