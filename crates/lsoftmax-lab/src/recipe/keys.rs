//! The keys of a recipe: which there are, and where a text has them.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What may stand under a key. An array has what each of its elements has.
enum Keys {
    /// A value without keys.
    Value,
    /// A table with these.
    Table(&'static [Key]),
    /// Tables under keys of any name.
    Any(&'static Keys),
    /// A table whose `schedule` says which keys it has.
    Schedule(&'static [(&'static str, &'static [Key])]),
}

type Key = (&'static str, Keys);

use Keys::{Any, Schedule, Table, Value};

const RECIPE: &[Key] = &[
    ("name", Value),
    ("source", Value),
    ("expected", Any(&Table(&[("test_error", Value), ("tolerance", Value)]))),
    ("data", Value),
    ("augment", Table(&[("pad", Value), ("flip", Value)])),
    ("validation", Value),
    ("network", Table(NETWORK)),
    ("loss", Any(&Table(&[("weight", Value), ("margin", Value)]))),
    ("margin", Value),
    ("lambda", Schedule(LAMBDA)),
    ("batch", Value),
    ("accumulate", Value),
    ("clip_norm", Value),
    ("steps", Value),
    ("learning_rate", Schedule(LEARNING_RATE)),
    ("sgd", Table(&[("momentum", Value), ("weight_decay", Value)])),
    ("seed", Value),
    ("precision", Value),
    ("evaluate_every", Value),
    ("log_every", Value),
    ("checkpoint_every", Value),
    ("on_divergence", Value),
];

const NETWORK: &[Key] = &[
    ("input", Value),
    ("stages", Table(STAGE)),
    ("features", Table(&[("size", Value), ("activation", Value)])),
];

const STAGE: &[Key] =
    &[("filters", Value), ("kernel", Value), ("units", Value), ("stride", Value), ("pool", Value)];

const LAMBDA: &[(&str, &[Key])] = &[
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
];

/// A key that recipes don't have.
pub(super) struct Unknown {
    /// The key, after those of the tables that it is in.
    pub key: String,
    /// The byte of the text where it starts.
    pub start: usize,
    /// Which key may be meant.
    pub advice: String,
}

/// The first key of a text that recipes don't have.
pub(super) fn first_unknown(recipe: &DeTable) -> Option<Unknown> {
    let mut found = Vec::new();
    unknown_of_table(RECIPE, recipe, "", &mut found);
    found.into_iter().min_by_key(|unknown| unknown.start)
}

fn unknown_of_table(known: &[Key], table: &DeTable, path: &str, found: &mut Vec<Unknown>) {
    for (key, value) in table {
        let path = join(path, key.get_ref());
        match known.iter().find(|(name, _)| name == key.get_ref()) {
            Some((_, keys)) => unknown_of_value(keys, value.get_ref(), &path, found),
            None => {
                let advice = advice(key.get_ref(), known);
                found.push(Unknown { key: path, start: key.span().start, advice });
            }
        }
    }
}

fn unknown_of_value(keys: &Keys, value: &DeValue, path: &str, found: &mut Vec<Unknown>) {
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
            // Without a known schedule nothing is known of the other keys; reading it will tell.
            let schedule =
                entry(table, "schedule").and_then(|schedule| schedule.get_ref().as_str());
            if let Some((_, known)) = kinds.iter().find(|(name, _)| Some(*name) == schedule) {
                unknown_of_table(known, table, path, found);
            }
        }
        // Not of the key's kind; reading it will tell.
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

/// The name that was probably meant, if one is similar.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let distance = |known: &&str| strsim::damerau_levenshtein(&name, known);
    known.min_by_key(distance).filter(|known| 2 * distance(known) <= known.len())
}

/// Where the value of a key is, or else that of the innermost table on the way to it.
pub(super) fn span_of(recipe: &DeTable, key: &str) -> Option<Range<usize>> {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let value = entry(recipe, first)?;
    let inner = value.get_ref().as_table().and_then(|table| span_of(table, rest));
    Some(inner.unwrap_or(value.span()))
}

/// The innermost key whose value, or name, has this byte of the text.
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
