//! The data sets known by name: their files, download addresses and checksums.

use crate::contents::Contents;
use crate::dataset::Images;
use crate::error::DataError;

/// A data set that can be fetched, checked and read by name.
#[derive(Debug)]
pub struct Set {
    /// Its name on the command line, and the name of its directory.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// Its authors' page.
    pub home: &'static str,
    /// The archives to download.
    pub archives: &'static [Archive],
    /// The files in its directory.
    pub files: &'static [SetFile],
    /// How the files are read.
    pub format: Format,
    /// The names of the classes, in label order.
    pub class_names: &'static [&'static str],
    /// The contents of `files`, gzipped, if the set is built into the program.
    pub built_in: Option<&'static [&'static [u8]]>,
}

/// A file to download.
#[derive(Debug)]
pub struct Archive {
    /// The address, without the file name.
    pub base: &'static str,
    /// The file name.
    pub name: &'static str,
    /// Its size.
    pub bytes: u64,
    /// The published SHA-256 of the archive.
    pub sha256: &'static str,
}

/// A file in the directory of a set.
#[derive(Debug)]
pub struct SetFile {
    /// Its path in the directory; a gzipped file with the suffix `.gz` is read too.
    pub path: &'static str,
    /// The size of its decompressed contents.
    pub bytes: u64,
    /// The SHA-256 of its decompressed contents, computed from the official files.
    pub sha256: &'static str,
}

/// How the files of a set are packed and read. The formats are constants, each defined in the module
/// that reads it: [`Format::IDX`], [`Format::CIFAR10`], [`Format::CIFAR100`].
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The kind of its archives.
    pub(crate) packing: Packing,
    /// Reads the training and test images from the set's files, given in the order of [`Set::files`];
    /// the second argument is the number of classes.
    pub(crate) read: ReadImages,
}

pub(crate) type ReadImages = fn(Vec<Contents>, usize) -> Result<[Images; 2], DataError>;

/// The kind of a set's archives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// A gzipped file of the set, which stays gzipped in the set's directory.
    File,
    /// A gzipped tar archive with all files of the set.
    Tar,
}

/// Sets are compared by name, which is unique.
impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Set {}

impl Set {
    /// All sets.
    pub const ALL: [&'static Self; 4] = [&MNIST, &FASHION_MNIST, &CIFAR10, &CIFAR100];

    /// The set with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|set| set.name == name)
    }

    /// The address of the archive or, if there are several, the directory of the archives.
    pub fn source(&self) -> String {
        match self.archives {
            [only] => format!("{}{}", only.base, only.name),
            archives => archives.first().map_or(String::new(), |archive| archive.base.into()),
        }
    }

    /// The total size of the archives.
    pub fn download_bytes(&self) -> u64 {
        self.archives.iter().map(|archive| archive.bytes).sum()
    }
}

const MNIST_BASE: &str = "https://ossci-datasets.s3.amazonaws.com/mnist/";

/// Handwritten digits.
pub static MNIST: Set = Set {
    name: "mnist",
    about: "handwritten digits, 28 x 28, 60,000 + 10,000",
    home: "http://yann.lecun.com/exdb/mnist/",
    archives: &[
        Archive {
            base: MNIST_BASE,
            name: "train-images-idx3-ubyte.gz",
            bytes: 9_912_422,
            sha256: "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        },
        Archive {
            base: MNIST_BASE,
            name: "train-labels-idx1-ubyte.gz",
            bytes: 28_881,
            sha256: "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        },
        Archive {
            base: MNIST_BASE,
            name: "t10k-images-idx3-ubyte.gz",
            bytes: 1_648_877,
            sha256: "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        },
        Archive {
            base: MNIST_BASE,
            name: "t10k-labels-idx1-ubyte.gz",
            bytes: 4_542,
            sha256: "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ],
    files: &[
        SetFile {
            path: "train-images-idx3-ubyte",
            bytes: 47_040_016,
            sha256: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        },
        SetFile {
            path: "train-labels-idx1-ubyte",
            bytes: 60_008,
            sha256: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        },
        SetFile {
            path: "t10k-images-idx3-ubyte",
            bytes: 7_840_016,
            sha256: "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        },
        SetFile {
            path: "t10k-labels-idx1-ubyte",
            bytes: 10_008,
            sha256: "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
    ],
    format: Format::IDX,
    class_names: &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"],
    built_in: Some(&[
        lsoftmax_mnist::TRAIN_IMAGES,
        include_bytes!("../data/mnist/train-labels-idx1-ubyte.gz"),
        include_bytes!("../data/mnist/t10k-images-idx3-ubyte.gz"),
        include_bytes!("../data/mnist/t10k-labels-idx1-ubyte.gz"),
    ]),
};

const FASHION_BASE: &str = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/";

/// Articles of clothing.
pub static FASHION_MNIST: Set = Set {
    name: "fashion-mnist",
    about: "articles of clothing, 28 x 28, 60,000 + 10,000",
    home: "https://github.com/zalandoresearch/fashion-mnist",
    archives: &[
        Archive {
            base: FASHION_BASE,
            name: "train-images-idx3-ubyte.gz",
            bytes: 26_421_880,
            sha256: "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        },
        Archive {
            base: FASHION_BASE,
            name: "train-labels-idx1-ubyte.gz",
            bytes: 29_515,
            sha256: "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        },
        Archive {
            base: FASHION_BASE,
            name: "t10k-images-idx3-ubyte.gz",
            bytes: 4_422_102,
            sha256: "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        },
        Archive {
            base: FASHION_BASE,
            name: "t10k-labels-idx1-ubyte.gz",
            bytes: 5_148,
            sha256: "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
    ],
    files: &[
        SetFile {
            path: "train-images-idx3-ubyte",
            bytes: 47_040_016,
            sha256: "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        },
        SetFile {
            path: "train-labels-idx1-ubyte",
            bytes: 60_008,
            sha256: "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        },
        SetFile {
            path: "t10k-images-idx3-ubyte",
            bytes: 7_840_016,
            sha256: "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        },
        SetFile {
            path: "t10k-labels-idx1-ubyte",
            bytes: 10_008,
            sha256: "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
    ],
    format: Format::IDX,
    class_names: &[
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ],
    built_in: None,
};

const CIFAR_BASE: &str = "https://www.cs.toronto.edu/~kriz/";
const CIFAR_HOME: &str = "https://www.cs.toronto.edu/~kriz/cifar.html";

/// Small photographs of ten classes.
pub static CIFAR10: Set = Set {
    name: "cifar10",
    about: "photographs of 10 classes, 3 x 32 x 32, 50,000 + 10,000",
    home: CIFAR_HOME,
    archives: &[Archive {
        base: CIFAR_BASE,
        name: "cifar-10-binary.tar.gz",
        bytes: 170_052_171,
        sha256: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    }],
    files: &[
        SetFile {
            path: "cifar-10-batches-bin/data_batch_1.bin",
            bytes: 30_730_000,
            sha256: "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        },
        SetFile {
            path: "cifar-10-batches-bin/data_batch_2.bin",
            bytes: 30_730_000,
            sha256: "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        },
        SetFile {
            path: "cifar-10-batches-bin/data_batch_3.bin",
            bytes: 30_730_000,
            sha256: "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        },
        SetFile {
            path: "cifar-10-batches-bin/data_batch_4.bin",
            bytes: 30_730_000,
            sha256: "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        },
        SetFile {
            path: "cifar-10-batches-bin/data_batch_5.bin",
            bytes: 30_730_000,
            sha256: "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        },
        SetFile {
            path: "cifar-10-batches-bin/test_batch.bin",
            bytes: 30_730_000,
            sha256: "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
    ],
    format: Format::CIFAR10,
    class_names: &[
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ],
    built_in: None,
};

/// Small photographs of a hundred classes.
pub static CIFAR100: Set = Set {
    name: "cifar100",
    about: "photographs of 100 classes, 3 x 32 x 32, 50,000 + 10,000",
    home: CIFAR_HOME,
    archives: &[Archive {
        base: CIFAR_BASE,
        name: "cifar-100-binary.tar.gz",
        bytes: 168_513_733,
        sha256: "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    }],
    files: &[
        SetFile {
            path: "cifar-100-binary/train.bin",
            bytes: 153_700_000,
            sha256: "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
        },
        SetFile {
            path: "cifar-100-binary/test.bin",
            bytes: 30_740_000,
            sha256: "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
        },
    ],
    format: Format::CIFAR100,
    class_names: &[
        "apple",
        "aquarium_fish",
        "baby",
        "bear",
        "beaver",
        "bed",
        "bee",
        "beetle",
        "bicycle",
        "bottle",
        "bowl",
        "boy",
        "bridge",
        "bus",
        "butterfly",
        "camel",
        "can",
        "castle",
        "caterpillar",
        "cattle",
        "chair",
        "chimpanzee",
        "clock",
        "cloud",
        "cockroach",
        "couch",
        "crab",
        "crocodile",
        "cup",
        "dinosaur",
        "dolphin",
        "elephant",
        "flatfish",
        "forest",
        "fox",
        "girl",
        "hamster",
        "house",
        "kangaroo",
        "keyboard",
        "lamp",
        "lawn_mower",
        "leopard",
        "lion",
        "lizard",
        "lobster",
        "man",
        "maple_tree",
        "motorcycle",
        "mountain",
        "mouse",
        "mushroom",
        "oak_tree",
        "orange",
        "orchid",
        "otter",
        "palm_tree",
        "pear",
        "pickup_truck",
        "pine_tree",
        "plain",
        "plate",
        "poppy",
        "porcupine",
        "possum",
        "rabbit",
        "raccoon",
        "ray",
        "road",
        "rocket",
        "rose",
        "sea",
        "seal",
        "shark",
        "shrew",
        "skunk",
        "skyscraper",
        "snail",
        "snake",
        "spider",
        "squirrel",
        "streetcar",
        "sunflower",
        "sweet_pepper",
        "table",
        "tank",
        "telephone",
        "television",
        "tiger",
        "tractor",
        "train",
        "trout",
        "tulip",
        "turtle",
        "wardrobe",
        "whale",
        "willow_tree",
        "wolf",
        "woman",
        "worm",
    ],
    built_in: None,
};
