//! A kind of run: a line of a table.

use lsoftmax::Margin;

use crate::head::{HeadKind, HeadSettings};
use crate::recipe::{Expected, Lambda, Recipe};
use crate::records::Record;

/// A kind of run: one line of a table, one curve or panel of a figure.
#[derive(Clone, Debug)]
pub struct Row {
    /// What the row is part of, such as a data set; rows of a group are compared with its softmax.
    pub group: String,
    /// What tells it apart in its group: the loss, as the paper names it, or the network.
    pub name: String,
    /// What λ is, where rows differ in it.
    pub lambda: Option<String>,
    /// The recipe at its full length.
    pub recipe: Recipe,
    /// What tells it apart from runs of the same recipe and margin; part of the record's name.
    pub variant: String,
    /// The paper's result, if there is one.
    pub paper: Option<Expected>,
    /// Whether the result is the accuracy on LFW's pairs.
    pub lfw: bool,
    /// The default length of its runs, as a fraction of the recipe's, where it is not the experiment's.
    pub scale: Option<f64>,
}

impl Row {
    /// A row with the recipe's own loss and head, and the paper's result.
    pub(super) fn new(group: &str, name: impl Into<String>, recipe: Recipe) -> Self {
        let paper = recipe.expected_result();
        let (group, name) = (group.to_owned(), name.into());
        let variant = String::new();
        Self { group, name, lambda: None, recipe, variant, paper, lfw: false, scale: None }
    }

    /// Softmax.
    pub(super) fn softmax(group: &str, recipe: &Recipe) -> Self {
        Self::with_margin(group, recipe, 1.0)
    }

    /// A recipe with a margin; with 1 it is softmax.
    pub(super) fn with_margin(group: &str, recipe: &Recipe, m: f64) -> Self {
        let name = if m == 1.0 { "softmax".into() } else { format!("L-Softmax, m = {m}") };
        let margin = Margin::new(m).expect("a margin of at least 1");
        Self::new(group, name, recipe.clone().with_head(HeadSettings::l_softmax(margin)))
    }

    /// A row with a λ that is not the paper's.
    pub(super) fn with_lambda(
        group: &str,
        recipe: &Recipe,
        m: f64,
        (variant, words): (&str, &str),
        lambda: Lambda,
    ) -> Self {
        let row = Self::with_margin(group, &Recipe { lambda, ..recipe.clone() }, m);
        Self { lambda: Some(words.into()), variant: variant.into(), ..row }.without_paper()
    }

    /// The same, where the paper has no result.
    pub(super) fn without_paper(self) -> Self {
        Self { paper: None, ..self }
    }

    /// The same with a default length of its own.
    pub(super) fn with_scale(self, scale: f64) -> Self {
        Self { scale: Some(scale), ..self }
    }

    /// What a table calls it: its name, and λ where rows differ in it.
    pub fn label(&self) -> String {
        match &self.lambda {
            Some(lambda) => format!("{}, {lambda}", self.name),
            None => self.name.clone(),
        }
    }

    /// Whether this is the softmax loss, with which the others are compared.
    pub fn is_softmax(&self) -> bool {
        self.recipe.loss.uses_margin() && self.recipe.head.kind() == HeadKind::Softmax
    }

    /// Whether a recipe is this row's at its own length.
    pub(super) fn matches(&self, recipe: &Recipe) -> bool {
        self.recipe.scaled(recipe.steps).is_same_experiment(recipe)
    }

    /// Whether a record is of this row.
    pub fn has(&self, record: &Record) -> bool {
        record.is_of(&self.recipe.scaled(record.recipe.steps))
    }

    /// The name of a run of this row.
    pub(super) fn id(&self, recipe: &Recipe) -> String {
        let name = self.recipe.name.clone();
        Record::id_of(&Recipe { name, ..recipe.clone() }, &self.variant)
    }
}
