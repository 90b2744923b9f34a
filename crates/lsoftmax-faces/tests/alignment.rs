//! Alignment, against scikit-image.

use image::{Rgb, RgbImage};
use lsoftmax_faces::{FivePoints, Similarity, Template, warp};
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    images: Vec<Drawn>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Drawn {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    landmarks: [f64; 10],
    width: u32,
    height: u32,
    template: [f64; 10],
    transform: [f64; 6],
    channel: usize,
    warped: Option<Vec<f64>>,
}

fn fixture() -> Fixture {
    let text = include_str!("../../../reference/fixtures/alignment.json");
    serde_json::from_str(text).expect("a valid fixture")
}

fn points(flat: &[f64; 10]) -> FivePoints {
    FivePoints([0, 1, 2, 3, 4].map(|point| [flat[2 * point], flat[2 * point + 1]]))
}

#[test]
fn transforms_and_pixels_are_those_of_scikit_image() {
    let Fixture { images, cases } = fixture();
    let Drawn { width, height, pixels } = &images[0];
    let image = RgbImage::from_raw(*width, *height, pixels.clone()).expect("three bytes per pixel");
    let mut warps = 0;
    for case in cases {
        let Case { name, width, height, .. } = &case;
        let template = Template::SphereFace.points(*width, *height);
        for (found, expected) in template.0.as_flattened().iter().zip(case.template) {
            assert!((found - expected).abs() < 1e-9, "{name}: {found}, {expected}");
        }
        let transform = Similarity::fit(&points(&case.landmarks), &template).expect(name);
        for (found, expected) in transform.matrix().as_flattened().iter().zip(case.transform) {
            assert!(
                (found - expected).abs() < 1e-8 * (1.0 + expected.abs()),
                "{name}: {found}, {expected}"
            );
        }
        let Some(expected) = &case.warped else { continue };
        warps += 1;
        let warped = warp(&image, &transform, *width, *height);
        for (index, (pixel, expected)) in warped.pixels().zip(expected).enumerate() {
            // A pixel is rounded to a whole number.
            let found = f64::from(pixel[case.channel]);
            assert!((found - expected).abs() < 0.51, "{name}, pixel {index}: {found}, {expected}");
        }
    }
    assert!(warps >= 9);
}

#[test]
fn a_transform_and_its_inverse_cancel() {
    let from = FivePoints([[10.0, 12.0], [30.0, 9.0], [22.0, 20.0], [14.0, 31.0], [28.0, 29.0]]);
    let transform =
        Similarity::fit(&from, &Template::InsightFace.points(112, 112)).expect("points");
    for point in from.0 {
        let [x, y] = transform.inverse().apply(transform.apply(point));
        assert!((x - point[0]).abs() < 1e-9 && (y - point[1]).abs() < 1e-9);
    }
}

#[test]
fn points_in_one_place_fit_nothing() {
    assert_eq!(
        Similarity::fit(&FivePoints([[3.0, 4.0]; 5]), &Template::SphereFace.points(96, 112)),
        None
    );
}

#[test]
fn shrinking_does_not_alias() {
    // Stripes of one pixel, at a third of their size: bilinear sampling alone would pick every third stripe.
    let stripes = RgbImage::from_fn(288, 336, |x, _| Rgb([if x % 2 == 0 { 255 } else { 0 }; 3]));
    let large = Template::SphereFace.points(288, 336);
    let transform = Similarity::fit(&large, &Template::SphereFace.points(96, 112)).expect("points");
    let small = warp(&stripes, &transform, 96, 112);
    for pixel in small.pixels() {
        assert!((85..=170).contains(&pixel[0]), "{pixel:?}");
    }
    // The same size is the same image.
    let same = warp(&stripes, &Similarity::fit(&large, &large).expect("points"), 288, 336);
    let worst = stripes.as_raw().iter().zip(same.as_raw()).map(|(a, b)| a.abs_diff(*b)).max();
    assert!(worst <= Some(1), "{worst:?}");
}
