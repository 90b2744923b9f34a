//! Figure 3, read back.

mod picture;

use lsoftmax::Margin;
use lsoftmax_lab::figures::{FigureError, psi};
use picture::{all, read};

#[test]
fn every_curve_is_psi_of_its_margin() {
    let margins = [1.0, 2.0, 2.5, 4.0].map(|m| Margin::new(m).unwrap());
    let picture = psi(&margins).unwrap();
    let document = read(picture.as_str());
    let curves: Vec<_> = all(&document, "polyline")
        .into_iter()
        .filter(|line| line.has_attribute("data-values"))
        .collect();
    assert_eq!(curves.len(), 4);
    for (curve, margin) in curves.iter().zip(margins) {
        let values = curve.attribute("data-values").unwrap().split(' ');
        let points: Vec<(f64, f64)> = values
            .map(|pair| pair.split_once(',').unwrap())
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect();
        assert_eq!((points[0], points.len()), ((0.0, 1.0), 181));
        for (degrees, value) in points {
            let expected = margin.psi(degrees.to_radians().cos()).value;
            assert!((value - expected).abs() < 5e-4, "m = {margin} at {degrees}°: {value}");
        }
    }
    let texts: Vec<_> = all(&document, "text").iter().map(|node| picture::text(node)).collect();
    for expected in ["0", "30", "180", "softmax (m = 1)", "m = 2.5", "θ (degrees)"] {
        assert!(texts.iter().any(|text| text == expected), "{expected}");
    }
}

#[test]
fn no_margin_is_an_error() {
    assert!(matches!(psi(&[]), Err(FigureError::Empty(_))));
}
