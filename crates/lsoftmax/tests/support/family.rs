//! The heads of L-Softmax's successors: their definition in f64, and how each is computed.

use burn::module::Param;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lsoftmax::{
    AdditiveMargin, AngularMargin, CombinedMargin, Continuation, CosineMargin, Execution, Margin,
    MarginHead, Normalisation, Precision,
};
use lsoftmax_testing::SplitMix;

/// Every way to compute a head, with its tolerance.
pub fn ways() -> [(Execution, DType, f64); 3] {
    [
        (Execution::Composed, DType::F64, 1e-7),
        (Execution::Composed, DType::F32, 2e-5),
        (Execution::new(Precision::F32), DType::F32, 2e-5),
    ]
}

/// Samples, weights and labels.
#[derive(Clone)]
pub struct Batch {
    pub features: Vec<f64>,
    pub weights: Vec<f64>,
    pub labels: Vec<usize>,
    pub depth: usize,
}

impl Batch {
    pub fn random(seed: u64, samples: usize, depth: usize, classes: usize) -> Self {
        let mut numbers = SplitMix(seed);
        let mut normal = |count: usize| -> Vec<f64> {
            // f32 values, so that every way has the same input.
            (0..count).map(|_| f64::from(numbers.normal() as f32)).collect()
        };
        let (features, weights) = (normal(samples * depth), normal(classes * depth));
        let labels = (0..samples).map(|sample| (sample * 7 + 3) % classes).collect();
        Self { features, weights, labels, depth }
    }

    pub fn classes(&self) -> usize {
        self.weights.len() / self.depth
    }
}

/// The mean loss by its definition.
pub fn definition<M: AngularMargin>(
    batch: &Batch,
    margin: &M,
    normalisation: Normalisation,
    lambda: f64,
) -> f64 {
    let d = batch.depth;
    let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
    let losses = batch.labels.iter().enumerate().map(|(i, y)| {
        let x = &batch.features[i * d..][..d];
        let logits: Vec<f64> = (0..batch.classes())
            .map(|j| {
                let w = &batch.weights[j * d..][..d];
                let dot: f64 = x.iter().zip(w).map(|(x, w)| x * w).sum();
                let lengths = norm(x) * norm(w);
                let cos = if lengths > 0.0 { (dot / lengths).clamp(-1.0, 1.0) } else { 0.0 };
                let length = match normalisation {
                    Normalisation::None => lengths,
                    Normalisation::Weights => norm(x),
                    Normalisation::Both { scale } => scale,
                };
                if j != *y || lengths == 0.0 {
                    return length * cos;
                }
                let (psi, _) = margin.value_and_slope(cos);
                length * (lambda * cos + psi) / (1.0 + lambda)
            })
            .collect();
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        max + logits.iter().map(|z| (z - max).exp()).sum::<f64>().ln() - logits[*y]
    });
    losses.sum::<f64>() / batch.labels.len() as f64
}

/// Central differences of fourth order.
pub fn differences(loss: impl Fn(&Batch) -> f64, batch: &Batch) -> [Vec<f64>; 2] {
    const STEP: f64 = 1e-4;
    let slope = |change: &dyn Fn(&mut Batch, f64)| {
        let at = |by: f64| {
            let mut moved = batch.clone();
            change(&mut moved, by);
            loss(&moved)
        };
        (8.0 * (at(STEP) - at(-STEP)) - (at(2.0 * STEP) - at(-2.0 * STEP))) / (12.0 * STEP)
    };
    [
        (0..batch.features.len()).map(|i| slope(&|b, by| b.features[i] += by)).collect(),
        (0..batch.weights.len()).map(|i| slope(&|b, by| b.weights[i] += by)).collect(),
    ]
}

pub struct Found {
    pub loss: f64,
    pub features: Vec<f64>,
    pub weights: Vec<f64>,
    pub scale: Option<f64>,
}

pub fn compute<M: AngularMargin>(
    batch: &Batch,
    margin: &M,
    normalisation: Normalisation,
    lambda: f64,
    learned: bool,
    (execution, dtype): (Execution, DType),
) -> Found {
    let device = Device::flex().autodiff();
    let rows = |v: &[f64]| {
        let data = TensorData::new(v.to_vec(), [v.len() / batch.depth, batch.depth]);
        Tensor::<2>::from_data(data, (&device, dtype))
    };
    let labels: Vec<i64> = batch.labels.iter().map(|y| *y as i64).collect();
    let labels =
        Tensor::<1, Int>::from_data(TensorData::new(labels, [batch.labels.len()]), &device);
    let weight = Param::from_tensor(rows(&batch.weights));
    let mut head = MarginHead::from_weights(weight, None, margin.clone(), execution)
        .with_normalisation(normalisation);
    if learned {
        head = head.with_learned_scale();
    }
    let features = rows(&batch.features).require_grad();
    let output = head.forward(features.clone(), labels, lambda).unwrap();
    let found = output.loss.backward();
    let numbers = |tensor: Tensor<2>| tensor.into_data().iter::<f64>().collect::<Vec<_>>();
    let scale = head.log_scale.as_ref().and_then(|log| log.val().grad(&found));
    let report = output.report().unwrap();
    let norms = batch.features.chunks_exact(batch.depth);
    let norms = norms.map(|x| x.iter().map(|x| x * x).sum::<f64>().sqrt());
    let mean = norms.sum::<f64>() / batch.labels.len() as f64;
    assert!((report.feature_norm.mean - mean).abs() <= 1e-4 * mean.max(1e-30), "{report:?}");
    Found {
        loss: output.loss.into_data().iter::<f64>().next().unwrap(),
        features: numbers(features.grad(&found).unwrap()),
        weights: numbers(head.weight.val().grad(&found).unwrap()),
        scale: scale.map(|scale| scale.into_data().iter::<f64>().next().unwrap()),
    }
}

pub enum AnyMargin {
    Multiplied(Margin),
    Added(AdditiveMargin),
    Subtracted(CosineMargin),
    Combined(CombinedMargin),
}

/// Evaluates an expression with the margin inside an [`AnyMargin`].
macro_rules! with_margin {
    ($any:expr, |$margin:ident| $value:expr) => {
        match $any {
            AnyMargin::Multiplied($margin) => $value,
            AnyMargin::Added($margin) => $value,
            AnyMargin::Subtracted($margin) => $value,
            AnyMargin::Combined($margin) => $value,
        }
    };
}

pub(crate) use with_margin;

/// Calls `check` with every head of the family.
pub fn for_every_head(mut check: impl FnMut(&str, &dyn Fn(&Batch, f64) -> f64, &Computation<'_>)) {
    let s = Normalisation::Both { scale: 8.0 };
    let mut with = |name: &str, margin: AnyMargin, normalisation: Normalisation| {
        let defined = |batch: &Batch, lambda: f64| {
            with_margin!(&margin, |margin| definition(batch, margin, normalisation, lambda))
        };
        let computed = |batch: &Batch, lambda: f64, learned: bool, way: (Execution, DType)| {
            with_margin!(&margin, |margin| compute(
                batch,
                margin,
                normalisation,
                lambda,
                learned,
                way
            ))
        };
        check(name, &defined, &computed);
    };
    let additive = AdditiveMargin::new(0.5).unwrap();
    with(
        "A-Softmax, m = 3",
        AnyMargin::Multiplied(Margin::new(3).unwrap()),
        Normalisation::Weights,
    );
    with(
        "A-Softmax, m = 4",
        AnyMargin::Multiplied(Margin::new(4).unwrap()),
        Normalisation::Weights,
    );
    with("L-Softmax on unit vectors", AnyMargin::Multiplied(Margin::new(2).unwrap()), s);
    with("NormSoftmax", AnyMargin::Multiplied(Margin::ONE), s);
    with("ArcFace", AnyMargin::Added(additive), s);
    let none = additive.with_continuation(Continuation::None);
    with("ArcFace without continuation", AnyMargin::Added(none), s);
    with("CosFace", AnyMargin::Subtracted(CosineMargin::new(0.35).unwrap()), s);
    let combined = CombinedMargin::new(1.2, 0.3, 0.1).unwrap();
    with("combined", AnyMargin::Combined(combined), s);
    with("combined, free norms", AnyMargin::Combined(combined), Normalisation::None);
}

pub type Computation<'a> = dyn Fn(&Batch, f64, bool, (Execution, DType)) -> Found + 'a;
