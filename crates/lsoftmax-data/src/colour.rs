//! Random changes of colours.

use serde::{Deserialize, Serialize};

use crate::augment::number_problem;
use crate::dataset::Shape;
use crate::random::Random;

/// The weights of red, green and blue in the luminance (ITU-R BT.601).
const LUMINANCE: [f32; 3] = [0.299, 0.587, 0.114];
/// The largest value of a pixel.
const WHITE: f32 = 255.0;

/// Random changes of brightness, contrast, saturation and hue, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Colour {
    /// The probability that an image is changed.
    pub probability: f64,
    /// The factor of all pixels is 1 plus or minus up to this, but not negative.
    pub brightness: f64,
    /// The factor of the differences from the mean luminance is 1 plus or minus up to this.
    pub contrast: f64,
    /// The factor of the differences from each pixel's luminance is 1 plus or minus up to this.
    pub saturation: f64,
    /// The hue is turned by up to this part of the circle, either way; at most 1/2.
    pub hue: f64,
}

impl Default for Colour {
    /// Always, but by nothing.
    fn default() -> Self {
        Self { probability: 1.0, brightness: 0.0, contrast: 0.0, saturation: 0.0, hue: 0.0 }
    }
}

impl Colour {
    /// What is wrong with it for images of a size.
    pub(crate) fn problem(&self, Shape { channels, .. }: Shape) -> Option<(String, String)> {
        let Self { probability, brightness, contrast, saturation, hue } = *self;
        let needs_colours = [("saturation", saturation), ("hue", hue)]
            .into_iter()
            .find(|(_, value)| *value != 0.0 && channels != 3)
            .map(|(setting, value)| {
                let problem = format!(
                    "must be 0 for images of {channels} channels, which have no colours, but is {value}"
                );
                (setting.to_owned(), problem)
            });
        number_problem("probability", probability, (0.0, 1.0))
            .or_else(|| number_problem("brightness", brightness, (0.0, 10.0)))
            .or_else(|| number_problem("contrast", contrast, (0.0, 10.0)))
            .or_else(|| number_problem("saturation", saturation, (0.0, 10.0)))
            .or_else(|| number_problem("hue", hue, (0.0, 0.5)))
            .or(needs_colours)
    }

    /// The change of an image, unless it stays as it is.
    pub(crate) fn draw(&self, random: &mut Random) -> Option<Colours> {
        if random.uniform() >= self.probability {
            return None;
        }
        let mut factor = |strength: f64| {
            let least = (1.0 - strength).max(0.0);
            random.between([least, 1.0 + strength]) as f32
        };
        let (brightness, contrast) = (factor(self.brightness), factor(self.contrast));
        let saturation = factor(self.saturation);
        let hue = random.between([-self.hue, self.hue]) as f32;
        Some(Colours { brightness, contrast, saturation, hue })
    }
}

/// A change of colours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Colours {
    brightness: f32,
    contrast: f32,
    saturation: f32,
    /// In parts of the circle.
    hue: f32,
}

impl Colours {
    /// Changes an image, C x H x W, with pixels from 0 to 255, which they remain.
    pub fn apply(&self, pixels: &mut [f32], Shape { channels, height, width }: Shape) {
        let Self { brightness, contrast, saturation, hue } = *self;
        if brightness != 1.0 {
            scale(pixels, brightness, 0.0);
        }
        if contrast != 1.0 {
            let mean = mean_luminance(pixels, channels);
            scale(pixels, contrast, mean);
        }
        if channels != 3 || (saturation == 1.0 && hue == 0.0) {
            return;
        }
        let (red, rest) = pixels.split_at_mut(height * width);
        let (green, blue) = rest.split_at_mut(height * width);
        for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
            let mut colour = [*red, *green, *blue];
            if saturation != 1.0 {
                let grey = luminance(colour);
                scale(&mut colour, saturation, grey);
            }
            if hue != 0.0 {
                colour = turned(colour, hue);
            }
            [*red, *green, *blue] = colour;
        }
    }
}

/// Multiplies the differences from `centre` by a factor, within black and white.
fn scale(pixels: &mut [f32], factor: f32, centre: f32) {
    for pixel in pixels {
        *pixel = (centre + factor * (*pixel - centre)).clamp(0.0, WHITE);
    }
}

fn luminance(colour: [f32; 3]) -> f32 {
    colour.iter().zip(LUMINANCE).map(|(value, weight)| value * weight).sum()
}

/// The mean luminance of an image; the mean pixel if it has no colours.
fn mean_luminance(pixels: &[f32], channels: usize) -> f32 {
    let mean = |channel: &[f32]| {
        let sum: f64 = channel.iter().map(|pixel| f64::from(*pixel)).sum();
        (sum / channel.len() as f64) as f32
    };
    if channels != 3 {
        return mean(pixels);
    }
    let mut means = pixels.chunks_exact(pixels.len() / 3).map(mean);
    luminance(std::array::from_fn(|_| means.next().expect("three channels")))
}

/// A colour with its hue turned by a part of the circle; value and saturation (of HSV) stay.
fn turned([red, green, blue]: [f32; 3], part: f32) -> [f32; 3] {
    let value = red.max(green).max(blue);
    let chroma = value - red.min(green).min(blue);
    if chroma <= 0.0 {
        return [red, green, blue];
    }
    // In sixths of the circle, from red.
    let hue = if value == red {
        (green - blue) / chroma
    } else if value == green {
        2.0 + (blue - red) / chroma
    } else {
        4.0 + (red - green) / chroma
    };
    let hue = hue + 6.0 * part;
    let channel = |offset: f32| {
        let place = (offset + hue).rem_euclid(6.0);
        value - chroma * place.min(4.0 - place).clamp(0.0, 1.0)
    };
    [channel(5.0), channel(3.0), channel(1.0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    const COLOURS: [[f32; 3]; 6] = [
        [200.0, 30.0, 70.0],
        [10.0, 250.0, 40.0],
        [90.0, 20.0, 240.0],
        [255.0, 255.0, 0.0],
        [128.0, 128.0, 128.0],
        [0.0, 77.0, 76.0],
    ];

    fn assert_close(found: [f32; 3], expected: [f32; 3]) {
        let close =
            found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-3);
        assert!(close, "{found:?} is not {expected:?}");
    }

    /// A third of the circle exchanges the channels, whatever the colour.
    #[test]
    fn a_turned_hue_exchanges_the_channels_and_turns_back() {
        for colour @ [red, green, blue] in COLOURS {
            assert_close(turned(colour, 1.0 / 3.0), [blue, red, green]);
            assert_close(turned(colour, -1.0 / 3.0), [green, blue, red]);
            assert_close(turned(turned(colour, 0.13), -0.13), colour);
        }
        // Half a circle from red is cyan; a sixth is yellow.
        assert_close(turned([255.0, 0.0, 0.0], 0.5), [0.0, 255.0, 255.0]);
        assert_close(turned([255.0, 0.0, 0.0], 1.0 / 6.0), [255.0, 255.0, 0.0]);
    }

    fn changed(colours: Colours) -> Vec<f32> {
        let shape = Shape { channels: 3, height: 2, width: 3 };
        let mut pixels: Vec<f32> =
            (0..3).flat_map(|channel| COLOURS.map(|colour| colour[channel])).collect();
        colours.apply(&mut pixels, shape);
        pixels
    }

    #[test]
    fn factors_of_zero_are_black_the_mean_and_grey_and_one_changes_nothing() {
        let same = Colours { brightness: 1.0, contrast: 1.0, saturation: 1.0, hue: 0.0 };
        let plain = changed(same);
        let colour =
            |pixels: &[f32], pixel: usize| [0, 6, 12].map(|channel| pixels[channel + pixel]);
        for (pixel, expected) in COLOURS.into_iter().enumerate() {
            assert_eq!(colour(&plain, pixel), expected);
        }
        assert!(changed(Colours { brightness: 0.0, ..same }).iter().all(|pixel| *pixel == 0.0));
        let mean = COLOURS.map(luminance).iter().sum::<f32>() / 6.0;
        let flat = changed(Colours { contrast: 0.0, ..same });
        assert!(flat.iter().all(|pixel| (pixel - mean).abs() < 1e-3), "{flat:?} is not {mean}");
        let grey = changed(Colours { saturation: 0.0, ..same });
        for (pixel, expected) in COLOURS.map(luminance).into_iter().enumerate() {
            assert_close(colour(&grey, pixel), [expected; 3]);
        }
        let bright = changed(Colours { brightness: 3.0, ..same });
        assert!(bright.iter().all(|pixel| (0.0..=255.0).contains(pixel)), "{bright:?}");
    }

    #[test]
    fn factors_are_uniform_and_as_frequent_as_their_probability() {
        let colour =
            Colour { probability: 0.25, brightness: 0.4, contrast: 2.0, saturation: 0.1, hue: 0.2 };
        let drawn = (0..8000)
            .filter_map(|sample| colour.draw(&mut Random::new(3, Purpose::Colour, 0, sample)));
        let drawn: Vec<Colours> = drawn.collect();
        assert!((1850..2150).contains(&drawn.len()), "{} of 8000", drawn.len());
        let within = |value: f32, low: f32, high: f32| (low..=high).contains(&value);
        assert!(drawn.iter().all(|one| within(one.brightness, 0.6, 1.4)
            && within(one.contrast, 0.0, 3.0)
            && within(one.saturation, 0.9, 1.1)
            && within(one.hue, -0.2, 0.2)));
        let mean = |value: fn(&Colours) -> f32| {
            drawn.iter().map(|one| f64::from(value(one))).sum::<f64>() / drawn.len() as f64
        };
        // Four standard errors.
        assert!((mean(|one| one.brightness) - 1.0).abs() < 0.021);
        assert!((mean(|one| one.contrast) - 1.5).abs() < 0.078);
        assert!(mean(|one| one.hue).abs() < 0.011);
    }
}
