//! lsoftmax-nn
