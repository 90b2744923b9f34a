//! The valid keys of a recipe, and their positions in a text.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The keys that the value of a key may contain. For an array, those of each of its elements.
enum Keys {
    /// A value without keys.
    Value,
    /// A table with these keys.
    Table(&'static [Key]),
    /// A table with arbitrary keys.
    Any(&'static Keys),
    /// A table whose `schedule` determines its keys.
    Schedule(&'static [(&'static str, &'static [Key])]),
}

type Key = (&'static str, Keys);

use Keys::{Any, Schedule, Table, Value};

const RECIPE: &[Key] = &[
    ("name", Value),
    ("source", Value),
    ("expected", Any(&Table(&[("test_error", Value), ("tolerance", Value)]))),
    ("data", Value),
    ("augment", Table(AUGMENT)),
    ("validation", Value),
    ("network", Table(NETWORK)),
    ("init", Table(&[("from", Value), ("freeze", Value), ("trunk_rate", Value)])),
    ("loss", Any(&Table(&[("weight", Value), ("margin", Value)]))),
    ("head", Table(HEAD)),
    ("margin", Value),
    ("shard_classes", Value),
    ("lambda", Schedule(LAMBDA)),
    ("batch", Value),
    ("images_per_class", Value),
    ("accumulate", Value),
    ("clip_norm", Value),
    ("steps", Value),
    ("learning_rate", Schedule(LEARNING_RATE)),
    ("warmup", Value),
    ("sgd", Table(SGD)),
    ("adamw", Table(ADAMW)),
    ("seed", Value),
    ("precision", Value),
    ("evaluate_every", Value),
    ("keep", Value),
    ("early_stopping", Value),
    ("average", Value),
    ("test_curve", Value),
    ("log_every", Value),
    ("checkpoint_every", Value),
    ("on_divergence", Value),
];

const HEAD: &[Key] = &[
    ("name", Value),
    ("margin", Value),
    ("scale", Value),
    ("learned_scale", Value),
    ("sample_rate", Value),
];

const SGD: &[Key] = &[
    ("momentum", Value),
    ("nesterov", Value),
    ("weight_decay", Value),
    ("head_weight_decay", Value),
];

const ADAMW: &[Key] =
    &[("beta1", Value), ("beta2", Value), ("epsilon", Value), ("weight_decay", Value)];

const AUGMENT: &[Key] = &[
    ("pad", Value),
    ("flip", Value),
    ("crop", Table(REGION)),
    ("colour", Table(COLOUR)),
    ("erase", Table(REGION)),
];

const REGION: &[Key] = &[("probability", Value), ("area", Value), ("aspect", Value)];

const COLOUR: &[Key] = &[
    ("probability", Value),
    ("brightness", Value),
    ("contrast", Value),
    ("saturation", Value),
    ("hue", Value),
];

const NETWORK: &[Key] = &[
    ("input", Value),
    ("stages", Table(STAGE)),
    ("features", Table(&[("size", Value), ("layer", Value), ("activation", Value)])),
];

const STAGE: &[Key] = &[
    ("filters", Value),
    ("kernel", Value),
    ("units", Value),
    ("stride", Value),
    ("activation", Value),
    ("residual", Value),
    ("pool", Value),
];

const LAMBDA: &[(&str, &[Key])] = &[
    ("auto", &[("schedule", Value), ("keep", Value), ("end", Value), ("floor", Value)]),
    ("constant", &[("schedule", Value), ("value", Value)]),
    (
        "power",
        &[("schedule", Value), ("base", Value), ("gamma", Value), ("power", Value), ("min", Value)],
    ),
    ("exponential", &[("schedule", Value), ("base", Value), ("decay", Value), ("min", Value)]),
    ("staged", &[("schedule", Value), ("stages", Table(&[("from", Value), ("value", Value)]))]),
];

const LEARNING_RATE: &[(&str, &[Key])] = &[
    ("steps", &[("schedule", Value), ("rate", Value), ("factor", Value), ("at", Value)]),
    (
        "plateau",
        &[
            ("schedule", Value),
            ("rate", Value),
            ("factor", Value),
            ("patience", Value),
            ("drops", Value),
        ],
    ),
    ("cosine", &[("schedule", Value), ("rate", Value), ("min", Value), ("until", Value)]),
];

/// The names of the schedules of λ.
pub(super) fn lambda_schedules() -> impl Iterator<Item = &'static str> {
    LAMBDA.iter().map(|(name, _)| *name)
}

/// All keys that a recipe may have, as paths such as `network.stages.filters`; those of a schedule follow its
/// name, as in `lambda.power.gamma`.
pub fn known_keys() -> Vec<String> {
    fn add(keys: &Keys, path: &str, found: &mut Vec<String>) {
        let mut add_table = |known: &[Key], path: &str| {
            for (name, keys) in known {
                found.push(join(path, name));
                add(keys, &join(path, name), found);
            }
        };
        match keys {
            Value => {}
            Table(known) => add_table(known, path),
            Any(keys) => add(keys, path, found),
            Schedule(kinds) => {
                kinds.iter().for_each(|(kind, known)| add_table(known, &join(path, kind)));
            }
        }
    }
    let mut found = Vec::new();
    add(&Table(RECIPE), "", &mut found);
    found
}

/// An unknown key.
pub(super) struct UnknownKey {
    /// The full path of the key.
    pub key: String,
    /// Its byte offset in the text.
    pub start: usize,
    /// A suggestion.
    pub advice: String,
}

/// The first unknown key of a text.
pub(super) fn first_unknown(recipe: &DeTable) -> Option<UnknownKey> {
    let mut found = Vec::new();
    unknown_of_table(RECIPE, recipe, "", &mut found);
    found.into_iter().min_by_key(|unknown| unknown.start)
}

fn unknown_of_table(known: &[Key], table: &DeTable, path: &str, found: &mut Vec<UnknownKey>) {
    for (key, value) in table {
        let path = join(path, key.get_ref());
        match known.iter().find(|(name, _)| name == key.get_ref()) {
            Some((_, keys)) => unknown_of_value(keys, value.get_ref(), &path, found),
            None => {
                let advice = advice(key.get_ref(), known);
                found.push(UnknownKey { key: path, start: key.span().start, advice });
            }
        }
    }
}

fn unknown_of_value(keys: &Keys, value: &DeValue, path: &str, found: &mut Vec<UnknownKey>) {
    match (keys, value) {
        (Value, _) => {}
        (_, DeValue::Array(values)) => {
            values.iter().for_each(|value| unknown_of_value(keys, value.get_ref(), path, found));
        }
        (Table(known), DeValue::Table(table)) => unknown_of_table(known, table, path, found),
        (Any(keys), DeValue::Table(table)) => {
            for (key, value) in table {
                unknown_of_value(keys, value.get_ref(), &join(path, key.get_ref()), found);
            }
        }
        (Schedule(kinds), DeValue::Table(table)) => {
            // An unknown schedule is reported when the recipe is deserialized.
            let schedule =
                entry(table, "schedule").and_then(|schedule| schedule.get_ref().as_str());
            if let Some((_, known)) = kinds.iter().find(|(name, _)| Some(*name) == schedule) {
                unknown_of_table(known, table, path, found);
            }
        }
        // A value of the wrong type is reported when the recipe is deserialized.
        (_, _) => {}
    }
}

fn advice(key: &str, known: &[Key]) -> String {
    let names = || known.iter().map(|(name, _)| *name);
    match nearest(key, names()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("the keys here are {}", names().collect::<Vec<_>>().join(", ")),
    }
}

/// The most similar known name, if one is similar enough.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let distance = |known: &&str| strsim::damerau_levenshtein(&name, known);
    known.min_by_key(distance).filter(|known| 2 * distance(known) <= known.len())
}

/// The span of the value of a key or, if the key is missing, of the innermost table on its path.
pub(super) fn span_of(recipe: &DeTable, key: &str) -> Option<Range<usize>> {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let value = entry(recipe, first)?;
    let inner = value.get_ref().as_table().and_then(|table| span_of(table, rest));
    Some(inner.unwrap_or(value.span()))
}

/// The path of the innermost key whose name or value contains a byte of the text.
pub(super) fn key_at(recipe: &DeTable, byte: usize) -> Option<String> {
    recipe.iter().find_map(|(key, value)| {
        let inner = value.get_ref().as_table().and_then(|table| key_at(table, byte));
        let has = || value.span().contains(&byte) || key.span().contains(&byte);
        match inner {
            Some(inner) => Some(join(key.get_ref(), &inner)),
            None => has().then(|| key.get_ref().to_string()),
        }
    })
}

fn entry<'a, 'i>(table: &'a DeTable<'i>, key: &str) -> Option<&'a Spanned<DeValue<'i>>> {
    table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
