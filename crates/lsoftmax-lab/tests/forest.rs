//! Forest plots, read back.

mod picture;

use lsoftmax_lab::figures::{Difference, FigureError, ForestRow, forest};
use picture::{all, number, read, value_at};

fn row(label: &str, differences: &[(f64, f64)]) -> ForestRow {
    let differences =
        differences.iter().map(|&(value, within)| Difference { value, within }).collect();
    ForestRow { label: label.into(), colour: 0, differences, cells: vec!["1.23".into()] }
}

#[test]
fn dots_intervals_and_the_mean_are_at_their_values() {
    let rows = [row("one", &[(-10.0, 5.0)]), row("two", &[(-8.0, 2.0), (4.0, 3.0)])];
    let picture = forest("title", "difference", &["column"], &rows).unwrap();
    let document = read(picture.as_str());
    let value = value_at(&document);
    let dots: Vec<f64> =
        all(&document, "circle").iter().map(|dot| value(number(dot, "cx"))).collect();
    let close = |found: &[f64], expected: &[f64]| {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 0.05, "{found} {expected}");
        }
    };
    close(&dots, &[-10.0, -8.0, 4.0]);
    let of_width = |width: &str| -> Vec<[f64; 2]> {
        all(&document, "line")
            .iter()
            .filter(|line| line.attribute("stroke-width") == Some(width))
            .map(|line| ["x1", "x2"].map(|end| value(number(line, end))))
            .collect()
    };
    close(&of_width("1.2").concat(), &[-15.0, -5.0, -10.0, -6.0, 1.0, 7.0]);
    // The dots of a row are at its height.
    let heights: Vec<f64> = all(&document, "circle").iter().map(|dot| number(dot, "cy")).collect();
    let labels = all(&document, "text");
    let label = |name| labels.iter().find(|text| text.text() == Some(name)).unwrap();
    let [one, two] = ["one", "two"].map(|name| number(label(name), "y"));
    close(&heights, &[one - 4.0, two - 7.0, two - 1.0]);
    // Only several pairs have a mean.
    close(&of_width("3").concat(), &[-2.0, -2.0]);
}

#[test]
fn rows_without_any_difference_are_drawn() {
    let picture = forest("", "", &["column"], &[row("equal", &[(0.0, 0.0)])]).unwrap();
    assert_eq!(all(&read(picture.as_str()), "circle").len(), 1);
}

#[test]
fn what_cannot_be_drawn_is_an_error() {
    assert!(matches!(forest("", "", &[], &[]), Err(FigureError::Empty("rows"))));
    for differences in [&[][..], &[(f64::NAN, 1.0)], &[(1.0, f64::INFINITY)]] {
        let rows = [row("broken", differences)];
        let error = forest("", "", &["column"], &rows).unwrap_err();
        assert!(matches!(&error, FigureError::NoValues(label) if label == "broken"), "{error}");
    }
}

#[test]
fn a_row_has_one_cell_for_each_column() {
    let rows = [row("whole", &[(1.0, 1.0)])];
    for columns in [&[][..], &["one", "another"]] {
        let error = forest("title", "", columns, &rows).unwrap_err();
        let expected = columns.len();
        assert!(
            matches!(&error, FigureError::TableRow { row: 1, found: 1, expected: e, .. } if *e == expected),
            "{error}"
        );
    }
}
