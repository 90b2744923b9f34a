//! From the text of an argument to a checked value.

use std::path::PathBuf;
use std::time::Duration;

use burn::tensor::Device;
#[cfg(feature = "cuda")]
use burn::tensor::DeviceIndex;
#[cfg(feature = "wgpu")]
use burn::tensor::DeviceKind;
use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use lsoftmax::{LambdaSchedule, Precision, SampleRate};
use lsoftmax_data::{Set, Split};
use lsoftmax_lab::head::HeadKind;
use lsoftmax_lab::optimiser::{AdamW, Optimiser, Sgd};
use lsoftmax_lab::recipe::{Keep, Lambda, OnDivergence};
use lsoftmax_lab::run::is_file_of_run;

pub fn head() -> impl TypedValueParser<Value = HeadKind> {
    one_of(HeadKind::ALL)
}

/// A file that is to be written, but not one of a run's.
pub fn output_file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match is_file_of_run(&path) {
        true => Err("is a file of a run, which it would damage; choose another name"),
        false => Ok(path),
    })
}

/// The file of a picture, whose ending says its format.
pub fn picture_file() -> impl TypedValueParser<Value = PathBuf> {
    output_file().try_map(|path| {
        let known = path.extension().is_some_and(|ending| ending == "svg" || ending == "png");
        if known { Ok(path) } else { Err("must end in .svg or .png") }
    })
}

pub fn number(text: &str) -> Result<f64, String> {
    text.trim().parse().map_err(|_| "must be a number".into())
}

pub fn sample_rate(text: &str) -> Result<SampleRate, String> {
    let rate = text.trim().parse().unwrap_or(f64::NAN);
    SampleRate::new(rate).map_err(|_| "must be a number above 0 and at most 1".into())
}

pub fn lambda(text: &str) -> Result<f64, String> {
    let lambda = text.trim().parse().map_err(|_| "must be a number of at least 0")?;
    LambdaSchedule::constant(lambda).map_err(|error| error.to_string())?;
    Ok(lambda)
}

/// λ of a training run: automatic, or constant.
pub fn lambda_of_run(text: &str) -> Result<Lambda, String> {
    match text.trim() {
        "auto" => Ok(Lambda::AUTO),
        number => {
            let value = number.parse().map_err(|_| "must be auto or a number of at least 0")?;
            Lambda::constant(value).map_err(|error| error.to_string())
        }
    }
}

pub fn count(text: &str) -> Result<u64, String> {
    let count = whole_number(text).ok().filter(|count| *count > 0);
    count.ok_or("must be a whole number of at least 1".into())
}

/// A number that is not negative; the recipe knows its range.
pub fn whole_number(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| "must be a whole number of at least 0".into())
}

/// A whole number as a size in memory.
pub fn size(text: &str) -> Result<usize, String> {
    whole_number(text).and_then(|number| number.try_into().map_err(|_| "is too large".into()))
}

/// A size in memory that is not 0.
pub fn size_of_at_least_1(text: &str) -> Result<usize, String> {
    count(text).and_then(|number| number.try_into().map_err(|_| "is too large".into()))
}

pub fn seconds(text: &str) -> Result<Duration, String> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let seconds = text.trim().parse().unwrap_or(f64::NAN);
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() && duration <= DAY => Ok(duration),
        _ => Err("must be a number above 0 and at most 86400, a day".into()),
    }
}

/// A fraction from 0 to 1, such as `1/6` or `0.5`.
pub fn scale(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let scale = match text.split_once('/') {
        Some((above, below)) => number(above).zip(number(below)).map(|(a, b)| a / b),
        None => number(text),
    };
    let is_valid = |scale: &f64| *scale > 0.0 && *scale <= 1.0;
    scale.filter(is_valid).ok_or("must be a fraction above 0 and at most 1, such as 1/6".into())
}

/// A time such as `8h`, `90m`, `45s` or `1h30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    const YEAR: u64 = 366 * 24 * 60 * 60;
    let problem = || "must be a time above 0, such as 8h, 90m or 1h30m".to_owned();
    let (mut seconds, mut digits) = (0u64, String::new());
    for character in text.trim().chars() {
        if character.is_ascii_digit() {
            digits.push(character);
            continue;
        }
        let unit = match character {
            'd' => 24 * 60 * 60,
            'h' => 60 * 60,
            'm' => 60,
            's' => 1,
            _ => return Err(problem()),
        };
        let count: u64 = std::mem::take(&mut digits).parse().map_err(|_| problem())?;
        seconds = count
            .checked_mul(unit)
            .and_then(|part| seconds.checked_add(part))
            .ok_or_else(problem)?;
    }
    if !digits.is_empty() || !(1..=YEAR).contains(&seconds) {
        return Err(problem());
    }
    Ok(Duration::from_secs(seconds))
}

pub fn precision() -> impl TypedValueParser<Value = Precision> {
    one_of([
        ("f32", Precision::F32),
        ("bf16", Precision::Bf16),
        ("bf16-weights", Precision::Bf16Weights),
    ])
}

pub fn optimiser() -> impl TypedValueParser<Value = Optimiser> {
    one_of([
        ("sgd", Sgd::default().into()),
        ("nesterov", Sgd { nesterov: true, ..Sgd::default() }.into()),
        ("adamw", AdamW::default().into()),
    ])
}

pub fn keep() -> impl TypedValueParser<Value = Keep> {
    one_of([("last", Keep::Last), ("best", Keep::Best)])
}

pub fn on_divergence() -> impl TypedValueParser<Value = OnDivergence> {
    one_of([("stop", OnDivergence::Stop), ("rollback", OnDivergence::Rollback)])
}

pub fn split() -> impl TypedValueParser<Value = Split> {
    one_of(Split::ALL.map(|split| (split.name(), split)))
}

pub fn set() -> impl TypedValueParser<Value = &'static Set> {
    one_of(Set::ALL.map(|set| (set.name, set)))
}

/// The size of an image, such as `96x112`: width and height.
pub fn image_size(text: &str) -> Result<(u32, u32), String> {
    let side = |text: &str| text.trim().parse().ok().filter(|side| (1..=4096).contains(side));
    let sides = text.split_once('x').and_then(|(width, height)| side(width).zip(side(height)));
    sides.ok_or("must be WIDTHxHEIGHT of 1 to 4096 pixels each, such as 96x112".into())
}

/// A device by its name. GPU backends come with cargo features of the same name.
pub fn device(name: &str) -> Result<Device, String> {
    match name {
        "cpu" => Ok(Device::flex()),
        #[cfg(feature = "cuda")]
        "cuda" => Ok(Device::cuda(DeviceIndex::Default)),
        #[cfg(feature = "wgpu")]
        "wgpu" => Ok(Device::wgpu(DeviceKind::DefaultDevice)),
        _ if ["cuda", "wgpu"].contains(&name) => {
            Err(format!("this program was built without it; build it with `--features {name}`"))
        }
        _ => Err("choose cpu, wgpu or cuda".into()),
    }
}

/// One of a few names, each with the value that it stands for.
pub fn one_of<T, const N: usize>(
    choices: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T>
where
    T: Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(choices.each_ref().map(|(name, _)| *name)).map(move |text| {
        let choice = choices.iter().find(|(name, _)| *name == text);
        choice.expect("clap accepts no other name").1.clone()
    })
}
