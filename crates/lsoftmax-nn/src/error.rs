//! What can be wrong with a network's description, in sentences.

use lsoftmax_kernels::conv::StackError;

/// Why a network could not be described or built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// There is no network of this name.
    #[error(
        "there is no network called \"{name}\": did you mean {nearest}? The networks are {known}"
    )]
    Unknown {
        /// What was asked for.
        name: String,
        /// The most similar name that there is.
        nearest: &'static str,
        /// All names.
        known: String,
    },
    /// A size is zero or beyond reason.
    #[error("{what} must be from 1 to {most}, but is {found}")]
    Size {
        /// Which size, and of what.
        what: String,
        /// What the description says.
        found: usize,
        /// The largest that is taken.
        most: usize,
    },
    /// There are too many weights.
    #[error(
        "the network would have {parameters} parameters, which is more than {most}: take fewer filters or features, or pool more"
    )]
    Parameters {
        /// How many there would be.
        parameters: u128,
        /// The most that is taken.
        most: u128,
    },
    /// The layers don't fit together.
    #[error(transparent)]
    Stack(#[from] StackError),
}
