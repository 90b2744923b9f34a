//! A network with its head.

use std::sync::{Mutex, PoisonError};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use lsoftmax::{Execution, HeadError, LSoftmaxConfig, MarginHead};
use lsoftmax_nn::{Network, NetworkConfig, NetworkError};

use crate::head::{HeadMargin, HeadSettings};

/// A network that turns images into features, and the head that classifies them.
#[derive(Module, Debug)]
pub struct Classifier {
    /// Images to features.
    pub network: Network,
    /// Features to classes.
    pub head: MarginHead<HeadMargin>,
}

/// Why a classifier could not be built or run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The network is invalid or does not fit its input.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The head rejected its input.
    #[error(transparent)]
    Head(#[from] HeadError),
}

/// Burn has one generator of random numbers per process. Classifiers take turns to draw from it, so that the
/// weights of one that is made from a seed depend on nothing else.
static GENERATOR: Mutex<()> = Mutex::new(());

impl Classifier {
    /// A new classifier with random weights.
    ///
    /// # Errors
    /// When the network's layers do not fit together.
    pub fn new(
        network: &NetworkConfig,
        classes: usize,
        head: HeadSettings,
        execution: Execution,
        device: &Device,
    ) -> Result<Self, NetworkError> {
        Self::draw(None, network, classes, head, execution, device)
    }

    /// A new classifier whose weights are a function of the seed, whatever other threads train.
    ///
    /// # Errors
    /// When the network's layers do not fit together.
    pub fn from_seed(
        seed: u64,
        network: &NetworkConfig,
        classes: usize,
        head: HeadSettings,
        execution: Execution,
        device: &Device,
    ) -> Result<Self, NetworkError> {
        Self::draw(Some(seed), network, classes, head, execution, device)
    }

    fn draw(
        seed: Option<u64>,
        network: &NetworkConfig,
        classes: usize,
        head: HeadSettings,
        execution: Execution,
        device: &Device,
    ) -> Result<Self, NetworkError> {
        let _turn = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seed) = seed {
            device.seed(seed);
        }
        let weights = LSoftmaxConfig::new(network.features.size, classes);
        let network = network.init_with(execution.clone(), device)?;
        Ok(Self { network, head: head.apply(weights.init_with(execution, device)) })
    }

    /// Whether all its parameters are finite.
    pub fn is_finite(&self) -> bool {
        is_finite(self)
    }

    /// The device that its parameters are on.
    pub fn device(&self) -> Device {
        self.head.weight.device()
    }
}

/// Whether all parameters of a module are finite.
pub(crate) fn is_finite<M: Module>(module: &M) -> bool {
    struct Finite(bool);
    impl ModuleVisitor for Finite {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let finite = || param.val().into_data().iter::<f32>().all(f32::is_finite);
            self.0 = self.0 && finite();
        }
    }
    let mut finite = Finite(true);
    module.visit(&mut finite);
    finite.0
}
