//! Curves, read back.

mod picture;

use lsoftmax_lab::figures::{Chart, Scale, Series, chart_row};
use picture::{all, number, points, read};
use proptest::prelude::*;

fn chart(scale: Scale, series: &[&[(u64, f64)]]) -> Chart {
    let series = series
        .iter()
        .enumerate()
        .map(|(index, points)| Series::by_step(format!("run {index}"), points.to_vec()))
        .collect();
    Chart { title: "Loss".into(), x_title: "step".into(), scale, series, ..Chart::default() }
}

/// The heights of the labels at the left.
fn heights(document: &roxmltree::Document<'_>) -> Vec<(String, f64)> {
    all(document, "text")
        .iter()
        .filter(|text| text.attribute("text-anchor") == Some("end"))
        .map(|text| (text.text().unwrap_or("").to_owned(), number(text, "y") - 4.0))
        .collect()
}

/// The curves, without the legend's short lines.
fn curves(document: &roxmltree::Document<'_>) -> Vec<Vec<(f64, f64)>> {
    let legend = number(&document.root_element(), "height") - 60.0;
    all(document, "polyline").iter().map(points).filter(|points| points[0].1 < legend).collect()
}

#[test]
fn a_curve_meets_the_labels_of_its_values() {
    let linear: [(u64, f64, &str); 3] = [(0, 1.0, "1.0"), (50, 0.2, "0.2"), (100, 0.6, "0.6")];
    let log: [(u64, f64, &str); 3] = [(0, 1000.0, "1,000"), (50, 1e-5, "1e−5"), (100, 0.1, "0.1")];
    let negative: [(u64, f64, &str); 3] =
        [(0, -2000.0, "−2,000"), (50, 0.0, "0"), (100, 4000.0, "4,000")];
    for (scale, values) in [(Scale::Linear, linear), (Scale::Log, log), (Scale::Linear, negative)] {
        let series = values.map(|(step, value, _)| (step, value));
        let picture = chart(scale, &[&series]).draw().unwrap();
        let document = read(picture.as_str());
        let heights = heights(&document);
        let curves = curves(&document);
        let [curve] = &curves[..] else { panic!("{curves:?}") };
        assert!((curve[1].0 - (curve[0].0 + curve[2].0) / 2.0).abs() < 0.2);
        for ((_, _, label), (_, y)) in values.iter().zip(curve) {
            let (_, height) = heights
                .iter()
                .find(|(text, _)| text == label)
                .unwrap_or_else(|| panic!("{heights:?}"));
            assert!((height - y).abs() < 0.2, "{label} is at {height}, its point at {y}");
        }
    }
}

#[test]
fn a_value_that_is_not_finite_interrupts_the_curve() {
    let series =
        [(0, 1.0), (1, 2.0), (2, f64::NAN), (3, 1.0), (4, 3.0), (5, f64::INFINITY), (6, 2.0)];
    let picture = chart(Scale::Linear, &[&series]).draw().unwrap();
    let document = read(picture.as_str());
    assert_eq!(curves(&document).iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(all(&document, "circle").len(), 1, "a single value is a dot");
}

#[test]
fn steps_are_in_order_however_they_come() {
    let sorted = chart(Scale::Linear, &[&[(0, 1.0), (10, 3.0), (20, 2.0)]]).draw().unwrap();
    assert_eq!(chart(Scale::Linear, &[&[(20, 2.0), (0, 1.0), (10, 3.0)]]).draw().unwrap(), sorted);
}

#[test]
fn a_long_run_makes_a_small_file_that_keeps_its_peak() {
    let mut series: Vec<(u64, f64)> =
        (0..200_000).map(|step| (step, 1.0 + (step as f64).sin() * 0.1)).collect();
    series[77_777].1 = 5.0;
    let picture = chart(Scale::Linear, &[&series]).draw().unwrap();
    assert!(picture.as_str().len() < 40_000, "{} bytes", picture.as_str().len());
    let document = read(picture.as_str());
    let (_, top) =
        *heights(&document).iter().find(|(text, _)| text == "5").expect("a tick at the peak");
    let peak = curves(&document).concat().iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
    assert!((peak - top).abs() < 0.2);
}

#[test]
fn many_runs_with_long_names_have_room() {
    let names = ["a", "a run with <tags> & \"quotes\"", &"long ".repeat(60), "λ = 数"];
    let series = |index: usize| Series::by_step(names[index % 4], [(0, index as f64), (9, 1.0)]);
    let chart = Chart {
        title: "long ".repeat(60),
        x_title: "long ".repeat(60),
        y_title: "long ".repeat(60),
        scale: Scale::Linear,
        series: (0..60).map(series).collect(),
        ..Chart::default()
    };
    let picture = chart.draw().unwrap();
    let document = read(picture.as_str());
    assert!(all(&document, "text").iter().any(|text| text.text() == Some("and 20 more")));
    assert!(all(&document, "text").iter().any(|text| text.text() == Some(names[1])));
    assert_eq!(chart.draw().unwrap(), picture);
}

#[test]
fn axes_have_their_titles() {
    let chart = Chart {
        y_title: "held-out error (%)".into(),
        x_title: "iteration".into(),
        ..chart(Scale::Linear, &[&[(0, 90.0), (10_000, 0.5)]])
    };
    let picture = chart.draw().unwrap();
    let document = read(picture.as_str());
    let label = document.root_element().attribute("aria-label");
    assert_eq!(label, Some("Loss: held-out error (%) by iteration"));
    let title = |text: &str| {
        let texts = all(&document, "text");
        *texts.iter().find(|node| node.text() == Some(text)).unwrap_or_else(|| panic!("{text}"))
    };
    let (x_title, y_title) = (title("iteration"), title("held-out error (%)"));
    assert!(x_title.attribute("transform").is_none());
    assert!(y_title.attribute("transform").is_some());
    let bottom = heights(&document).iter().map(|label| label.1).fold(0.0, f64::max);
    assert!(number(&x_title, "y") > bottom);
    // Tick labels end 8 before the axis; the title is left of the widest.
    let labels = all(&document, "text");
    let labels = labels.iter().filter(|text| text.attribute("text-anchor") == Some("end"));
    for label in labels {
        let wide = 12.0 * 0.6 * label.text().unwrap().chars().count() as f64;
        assert!(number(label, "x") - wide > number(&y_title, "x") + 12.0 / 3.0);
    }
}

#[test]
fn charts_side_by_side_share_a_legend_and_its_colours() {
    let named = |title: &str, names: &[&str]| Chart {
        title: title.into(),
        series: names
            .iter()
            .enumerate()
            .map(|(index, name)| Series::by_step(*name, [(0, index as f64), (9, 5.0)]))
            .collect(),
        ..Chart::default()
    };
    let charts = [named("left", &["a", "b", "b"]), named("right", &["b", "c", "a"])];
    let picture = chart_row(&charts).unwrap();
    let document = read(picture.as_str());
    let with = |name: &'static str| -> Vec<_> {
        all(&document, "g")
            .into_iter()
            .filter_map(|group| Some((group, group.attribute(name)?)))
            .collect()
    };
    let toggles: Vec<&str> = with("data-toggle").iter().map(|(_, name)| *name).collect();
    assert_eq!(toggles, ["a", "b", "b", "c"]);
    let series = with("data-series");
    let colours: Vec<&str> = series
        .iter()
        .map(|(group, _)| group.first_element_child().unwrap().attribute("stroke").unwrap())
        .collect();
    assert_eq!(
        series.iter().map(|(_, name)| *name).collect::<Vec<_>>(),
        ["a", "b", "b", "b", "c", "a"]
    );
    assert_eq!((colours[0], colours[1]), (colours[5], colours[3]));
    assert!((0..3).all(|i| (0..i).all(|j| colours[i] != colours[j])), "equal names, two curves");
    // The right chart is right of the left one.
    let rightmost = |at: usize| {
        points(&series[at].0.first_element_child().unwrap()).iter().map(|p| p.0).fold(0.0, f64::max)
    };
    let leftmost = points(&series[3].0.first_element_child().unwrap())[0].0;
    assert!((0..3).all(|left| rightmost(left) < leftmost));
    assert_eq!(chart_row(&charts).unwrap(), picture);
    assert_eq!(chart_row(&charts[..1]).unwrap(), charts[0].draw().unwrap());
    assert!(chart_row(&[]).unwrap_err().to_string().contains("no charts"));
    read(chart_row(&[charts.as_slice(), &charts, &charts[..1]].concat()).unwrap().as_str());
}

#[test]
fn points_carry_their_values() {
    let series = [(0, 1.234_567), (50_000, 1e-12), (100_000, -3.0)];
    let picture = chart(Scale::Linear, &[&series]).draw().unwrap();
    assert!(picture.as_str().contains("data-values=\"0,1.2346 5e4,1e-12 1e5,-3\""), "{picture:?}");
}

#[test]
fn the_horizontal_axis_takes_real_numbers() {
    let points = vec![(0.25, 1.0), (-0.5, 2.0), (f64::NAN, 9.0), (0.0, 1.5), (f64::INFINITY, 9.0)];
    let series = vec![Series { name: "a".into(), points }];
    let picture = Chart { series: series.clone(), ..Chart::default() }.draw().unwrap();
    let document = read(picture.as_str());
    let curves = curves(&document);
    let [curve] = &curves[..] else { panic!("{curves:?}") };
    assert_eq!(curve.len(), 3);
    assert!(((curve[1].0 - curve[0].0) / (curve[2].0 - curve[0].0) - 2.0 / 3.0).abs() < 0.01);
    let labels = |document: &roxmltree::Document<'_>| -> Vec<String> {
        let texts = all(document, "text");
        let middle = texts.iter().filter(|text| text.attribute("text-anchor") == Some("middle"));
        middle.map(|text| text.text().unwrap_or("").to_owned()).collect()
    };
    assert_eq!(labels(&document), ["−0.4", "−0.2", "0", "0.2"]);
    let every = Chart { series, x_every: Some(0.25), ..Chart::default() }.draw().unwrap();
    assert_eq!(labels(&read(every.as_str())), ["−0.50", "−0.25", "0", "0.25"]);
}

#[test]
fn what_cannot_be_drawn_is_an_error_that_says_so() {
    let message =
        |scale, series: &[&[(u64, f64)]]| chart(scale, series).draw().unwrap_err().to_string();
    assert!(message(Scale::Linear, &[]).contains("no series"));
    assert!(message(Scale::Linear, &[&[(0, 1.0)], &[]]).contains("\"run 1\" has no finite value"));
    assert!(message(Scale::Log, &[&[(0, f64::NAN)]]).contains("no finite value"));
    assert!(message(Scale::Log, &[&[(0, 1.0), (3, 0.0)]]).contains("\"run 0\" is 0 at step 3"));
}

proptest! {
    #[test]
    fn any_numbers_are_drawn_inside_the_box(
        steps in prop::collection::vec(any::<u64>(), 1..20),
        values in prop::collection::vec(prop::num::f64::ANY, 20),
        near in prop::option::of(-1e9f64..1e9),
        log: bool,
    ) {
        // Either anything at all, or values that hardly differ.
        let value = |value: f64| near.map_or(value, |near| near + value.signum());
        let series: Vec<(u64, f64)> = steps.into_iter().zip(values.into_iter().map(value)).collect();
        let scale = if log { Scale::Log } else { Scale::Linear };
        if let Ok(picture) = chart(scale, &[&series]).draw() {
            read(picture.as_str());
        }
    }

    #[test]
    fn any_real_numbers_are_drawn_inside_the_box(
        points in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY), 1..20),
        near in prop::option::of(-1e9f64..1e9),
        every in prop::option::of(prop::num::f64::ANY),
    ) {
        let x = |x: f64| near.map_or(x, |near| near + x.signum() * 1e-9);
        let points = points.into_iter().map(|point| (x(point.0), point.1)).collect();
        let series = vec![Series { name: "a".into(), points }];
        if let Ok(picture) = (Chart { x_every: every, series, ..Chart::default() }).draw() {
            read(picture.as_str());
        }
    }
}
