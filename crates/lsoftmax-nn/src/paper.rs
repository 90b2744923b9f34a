//! The paper's networks, by name.

use crate::{Activation, FeaturesConfig, NetworkConfig, NetworkError, StageConfig};

/// A network of the paper and its data set.
#[derive(Clone, Copy, Debug)]
pub struct PaperNetwork {
    /// Its name.
    pub name: &'static str,
    /// The number of classes of its data set.
    pub classes: usize,
    config: fn() -> NetworkConfig,
}

/// The paper's networks. To add one, add a line here and a constructor below.
const NETWORKS: [PaperNetwork; 5] = [
    PaperNetwork { name: "mnist-2d", classes: 10, config: NetworkConfig::mnist_2d },
    PaperNetwork { name: "mnist", classes: 10, config: NetworkConfig::mnist },
    PaperNetwork { name: "cifar10", classes: 10, config: NetworkConfig::cifar10 },
    PaperNetwork { name: "cifar100", classes: 100, config: NetworkConfig::cifar100 },
    PaperNetwork { name: "lfw", classes: 10_572, config: NetworkConfig::lfw },
];

impl PaperNetwork {
    /// The network with a name.
    ///
    /// ```
    /// use lsoftmax_nn::PaperNetwork;
    /// let network = PaperNetwork::named("cifar100")?;
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
    /// The names of the paper's networks, for [`NetworkConfig::named`].
    pub const NAMES: [&str; NETWORKS.len()] = {
        let mut names = [""; NETWORKS.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = NETWORKS[index].name;
            index += 1;
        }
        names
    };

    /// The paper's network with a name.
    ///
    /// # Errors
    /// When no network has this name; the error lists the names.
    pub fn named(name: &str) -> Result<Self, NetworkError> {
        Ok(PaperNetwork::named(name)?.config())
    }

    /// The network of the paper's Figure 2, with two linear features for plotting.
    pub fn mnist_2d() -> Self {
        let stage = |filters| StageConfig { kernel: 5, ..StageConfig::new(filters, 2) };
        Self {
            input: [1, 28, 28],
            stages: vec![stage(32), stage(64), stage(128)],
            features: FeaturesConfig { size: 2, activation: Activation::None },
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
}

/// The first convolution of a network: a stage of one unit without pooling.
fn first(filters: usize) -> StageConfig {
    StageConfig { pool: false, ..StageConfig::new(filters, 1) }
}
