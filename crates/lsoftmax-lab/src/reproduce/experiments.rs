//! The tables and figures of the paper, and the studies of λ and of heads: which runs they need.

use lsoftmax::{LambdaSchedule, Margin};

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
    pub const ALL: [Self; 13] = [
        Self { name: "table2", title: "Table 2: MNIST", scale: 1.0 / 6.0, rows: table2 },
        Self {
            name: "table3",
            title: "Table 3: CIFAR10 and CIFAR10+",
            scale: 1.0 / 6.0,
            rows: table3,
        },
        Self { name: "table4", title: "Table 4: CIFAR100", scale: 1.0 / 18.0, rows: table4 },
        Self { name: "table5", title: "Table 5: faces, verified on LFW", scale: 1.0, rows: table5 },
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
            scale: 1.0 / 18.0,
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
            rows: lambda,
        },
        Self {
            name: "lambda-full",
            title: "λ with the paper's networks",
            scale: 1.0 / 6.0,
            rows: lambda_full,
        },
        Self { name: "heads", title: "Heads on MNIST", scale: 1.0, rows: heads },
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

fn built_in(name: &str) -> Recipe {
    Recipe::built_in(name).expect("the built-in recipes are valid")
}

/// A recipe with a margin; with 1 it is softmax.
fn with_margin(group: &'static str, recipe: Recipe, m: f64) -> Row {
    let label = if m == 1.0 { "softmax".into() } else { format!("L-Softmax, m = {m}") };
    let recipe = recipe.with_head(HeadSettings::l_softmax(margin(m)));
    let paper = recipe.expected_result();
    Row { group, label, recipe, variant: "", paper, lfw: false }
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
    // λ falls as early as in SphereFace-20: 1 / step.
    let early = LambdaSchedule::power(1000.0, 0.311, 1.0, 5.0).expect("a valid schedule");
    let early = Row {
        label: "L-Softmax, m = 2, λ = 5 early".into(),
        variant: "early-lambda",
        lfw: true,
        paper: None,
        ..with_margin(group, Recipe { lambda: Lambda::Schedule(early), ..study("lfw-small") }, 2.0)
    };
    let successors = [
        ("A-Softmax, m = 4", HeadKind::ASoftmax),
        ("CosFace, m = 0.35, s = 64", HeadKind::CosFace),
        ("ArcFace, m = 0.5, s = 64", HeadKind::ArcFace),
    ];
    let successors = successors.map(|(label, kind)| {
        let head = HeadSettings::new(kind, None, None).expect("the settings of its paper");
        let recipe = study("lfw-small").with_head(head);
        Row { group, label: label.into(), recipe, variant: "", paper: None, lfw: true }
    });
    margins.into_iter().chain([early, contrastive]).chain(successors).collect()
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

/// λ for small networks and few images, where every schedule can be tried with several seeds.
fn lambda() -> Vec<Row> {
    // γ of the recipes and of the authors, at the length of these runs.
    let mut rows = schedules("CIFAR10, small", study("cifar10-small"), 45.0, [1.245e-4, 3e-4]);
    rows.extend(schedules("MNIST, small", study("mnist-small"), 35.0, [3.12e-4, 7.5e-4]));
    rows
}

fn study(name: &str) -> Recipe {
    Recipe::study(name).expect("the recipes of the study are valid")
}

/// Softmax, and m = 4 with several schedules, and m = 2 and 3 with the recipe's and the automatic one.
fn schedules(
    group: &'static str,
    recipe: Recipe,
    power: f64,
    [gamma, authors_gamma]: [f64; 2],
) -> Vec<Row> {
    let first_drop = recipe.steps * 2 / 3;
    let second_drop = recipe.steps * 5 / 6;
    let stages = |values: [f64; 3]| {
        let from = [0, first_drop, second_drop];
        let stage = |(from, value)| lsoftmax::Stage { from, value };
        LambdaSchedule::staged(from.into_iter().zip(values).map(stage).collect())
    };
    let schedule = |made: Result<LambdaSchedule, _>| {
        Lambda::Schedule(made.expect("the schedules of the study are valid"))
    };
    let recipes = recipe.lambda.clone();
    let alternatives = [
        ("", "the recipe's λ", recipes.clone()),
        ("auto", "λ auto", Lambda::Auto),
        (
            "authors-gamma",
            "the authors' γ",
            schedule(LambdaSchedule::power(1000.0, authors_gamma, power, 0.0)),
        ),
        (
            "floor5",
            "the recipe's λ, at least 5",
            schedule(LambdaSchedule::power(1000.0, gamma, power, 5.0)),
        ),
        ("stages", "λ 20, 2, 0 with the rate", schedule(stages([20.0, 2.0, 0.0]))),
        ("constant5", "λ = 5", schedule(LambdaSchedule::constant(5.0))),
    ];
    let row = |m: f64, variant, words: &str, lambda| Row {
        label: format!("m = {m}, {words}"),
        variant,
        paper: None,
        ..with_margin(group, Recipe { lambda, ..recipe.clone() }, m)
    };
    let mut rows = vec![with_margin(group, recipe.clone(), 1.0)];
    rows.extend(alternatives.map(|(variant, words, lambda)| row(4.0, variant, words, lambda)));
    for m in [2.0, 3.0] {
        rows.push(row(m, "", "the recipe's λ", recipes.clone()));
        rows.push(row(m, "auto", "λ auto", Lambda::Auto));
    }
    rows
}

/// The authors' γ and the recipe's, and the automatic λ, with the paper's networks.
fn lambda_full() -> Vec<Row> {
    let authors = |gamma, power| {
        let schedule = LambdaSchedule::power(1000.0, gamma, power, 0.0);
        Lambda::Schedule(schedule.expect("the authors' schedule is valid"))
    };
    let of_set = |group, name: &str, authors: Lambda| {
        let recipe = built_in(name);
        let row = |variant, words: &str, lambda| Row {
            label: format!("m = 4, {words}"),
            variant,
            paper: None,
            ..with_margin(group, Recipe { lambda, ..recipe.clone() }, 4.0)
        };
        [
            Row { paper: None, ..with_margin(group, recipe.clone(), 1.0) },
            row("authors-gamma", "the authors' γ", authors),
            row("", "the recipe's λ", recipe.lambda.clone()),
            row("auto", "λ auto", Lambda::Auto),
        ]
    };
    let mnist = of_set("MNIST", "mnist", authors(2.5e-5, 35.0));
    mnist.into_iter().chain(of_set("CIFAR10", "cifar10", authors(2e-5, 45.0))).collect()
}

/// Every head on MNIST, in the plane and with the whole network. In the plane ten classes are 36° apart,
/// so that a margin of CosFace above 1 − cos 36° = 0.19 could not be satisfied by all of them.
fn heads() -> Vec<Row> {
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
