//! What can be said at the prompt.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use lsoftmax::{LambdaSchedule, Margin, Precision};
use lsoftmax_lab::data::Set;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the machine failed, as when a result cannot be written
  2  the input or the arguments are wrong; one sentence on stderr says what and where";

const EXAMPLES: &str = "\
Examples:
  lsoftmax                                              trains m = 1 … 4 on MNIST and draws what it learnt
  lsoftmax train mnist --quick
  lsoftmax loss --features x.npy --weights w.npy --labels y.npy
  lsoftmax bench head --classes 100000
  lsoftmax bench train --network cifar10
  lsoftmax data fetch cifar10";

const LOSS_EXAMPLES: &str = "\
Examples:
  From Python, with x (N x D), w (K x D) and y (N) as numpy arrays:
    numpy.save('x.npy', x); numpy.save('w.npy', w); numpy.save('y.npy', y)
  The mean loss at margin 4:
    lsoftmax loss --features x.npy --weights w.npy --labels y.npy
  The loss of every sample, and the gradients of the mean in grad/features.npy and grad/weights.npy:
    lsoftmax loss --features x.npy --weights w.npy --labels y.npy \\
      --margin 2 --lambda 5 --reduction none --grad-dir grad --json
  Plain softmax cross-entropy:
    lsoftmax loss --features x.npy --weights w.npy --labels y.npy --margin 1

Arrays may be in C or Fortran order and of either byte order. Numbers are computed in float32.";

const BENCH_EXAMPLES: &str = "\
Examples:
  lsoftmax bench head                                   256 x 512 features, 10,572 classes
  lsoftmax bench head --classes 1000000 --features 128 --precision bf16
  lsoftmax bench head --threads 1 --steps 20 --json";

const TRAIN_BENCH_EXAMPLES: &str = "\
Examples:
  lsoftmax bench train                                  cifar10, batches of 256, bf16
  lsoftmax bench train --network mnist --precision f32
  lsoftmax bench train --network lfw --batch 64 --steps 3 --json";

const TRAIN_EXAMPLES: &str = "\
Examples:
  lsoftmax train mnist --quick                          a minute or two
  lsoftmax train mnist --margin 4 --out runs/mnist      a row of the paper's table 2
  lsoftmax train cifar10 --margin 3 --seed 7 --steps 6000
  lsoftmax train --data my-photos/                      a directory of images for each class
  lsoftmax train --resume runs/mnist                    goes on where it stopped

A run with other --steps than the recipe's has its learning rate and λ schedules stretched to fit.";

const TRAIN_EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the machine failed, as when a checkpoint cannot be written
  2    the arguments or the data are wrong, or training diverged; one sentence on stderr says what
  130  stopped by Ctrl-C; what was done is kept, and can be gone on with";

const EVAL_EXAMPLES: &str = "\
Examples:
  lsoftmax eval runs/mnist                              on the test images of its own data
  lsoftmax eval runs/mnist --data my-digits/ --json     on images of one's own, in directories 0 to 9";

const PREDICT_EXAMPLES: &str = "\
Examples:
  lsoftmax predict runs/mnist digit.png
  lsoftmax predict runs/photos *.jpg --json";

const EMBED_EXAMPLES: &str = "\
Examples:
  lsoftmax embed runs/mnist mnist --out features.npy    the test images of a set
  lsoftmax embed runs/mnist mnist --out features.npy --logits logits.npy
  lsoftmax embed runs/photos album/ --out features.npy --normalise";

const EXPORT_EXAMPLES: &str = "\
Examples:
  lsoftmax export runs/mnist --out mnist.safetensors

docs/guide.md has the lines of Python that load it into PyTorch.";

const KERNELS: &str = "\
LSOFTMAX_KERNEL=portable|avx2|avx512|avx512-bf16|amx caps the instructions used, and
RAYON_NUM_THREADS the threads.";

const DATA_EXAMPLES: &str = "\
Examples:
  lsoftmax data list                                    every set, its place and whether it is there
  lsoftmax data fetch cifar10                           from its official address
  lsoftmax data fetch cifar10 --from https://mirror.example/cifar
  lsoftmax data fetch fashion-mnist --from ~/Downloads --data-dir /data
  lsoftmax data check cifar10 --json

Sets are looked for in --data-dir, else in the directory that LSOFTMAX_DATA names, else in
lsoftmax in the platform's cache (~/.cache/lsoftmax). Each has a directory there, laid out as
its official archive. An interrupted fetch goes on where it stopped.";

/// Large-margin softmax (L-Softmax): losses, gradients, benchmarks and data at a prompt.
///
/// Without a command it shows what a margin does.
#[derive(Debug, Parser)]
#[command(name = "lsoftmax", version, after_help = format!("{EXAMPLES}\n\n{TRAIN_EXIT_CODES}"))]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// The loss of arrays in .npy files, and its gradients
    #[command(after_help = format!("{LOSS_EXAMPLES}\n\n{EXIT_CODES}"))]
    Loss(LossArguments),
    /// Train a network by a recipe of the paper, or on a folder of images
    #[command(after_help = format!("{TRAIN_EXAMPLES}\n\n{KERNELS}\n\n{TRAIN_EXIT_CODES}"))]
    Train(Box<TrainArguments>),
    /// How well the model of a run does
    #[command(after_help = format!("{EVAL_EXAMPLES}\n\n{EXIT_CODES}"))]
    Eval(EvalArguments),
    /// The classes of images, by the model of a run
    #[command(after_help = format!("{PREDICT_EXAMPLES}\n\n{EXIT_CODES}"))]
    Predict(PredictArguments),
    /// The features of images, by the model of a run, as a .npy file
    #[command(after_help = format!("{EMBED_EXAMPLES}\n\n{EXIT_CODES}"))]
    Embed(EmbedArguments),
    /// The weights of the model of a run, for other programs
    #[command(after_help = format!("{EXPORT_EXAMPLES}\n\n{EXIT_CODES}"))]
    Export(ExportArguments),
    /// A script that completes commands in a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// How fast and how large things are on this machine
    #[command(subcommand_required = true, arg_required_else_help = false)]
    Bench {
        #[command(subcommand)]
        bench: Bench,
    },
    /// Labelled images: what there is, how to get it, and whether it is whole
    #[command(subcommand_required = true, arg_required_else_help = false)]
    #[command(after_help = format!("{DATA_EXAMPLES}\n\n{EXIT_CODES}"))]
    Data {
        #[command(subcommand)]
        data: Data,
    },
}

#[derive(Debug, Subcommand)]
pub enum Data {
    /// Every set, with its place, whether it is there, its size and source
    List {
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Get a set, check it, and put it in its place; nothing happens if it is there and whole
    Fetch {
        /// The set
        #[arg(value_name = "NAME", value_parser = set())]
        set: &'static Set,
        /// Take the archives from this address or local directory
        #[arg(long, value_name = "URL_OR_DIR")]
        from: Option<String>,
        /// Give up when no byte comes for so long
        #[arg(long, value_name = "TIME", default_value = "30", value_parser = seconds, allow_negative_numbers = true)]
        stall: Duration,
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Check each file of a set against its SHA-256, read the set, and count
    Check {
        /// The set
        #[arg(value_name = "NAME", value_parser = set())]
        set: &'static Set,
        #[command(flatten)]
        place: PlaceArguments,
    },
}

#[derive(Debug, Args)]
pub struct PlaceArguments {
    /// The directory of all sets [default: $LSOFTMAX_DATA, else ~/.cache/lsoftmax]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Print JSON, on one line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The head through Burn: forward and backward, with gradients of features and weights
    #[command(after_help = format!("{BENCH_EXAMPLES}\n\n{KERNELS}\n\n{EXIT_CODES}"))]
    Head(HeadArguments),
    /// Training steps of a network of the paper with its head and SGD, then inference, on random images
    #[command(after_help = format!("{TRAIN_BENCH_EXAMPLES}\n\n{KERNELS}\n\n{EXIT_CODES}"))]
    Train(TrainBenchArguments),
}

#[derive(Debug, Args)]
pub struct LossArguments {
    /// x, samples x features: float32, float64 or float16
    #[arg(long, value_name = "FILE")]
    pub features: PathBuf,
    /// W, classes x features: float32, float64 or float16
    #[arg(long, value_name = "FILE")]
    pub weights: PathBuf,
    /// y, one whole number a sample, from 0 to classes − 1
    #[arg(long, value_name = "FILE")]
    pub labels: PathBuf,
    /// b, one number a class, added outside the margin
    #[arg(long, value_name = "FILE")]
    pub bias: Option<PathBuf>,
    /// The margin m, whole or not, from 1 (softmax) to 1000
    #[arg(long, value_name = "M", default_value = "4", value_parser = margin, allow_negative_numbers = true)]
    pub margin: Margin,
    /// λ: 0 is the whole margin, large is softmax
    #[arg(long, value_name = "λ", default_value = "0", value_parser = lambda, allow_negative_numbers = true)]
    pub lambda: f64,
    /// The precision of matrix products; sums are f32 in both
    #[arg(long, default_value = "f32", value_parser = precision())]
    pub precision: Precision,
    /// The mean loss only, or that of every sample too
    #[arg(long, value_enum, default_value_t = Reduction::Mean)]
    pub reduction: Reduction,
    /// Where the gradients of the mean loss go: features.npy, weights.npy and, with a bias, bias.npy
    #[arg(long, value_name = "DIR")]
    pub grad_dir: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct HeadArguments {
    /// Samples of a batch
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub samples: usize,
    /// Features of a sample
    #[arg(long, value_name = "D", default_value_t = 512)]
    pub features: usize,
    /// Classes
    #[arg(long, value_name = "K", default_value_t = 10_572)]
    pub classes: usize,
    /// The margin m, whole or not, from 1 (softmax) to 1000
    #[arg(long, value_name = "M", default_value = "4", value_parser = margin, allow_negative_numbers = true)]
    pub margin: Margin,
    /// λ: 0 is the whole margin, large is softmax
    #[arg(long, value_name = "λ", default_value = "5", value_parser = lambda, allow_negative_numbers = true)]
    pub lambda: f64,
    /// The precision of matrix products; sums are f32 in both
    #[arg(long, default_value = "f32", value_parser = precision())]
    pub precision: Precision,
    /// Give the head a bias
    #[arg(long)]
    pub bias: bool,
    /// Measure so many steps
    #[arg(long, value_name = "COUNT", conflicts_with = "seconds")]
    pub steps: Option<usize>,
    /// Measure for so long, and three steps at least
    #[arg(long, value_name = "TIME", default_value = "2", value_parser = seconds, allow_negative_numbers = true)]
    pub seconds: Duration,
    /// Threads [default: one a core, or RAYON_NUM_THREADS]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TrainArguments {
    /// A recipe: mnist, mnist-2d, cifar10, … (`lsoftmax train --list`), or the path of a .toml file
    #[arg(value_name = "RECIPE", required_unless_present_any = ["resume", "data", "list"])]
    pub recipe: Option<String>,
    /// List the recipes
    #[arg(long, conflicts_with_all = ["recipe", "resume"])]
    pub list: bool,
    /// Go on with the run in this directory
    #[arg(long, value_name = "RUN", conflicts_with_all = ["recipe", "data", "quick", "margin", "seed", "steps", "batch", "validation", "learning_rate", "precision", "out", "keep_schedules"])]
    pub resume: Option<PathBuf>,
    /// Where the run is kept [default: runs/RECIPE-mM-sSEED]
    #[arg(long, value_name = "RUN")]
    pub out: Option<PathBuf>,
    /// Other data than the recipe's: a set, or a folder with a directory of images for each class
    #[arg(long, value_name = "DATA")]
    pub data: Option<String>,
    /// The recipe's variant that takes a minute or two
    #[arg(long)]
    pub quick: bool,
    /// The margin m, whole or not, from 1 (softmax) to 1000
    #[arg(long, value_name = "M", value_parser = margin, allow_negative_numbers = true)]
    pub margin: Option<Margin>,
    /// What weights, order and augmentation are drawn from
    #[arg(long, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Steps; the schedules are stretched to fit
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Leave the schedules as they are, whatever the steps
    #[arg(long, requires = "steps")]
    pub keep_schedules: bool,
    /// Images of a batch
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Training images held out to choose by; 0 trains on all of them
    #[arg(long, value_name = "N")]
    pub validation: Option<usize>,
    /// The learning rate at the start
    #[arg(long, value_name = "RATE")]
    pub learning_rate: Option<f64>,
    /// The precision of products; sums, weights and statistics are f32 in both
    #[arg(long, value_parser = precision())]
    pub precision: Option<Precision>,
    /// When training diverges: stop, or roll back to the last checkpoint and go on with a larger λ
    /// [default: what the recipe says, which is to stop]
    #[arg(long, value_enum)]
    pub on_divergence: Option<Divergence>,
    /// Write event files for TensorBoard, into RUN/tensorboard; a resumed run goes on with them unasked
    #[arg(long)]
    pub tensorboard: bool,
    /// Where data sets are [default: $LSOFTMAX_DATA, or lsoftmax in the user's cache]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Divergence {
    Stop,
    Rollback,
}

#[derive(Debug, Args)]
pub struct EvalArguments {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Other data than its own: a set, or a folder with a directory of images for each class
    #[arg(long, value_name = "DATA")]
    pub data: Option<String>,
    /// Which images
    #[arg(long, value_enum, default_value_t = Split::Test)]
    pub split: Split,
    #[command(flatten)]
    pub place: PlaceArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Split {
    Train,
    Test,
}

#[derive(Debug, Args)]
pub struct PredictArguments {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// JPEG, PNG or WebP files
    #[arg(value_name = "IMAGE", required = true)]
    pub images: Vec<PathBuf>,
    /// Print one JSON array
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct EmbedArguments {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// A set, an image file, or a directory of them
    #[arg(value_name = "INPUT")]
    pub input: String,
    /// Where the features go
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Where the logits W·x go, one row an image; those of the features as they are, not normalised
    #[arg(long, value_name = "FILE")]
    pub logits: Option<PathBuf>,
    /// Scale every feature vector to a length of 1
    #[arg(long)]
    pub normalise: bool,
    /// Which images of a set
    #[arg(long, value_enum, default_value_t = Split::Test)]
    pub split: Split,
    #[command(flatten)]
    pub place: PlaceArguments,
}

#[derive(Debug, Args)]
pub struct ExportArguments {
    /// The run
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The form
    #[arg(long, value_enum, default_value_t = Format::Safetensors)]
    pub format: Format,
    /// Where the weights go
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Format {
    Safetensors,
}

#[derive(Debug, Args)]
pub struct TrainBenchArguments {
    /// mnist-2d, mnist, cifar10, cifar100 or lfw
    #[arg(long, value_name = "NAME", default_value = "cifar10")]
    pub network: String,
    /// Images of a batch
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub batch: usize,
    /// Classes [default: those of the network's data set; lfw: 10,572]
    #[arg(long, value_name = "K")]
    pub classes: Option<usize>,
    /// The margin m, whole or not, from 1 (softmax) to 1000
    #[arg(long, value_name = "M", default_value = "4", value_parser = margin, allow_negative_numbers = true)]
    pub margin: Margin,
    /// The precision of products; sums, weights and statistics are f32 in both
    #[arg(long, default_value = "bf16", value_parser = precision())]
    pub precision: Precision,
    /// Burn's own operations in place of the kernels, f32 only: to compare
    #[arg(long, conflicts_with = "precision")]
    pub composed: bool,
    /// Steps to measure
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub steps: usize,
    /// Threads [default: one a core, or RAYON_NUM_THREADS]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Reduction {
    Mean,
    None,
}

fn margin(text: &str) -> Result<Margin, String> {
    let m: f64 = text.trim().parse().map_err(|_| "must be a number from 1 to 1000")?;
    Margin::new(m).map_err(|error| error.to_string())
}

fn lambda(text: &str) -> Result<f64, String> {
    let lambda = text.trim().parse().map_err(|_| "must be a number of at least 0")?;
    LambdaSchedule::constant(lambda).map_err(|error| error.to_string())?;
    Ok(lambda)
}

fn seconds(text: &str) -> Result<Duration, String> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let seconds = text.trim().parse().unwrap_or(f64::NAN);
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() && duration <= DAY => Ok(duration),
        _ => Err("must be a number above 0 and at most 86400, a day".into()),
    }
}

fn set() -> impl TypedValueParser<Value = &'static Set> {
    PossibleValuesParser::new(Set::ALL.map(|set| set.name))
        .map(|name| Set::named(&name).expect("the name is one of them"))
}

fn precision() -> impl TypedValueParser<Value = Precision> {
    PossibleValuesParser::new(["f32", "bf16"]).map(|name| match name.as_str() {
        "bf16" => Precision::Bf16,
        _ => Precision::F32,
    })
}
