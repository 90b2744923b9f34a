//! Images side by side with what they are.

use lsoftmax_data::Shape;
use resvg::tiny_skia::{ColorU8, Pixmap};

use super::palette::Paint;
use super::svg::{Anchor, Font, Svg};
use super::{FigureError, Picture};

/// An image of a contact sheet.
#[derive(Clone, Debug)]
pub struct Thumbnail<'a> {
    /// Its pixels, channels x height x width.
    pub pixels: &'a [u8],
    /// The line below it.
    pub title: String,
    /// The small lines below that.
    pub captions: Vec<String>,
}

/// Images per row.
const PER_ROW: usize = 6;
/// The longer side of an image on the sheet.
const SIDE: f64 = 112.0;
const GAP: f64 = 20.0;
const PADDING: f64 = 20.0;
/// The height of the first line below an image, with the gap above it.
const TITLE: f64 = 24.0;
/// The height of each line below that.
const CAPTION: f64 = 16.0;

/// Draws images of one shape side by side, six per row.
///
/// # Errors
/// When there is no image, or one does not have the pixels of the shape.
pub fn contact_sheet(images: &[Thumbnail<'_>], shape: Shape) -> Result<Picture, FigureError> {
    if images.is_empty() {
        return Err(FigureError::Empty("images"));
    }
    if let Some(image) = images.iter().find(|image| image.pixels.len() != shape.pixels()) {
        return Err(FigureError::Size {
            what: "pixels of an image",
            found: image.pixels.len(),
            rows: shape.channels * shape.height,
            columns: shape.width,
        });
    }
    let scale = SIDE / shape.height.max(shape.width) as f64;
    let size = (shape.width as f64 * scale, shape.height as f64 * scale);
    let captions = images.iter().map(|image| image.captions.len()).max().unwrap_or(0);
    let pitch = (SIDE + GAP, size.1 + TITLE + captions as f64 * CAPTION + GAP);
    let across = images.len().min(PER_ROW) as f64;
    let down = images.len().div_ceil(PER_ROW) as f64;
    let mut svg = Svg::new(
        2.0 * PADDING + across * pitch.0 - GAP,
        2.0 * PADDING + down * pitch.1 - GAP,
        "Images with their labels and predictions",
    );
    let title = Font { size: 12.0, paint: Paint::Ink, bold: true, outline: false };
    let caption = Font { size: 11.0, paint: Paint::Grey, bold: false, outline: false };
    for (index, image) in images.iter().enumerate() {
        let left = PADDING + (index % PER_ROW) as f64 * pitch.0;
        let top = PADDING + (index / PER_ROW) as f64 * pitch.1;
        let place = (left + (SIDE - size.0) / 2.0, top);
        svg.image(place, size, &png(image.pixels, shape), &image.title);
        let middle = left + SIDE / 2.0;
        let room = SIDE + GAP - 4.0;
        svg.text((middle, top + size.1 + 17.0), Anchor::Middle, title, room, &image.title);
        for (line, text) in image.captions.iter().enumerate() {
            let bottom = top + size.1 + 33.0 + line as f64 * CAPTION;
            svg.text((middle, bottom), Anchor::Middle, caption, room, text);
        }
    }
    Ok(svg.finish())
}

/// Pixels as a PNG.
fn png(pixels: &[u8], shape: Shape) -> Vec<u8> {
    let Shape { channels, height, width } = shape;
    let plane = height * width;
    let mut map = Pixmap::new(width as u32, height as u32).expect("images have pixels");
    for (index, pixel) in map.pixels_mut().iter_mut().enumerate() {
        // Grey, or red, green and blue.
        let [red, green, blue] =
            [0, 1, 2].map(|channel: usize| pixels[channel.min(channels - 1) * plane + index]);
        *pixel = ColorU8::from_rgba(red, green, blue, u8::MAX).premultiply();
    }
    map.encode_png().expect("writing to memory does not fail")
}
