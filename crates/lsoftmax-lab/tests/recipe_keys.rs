//! Every key of a recipe is known to the reader of recipes, also those that are usually left out.

use std::collections::{BTreeMap, BTreeSet};

use lsoftmax::{LambdaSchedule, Precision, SampleRate};
use lsoftmax_data::{Augment, Colour, Crop, Erase};
use lsoftmax_lab::head::{HeadKind, HeadSettings};
use lsoftmax_lab::optimiser::{AdamW, Sgd};
use lsoftmax_lab::recipe::{
    Expected, Init, Keep, LearningRate, NetworkChoice, Objective, OnDivergence, Recipe, known_keys,
};

/// No `..`: a new field must be added here, with a value that is not its default.
#[test]
fn a_recipe_with_every_key_set_comes_back_from_its_toml() {
    let recipe = Recipe {
        name: "all".into(),
        source: "a test".into(),
        expected: [("2".to_owned(), Expected { test_error: 1.5, tolerance: 0.25 })].into(),
        data: "photos".into(),
        augment: Augment {
            pad: 2,
            flip: true,
            crop: Some(Crop { probability: 0.5, area: [0.25, 0.5], aspect: [0.5, 1.5] }),
            colour: Some(Colour {
                probability: 0.75,
                brightness: 0.5,
                contrast: 0.25,
                saturation: 0.125,
                hue: 0.0625,
            }),
            erase: Some(Erase { probability: 0.25, area: [0.125, 0.25], aspect: [0.5, 2.5] }),
        },
        validation: 7,
        network: NetworkChoice::Named("cifar10".into()),
        init: Some(Init { from: "runs/other".into(), freeze: 3, trunk_rate: 0.5 }),
        loss: Objective::Contrastive { weight: 0.5, margin: 1.25 },
        head: HeadSettings::new(HeadKind::ArcFace, Some(0.25), Some(16.0))
            .and_then(HeadSettings::with_learned_scale)
            .unwrap(),
        shard_classes: false,
        lambda: LambdaSchedule::exponential(100.0, 0.99, 0.5).unwrap().into(),
        batch: 33,
        images_per_class: Some(3),
        accumulate: 3,
        clip_norm: Some(2.5),
        steps: 99,
        learning_rate: LearningRate::Plateau { rate: 0.5, factor: 0.25, patience: 4, drops: 2 },
        warmup: 8,
        sgd: Some(Sgd {
            momentum: 0.5,
            nesterov: true,
            weight_decay: 0.125,
            head_weight_decay: Some(0.25),
        }),
        adamw: None,
        seed: 9,
        precision: Precision::F32,
        evaluate_every: 11,
        keep: Keep::Best,
        early_stopping: Some(4),
        average: Some(0.75),
        test_curve: true,
        log_every: 12,
        checkpoint_every: 13,
        on_divergence: OnDivergence::Rollback,
    };
    let text = recipe.to_toml();
    assert_eq!(Recipe::from_toml(&text, "all.toml").as_ref(), Ok(&recipe), "{text}");

    // Keys that exclude one of those above.
    let adamw = AdamW { beta1: 0.5, beta2: 0.75, epsilon: 1e-3, weight_decay: 0.5 };
    let cosine = LearningRate::Cosine { rate: 0.5, min: 0.25, until: Some(77) };
    let recipe = Recipe { learning_rate: cosine, ..recipe.with_optimiser(adamw) };
    let text = recipe.to_toml();
    assert_eq!(Recipe::from_toml(&text, "other.toml").as_ref(), Ok(&recipe), "{text}");

    let head = recipe.head.with_sample_rate(SampleRate::new(0.125).unwrap());
    let recipe = recipe.with_optimiser(Sgd::default()).with_head(head);
    let text = recipe.to_toml();
    assert_eq!(Recipe::from_toml(&text, "sampled.toml").as_ref(), Ok(&recipe), "{text}");

    let recipe =
        Recipe { shard_classes: true, keep: Keep::Last, average: None, accumulate: 1, ..recipe };
    let text = recipe.to_toml();
    assert_eq!(Recipe::from_toml(&text, "shards.toml"), Ok(recipe), "{text}");
}

const GUIDE: &str = include_str!("../../../docs/guide.md");

/// The guide's text about recipes.
fn guide() -> &'static str {
    let start = GUIDE.find("\n## Recipes\n").expect("a section about recipes");
    let end = GUIDE.find("\n## Using a model\n").expect("the next section");
    &GUIDE[start..end]
}

/// The keys in the first columns of the tables that have a column of types.
fn keys_of_tables(text: &str) -> BTreeSet<String> {
    let tables = text.split("| key | type |").skip(1);
    let rows =
        tables.flat_map(|table| table.lines().skip(2).take_while(|line| line.starts_with('|')));
    let keys = rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next());
    keys.map(str::to_owned).collect()
}

#[test]
fn the_guide_has_every_key_of_a_recipe_and_no_other() {
    let documented = keys_of_tables(guide());
    let known = known_keys();
    // Keys of a recipe, and those of a described network without its name.
    let top_level = known.iter().filter(|key| !key.contains('.'));
    let network = known.iter().filter_map(|key| key.strip_prefix("network."));
    let inner = |key: &&str| *key != "features";
    let expected: BTreeSet<String> =
        top_level.map(String::as_str).chain(network.filter(inner)).map(str::to_owned).collect();
    assert_eq!(documented, expected);
    // Other inner keys are in examples.
    let code: Vec<&str> = guide().split('`').skip(1).step_by(2).collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for key in known.iter().filter(|key| key.contains('.')) {
        let name = key.rsplit('.').next().expect("a name");
        let names = |code: &&str| code.split(|c| !is_word(c)).any(|word| word == name);
        assert!(code.iter().any(names), "the guide does not mention {key}");
    }
}

#[test]
fn the_guide_has_an_example_of_every_schedule_with_all_its_keys() {
    // Every example is a line of TOML in a table: `lambda = { schedule = …, … }`.
    let code = guide().split('`').skip(1).step_by(2);
    let is_example = |code: &&str| code.contains("schedule =") && !code.contains('\n');
    let examples = code.filter(is_example).map(|code| {
        let table: toml::Table =
            toml::from_str(code).unwrap_or_else(|error| panic!("{code}: {error}"));
        let (key, value) = table.into_iter().next().expect("a key");
        let value = value.as_table().expect("a table").clone();
        let name = value["schedule"].as_str().expect("a name").to_owned();
        (format!("{key}.{name}"), value.keys().cloned().collect::<BTreeSet<_>>())
    });
    let examples: BTreeMap<String, BTreeSet<String>> = examples.collect();
    let mut schedules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for key in known_keys() {
        let parts: Vec<&str> = key.split('.').collect();
        if let [of @ ("lambda" | "learning_rate"), name, key] = parts[..] {
            schedules.entry(format!("{of}.{name}")).or_default().insert(key.to_owned());
        }
    }
    assert!(schedules.len() >= 6, "{schedules:?}");
    assert_eq!(examples, schedules);
}
