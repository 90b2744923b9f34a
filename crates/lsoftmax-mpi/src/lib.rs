#![doc = include_str!("../README.md")]

mod launcher;
#[cfg(feature = "mpi")]
mod rank;
mod session;

pub use launcher::{Launch, launch};
pub use session::{Session, StartError, start};
