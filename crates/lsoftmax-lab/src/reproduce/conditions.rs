//! The studies of what decides whether a margin lowers the error: softmax and m = 4 under the same change of a recipe.

use lsoftmax::Precision;
use lsoftmax_nn::Activation;

use super::Row;
use super::experiments::{CIFAR100_SCALE, built_in, study};
use super::lambda::{auto_of_nine_tenths, auto_without_floor, tied};
use crate::optimiser::Sgd;
use crate::recipe::{LearningRate, NetworkChoice, Recipe};

/// A change of a recipe under which softmax and m = 4 are compared.
struct Condition {
    /// Part of the names of its runs; empty if nothing is changed.
    variant: String,
    /// What it is, for people.
    words: String,
    change: Box<dyn Fn(&mut Recipe)>,
}

impl Condition {
    fn new(variant: &str, words: &str, change: impl Fn(&mut Recipe) + 'static) -> Self {
        Self { variant: variant.into(), words: words.into(), change: Box::new(change) }
    }

    /// The recipe as it is.
    fn unchanged() -> Self {
        Self::new("", "", |_| {})
    }

    /// The paper's SGD with a weight decay; the paper's own changes nothing.
    fn decay(weight_decay: f64) -> Self {
        let words = format!("weight decay {weight_decay}");
        match weight_decay == Sgd::default().weight_decay {
            true => Self { words, ..Self::unchanged() },
            false => Self::sgd(
                &format!("decay{weight_decay}"),
                &words,
                Sgd { weight_decay, ..Sgd::default() },
            ),
        }
    }

    fn sgd(variant: &str, words: &str, sgd: Sgd) -> Self {
        Self::new(variant, words, move |recipe| recipe.sgd = Some(sgd))
    }

    /// Training images are mirrored at random.
    fn mirrored() -> Self {
        Self::new("mirrored", "mirrored", |recipe| recipe.augment.flip = true)
    }

    /// A learning rate before its drops.
    fn rate(rate: f64) -> Self {
        Self::new(&format!("rate{rate}"), &format!("rate {rate}"), move |recipe| {
            if let LearningRate::Steps { rate: initial, .. } = &mut recipe.learning_rate {
                *initial = rate;
            }
        })
    }

    /// An activation of the feature layer; without one it has no batch norm either.
    fn features(variant: &str, words: &str, activation: Activation) -> Self {
        Self::new(variant, words, move |recipe| {
            if let NetworkChoice::Described(network) = &mut recipe.network {
                network.features.activation = activation;
            }
        })
    }

    /// Both changes.
    fn and(self, other: Self) -> Self {
        let joined = |one: &str, other: &str, separator| {
            let parts = [one, other].into_iter().filter(|part| !part.is_empty());
            parts.collect::<Vec<_>>().join(separator)
        };
        Self {
            variant: joined(&self.variant, &other.variant, "-"),
            words: joined(&self.words, &other.words, ", "),
            change: Box::new(move |recipe| {
                (self.change)(recipe);
                (other.change)(recipe);
            }),
        }
    }

    /// Softmax and m = 4 on a data set under this condition; `with_margin` chooses λ.
    fn rows(
        &self,
        set: &str,
        recipe: &Recipe,
        with_margin: impl Fn(&str, &Recipe, f64) -> Row,
    ) -> [Row; 2] {
        let mut recipe = recipe.clone();
        (self.change)(&mut recipe);
        let group = match self.words.as_str() {
            "" => set.to_owned(),
            words => format!("{set}, {words}"),
        };
        let rows = [Row::softmax(&group, &recipe), with_margin(&group, &recipe, 4.0)];
        rows.map(|row| match self.variant.as_str() {
            "" => row,
            variant => Row { variant: variant.into(), ..row },
        })
    }
}

/// Learning rate, feature layer and weight decay, with small networks and a λ by the accuracy.
pub(super) fn conditions() -> Vec<Row> {
    let linear = || Condition::features("linear-features", "linear features", Activation::None);
    let no_head_decay = Sgd { head_weight_decay: Some(0.0), ..Sgd::default() };
    let no_decay = Sgd { weight_decay: 0.0, ..Sgd::default() };
    let conditions = [
        Condition::unchanged(),
        Condition::rate(0.03),
        linear(),
        linear().and(Condition::rate(0.01)),
        Condition::features("relu-features", "ReLU features", Activation::Relu),
        Condition::sgd("no-head-decay", "no weight decay in the head", no_head_decay),
        Condition::sgd("no-decay", "no weight decay", no_decay),
    ];
    let of_set = |(set, name): (&str, &str)| {
        let recipe = study(name);
        let rows = conditions.iter().map(|one| one.rows(set, &recipe, auto_of_nine_tenths));
        rows.flatten().collect::<Vec<_>>()
    };
    [("MNIST", "mnist-small"), ("CIFAR10", "cifar10-small")].map(of_set).concat()
}

/// Weight decay in short runs, the paper's and more of it, and mirrored images, with small networks and with the paper's. In proportion
/// to the length, weight decay would be 0.003 in 3,000 steps, 0.0045 in 2,000, 0.0075 in 1,200 and 0.015 in 600.
pub(super) fn regularisation() -> Vec<Row> {
    let decays = [5e-4, 3e-3, 8e-3, 1.6e-2].map(Condition::decay);
    let mirrored = [5e-4, 8e-3].map(|decay| Condition::mirrored().and(Condition::decay(decay)));
    let mut rows = Vec::new();
    let sixth = 1.0 / 6.0;
    let of_paper =
        [("CIFAR10", "cifar10", 3e-3, sixth), ("CIFAR100", "cifar100", 4.5e-3, CIFAR100_SCALE)];
    for (set, name, more, scale) in of_paper {
        let recipe = built_in(name);
        let of_set = [5e-4, more].map(|decay| Condition::decay(decay).rows(set, &recipe, tied));
        rows.extend(of_set.into_iter().flatten().map(|row| row.with_scale(scale)));
    }
    let (set, small) = ("CIFAR10, small", study("cifar10-small"));
    rows.extend(decays.iter().chain(&mirrored).flat_map(|one| one.rows(set, &small, tied)));
    let (set, small) = ("MNIST, small", study("mnist-small"));
    rows.extend(decays.iter().flat_map(|one| one.rows(set, &small, auto_without_floor)));
    rows.into_iter().map(Row::without_paper).collect()
}

/// What may lie between the errors on CIFAR10 and the paper's: one change each, at a sixth of the paper's length, and all those of
/// the authors' file.
pub(super) fn distance() -> Vec<Row> {
    let conditions = [
        Condition::unchanged(),
        Condition::decay(3e-3),
        Condition::new("all-images", "all 50,000 images", |recipe| recipe.validation = 0),
        Condition::new("f32", "f32", |recipe| recipe.precision = Precision::F32),
        Condition::mirrored(),
    ];
    let cifar10 = built_in("cifar10");
    let of_paper = conditions
        .iter()
        .flat_map(|condition| condition.rows("CIFAR10", &cifar10, Row::with_margin));
    let authors = study("cifar10-authors");
    let of_authors = [1.0, 4.0]
        .map(|m| Row::with_margin("CIFAR10, the authors' file", &authors, m).with_scale(1.0));
    of_paper.chain(of_authors).collect()
}
