//! `lsoftmax eval`, `predict`, `embed` and `export`.

use std::fmt::Write;

use lsoftmax_lab::data::DataDir;
use lsoftmax_lab::using::{self, Evaluated, Prediction};

use crate::arguments::{
    EmbedArguments, EvalArguments, ExportArguments, Format, PredictArguments, Split,
};

pub fn eval(arguments: EvalArguments) -> anyhow::Result<String> {
    let EvalArguments { run, data, split, place } = arguments;
    let directory = DataDir::find(place.data_dir)?;
    let found = using::evaluate_run(&run, data.as_deref(), split.into(), &directory)?;
    if place.json {
        return crate::json(&found);
    }
    let Evaluated { data, split, evaluation } = found;
    Ok(format!(
        "{data}, {split}: {:.2} % wrong ({} of {} images), cross-entropy {:.4}, {:.1}° to the class on average",
        evaluation.error, evaluation.wrong, evaluation.images, evaluation.loss, evaluation.angle
    ))
}

pub fn predict(arguments: PredictArguments) -> anyhow::Result<String> {
    let predictions = using::predict(&arguments.run, &arguments.images)?;
    if arguments.json {
        return crate::json(&predictions);
    }
    let mut text = String::new();
    for Prediction { image, class, name, probability, angle } in predictions {
        let number = class.to_string();
        let name = match name {
            Some(name) if name != number => format!("{name} ({number})"),
            _ => number,
        };
        writeln!(text, "{image}: {name}, probability {probability:.4}, {angle:.1}° to the class")?;
    }
    Ok(text.trim_end().to_owned())
}

pub fn embed(arguments: EmbedArguments) -> anyhow::Result<String> {
    let EmbedArguments { run, input, out, logits, normalise, split, place } = arguments;
    let data = DataDir::find(place.data_dir)?;
    let found =
        using::embed(&run, &input, split.into(), &data, &out, logits.as_deref(), normalise)?;
    if place.json {
        return crate::json(&found);
    }
    let logits = found.logits.map_or(String::new(), |logits| {
        format!("\n{logits}: {} images x {} logits", found.images, found.classes)
    });
    Ok(format!("{}: {} images x {} features{logits}", found.out, found.images, found.features))
}

pub fn export(arguments: ExportArguments) -> anyhow::Result<String> {
    let Format::Safetensors = arguments.format;
    let bytes = using::export(&arguments.run, &arguments.out)?;
    let out = arguments.out.display().to_string();
    if arguments.json {
        return crate::json(&serde_json::json!({ "out": out, "bytes": bytes }));
    }
    Ok(format!("{out}: {bytes} bytes of weights"))
}

impl From<Split> for using::Split {
    fn from(split: Split) -> Self {
        match split {
            Split::Train => using::Split::Train,
            Split::Test => using::Split::Test,
        }
    }
}
