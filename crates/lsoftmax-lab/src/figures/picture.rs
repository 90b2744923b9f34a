//! A finished picture, as SVG and as PNG.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::{Database, Source};
use resvg::usvg::{Options, Tree};

use super::{FigureError, write_file};

/// A finished picture: SVG on a white background, without scripts, styles, ids or links.
/// Images in it are part of the file.
///
/// Classes name the colours, for the stylesheet of a [`Page`](super::Page); `data-` attributes describe
/// series and points, for its script. Neither has an effect elsewhere.
///
/// Only this module's drawing functions create one, so it can be inserted into a page unescaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    pub(super) svg: String,
    /// The width in pixels.
    pub(super) width: u32,
}

/// Regular and bold, for PNG. System fonts are not used, so that the same numbers give the same bytes
/// everywhere.
static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    for font in [notosans::REGULAR_TTF, notosans::BOLD_TTF] {
        fonts.load_font_source(Source::Binary(Arc::new(font)));
    }
    fonts.set_sans_serif_family("Noto Sans");
    Arc::new(fonts)
});

/// The largest side of a PNG in pixels.
const LARGEST_SIDE: f32 = 16_384.0;

impl Picture {
    /// The SVG.
    pub fn as_str(&self) -> &str {
        &self.svg
    }

    /// Writes the SVG to a file atomically; missing directories are created.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), FigureError> {
        write_file(path.as_ref(), self.svg.as_bytes())
    }

    /// The picture as PNG, `scale` pixels per unit of the SVG; 2 suits slides and dense screens.
    ///
    /// # Errors
    /// When the scale is not positive, or a side would be longer than 16,384 pixels.
    pub fn png(&self, scale: f64) -> Result<Vec<u8>, FigureError> {
        let options = Options { fontdb: FONTS.clone(), ..Options::default() };
        let tree = Tree::from_str(&self.svg, &options).expect("pictures are valid SVG");
        let scale = scale as f32;
        let [width, height] =
            [tree.size().width(), tree.size().height()].map(|side| (side * scale).round());
        let sides = 1.0..=LARGEST_SIDE;
        if !(sides.contains(&width) && sides.contains(&height)) {
            return Err(FigureError::Scale(f64::from(scale)));
        }
        let mut pixels = Pixmap::new(width as u32, height as u32).expect("sides are positive");
        resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixels.as_mut());
        Ok(pixels.encode_png().expect("writing to memory does not fail"))
    }

    /// Writes the picture as [PNG](Self::png) to a file atomically; missing directories are created.
    ///
    /// # Errors
    /// When the scale is not positive, the picture would be too large, or the file cannot be written.
    pub fn write_png(&self, path: impl AsRef<Path>, scale: f64) -> Result<(), FigureError> {
        write_file(path.as_ref(), &self.png(scale)?)
    }
}
