//! Axis ranges, ticks and number formatting.

/// How values are laid out along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// In proportion to the value.
    #[default]
    Linear,
    /// In proportion to its logarithm.
    Log,
}

/// A range with ticks.
pub(super) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// Values and their labels.
    pub ticks: Vec<(f64, String)>,
}

/// The largest absolute value of an axis, and the inverse of the smallest value of a logarithmic one.
/// Beyond it, arithmetic on ranges would overflow.
const LARGEST: f64 = 1e300;

impl Scale {
    /// Whether a value can be shown on an axis of this scale.
    pub(super) fn can_show(self, value: f64) -> bool {
        value.abs() <= LARGEST && (self == Scale::Linear || value >= 1.0 / LARGEST)
    }
}

impl Axis {
    /// An axis from `low` to `high`, extended on each side to the next tick. Both are values that the
    /// scale [can show](Scale::can_show).
    pub fn new(scale: Scale, low: f64, high: f64) -> Self {
        match scale {
            Scale::Linear => Self::linear(low, high),
            Scale::Log => Self::log(low, high),
        }
    }

    /// A linear axis from exactly `low` to exactly `high`, with ticks at multiples of `every`, or of a
    /// round number if `None`; of a whole number if all values are `whole`.
    pub fn exact(low: f64, high: f64, whole: bool, every: Option<f64>) -> Self {
        let size = low.abs().max(high.abs());
        let high = match high - low {
            // Real numbers that hardly differ would have labels too long for the axis.
            range if !whole && size > 1.0 / LARGEST => low + range.max(size * 1e-4),
            range if range > 0.0 && whole => high,
            _ => low + size * 1e-9 + 1.0,
        };
        let range = high - low;
        let round = round_step(range / 6.0).max(if whole { 1.0 } else { 0.0 });
        let step = every.filter(|every| (1.0..=20.0).contains(&(range / every))).unwrap_or(round);
        let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
        // Long labels would overlap: from 1e9 on, they have at most three digits after the first.
        let digits = if size < 1e9 { last_digit(step) } else { step.max(size * 1e-3) };
        let ticks = ticks_at_multiples(step, first, last, digits);
        Self { scale: Scale::Linear, low, high, ticks }
    }

    fn linear(low: f64, high: f64) -> Self {
        let size = low.abs().max(high.abs());
        let (low, high) = if high - low > size * 1e-9 && size > 1.0 / LARGEST {
            (low, high)
        } else {
            let room = if size > 1.0 / LARGEST { size * 0.1 } else { 1.0 };
            (low - room, high + room)
        };
        let step = round_step((high - low) / 5.0);
        // A bound that differs from a tick only by rounding is that tick.
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        Self {
            scale: Scale::Linear,
            low: first * step,
            high: last * step,
            ticks: ticks_at_multiples(step, first, last, step),
        }
    }

    fn log(low: f64, high: f64) -> Self {
        let decades = low.log10().floor() as i32 - 1..=high.log10().ceil() as i32 + 1;
        let round: Vec<(f64, i32, i32)> = decades
            .flat_map(|power| {
                [1, 2, 5].map(|digit| (f64::from(digit) * 10f64.powi(power), digit, power))
            })
            .collect();
        let mut first = round.iter().rposition(|tick| tick.0 <= low * (1.0 + 1e-9)).unwrap_or(0);
        let mut last =
            round.iter().position(|tick| tick.0 >= high * (1.0 - 1e-9)).unwrap_or(round.len() - 1);
        if first >= last {
            (first, last) = (last.saturating_sub(1), (first + 1).min(round.len() - 1));
        }
        let round = &round[first..=last];
        let decades = round.iter().filter(|tick| tick.1 == 1).count();
        let every = decades.div_ceil(10) as i32;
        let shown = |tick: &&(f64, i32, i32)| {
            round.len() <= 10 || (tick.1 == 1 && tick.2.rem_euclid(every) == 0)
        };
        let ticks = round
            .iter()
            .filter(shown)
            .map(|tick| (tick.0, format_number(tick.0, tick.0)))
            .collect();
        Self { scale: Scale::Log, low: round[0].0, high: round[round.len() - 1].0, ticks }
    }

    /// The position of a value: 0 at the low end, 1 at the high end.
    pub fn position(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => {
                (value.log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
            }
        }
    }
}

/// The smallest of …, 1, 2, 5, 10, … that is not below `least`.
pub(super) fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= least * (1.0 - 1e-9));
    digit.unwrap_or(10.0) * power
}

/// The value of the last digit of a step such as 0.25; at most four digits are needed.
fn last_digit(step: f64) -> f64 {
    let first = 10f64.powf((step.log10() + 1e-9).floor());
    let digits = [first, first * 0.1, first * 0.01, first * 0.001];
    let divides = |digit: &f64| ((step / digit).round() - step / digit).abs() < 1e-6;
    digits.into_iter().find(divides).unwrap_or(digits[3])
}

/// Ticks at the multiples of `step` from `first` to `last`, labelled to the precision of `digits`.
fn ticks_at_multiples(step: f64, first: f64, last: f64, digits: f64) -> Vec<(f64, String)> {
    let values = (0..=(last - first) as usize).map(|index| (first + index as f64) * step);
    values.map(|value| (value, format_number(value, digits))).collect()
}

/// A number with as many digits as distinguish multiples of `step`.
pub(super) fn format_number(value: f64, step: f64) -> String {
    let precision = (step.log10() + 1e-9).floor() as i32;
    let size = value.abs();
    let text = if size < step * 1e-6 {
        "0".into()
    } else if size >= 1e9 || precision < -4 {
        let digits = ((size.log10() + 1e-9).floor() as i32 - precision).clamp(0, 15);
        format!("{size:.*e}", digits as usize).replace("e-", "e−")
    } else {
        let text = format!("{size:.*}", (-precision).max(0) as usize);
        let (whole, decimals) = text.split_at(text.find('.').unwrap_or(text.len()));
        format!("{}{decimals}", group_thousands(whole))
    };
    if value < 0.0 && text != "0" { format!("−{text}") } else { text }
}

/// Digits with a comma between groups of three.
pub(crate) fn group_thousands(digits: &str) -> String {
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8_lossy(&groups.join(&b',')).into_owned()
}
