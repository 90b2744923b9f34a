//! Sections that the help of several commands ends with.

pub const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  the machine failed, for example a result could not be written
  2  the input or the arguments are wrong; one sentence on stderr says what and where";

/// The exit codes of commands that train.
pub const TRAIN_EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    the machine failed, for example a checkpoint could not be written
  2    the arguments or the data are wrong, or training diverged; one sentence on stderr says what
  130  stopped by Ctrl-C; the run is kept and can be resumed";

/// The environment variables that choose kernels and threads.
pub const KERNELS: &str = "\
LSOFTMAX_KERNEL=portable|neon|avx2|avx512|avx512-bf16|amx limits the instruction set, and
RAYON_NUM_THREADS the number of threads.";
