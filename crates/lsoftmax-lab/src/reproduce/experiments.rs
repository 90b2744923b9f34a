//! The tables and figures of the paper: which runs they need.

use super::{Row, conditions, faces, heads, lambda};
use crate::recipe::{Expected, Recipe};
use crate::records::Record;

/// A table or figure of the paper, or a study of this project.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name at the prompt.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// The default length of its runs, as a fraction of the recipes'; a row can have another.
    pub scale: f64,
    rows: fn() -> Vec<Row>,
}

/// The length of Table 4's runs, whose network takes three times as long for a step as CIFAR10's.
pub(super) const CIFAR100_SCALE: f64 = 1.0 / 9.0;

impl Experiment {
    /// All experiments, in the paper's order.
    pub const ALL: [Self; 17] = [
        Self { name: "table2", title: "Table 2: MNIST", scale: 1.0 / 6.0, rows: table2 },
        Self {
            name: "table3",
            title: "Table 3: CIFAR10 and CIFAR10+",
            scale: 1.0 / 6.0,
            rows: table3,
        },
        Self { name: "table4", title: "Table 4: CIFAR100", scale: CIFAR100_SCALE, rows: table4 },
        Self {
            name: "table5",
            title: "Table 5: faces, verified on LFW",
            scale: 1.0 / 4.0,
            rows: faces::table5,
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
        Self { name: "gain", title: "What a margin gains", scale: 1.0, rows: Vec::new },
        Self {
            name: "lambda",
            title: "λ with small networks and few images",
            scale: 1.0,
            rows: lambda::small_networks,
        },
        Self {
            name: "lambda-full",
            title: "λ with the paper's networks",
            scale: 1.0 / 6.0,
            rows: lambda::paper_networks,
        },
        Self {
            name: "conditions",
            title: "What else a margin needs, with small networks and few images",
            scale: 1.0,
            rows: conditions::conditions,
        },
        Self {
            name: "regularisation",
            title: "Weight decay and mirrored images",
            scale: 1.0,
            rows: conditions::regularisation,
        },
        Self {
            name: "distance",
            title: "The distance to the paper on CIFAR10",
            scale: 1.0 / 6.0,
            rows: conditions::distance,
        },
        Self { name: "heads", title: "Heads on MNIST", scale: 1.0, rows: heads::heads },
    ];

    /// The experiment with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|experiment| experiment.name == name)
    }

    /// Its rows; none if it needs no training.
    pub fn rows(&self) -> Vec<Row> {
        (self.rows)()
    }

    /// The rows of all experiments. The first that a run belongs to names it, whichever experiment asks for it.
    pub(super) fn all_rows() -> Vec<Row> {
        Self::ALL.iter().flat_map(Self::rows).collect()
    }

    /// The name of the record of a run with this recipe: by its row, or made of recipe, head, steps and seed.
    pub fn id_of(recipe: &Recipe) -> String {
        let row = Self::all_rows().into_iter().find(|row| row.matches(recipe));
        row.map_or_else(|| Record::id_of(recipe, ""), |row| row.id(recipe))
    }
}

pub(super) fn built_in(name: &str) -> Recipe {
    Recipe::built_in(name).expect("the built-in recipes are valid")
}

pub(super) fn study(name: &str) -> Recipe {
    Recipe::study(name).expect("the recipes of the studies are valid")
}

/// The rows that a table of the paper has for a data set.
fn of_table(group: &str, name: &str) -> Vec<Row> {
    let hinge = Row::new(group, "hinge", built_in(&format!("{name}-hinge")));
    let margins = [1.0, 2.0, 3.0, 4.0].map(|m| Row::with_margin(group, &built_in(name), m));
    std::iter::once(hinge).chain(margins).collect()
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

/// The accuracies in the figure are 98.45, 98.96, 99.22 and 99.34 %.
fn fig2() -> Vec<Row> {
    let errors = [(1.0, 1.55), (2.0, 1.04), (3.0, 0.78), (4.0, 0.66)];
    let row = |(m, test_error)| Row {
        paper: Some(Expected { test_error, tolerance: 0.25 }),
        ..Row::with_margin("two features", &built_in("mnist-2d"), m)
    };
    errors.map(row).to_vec()
}

fn fig5() -> Vec<Row> {
    let of_set =
        |group, name| [1.0, 4.0].map(|m| Row::with_margin(group, &built_in(name), m)).to_vec();
    let cifar100 = of_set("CIFAR100", "cifar100").into_iter();
    [
        of_set("CIFAR10", "cifar10"),
        of_set("CIFAR10+", "cifar10-plus"),
        cifar100.map(|row| row.with_scale(CIFAR100_SCALE)).collect(),
    ]
    .concat()
}

fn fig6() -> Vec<Row> {
    let recipe = built_in("cifar100-by-margin");
    [1.0, 2.0, 3.0, 4.0]
        .map(|m| Row::with_margin("CIFAR100, CIFAR10's network", &recipe, m))
        .to_vec()
}

fn fig7() -> Vec<Row> {
    let filters = ["32-32-64-128", "64-64-96-128", "64-64-128-256", "96-96-192-384"];
    let row = |filters: &str| {
        let recipe = built_in(&format!("cifar100-filters-{filters}"));
        let name = filters.replace('-', "/");
        Row { name, ..Row::with_margin("CIFAR100, m = 4", &recipe, 4.0) }
    };
    filters.map(row).to_vec()
}
