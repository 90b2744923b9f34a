//! lsoftmax
