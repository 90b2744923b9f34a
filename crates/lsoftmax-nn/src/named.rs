//! The paper's networks and two residual ones, by name.

use crate::{Activation, FeaturesConfig, NetworkConfig, NetworkError, Residual, StageConfig};

/// A network with a name, and its data set.
#[derive(Clone, Copy, Debug)]
pub struct NamedNetwork {
    /// Its name.
    pub name: &'static str,
    /// The number of classes of its data set.
    pub classes: usize,
    config: fn() -> NetworkConfig,
}

/// The networks. To add one, add a line here and a constructor below.
const NETWORKS: [NamedNetwork; 7] = [
    NamedNetwork { name: "mnist-2d", classes: 10, config: NetworkConfig::mnist_2d },
    NamedNetwork { name: "mnist", classes: 10, config: NetworkConfig::mnist },
    NamedNetwork { name: "cifar10", classes: 10, config: NetworkConfig::cifar10 },
    NamedNetwork { name: "cifar100", classes: 100, config: NetworkConfig::cifar100 },
    NamedNetwork { name: "lfw", classes: 10_572, config: NetworkConfig::lfw },
    NamedNetwork { name: "resnet20", classes: 10, config: NetworkConfig::resnet20 },
    NamedNetwork { name: "sphereface20", classes: 10_572, config: NetworkConfig::sphereface20 },
];

impl NamedNetwork {
    /// The network with a name.
    ///
    /// ```
    /// use lsoftmax_nn::NamedNetwork;
    /// let network = NamedNetwork::named("cifar100")?;
    /// assert_eq!((network.classes, network.config().features.size), (100, 512));
    /// # Ok::<(), lsoftmax_nn::NetworkError>(())
    /// ```
    ///
    /// # Errors
    /// When no network has this name; the error lists the names.
    pub fn named(name: &str) -> Result<Self, NetworkError> {
        let network = NETWORKS.into_iter().find(|network| network.name == name);
        network.ok_or_else(|| NetworkError::Unknown {
            name: name.to_owned(),
            known: NetworkConfig::NAMES.join(", "),
        })
    }

    /// Its description.
    pub fn config(&self) -> NetworkConfig {
        (self.config)()
    }
}

impl NetworkConfig {
    /// The names of the networks, for [`NetworkConfig::named`].
    pub const NAMES: [&str; NETWORKS.len()] = {
        let mut names = [""; NETWORKS.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = NETWORKS[index].name;
            index += 1;
        }
        names
    };

    /// The network with a name.
    ///
    /// # Errors
    /// When no network has this name; the error lists the names.
    pub fn named(name: &str) -> Result<Self, NetworkError> {
        Ok(NamedNetwork::named(name)?.config())
    }

    /// The network of the paper's Figure 2, with two linear features for plotting.
    pub fn mnist_2d() -> Self {
        let stage = |filters| StageConfig { kernel: 5, ..StageConfig::new(filters, 2) };
        Self {
            input: [1, 28, 28],
            stages: vec![stage(32), stage(64), stage(128)],
            features: FeaturesConfig::linear(2),
        }
    }

    /// The paper's network for MNIST.
    pub fn mnist() -> Self {
        let stage = || StageConfig::new(64, 3);
        Self {
            input: [1, 28, 28],
            stages: vec![first(64), stage(), stage(), stage()],
            features: FeaturesConfig::new(256),
        }
    }

    /// The paper's network for CIFAR10, plain and augmented.
    pub fn cifar10() -> Self {
        let stage = |filters| StageConfig::new(filters, 4);
        Self {
            input: [3, 32, 32],
            stages: vec![first(64), stage(64), stage(96), stage(128)],
            features: FeaturesConfig::new(256),
        }
    }

    /// The paper's network for CIFAR100.
    pub fn cifar100() -> Self {
        let stage = |filters| StageConfig::new(filters, 4);
        Self {
            input: [3, 32, 32],
            stages: vec![first(96), stage(96), stage(192), stage(384)],
            features: FeaturesConfig::new(512),
        }
    }

    /// The paper's network for faces, 112 high and 96 wide.
    pub fn lfw() -> Self {
        let stage = |filters| StageConfig::new(filters, 4);
        let strided = StageConfig { stride: 2, ..first(64) };
        let last = StageConfig { pool: false, ..stage(256) };
        Self {
            input: [3, 112, 96],
            stages: vec![strided, stage(64), stage(256), stage(256), last],
            features: FeaturesConfig::new(512),
        }
    }

    /// The residual network of 20 layers for CIFAR10 of He et al., *Deep Residual Learning for Image
    /// Recognition*, with projections where the number of filters changes: a convolution, nine blocks of two and
    /// the head. The features are the averages of the last 64 channels.
    pub fn resnet20() -> Self {
        let relu = |stage| StageConfig { activation: Activation::Relu, ..stage };
        let stage = |filters, stride| {
            relu(StageConfig { stride, ..StageConfig::residual(filters, 6, Residual::Resnet) })
        };
        Self {
            input: [3, 32, 32],
            stages: vec![relu(first(16)), stage(16, 1), stage(32, 2), stage(64, 2)],
            features: FeaturesConfig::average(64),
        }
    }

    /// The network for faces of Liu et al., *SphereFace*, with 20 convolutions, 112 high and 96 wide; in
    /// addition to theirs, every convolution has batch norm.
    pub fn sphereface20() -> Self {
        let widths = [(64, 2), (128, 4), (256, 8), (512, 2)];
        let stages = widths.into_iter().flat_map(|(filters, units)| {
            let strided = StageConfig { stride: 2, ..first(filters) };
            [strided, StageConfig::residual(filters, units, Residual::Sphereface)]
        });
        Self {
            input: [3, 112, 96],
            stages: stages.collect(),
            features: FeaturesConfig::linear(512),
        }
    }
}

/// A stage of one unit without pooling.
fn first(filters: usize) -> StageConfig {
    StageConfig { pool: false, ..StageConfig::new(filters, 1) }
}
