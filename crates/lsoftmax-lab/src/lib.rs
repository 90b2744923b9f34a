//! lsoftmax-lab
