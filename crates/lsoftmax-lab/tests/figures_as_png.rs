//! PNG of pictures, decoded again.

use lsoftmax::Margin;
use lsoftmax_lab::figures::{Chart, FigureError, Picture, Series, psi};

fn picture(title: &str) -> Picture {
    let series = vec![Series::by_step("a", [(0, 1.0), (9, 0.5)])];
    Chart { title: title.into(), series, ..Chart::default() }.draw().unwrap()
}

/// The number of pixels that are not white.
fn dark_pixels(png: &[u8]) -> usize {
    let pixels = image::load_from_memory(png).unwrap().into_rgb8();
    pixels.pixels().filter(|pixel| pixel.0.iter().any(|channel| *channel < 128)).count()
}

#[test]
fn the_size_is_that_of_the_picture_times_the_scale() {
    let picture = picture("a");
    let size = |scale: f64| {
        let image = image::load_from_memory(&picture.png(scale).unwrap()).unwrap();
        (image.width(), image.height())
    };
    assert!(picture.as_str().contains("viewBox=\"0 0 720 414\""));
    assert_eq!((size(1.0), size(2.0), size(0.5)), ((720, 414), (1440, 828), (360, 207)));
    let corner = image::load_from_memory(&picture.png(1.0).unwrap()).unwrap().into_rgba8()[(0, 0)];
    assert_eq!(corner.0, [255; 4], "the background is white, not transparent");
}

#[test]
fn equal_pictures_have_equal_bytes() {
    assert_eq!(picture("a").png(2.0).unwrap(), picture("a").png(2.0).unwrap());
    assert_ne!(picture("a").png(2.0).unwrap(), picture("b").png(2.0).unwrap());
}

#[test]
fn the_font_has_the_characters_of_the_figures() {
    // A character that a font lacks is a box, the same for all; those it has differ.
    let missing = picture("\u{13000}").png(1.0).unwrap();
    let empty = dark_pixels(&picture("").png(1.0).unwrap());
    for character in "ψθλ°−·ᵏ≥≤±“”…×²".chars().chain("az09%|=<>".chars()) {
        let drawn = picture(&character.to_string()).png(1.0).unwrap();
        assert_ne!(drawn, missing, "{character}");
    }
    assert!(dark_pixels(&picture("MMMMMMMM").png(1.0).unwrap()) > empty + 200);
    let [subscript, digit] = ["W₁", "W1"].map(|text| picture(text).png(1.0).unwrap());
    assert!(subscript != digit && dark_pixels(&subscript) > empty);
}

#[test]
fn a_scale_without_pixels_or_with_too_many_is_an_error() {
    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9, 1000.0] {
        let error = picture("a").png(scale).unwrap_err();
        assert!(matches!(error, FigureError::Scale(_)), "{error}");
    }
}

#[test]
fn psi_is_written_as_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/figure-3.png");
    let margins = [1, 2, 3, 4].map(|m| Margin::new(m).unwrap());
    let picture = psi(&margins).unwrap();
    picture.write_png(&path, 2.0).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), picture.png(2.0).unwrap());
}
