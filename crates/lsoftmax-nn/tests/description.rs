//! The paper's networks, layer by layer, and invalid descriptions.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::Device;
use lsoftmax_nn::{
    Activation, FeatureLayer, FeaturesConfig, NamedNetwork, NetworkConfig, NetworkError, Residual,
    StackError, StageConfig,
};

/// The outputs of all layers: name, number of consecutive layers, and channels, height and width.
type Expected = (&'static str, usize, [usize; 3]);

/// Table 1 of the paper with the sizes of every layer, pooling rounded up.
fn table() -> [(&'static str, Vec<Expected>); 5] {
    [
        (
            "mnist-2d",
            vec![
                ("conv1", 2, [32, 28, 28]),
                ("pool1", 1, [32, 14, 14]),
                ("conv2", 2, [64, 14, 14]),
                ("pool2", 1, [64, 7, 7]),
                ("conv3", 2, [128, 7, 7]),
                ("pool3", 1, [128, 4, 4]),
                ("features", 1, [2, 1, 1]),
            ],
        ),
        (
            "mnist",
            vec![
                ("conv0", 1, [64, 28, 28]),
                ("conv1", 3, [64, 28, 28]),
                ("pool1", 1, [64, 14, 14]),
                ("conv2", 3, [64, 14, 14]),
                ("pool2", 1, [64, 7, 7]),
                ("conv3", 3, [64, 7, 7]),
                ("pool3", 1, [64, 4, 4]),
                ("features", 1, [256, 1, 1]),
            ],
        ),
        ("cifar10", cifar([64, 64, 96, 128], 256)),
        ("cifar100", cifar([96, 96, 192, 384], 512)),
        (
            "lfw",
            vec![
                ("conv0", 1, [64, 56, 48]),
                ("conv1", 4, [64, 56, 48]),
                ("pool1", 1, [64, 28, 24]),
                ("conv2", 4, [256, 28, 24]),
                ("pool2", 1, [256, 14, 12]),
                ("conv3", 4, [256, 14, 12]),
                ("pool3", 1, [256, 7, 6]),
                ("conv4", 4, [256, 7, 6]),
                ("features", 1, [512, 1, 1]),
            ],
        ),
    ]
}

fn cifar(filters: [usize; 4], features: usize) -> Vec<Expected> {
    let [conv0, conv1, conv2, conv3] = filters;
    vec![
        ("conv0", 1, [conv0, 32, 32]),
        ("conv1", 4, [conv1, 32, 32]),
        ("pool1", 1, [conv1, 16, 16]),
        ("conv2", 4, [conv2, 16, 16]),
        ("pool2", 1, [conv2, 8, 8]),
        ("conv3", 4, [conv3, 8, 8]),
        ("pool3", 1, [conv3, 4, 4]),
        ("features", 1, [features, 1, 1]),
    ]
}

#[test]
fn every_layer_of_the_papers_networks_has_its_size() {
    for (name, layers) in table() {
        let summary = NetworkConfig::named(name).unwrap().summary().unwrap();
        let mut found = summary.layers.iter();
        for (layer, count, output) in layers {
            for place in 1..=count {
                let found = found.next().expect("a layer");
                let convolution = layer.starts_with("conv");
                let expected =
                    if convolution { format!("{layer}.{place}") } else { layer.to_owned() };
                assert_eq!((&found.name, found.output), (&expected, output), "{name}");
                let strided = name == "lfw" && layer == "conv0" || layer.starts_with("pool");
                assert_eq!(found.stride, if strided { 2 } else { 1 }, "{name} {layer}");
            }
        }
        assert!(found.next().is_none(), "{name} has more layers");
    }
}

/// Parameters of a chain of `count` convolutions with batch norm and PReLU, from `channels` to `filters`.
fn chain(kernel: usize, channels: usize, filters: usize, count: usize) -> usize {
    let first = kernel * channels * filters;
    first + (count - 1) * kernel * filters * filters + 3 * count * filters
}

#[test]
fn the_papers_networks_have_as_many_parameters_as_their_sizes_say() {
    let cifar = |a, b, c, features| {
        let first = chain(9, 3, a, 1) + chain(9, a, a, 4);
        first + chain(9, a, b, 4) + chain(9, b, c, 4) + 16 * c * features + 3 * features
    };
    let expected = [
        chain(25, 1, 32, 2) + chain(25, 32, 64, 2) + chain(25, 64, 128, 2) + 2 * (128 * 16 + 1),
        chain(9, 1, 64, 1) + 3 * chain(9, 64, 64, 3) + 16 * 64 * 256 + 3 * 256,
        cifar(64, 96, 128, 256),
        cifar(96, 192, 384, 512),
        chain(9, 3, 64, 1)
            + chain(9, 64, 64, 4)
            + chain(9, 64, 256, 4)
            + 2 * chain(9, 256, 256, 4)
            + 42 * 256 * 512
            + 3 * 512,
        // Six convolutions per stage and a projection in two of them; γ and β for each.
        9 * 3 * 16
            + 6 * 9 * 16 * 16
            + (9 * 16 * 32 + 16 * 32 + 5 * 9 * 32 * 32)
            + (9 * 32 * 64 + 32 * 64 + 5 * 9 * 64 * 64)
            + 2 * (7 * 16 + 7 * 32 + 7 * 64),
        chain(9, 3, 64, 3)
            + chain(9, 64, 128, 5)
            + chain(9, 128, 256, 9)
            + chain(9, 256, 512, 3)
            + 42 * 512 * 512
            + 512,
    ];
    for (name, expected) in NetworkConfig::NAMES.into_iter().zip(expected) {
        let config = NetworkConfig::named(name).unwrap();
        assert_eq!(config.summary().unwrap().parameters, expected as u64, "{name}");
        // The module also counts the running statistics of batch norm.
        let network = config.init(&Device::flex()).unwrap();
        let normed = network.units.iter().filter(|unit| unit.gamma.is_some());
        let running: usize = normed.map(|unit| 2 * unit.weight.dims()[0]).sum();
        assert_eq!(network.num_params(), expected + running, "{name}");
    }
}

#[test]
fn the_residual_networks_have_the_sizes_of_their_papers() {
    let summary = NetworkConfig::resnet20().summary().unwrap();
    let convolutions = summary.layers.iter().filter(|layer| layer.name.starts_with("conv"));
    assert_eq!(convolutions.count(), 19 + 2);
    // He et al.: 0.27 million parameters. 40.6 million multiply-adds without projections and head.
    assert_eq!(summary.parameters, 271_824);
    let projections = 2 * 16 * 16 * 16 * 32;
    assert_eq!(summary.multiply_adds, 40_550_400 + projections);
    let outputs: Vec<_> = summary.layers.iter().map(|layer| layer.output).collect();
    assert_eq!(outputs[0], [16, 32, 32]);
    assert_eq!(outputs[outputs.len() - 2..], [[64, 8, 8], [64, 1, 1]]);
    let adds: Vec<_> = summary.layers.iter().filter_map(|layer| layer.adds.as_deref()).collect();
    let expected = [
        ["conv0.1", "conv1.2", "conv1.4"],
        ["conv2.shortcut", "conv2.2", "conv2.4"],
        ["conv3.shortcut", "conv3.2", "conv3.4"],
    ];
    assert_eq!(adds, expected.concat());

    let summary = NetworkConfig::sphereface20().summary().unwrap();
    let convolutions = summary.layers.iter().filter(|layer| layer.name.starts_with("conv"));
    assert_eq!(convolutions.count(), 20);
    let last = &summary.layers[19];
    assert_eq!((last.output, last.adds.as_deref()), ([512, 7, 6], Some("conv6.1")));
}

#[test]
fn multiply_adds_are_weights_times_pixels() {
    let summary = NetworkConfig::mnist_2d().summary().unwrap();
    let expected = 784 * 25 * (32 + 32 * 32)
        + 196 * 25 * (32 * 64 + 64 * 64)
        + 49 * 25 * (64 * 128 + 128 * 128)
        + 2048 * 2;
    assert_eq!(summary.multiply_adds, expected);
}

#[test]
fn a_summary_is_an_aligned_table_and_json() {
    let config = NetworkConfig {
        input: [1, 5, 7],
        stages: vec![StageConfig::new(16, 1)],
        features: FeaturesConfig::new(100),
    };
    let summary = config.summary().unwrap();
    let expected = [
        "layer     kernel  stride   output  parameters  multiply-adds",
        "input                       1x5x7",
        "conv1.1      3x3       1   16x5x7         192          5,040",
        "pool1        2x2       2   16x3x4           0              0",
        "features     3x4       1  100x1x1      19,500         19,200",
        "total                                  19,692         24,240",
    ]
    .join("\n");
    let found = summary.to_string();
    assert_eq!(found, expected);
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["layers"][0]["output"], serde_json::json!([16, 5, 7]));
    assert_eq!(json["parameters"], 19_692);
}

#[test]
fn a_description_may_omit_defaults() {
    let text = r#"
        input = [1, 28, 28]
        features = { size = 2, activation = "none" }
        [[stages]]
        filters = 32
        kernel = 5
        units = 2
        [[stages]]
        filters = 64
        kernel = 5
        units = 2
        [[stages]]
        filters = 128
        kernel = 5
        units = 2
    "#;
    assert_eq!(toml::from_str::<NetworkConfig>(text).unwrap(), NetworkConfig::mnist_2d());
    let text = r#"{
        "input": [3, 32, 32],
        "stages": [{"filters": 8, "units": 1, "stride": 2, "pool": false}],
        "features": {"size": 4}
    }"#;
    let config: NetworkConfig = serde_json::from_str(text).unwrap();
    let StageConfig { kernel, stride, pool, .. } = config.stages[0];
    assert_eq!((kernel, stride, pool), (3, 2, false));
    assert_eq!(config.features.activation, Activation::Prelu);
}

#[test]
fn a_residual_network_is_described_by_its_stages() {
    let text = r#"
        input = [3, 32, 32]
        stages = [
            { filters = 16, units = 1, activation = "relu", pool = false },
            { filters = 16, units = 6, activation = "relu", residual = "resnet" },
            { filters = 32, units = 6, activation = "relu", residual = "resnet", stride = 2 },
            { filters = 64, units = 6, activation = "relu", residual = "resnet", stride = 2 },
        ]
        features = { size = 64, layer = "average" }
    "#;
    assert_eq!(toml::from_str::<NetworkConfig>(text).unwrap(), NetworkConfig::resnet20());
    // A plain description is written as it was before there were residual ones.
    let text = toml::to_string(&NetworkConfig::mnist()).unwrap();
    for key in ["residual", "layer"] {
        assert!(!text.contains(key), "{text}");
    }
}

#[test]
fn residual_stages_and_averages_that_do_not_fit_are_rejected() {
    let message = |change: fn(&mut NetworkConfig)| {
        let mut config = NetworkConfig::resnet20();
        change(&mut config);
        config.stack().unwrap_err().to_string()
    };
    let found = message(|config| config.stages = config.stages.split_off(1));
    assert_eq!(found, "the residual stage conv0 needs a stage before it, such as one convolution");
    let found = message(|config| config.stages[1].units = 5);
    let expected = "the residual stage conv1 has two convolutions per block, so its number of units must be even, but is 5";
    assert_eq!(found, expected);
    let found = message(|config| config.stages[2].kernel = 4);
    assert_eq!(found, "the residual stage conv2 needs an odd kernel, but has one of 4");
    let found = message(|config| config.stages[2].pool = true);
    let expected =
        "the residual stage conv2 cannot have pooling; use a stride of 2 in the next stage instead";
    assert_eq!(found, expected);
    let found = message(|config| config.features.size = 65);
    let expected = "a feature layer that is an average gives one feature per filter of the last stage, so their number must be 64, but is 65";
    assert_eq!(found, expected);
    let found = message(|config| config.features.activation = Activation::None);
    let expected = "a feature layer that is an average has no activation of its own; remove `activation` from the features";
    assert_eq!(found, expected);
    let found = message(|config| {
        config.stages[3].residual = None;
        config.stages[3].pool = true;
    });
    let expected = "a feature layer that is an average cannot follow pooling; set `pool = false` in the last stage";
    assert_eq!(found, expected);
    let found = message(|config| config.stages.clear());
    assert_eq!(found, "a feature layer that is an average needs a stage before it");
    assert_eq!(NetworkConfig::resnet20().features.layer, FeatureLayer::Average);
    let residual = NetworkConfig::sphereface20().stages[1].residual;
    assert_eq!(residual, Some(Residual::Sphereface));
}

#[test]
fn every_network_survives_serialization() {
    for name in NetworkConfig::NAMES {
        let config = NetworkConfig::named(name).unwrap();
        assert_eq!(toml::from_str::<NetworkConfig>(&toml::to_string(&config).unwrap()), Ok(config));
    }
    let config = NetworkConfig::lfw();
    let path = std::env::temp_dir().join(format!("lsoftmax-nn-{}.json", std::process::id()));
    config.save(&path).unwrap();
    let loaded = NetworkConfig::load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(loaded, config);
}

#[test]
fn a_description_with_an_unknown_key_is_rejected() {
    for (text, message) in [
        (
            "input = [1, 2, 2]\nstages = []\nfeatures = { size = 2 }\nhead = 3",
            "unknown field `head`",
        ),
        (
            "input = [1, 2, 2]\nstages = []\nfeatures = { size = 2, bias = true }",
            "unknown field `bias`",
        ),
        (
            "input = [1, 2, 2]\nstages = [{ filters = 2, units = 1, pad = 1 }]",
            "unknown field `pad`",
        ),
        (
            "input = [1, 2, 2]\nstages = []\nfeatures = { size = 2, activation = \"tanh\" }",
            "unknown variant `tanh`",
        ),
        ("input = [1, 2, 2]\nstages = []", "missing field `features`"),
    ] {
        let found = toml::from_str::<NetworkConfig>(text).unwrap_err().to_string();
        assert!(found.contains(message), "{text}: {found}");
    }
}

#[test]
fn the_error_of_an_unknown_name_lists_all_names() {
    for name in ["cifra10", "MNIST", ""] {
        let message = NetworkConfig::named(name).unwrap_err().to_string();
        let expected = format!(
            "there is no network called \"{name}\": the networks are mnist-2d, mnist, cifar10, cifar100, lfw, resnet20, sphereface20"
        );
        assert_eq!(message, expected);
    }
}

#[test]
fn a_named_network_has_the_classes_of_its_data_set() {
    let classes = NetworkConfig::NAMES.map(|name| NamedNetwork::named(name).unwrap().classes);
    assert_eq!(classes, [10, 10, 10, 100, 10_572, 10, 10_572]);
}

/// The error message of the cifar10 network after a change.
fn message(change: impl FnOnce(&mut NetworkConfig)) -> String {
    let mut config = NetworkConfig::cifar10();
    change(&mut config);
    let error = config.stack().unwrap_err();
    assert_eq!(config.summary().unwrap_err(), error);
    assert_eq!(config.init(&Device::flex()).unwrap_err(), error);
    error.to_string()
}

#[test]
fn a_description_whose_layers_do_not_fit_is_rejected() {
    let found = message(|config| config.input[1] = 0);
    assert_eq!(found, "the height of the input must be from 1 to 65536, but is 0");
    let found = message(|config| config.stages[0].filters = 0);
    assert_eq!(found, "the number of filters of conv0 must be from 1 to 65536, but is 0");
    let found = message(|config| config.stages[2].kernel = usize::MAX);
    assert!(found.starts_with("the kernel of conv2 must be from 1 to 65536, but is 1844"));
    let found = message(|config| config.stages[1].stride = 3);
    assert_eq!(found, "the stride of conv1 must be from 1 to 2, but is 3");
    let found = message(|config| config.stages[1].units = 0);
    assert_eq!(found, "the number of units of conv1 must be from 1 to 1000, but is 0");
    let found = message(|config| config.stages.iter_mut().for_each(|stage| stage.units = 400));
    assert_eq!(
        found,
        "the number of units of all stages together must be from 1 to 1000, but is 1600"
    );
    let found = message(|config| config.features.size = 0);
    assert_eq!(found, "the number of features must be from 1 to 65536, but is 0");
    let found = message(|config| config.stages[1].filters = 65_536);
    assert!(found.ends_with(
        "which is more than 2147483648; use fewer filters or features, or more pooling"
    ));
}

#[test]
fn the_largest_sizes_do_not_overflow() {
    let stage = StageConfig { kernel: 65_536, ..StageConfig::new(65_536, 1000) };
    let config = NetworkConfig {
        input: [65_536; 3],
        stages: vec![stage],
        features: FeaturesConfig::new(65_536),
    };
    assert!(matches!(config.stack(), Err(NetworkError::Stack(StackError::Large { unit: 0 }))));
    // Few weights on large feature maps give many multiply-adds.
    let stage = StageConfig { pool: false, ..StageConfig::new(1, 999) };
    let mut config = NetworkConfig { input: [1, 46_000, 46_000], stages: vec![stage], ..config };
    config.features.size = 1;
    let summary = config.summary().unwrap();
    assert!(summary.multiply_adds > 999 * 9 * 46_000 * 46_000);
}

#[test]
fn a_network_without_stages_is_the_feature_layer() {
    let config =
        NetworkConfig { input: [1, 4, 3], stages: vec![], features: FeaturesConfig::new(7) };
    let network = config.init(&Device::flex()).unwrap();
    assert_eq!(network.units.len(), 1);
    assert_eq!(network.units[0].weight.dims(), [7, 1, 4, 3]);
    assert_eq!(network.stack().output(), [7, 1, 1]);
}
