//! The heads of L-Softmax's successors, by the names of their papers.

use burn::module::Initializer;
use burn::tensor::Device;
use lsoftmax_flex::Execution;
use lsoftmax_kernels::Precision;

use crate::config::common_setters;
use crate::{
    AdditiveMargin, CosineMargin, LSoftmaxConfig, Margin, MarginHead, Normalisation, SampleRate,
};

/// Declares a configuration: its documentation, its margin, and what it normalises.
macro_rules! head_config {
    (
        $(#[$documentation:meta])*
        $name:ident { margin: $margin:ty = $default:expr, scale: $scale:expr }
    ) => {
        $(#[$documentation])*
        #[derive(Clone, Debug)]
        pub struct $name {
            /// The number of features per sample, D.
            pub features: usize,
            /// The number of classes, K.
            pub classes: usize,
            /// The margin.
            pub margin: $margin,
            /// The scale s of the cosines, where features are normalised.
            pub scale: Option<f64>,
            /// Whether s is learned.
            pub learned_scale: bool,
            /// The precision of matrix products on the CPU.
            pub precision: Precision,
            /// The initialisation of the weights; He's normal initialisation by default.
            pub initializer: Initializer,
            /// The share of the classes that [`MarginHead::sampled`] draws; all by default.
            pub sample_rate: SampleRate,
        }

        common_setters!($name, $margin);

        impl $name {
            /// A head for `features` features and `classes` classes with its paper's settings.
            pub fn new(features: usize, classes: usize) -> Self {
                let LSoftmaxConfig { precision, initializer, sample_rate, .. } =
                    LSoftmaxConfig::new(features, classes);
                Self {
                    features,
                    classes,
                    margin: $default,
                    scale: $scale,
                    learned_scale: false,
                    precision,
                    initializer,
                    sample_rate,
                }
            }

            /// Builds the head with an execution that was chosen before; it decides the precision.
            ///
            /// # Panics
            /// When there are no features or no classes, or the scale is not above 0 and finite.
            pub fn init_with(&self, execution: Execution, device: &Device) -> MarginHead<$margin> {
                let plain = LSoftmaxConfig {
                    initializer: self.initializer.clone(),
                    sample_rate: self.sample_rate,
                    ..LSoftmaxConfig::new(self.features, self.classes)
                };
                let normalisation = match self.scale {
                    Some(scale) => Normalisation::Both { scale },
                    None => Normalisation::Weights,
                };
                let head = plain
                    .init_with(execution, device)
                    .with_margin(self.margin)
                    .with_normalisation(normalisation);
                if self.learned_scale { head.with_learned_scale() } else { head }
            }
        }
    };
}

/// Declares the setter of a scale.
macro_rules! with_scale {
    ($name:ident) => {
        impl $name {
            /// Sets the scale s.
            pub fn with_scale(mut self, scale: f64) -> Self {
                self.scale = Some(scale);
                self
            }

            /// Sets whether s is learned.
            pub fn with_learned_scale(mut self, learned: bool) -> Self {
                self.learned_scale = learned;
                self
            }
        }
    };
}

head_config! {
    /// A-Softmax, from [SphereFace](https://arxiv.org/abs/1704.08063) (Liu et al., CVPR 2017): L-Softmax
    /// with normalised weights. The logit is |x| cos θ, the label's |x| ψ(θ); m is 4 by default. Like
    /// L-Softmax it needs a λ.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use lsoftmax::ASoftmaxConfig;
    /// let head = ASoftmaxConfig::new(512, 10_572).with_margin(3).init(&Device::flex());
    /// assert_eq!(head.margin.value(), 3.0);
    /// ```
    ASoftmaxConfig { margin: Margin = Margin::new(4).expect("4 is a margin"), scale: None }
}

head_config! {
    /// [CosFace](https://arxiv.org/abs/1801.09414) (Wang et al., CVPR 2018): the label's logit is
    /// s (cos θ − m), with m = 0.35 and s = 64 by default.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use lsoftmax::CosFaceConfig;
    /// let head = CosFaceConfig::new(512, 10_572).with_margin(0.4).with_scale(30.0).init(&Device::flex());
    /// assert_eq!(head.scale(), Some(30.0));
    /// ```
    CosFaceConfig {
        margin: CosineMargin = CosineMargin::new(0.35).expect("0.35 is a margin"),
        scale: Some(64.0)
    }
}

head_config! {
    /// [ArcFace](https://arxiv.org/abs/1801.07698) (Deng et al., CVPR 2019): the label's logit is
    /// s cos(θ + m), with m = 0.5 and s = 64 by default, and InsightFace's continuation past π − m.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use lsoftmax::ArcFaceConfig;
    /// let head = ArcFaceConfig::new(512, 10_572).with_margin(0.3).with_learned_scale(true).init(&Device::flex());
    /// assert!((head.scale().expect("a scale") - 64.0).abs() < 1e-4);
    /// ```
    ArcFaceConfig {
        margin: AdditiveMargin = AdditiveMargin::new(0.5).expect("0.5 is a margin"),
        scale: Some(64.0)
    }
}

head_config! {
    /// Softmax over cosines without a margin, from [NormFace](https://arxiv.org/abs/1704.06369) (Wang et
    /// al., ACM MM 2017): the logit is s cos θ, with s = 20 by default, as in
    /// [Zhai and Wu, BMVC 2019](https://arxiv.org/abs/1811.12649) (a temperature of 0.05).
    NormSoftmaxConfig { margin: Margin = Margin::ONE, scale: Some(20.0) }
}

with_scale!(CosFaceConfig);
with_scale!(ArcFaceConfig);
with_scale!(NormSoftmaxConfig);

impl ASoftmaxConfig {
    /// Sets the margin m. For untrusted input, use [`Margin::new`] and set the field.
    ///
    /// # Panics
    /// When `margin` is not a number from 1 to 1000.
    pub fn with_margin(mut self, margin: impl Into<f64>) -> Self {
        self.margin = Margin::new(margin).unwrap_or_else(|error| panic!("{error}"));
        self
    }
}

impl CosFaceConfig {
    /// Sets the margin m. For untrusted input, use [`CosineMargin::new`] and set the field.
    ///
    /// # Panics
    /// When `margin` is not from 0 to 2.
    pub fn with_margin(mut self, margin: f64) -> Self {
        self.margin = CosineMargin::new(margin).unwrap_or_else(|error| panic!("{error}"));
        self
    }
}

impl ArcFaceConfig {
    /// Sets the margin m in radians. For untrusted input, use [`AdditiveMargin::new`] and set the field.
    ///
    /// # Panics
    /// When `margin` is not from 0 to below π.
    pub fn with_margin(mut self, margin: f64) -> Self {
        self.margin = AdditiveMargin::new(margin).unwrap_or_else(|error| panic!("{error}"));
        self
    }
}
