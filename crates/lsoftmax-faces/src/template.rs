//! Where the five landmarks of an aligned face are.

use serde::{Deserialize, Serialize};

use crate::landmarks::FivePoints;

/// A convention for aligned crops. Both place the face alike; InsightFace's crop is wider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Template {
    /// SphereFace's crop of 96 x 112 pixels (width x height).
    SphereFace,
    /// InsightFace's crop of 112 x 112 pixels.
    InsightFace,
}

/// The landmarks in SphereFace's crop: left eye, right eye, nose, left and right corner of the mouth, as seen.
const SPHEREFACE: FivePoints = FivePoints([
    [30.2946, 51.6963],
    [65.5318, 51.5014],
    [48.0252, 71.7366],
    [33.5493, 92.3655],
    [62.7299, 92.2041],
]);

impl Template {
    /// All templates by their names.
    pub const ALL: [(&'static str, Self); 2] =
        [("sphereface", Self::SphereFace), ("insightface", Self::InsightFace)];

    /// The width and height of its crop.
    pub fn size(self) -> (u32, u32) {
        match self {
            Self::SphereFace => (96, 112),
            Self::InsightFace => (112, 112),
        }
    }

    /// The landmarks in a crop of another size: the template's own crop scaled to fit and centred.
    ///
    /// Scaling is that of the image's area, which begins at (−0.5, −0.5): x becomes (x + 0.5) s − 0.5.
    ///
    /// ```
    /// use lsoftmax_faces::Template;
    /// let [left_eye, ..] = Template::InsightFace.points(112, 112).0;
    /// assert!((left_eye[0] - 38.2946).abs() < 1e-9); // SphereFace's plus 8
    /// ```
    pub fn points(self, width: u32, height: u32) -> FivePoints {
        let (own_width, own_height) = self.size();
        let (own_width, own_height) = (f64::from(own_width), f64::from(own_height));
        let (width, height) = (f64::from(width), f64::from(height));
        let scale = (width / own_width).min(height / own_height);
        // The face is in the middle of both templates' crops.
        let shift = (own_width - 96.0) / 2.0;
        let (left, top) = ((width - own_width * scale) / 2.0, (height - own_height * scale) / 2.0);
        FivePoints(
            SPHEREFACE.0.map(|[x, y]| {
                [(x + shift + 0.5) * scale - 0.5 + left, (y + 0.5) * scale - 0.5 + top]
            }),
        )
    }
}
