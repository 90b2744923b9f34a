//! The receiver operating characteristic as a figure.

use lsoftmax_faces::Roc;

use crate::figures::{Chart, FigureError, Picture, Series};

/// Curves of true by false accept rates, the latter on a logarithmic axis. The part of a curve without false accepts is
/// drawn at the smallest rate that any of them has.
///
/// # Errors
/// When there are no curves.
pub fn roc_figure(title: &str, curves: &[(String, Roc)]) -> Result<Picture, FigureError> {
    let rates = curves.iter().flat_map(|(_, roc)| &roc.points).map(|(far, _)| *far);
    let least = rates.filter(|far| *far > 0.0).fold(1.0, f64::min);
    let series = |(name, roc): &(String, Roc)| Series {
        name: name.clone(),
        points: roc.points.iter().map(|(far, tar)| (far.max(least).log10(), 100.0 * tar)).collect(),
    };
    let chart = Chart {
        title: title.into(),
        x_title: "false accept rate, power of ten".into(),
        y_title: "true accept rate (%)".into(),
        series: curves.iter().map(series).collect(),
        ..Chart::default()
    };
    chart.draw()
}
