//! Figure 5's pictures, read back.

mod picture;

use lsoftmax_lab::figures::{FigureError, HeatMap, Picture, heat_maps};
use picture::{all, read, rectangles};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|class| format!("class {class}")).collect()
}

/// Ones on the diagonal, smaller values elsewhere.
fn matrix(title: &str, classes: usize, elsewhere: f64) -> HeatMap {
    let value = |at: usize| {
        let (row, column) = (at / classes, at % classes);
        if row == column { 1.0 } else { elsewhere * ((row * column) as f64 * 12.9898).sin() }
    };
    HeatMap { title: title.into(), values: (0..classes * classes).map(value).collect() }
}

fn texts(picture: &Picture) -> Vec<String> {
    let document = read(picture.as_str());
    let texts = all(&document, "text");
    texts.iter().map(|text| text.text().unwrap_or("").to_owned()).collect()
}

#[test]
fn every_cell_is_covered_once_and_equal_values_have_equal_colours() {
    let panels = [matrix("softmax", 10, 0.5), matrix("m = 4", 10, 0.1)];
    let picture = heat_maps(&panels, &names(10)).unwrap();
    let document = read(picture.as_str());
    let plots: Vec<_> = all(&document, "g")
        .into_iter()
        .filter(|group| group.attribute("data-plot") == Some("heat"))
        .collect();
    assert_eq!(plots.len(), 2);
    let mut colours_of_one = Vec::new();
    for (plot, panel) in plots.iter().zip(&panels) {
        let area: Vec<f64> = plot
            .attribute("data-area")
            .unwrap()
            .split(' ')
            .map(|number| number.parse().unwrap())
            .collect();
        let cell = (area[2] - area[0]) / 10.0;
        let mut cells = vec![""; 100];
        for path in plot.children().filter(roxmltree::Node::is_element) {
            for [left, top, right, bottom] in rectangles(&path) {
                assert!((bottom - top - cell).abs() < 0.01);
                let row = ((top - area[1]) / cell).round() as usize;
                let columns = ((left - area[0]) / cell).round() as usize
                    ..((right - area[0]) / cell).round() as usize;
                for column in columns {
                    assert_eq!(cells[row * 10 + column], "", "covered twice");
                    cells[row * 10 + column] = path.attribute("fill").unwrap();
                }
            }
        }
        assert!(cells.iter().all(|colour| !colour.is_empty()));
        colours_of_one.push(cells[0]);
        assert!(cells.iter().step_by(11).all(|colour| *colour == cells[0]));
        let values: Vec<f64> = plot
            .attribute("data-values")
            .unwrap()
            .split(' ')
            .map(|number| number.parse().unwrap())
            .collect();
        assert!(values.iter().zip(&panel.values).all(|(a, b)| (a / 100.0 - b).abs() < 0.0051));
    }
    assert_eq!(colours_of_one[0], colours_of_one[1], "panels share the colour bar");
}

#[test]
fn classes_are_named_if_there_is_room() {
    let few = heat_maps(&[matrix("few", 20, 0.3)], &names(20)).unwrap();
    assert_eq!(texts(&few).iter().filter(|text| *text == "class 7").count(), 2);
    let many = heat_maps(&[matrix("many", 21, 0.3)], &names(21)).unwrap();
    assert!(!texts(&many).iter().any(|text| text == "class 7"));
}

#[test]
fn six_panels_of_a_hundred_classes_make_a_page_of_bearable_size() {
    let panels: Vec<HeatMap> = (0..6).map(|index| matrix(&index.to_string(), 100, 0.6)).collect();
    let picture = heat_maps(&panels, &names(100)).unwrap();
    assert!(picture.as_str().len() < 2_000_000, "{} bytes", picture.as_str().len());
    read(picture.as_str());
    assert_eq!(picture, heat_maps(&panels, &names(100)).unwrap());
}

#[test]
fn names_are_text_whatever_is_in_them() {
    let hostile = "</text><script>alert('a & b')</script>\u{0}\u{1b}";
    for name in [hostile, "\"'><&;", &"long ".repeat(100), "数字の分類 数字の分類", "", "\\\n\t"]
    {
        let picture = heat_maps(&[matrix(name, 2, 0.5)], &[name.into(), name.into()]).unwrap();
        let document = read(picture.as_str());
        assert!(!picture.as_str().contains("<script"));
        let groups = all(&document, "g");
        let json = groups[0].attribute("data-classes").unwrap();
        let names: Vec<String> = serde_json::from_str(json).unwrap();
        assert_eq!(names, [name, name]);
    }
}

#[test]
fn extreme_matrices_have_a_picture() {
    for (classes, value) in [(1, 1.0), (1, -1.0), (3, 0.0), (500, -1.0), (2, 1.0 + 1e-7)] {
        let panel = HeatMap { title: "flat".into(), values: vec![value; classes * classes] };
        read(heat_maps(&[panel], &names(classes)).unwrap().as_str());
    }
}

#[test]
fn what_cannot_be_drawn_is_an_error_that_says_so() {
    assert!(matches!(heat_maps(&[], &names(2)), Err(FigureError::Empty("panels"))));
    assert!(matches!(heat_maps(&[matrix("a", 2, 0.1)], &[]), Err(FigureError::Empty("classes"))));
    let error = heat_maps(&[matrix("a", 3, 0.1)], &names(2)).unwrap_err();
    assert!(error.to_string().contains("\"a\" has 9 numbers, but 2 classes need 4"), "{error}");
    for value in [1.5, -2.0, f64::NAN, f64::INFINITY] {
        let panel = HeatMap { title: "a".into(), values: vec![0.0, 0.0, value, 0.0] };
        let error = heat_maps(&[panel], &names(2)).unwrap_err();
        assert!(matches!(error, FigureError::Cosine { row: 1, column: 0, .. }), "{error}");
    }
}
