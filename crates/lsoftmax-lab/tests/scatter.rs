//! Figure 2's pictures, read back.

mod picture;

use std::collections::BTreeMap;

use lsoftmax_lab::figures::{Embedding, Panel, Picture, scatter};
use picture::{all, number, read};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|class| class.to_string()).collect()
}

/// Clusters around ten directions, the same in every run.
fn clusters(samples: usize, spread: f64) -> (Vec<f32>, Vec<u32>, Vec<f32>) {
    let angle = |class: usize| class as f64 * 0.628;
    let point = |sample: usize| {
        let wave = (sample as f64 * 12.9898).sin();
        let angle = angle(sample % 10) + spread * wave;
        let norm = 60.0 + 40.0 * (sample as f64 * 78.233).cos();
        [(norm * angle.cos()) as f32, (norm * angle.sin()) as f32]
    };
    let features = (0..samples).flat_map(point).collect();
    let labels = (0..samples).map(|sample| sample as u32 % 10).collect();
    let weights =
        (0..10).flat_map(|class| [angle(class).cos() as f32, angle(class).sin() as f32]).collect();
    (features, labels, weights)
}

fn draw(
    features: &[f32],
    labels: &[u32],
    weights: &[f32],
    names: &[String],
) -> Result<Picture, String> {
    let embedding =
        Embedding::new(features, labels, weights, 2).map_err(|error| error.to_string())?;
    scatter(&[Panel { title: "one".into(), embedding }], names).map_err(|error| error.to_string())
}

/// The samples' circles, which are in groups of a colour; badges and legend are not.
fn dots(document: &roxmltree::Document<'_>) -> BTreeMap<String, Vec<(f64, f64)>> {
    let colour = |group: &roxmltree::Node<'_, '_>| group.attribute("fill").unwrap().to_owned();
    let place = |circle: roxmltree::Node<'_, '_>| (number(&circle, "cx"), number(&circle, "cy"));
    let circles = |group: &roxmltree::Node<'_, '_>| {
        group
            .children()
            .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "circle")))
            .map(place)
            .collect()
    };
    groups(document).iter().map(|group| (colour(group), circles(group))).collect()
}

/// The groups of dots, one per class and panel.
fn groups<'a>(document: &'a roxmltree::Document<'_>) -> Vec<roxmltree::Node<'a, 'a>> {
    let groups = document.descendants().filter(|node| node.tag_name().name() == "g");
    groups.filter(|group| group.has_attribute("data-series")).collect()
}

#[test]
fn four_panels_of_ten_thousand_samples_make_a_small_file_inside_its_box() {
    let runs: Vec<_> = (1..=4).map(|m| (m, clusters(10_000, 0.3 / f64::from(m)))).collect();
    let panels: Vec<Panel<'_>> = runs
        .iter()
        .map(|(m, (features, labels, weights))| Panel {
            title: format!("m = {m}, 98.{m} % test accuracy"),
            embedding: Embedding::new(features, labels, weights, 2).unwrap(),
        })
        .collect();
    let picture = scatter(&panels, &names(10)).unwrap();
    assert!(picture.as_str().len() < 500_000, "{} bytes", picture.as_str().len());
    let document = read(picture.as_str());
    assert_eq!(groups(&document).len(), 40);
    assert!(
        all(&document, "text")
            .iter()
            .any(|text| text.text() == Some("m = 3, 98.3 % test accuracy"))
    );
    assert_eq!(picture, scatter(&panels, &names(10)).unwrap());
}

#[test]
fn every_class_has_as_many_dots() {
    let (features, mut labels, weights) = clusters(10_000, 0.1);
    labels.iter_mut().skip(1000).filter(|label| **label == 3).for_each(|label| *label = 4);
    let picture = draw(&features, &labels, &weights, &names(10)).unwrap();
    let mut counts: Vec<usize> = dots(&read(picture.as_str())).values().map(Vec::len).collect();
    counts.sort_unstable();
    assert_eq!(counts, [100, 200, 200, 200, 200, 200, 200, 200, 200, 200]);
}

#[test]
fn both_axes_have_one_scale_and_up_is_up() {
    let picture = draw(&[3.0, 4.0, -1.5, 2.0, 5.0, 0.0], &[0, 1, 2], &[1.0; 6], &names(3)).unwrap();
    let document = read(picture.as_str());
    let [a, b, c] = dots(&document).into_values().flatten().collect::<Vec<_>>()[..] else {
        panic!()
    };
    // Whichever colour is whose: the one at (5, 0) is the furthest to the right.
    let mut places = [a, b, c];
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    let [left, middle, right] = places;
    let unit = (right.0 - left.0) / 6.5;
    assert!((middle.0 - left.0 - 4.5 * unit).abs() < 0.2);
    assert!((right.1 - left.1 - 2.0 * unit).abs() < 0.2);
    assert!((right.1 - middle.1 - 4.0 * unit).abs() < 0.2);
}

#[test]
fn badges_never_overlap_not_even_of_equal_directions() {
    let (features, labels, _) = clusters(100, 0.1);
    for weights in [
        vec![1.0; 20],
        (0..20).map(|i| if i % 2 == 0 { -1.0 } else { i as f32 * 1e-3 - 0.01 }).collect(),
    ] {
        let picture = draw(&features, &labels, &weights, &names(10)).unwrap();
        let document = read(picture.as_str());
        let badges: Vec<(f64, f64)> = all(&document, "circle")
            .iter()
            .filter(|circle| circle.attribute("r") == Some("8.5"))
            .map(|circle| (number(circle, "cx"), number(circle, "cy")))
            .collect();
        assert_eq!(badges.len(), 10);
        for (index, a) in badges.iter().enumerate() {
            for b in &badges[..index] {
                assert!((a.0 - b.0).hypot(a.1 - b.1) > 16.5, "{a:?} {b:?}");
            }
        }
    }
}

#[test]
fn names_are_text_whatever_is_in_them() {
    let hostile = "</text><script>alert('a & b')</script>\u{0}\u{1b}";
    let embedding = Embedding::new(&[1.0, 2.0], &[0], &[1.0, 0.0], 2).unwrap();
    let titles = [hostile, "\"'><&;", &"long ".repeat(100), "数字の分類 数字の分類 数字の分類", ""];
    for title in titles {
        let panel = Panel { title: title.into(), embedding };
        let picture = scatter(&[panel], &[title.to_owned()]).unwrap();
        let document = read(picture.as_str());
        assert!(!picture.as_str().contains("<script"));
        assert!(document.root_element().attribute("aria-label").is_some());
    }
}

#[test]
fn extreme_features_and_weights_have_a_picture() {
    for features in
        [[0.0, 0.0, 0.0, 0.0], [f32::MAX, f32::MIN, 1.0, 1.0], [1e-45, 0.0, 0.0, -1e-45]]
    {
        for weights in [[0.0, 0.0, 0.0, 0.0], [f32::MAX, f32::MAX, 1e-45, 0.0]] {
            read(draw(&features, &[0, 1], &weights, &names(2)).unwrap().as_str());
        }
    }
    let (features, weights) = (vec![1.0; 2000], vec![0.5; 2000]);
    read(
        draw(&features, &(0..1000).collect::<Vec<u32>>(), &weights, &names(1000)).unwrap().as_str(),
    );
}

#[test]
fn what_cannot_be_drawn_is_an_error_that_says_so() {
    assert!(scatter(&[], &names(10)).unwrap_err().to_string().contains("no panels"));
    let embedding = Embedding::new(&[1.0, 2.0, 3.0], &[0], &[1.0; 3], 3).unwrap();
    let error =
        scatter(&[Panel { title: "deep".into(), embedding }], &names(1)).unwrap_err().to_string();
    assert!(error.contains("\"deep\" have 3 dimensions"), "{error}");
    let error = draw(&[1.0, 2.0], &[0], &[1.0; 4], &names(3)).unwrap_err();
    assert!(error.contains("2 classes, but 3 names"), "{error}");
}
