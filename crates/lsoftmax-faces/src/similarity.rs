//! Similarity transforms: scaling, rotation and translation in the plane.

use crate::landmarks::FivePoints;

/// (x, y) → (a x − b y + u, b x + a y + v): a scaling by √(a² + b²), a rotation and a translation, no reflection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Similarity {
    a: f64,
    b: f64,
    u: f64,
    v: f64,
}

impl Similarity {
    /// The similarity with the least squared error from points to others (Umeyama, 1991); `None` if all points
    /// coincide, or the best scale is 0.
    ///
    /// In the plane a similarity without reflection is a multiplication and an addition of complex numbers, so the
    /// least-squares solution is closed: a + ib = Σ conj(p) q / Σ |p|², of the points minus their means. It is
    /// Umeyama's, whose singular value decomposition is needed only in higher dimensions.
    pub fn fit(from: &FivePoints, to: &FivePoints) -> Option<Self> {
        let mean = |points: &FivePoints| {
            [0, 1].map(|axis| points.0.iter().map(|point| point[axis]).sum::<f64>() / 5.0)
        };
        let (from_mean, to_mean) = (mean(from), mean(to));
        let (mut real, mut imaginary, mut squared) = (0.0, 0.0, 0.0);
        for (p, q) in from.0.iter().zip(&to.0) {
            let (px, py) = (p[0] - from_mean[0], p[1] - from_mean[1]);
            let (qx, qy) = (q[0] - to_mean[0], q[1] - to_mean[1]);
            real += px * qx + py * qy;
            imaginary += px * qy - py * qx;
            squared += px * px + py * py;
        }
        let (a, b) = (real / squared, imaginary / squared);
        let [x, y] = from_mean;
        let fitted = Self { a, b, u: to_mean[0] - a * x + b * y, v: to_mean[1] - b * x - a * y };
        let parts = [fitted.a, fitted.b, fitted.u, fitted.v];
        let usable = parts.iter().all(|part| part.is_finite()) && fitted.scale() > 1e-9;
        usable.then_some(fitted)
    }

    /// Where a point goes.
    pub fn apply(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        [self.a * x - self.b * y + self.u, self.b * x + self.a * y + self.v]
    }

    /// The factor by which lengths grow.
    pub fn scale(&self) -> f64 {
        self.a.hypot(self.b)
    }

    /// The transform back.
    pub fn inverse(&self) -> Self {
        let squared = self.a * self.a + self.b * self.b;
        let (a, b) = (self.a / squared, -self.b / squared);
        Self { a, b, u: -(a * self.u - b * self.v), v: -(b * self.u + a * self.v) }
    }

    /// The two rows of its matrix.
    pub fn matrix(&self) -> [[f64; 3]; 2] {
        [[self.a, -self.b, self.u], [self.b, self.a, self.v]]
    }
}
