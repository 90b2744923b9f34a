//! The tables and figures of the paper: which runs they need.

use lsoftmax::{LambdaSchedule, Margin};
use lsoftmax_data::{Augment, Colour, Crop, Erase};

use super::studies;
use crate::head::{HeadKind, HeadSettings};
use crate::recipe::{Expected, Lambda, Recipe};

/// A table or figure of the paper, or a study of this project.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name at the prompt.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// The default length of its runs, as a fraction of the recipes'.
    pub scale: f64,
    rows: fn() -> Vec<Row>,
}

/// A kind of run: one line of a table, one curve or panel of a figure.
#[derive(Clone, Debug)]
pub struct Row {
    /// What the row is part of, such as a data set.
    pub group: &'static str,
    /// The loss, as the paper names it.
    pub label: String,
    /// The recipe at its full length.
    pub recipe: Recipe,
    /// What tells it apart from runs of the same recipe and margin; part of the record's name.
    pub variant: &'static str,
    /// The paper's result, if there is one.
    pub paper: Option<Expected>,
    /// Whether the result is the accuracy on LFW's pairs.
    pub lfw: bool,
}

impl Row {
    /// Whether this is the softmax loss, with which the others are compared.
    pub fn is_softmax(&self) -> bool {
        self.recipe.loss.uses_margin() && self.recipe.head.kind() == HeadKind::Softmax
    }

    /// Whether a recipe is this row's at its own length.
    pub fn matches(&self, recipe: &Recipe) -> bool {
        self.recipe.scaled(recipe.steps).is_same_experiment(recipe)
    }

    /// The name of a run of this row.
    pub fn id(&self, recipe: &Recipe) -> String {
        crate::records::Record::id_of(recipe, self.variant)
    }
}

impl Experiment {
    /// All experiments, in the paper's order.
    pub const ALL: [Self; 16] = [
        Self { name: "table2", title: "Table 2: MNIST", scale: 1.0 / 6.0, rows: table2 },
        Self {
            name: "table3",
            title: "Table 3: CIFAR10 and CIFAR10+",
            scale: 1.0 / 6.0,
            rows: table3,
        },
        Self { name: "table4", title: "Table 4: CIFAR100", scale: 1.0 / 18.0, rows: table4 },
        Self {
            name: "table5",
            title: "Table 5: faces, verified on LFW",
            scale: 1.0 / 4.0,
            rows: table5,
        },
        Self {
            name: "fig2",
            title: "Figure 2: features in the plane",
            scale: 1.0 / 6.0,
            rows: fig2,
        },
        Self { name: "fig3", title: "Figure 3: ψ(θ)", scale: 1.0, rows: Vec::new },
        Self { name: "fig4", title: "Figure 4: decision boundaries", scale: 1.0, rows: Vec::new },
        Self {
            name: "fig5",
            title: "Figure 5: similarity of the classes",
            scale: 1.0 / 6.0,
            rows: fig5,
        },
        Self {
            name: "fig6",
            title: "Figure 6: error by iteration for m = 1 to 4",
            scale: 1.0 / 6.0,
            rows: fig6,
        },
        Self {
            name: "fig7",
            title: "Figure 7: error by iteration and number of filters",
            scale: 1.0 / 18.0,
            rows: fig7,
        },
        Self {
            name: "lambda",
            title: "λ with small networks and few images",
            scale: 1.0,
            rows: studies::lambda,
        },
        Self {
            name: "lambda-full",
            title: "λ with the paper's networks",
            scale: 1.0 / 6.0,
            rows: studies::lambda_full,
        },
        Self {
            name: "conditions",
            title: "What else a margin needs, with small networks and few images",
            scale: 1.0,
            rows: studies::conditions,
        },
        Self {
            name: "decay",
            title: "Weight decay in short runs",
            scale: 1.0,
            rows: studies::decay,
        },
        Self {
            name: "distance",
            title: "The distance to the paper on CIFAR10",
            scale: 1.0,
            rows: studies::distance,
        },
        Self { name: "heads", title: "Heads on MNIST", scale: 1.0, rows: studies::heads },
    ];

    /// The experiment with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|experiment| experiment.name == name)
    }

    /// Its rows; none if it needs no training.
    pub fn rows(&self) -> Vec<Row> {
        (self.rows)()
    }
}

fn margin(m: f64) -> Margin {
    Margin::new(m).expect("a margin of at least 1")
}

pub(super) fn built_in(name: &str) -> Recipe {
    Recipe::built_in(name).expect("the built-in recipes are valid")
}

pub(super) fn study(name: &str) -> Recipe {
    Recipe::study(name).expect("the recipes of the studies are valid")
}

/// A recipe with a margin; with 1 it is softmax.
pub(super) fn with_margin(group: &'static str, recipe: Recipe, m: f64) -> Row {
    let label = if m == 1.0 { "softmax".into() } else { format!("L-Softmax, m = {m}") };
    let recipe = recipe.with_head(HeadSettings::l_softmax(margin(m)));
    let paper = recipe.expected_result();
    Row { group, label, recipe, variant: "", paper, lfw: false }
}

/// A row with a λ that is not the paper's.
pub(super) fn with_lambda(
    group: &'static str,
    recipe: &Recipe,
    m: f64,
    (variant, words): (&'static str, &str),
    lambda: Lambda,
) -> Row {
    let row = with_margin(group, Recipe { lambda, ..recipe.clone() }, m);
    Row { label: format!("{}, {words}", row.label), variant, paper: None, ..row }
}

fn hinge(group: &'static str, name: &str) -> Row {
    let recipe = built_in(name);
    let paper = recipe.expected_result();
    Row { group, label: "hinge".into(), recipe, variant: "", paper, lfw: false }
}

/// The rows that a table of the paper has for a data set.
fn of_table(group: &'static str, name: &str) -> Vec<Row> {
    let margins = [1.0, 2.0, 3.0, 4.0].map(|m| with_margin(group, built_in(name), m));
    std::iter::once(hinge(group, &format!("{name}-hinge"))).chain(margins).collect()
}

fn table2() -> Vec<Row> {
    of_table("MNIST", "mnist")
}

fn table3() -> Vec<Row> {
    [of_table("CIFAR10", "cifar10"), of_table("CIFAR10+", "cifar10-plus")].concat()
}

fn table4() -> Vec<Row> {
    of_table("CIFAR100", "cifar100")
}

/// Every loss on one budget, those of the paper and its successors. The paper's accuracies are of other training data.
fn table5() -> Vec<Row> {
    let group = "faces";
    let of_paper = |accuracy: f64| Expected { test_error: 100.0 - accuracy, tolerance: 0.5 };
    let margins =
        [(1.0, 96.53), (2.0, 97.81), (3.0, 98.27), (4.0, 98.71)].map(|(m, accuracy)| Row {
            paper: Some(of_paper(accuracy)),
            lfw: true,
            ..with_margin(group, study("lfw-small"), m)
        });
    let contrastive = Row {
        label: "softmax + contrastive".into(),
        paper: Some(of_paper(97.31)),
        lfw: true,
        ..with_margin(group, study("lfw-small-contrastive"), 1.0)
    };
    // What the batches of the contrastive loss do without it.
    let by_person = Recipe { images_per_class: Some(4), ..study("lfw-small") };
    let by_person = Row {
        label: "softmax, 64 people x 4 images".into(),
        variant: "by-person",
        lfw: true,
        paper: None,
        ..with_margin(group, by_person, 1.0)
    };
    // λ falls as early as in SphereFace-20: 1 / step.
    let early = LambdaSchedule::power(1000.0, 0.07775, 1.0, 5.0).expect("a valid schedule");
    let (recipe, early) = (study("lfw-small"), Lambda::Schedule(early));
    let lambdas = [
        studies::auto_of_nine_tenths(group, &recipe, 4.0),
        with_lambda(group, &recipe, 2.0, ("early-lambda", "λ = 5 early"), early),
    ];
    let lambdas = lambdas.map(|row| Row { lfw: true, ..row });
    // At s = 64, the scale of their papers, CosFace and ArcFace have their whole margin and large gradients from the first step on.
    let successors = [
        ("A-Softmax, m = 4", HeadKind::ASoftmax, None),
        ("CosFace, m = 0.35, s = 16", HeadKind::CosFace, Some(16.0)),
        ("ArcFace, m = 0.5, s = 16", HeadKind::ArcFace, Some(16.0)),
        ("CosFace, m = 0.35, s = 64", HeadKind::CosFace, None),
        ("ArcFace, m = 0.5, s = 64", HeadKind::ArcFace, None),
    ];
    let successors = successors.map(|(label, kind, scale)| {
        let head = HeadSettings::new(kind, None, scale).expect("the settings are valid");
        let recipe = study("lfw-small").with_head(head);
        Row { group, label: label.into(), recipe, variant: "", paper: None, lfw: true }
    });
    let rows = margins.into_iter().chain(lambdas).chain([contrastive, by_person]).chain(successors);
    rows.chain(augmented_faces()).collect()
}

/// Faces with more augmentation than the paper's: with few people a network learns those people by heart, and a margin makes it worse.
fn augmented_faces() -> [Row; 4] {
    let crop = Crop { area: [0.75, 1.0], aspect: [0.9, 1.1], ..Crop::default() };
    let colour = Colour { brightness: 0.3, contrast: 0.3, saturation: 0.3, ..Colour::default() };
    let erase = Erase { area: [0.02, 0.2], ..Erase::default() };
    let recipe = study("lfw-small");
    let augment =
        Augment { crop: Some(crop), colour: Some(colour), erase: Some(erase), ..recipe.augment };
    let recipe = Recipe { augment, ..recipe };
    let row = |m| with_margin("faces, augmented", recipe.clone(), m);
    let head = HeadSettings::new(HeadKind::ASoftmax, None, None).expect("the settings are valid");
    let a_softmax = Row {
        label: "A-Softmax, m = 4".into(),
        recipe: recipe.clone().with_head(head),
        ..row(1.0)
    };
    let rows = [row(1.0), row(2.0), row(4.0), a_softmax];
    rows.map(|row| Row { variant: "augmented", paper: None, lfw: true, ..row })
}

/// The accuracies in the figure are 98.45, 98.96, 99.22 and 99.34 %.
fn fig2() -> Vec<Row> {
    let errors = [(1.0, 1.55), (2.0, 1.04), (3.0, 0.78), (4.0, 0.66)];
    let row = |(m, test_error)| Row {
        paper: Some(Expected { test_error, tolerance: 0.25 }),
        ..with_margin("two features", built_in("mnist-2d"), m)
    };
    errors.map(row).to_vec()
}

fn fig5() -> Vec<Row> {
    let sets = [("CIFAR10", "cifar10"), ("CIFAR10+", "cifar10-plus"), ("CIFAR100", "cifar100")];
    let rows = sets.map(|(group, name)| [1.0, 4.0].map(|m| with_margin(group, built_in(name), m)));
    rows.into_iter().flatten().collect()
}

fn fig6() -> Vec<Row> {
    [1.0, 2.0, 3.0, 4.0]
        .map(|m| with_margin("CIFAR100", built_in("cifar100-by-margin"), m))
        .to_vec()
}

fn fig7() -> Vec<Row> {
    let filters = ["32-32-64-128", "64-64-96-128", "64-64-128-256", "96-96-192-384"];
    let row = |filters: &str| Row {
        label: filters.replace('-', "/"),
        ..with_margin("CIFAR100, m = 4", built_in(&format!("cifar100-filters-{filters}")), 4.0)
    };
    filters.map(row).to_vec()
}
