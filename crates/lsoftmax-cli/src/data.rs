//! `lsoftmax data`.

use std::fmt::Write;

use indicatif::{ProgressBar, ProgressStyle};
use lsoftmax_lab::data::fetch::{Fetched, Origin, Outcome, Progress, Timeouts};
use lsoftmax_lab::data::{Checked, DataDir, Listed, Set, State, check, fetch, list};

use crate::arguments::Data;

pub fn run(command: Data) -> anyhow::Result<String> {
    match command {
        Data::List { place } => {
            let sets = list(&DataDir::find(place.data_dir)?);
            if place.json { crate::json(&sets) } else { Ok(list_text(&sets)?) }
        }
        Data::Fetch { set, from, stall, place } => {
            let data = DataDir::find(place.data_dir)?;
            let origin = from.map_or(Ok(Origin::Official), |from| Origin::parse(&from))?;
            let timeouts = Timeouts { stall, ..Timeouts::default() };
            let fetched = fetch_with_bar(set, &data, &origin, timeouts)?;
            if place.json { crate::json(&fetched) } else { Ok(fetched_text(&fetched)) }
        }
        Data::Check { set, place } => {
            let checked = check(set, &DataDir::find(place.data_dir)?)?;
            if place.json { crate::json(&checked) } else { Ok(checked_text(&checked)) }
        }
    }
}

/// Fetches with a bar on stderr, if that is a terminal.
fn fetch_with_bar(
    set: &'static Set,
    data: &DataDir,
    origin: &Origin,
    timeouts: Timeouts,
) -> anyhow::Result<Fetched> {
    let bar = ProgressBar::no_length();
    let style = "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
    bar.set_style(ProgressStyle::with_template(style)?);
    let mut before = None;
    let fetched = fetch(set, data, origin, timeouts, &mut |progress| match progress {
        Progress::Downloading { archive, received, total } => {
            if before.as_deref() != Some(archive) {
                bar.set_message(archive.to_owned());
                bar.reset();
                before = Some(archive.to_owned());
            }
            bar.update(|state| {
                state.set_pos(received);
                state.set_len(total.unwrap_or(received));
            });
        }
        Progress::Unpacking { archive } => bar.set_message(format!("{archive}: unpacking")),
    });
    bar.finish_and_clear();
    Ok(fetched?)
}

fn list_text(sets: &[Listed]) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for Listed { name, about, state, place, bytes, source, .. } in sets {
        let size = format!("{:.1} MB", *bytes as f64 / 1e6);
        let state = match state {
            State::BuiltIn => format!("built in, {size}"),
            State::There => format!("there, {size} in {place}"),
            State::Incomplete => format!("incomplete in {place}; fetch it again"),
            State::Missing => {
                format!("not there; `lsoftmax data fetch {name}` gets {size} into {place}")
            }
        };
        write!(text, "{name:<13}  {about}\n{:<15}{state}\n{:<15}from {source}\n", "", "")?;
    }
    Ok(text.trim_end().to_owned())
}

fn fetched_text(fetched: &Fetched) -> String {
    let Fetched { name, place, outcome } = fetched;
    match outcome {
        Outcome::BuiltIn => format!("{name} is built into the program; there is nothing to fetch"),
        Outcome::AlreadyThere => format!("{name} is there already, and whole, in {place}"),
        Outcome::Fetched => format!("{name} is now in {place}"),
    }
}

fn checked_text(checked: &Checked) -> String {
    let Checked { name, place, files, shape, classes, train, test, train_of_class } = checked;
    let least = train_of_class.iter().min().copied().unwrap_or(0);
    let most = train_of_class.iter().max().copied().unwrap_or(0);
    let each = if least == most { format!("{least}") } else { format!("{least} to {most}") };
    format!(
        "{name} is whole: {} files with the right SHA-256 ({place})\n\
         {train} images to train on, {test} to test on, {shape}; {classes} classes of {each} training images",
        files.len(),
    )
}
