//! The head as a module: configuration, scores, conversion to and from linear layers.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::config::Config;
use burn::module::{Initializer, Module, Param};
use burn::nn::LinearConfig;
use burn::tensor::{DType, Device, Tensor};
use lsoftmax::{Execution, HeadError, LSoftmaxConfig, Precision, ShapeError};
use support::way::{tensor, values};
use support::{
    Batch, Setup, Way, assert_close, assert_gradients_close, assert_same_bits, definition,
};

fn parse(text: &str) -> Result<LSoftmaxConfig, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The panic message of a call.
fn panic_of<T>(call: impl FnOnce() -> T) -> String {
    let payload = catch_unwind(AssertUnwindSafe(call)).err().expect("a panic");
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| text.to_string())).unwrap()
}

#[test]
fn a_configuration_needs_only_the_sizes() {
    let found = parse(r#"{"features": 256, "classes": 10}"#).unwrap();
    assert_eq!((found.features, found.classes, found.margin.value()), (256, 10, 4.0));
    assert_eq!((found.bias, found.precision), (false, Precision::F32));
    let built = LSoftmaxConfig::new(256, 10);
    assert_eq!(serde_json::to_value(found).unwrap(), serde_json::to_value(built).unwrap());
}

#[test]
fn a_configuration_survives_serialization() {
    let config = LSoftmaxConfig::new(12, 7)
        .with_margin(2.5)
        .with_bias(true)
        .with_precision(Precision::Bf16)
        .with_initializer(Initializer::Constant { value: 0.25 });
    let path = std::env::temp_dir().join(format!("lsoftmax-head-{}.json", std::process::id()));
    config.save(&path).unwrap();
    let loaded = LSoftmaxConfig::load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(serde_json::to_value(&loaded).unwrap(), serde_json::to_value(&config).unwrap());
    let head = loaded.init(&Device::flex());
    assert_eq!(head.margin.value(), 2.5);
    assert_eq!(head.execution, Execution::new(Precision::Bf16));
    assert!(values(head.weight.val()).iter().all(|w| *w == 0.25));
}

#[test]
fn an_invalid_configuration_is_rejected() {
    for (text, message) in [
        (r#"{"features": 2, "classes": 2, "margins": 4}"#, "unknown field `margins`"),
        (r#"{"features": 2, "classes": 2, "margin": 0.5}"#, "the margin must be a number from 1"),
        (r#"{"features": 2}"#, "missing field `classes`"),
        (r#"{"features": 2, "classes": 2, "precision": "f16"}"#, "unknown variant `f16`"),
    ] {
        let found = parse(text).unwrap_err();
        assert!(found.contains(message), "{text}: {found}");
    }
}

#[test]
fn a_head_without_features_or_classes_cannot_be_built() {
    for (features, classes) in [(0, 3), (3, 0)] {
        let message = panic_of(|| LSoftmaxConfig::new(features, classes).init(&Device::flex()));
        assert_eq!(message, "a head needs features and classes");
    }
    let message = panic_of(|| LSoftmaxConfig::new(2, 2).with_margin(0.5));
    assert_eq!(message, "the margin must be a number from 1 to 1000, but is 0.5");
}

#[test]
fn scores_do_not_depend_on_the_margin() {
    for margin in [1.0, 2.5, 4.0] {
        let batch = Batch::random(61, 8, 6, 5).with_bias(true).with_margin(margin);
        let expected: Vec<f64> = (0..8)
            .flat_map(|i| (0..5).map(move |j| (i, j)))
            .map(|(i, j)| definition::plain_logit(&batch, i, j))
            .collect();
        for way in Way::ALL {
            let setup = Setup::new(way, &batch);
            let flat = setup.head.logits(setup.features.clone());
            let tolerance = if way == Way::ComposedF64 { 1e-14 } else { 1e-5 };
            assert_close(&format!("{way:?}"), &values(flat), &expected, tolerance);
            // Any number of leading dimensions.
            let deep = setup.head.logits(setup.features.clone().reshape([2, 4, 6]));
            assert_eq!(deep.dims(), [2, 4, 5]);
            assert_close(&format!("{way:?}"), &values(deep), &expected, tolerance);
        }
    }
}

#[test]
fn a_prediction_is_the_first_largest_score() {
    let rows: [&[f64]; 3] = [&[1.0, 0.0], &[0.0, 1.0], &[0.0, 1.0]];
    let batch = Batch::new(&[&[2.0, 1.0], &[1.0, 2.0], &[0.0, 0.0], &[-1.0, -2.0]], &rows, &[0; 4]);
    let setup = Setup::new(Way::Fused, &batch);
    let found = setup.head.predict(setup.features.clone());
    assert_eq!(found.dims(), [4]);
    assert_eq!(found.into_data().iter::<i64>().collect::<Vec<_>>(), [0, 1, 0, 0]);
}

/// 16-bit tensors use the composed loss. Tolerance: the cosine is rounded once, which ψ amplifies by at
/// most m², in a logit of up to 2m|W||x|.
#[test]
fn half_precision_tensors_have_a_loss_and_gradients() {
    let exact = Batch::random(65, 6, 5, 7).with_bias(true).with_lambda(0.5);
    for (dtype, epsilon) in [(DType::F16, 2f64.powi(-10)), (DType::BF16, 2f64.powi(-7))] {
        for m in [1.0, 2.5, 4.0] {
            let batch = exact.clone().with_margin(m);
            let mut setup = Setup::new(Way::Composed, &batch);
            let parameter = |rows: Tensor<2>| Param::from_tensor(rows.cast(dtype).detach());
            setup.features = parameter(setup.features).val();
            setup.head.weight = parameter(setup.head.weight.val());
            setup.head.bias =
                setup.head.bias.map(|bias| Param::from_tensor(bias.val().cast(dtype).detach()));
            let output =
                setup.head.forward(setup.features.clone(), setup.labels.clone(), 0.5).unwrap();
            assert_eq!(output.loss.dtype(), dtype);
            let what = format!("{dtype:?}, margin {m}");
            let tolerance = epsilon * (2.0 * m + m * m) * batch.largest_norm_product();
            assert_close(
                &what,
                &values(output.losses.clone()),
                &definition::losses(&batch),
                tolerance,
            );
            let expected = definition::gradients(&batch, 1e-4);
            assert_gradients_close(
                &what,
                &setup.gradients(&output.loss),
                &expected,
                epsilon * (2.0 + m * m),
            );
            assert_eq!(output.report().unwrap().samples, 6);
        }
    }
}

/// The bias of the layer is taken over too, on the head's device and in the layer's float type.
#[test]
fn a_head_takes_the_weights_of_any_linear_layer_of_its_sizes() {
    let layer = LinearConfig::new(6, 5).init(&Device::flex());
    let head = LSoftmaxConfig::new(6, 5).init(&Device::flex().autodiff());
    let taken = head.with_linear(&layer).unwrap();
    assert_same_bits(
        "weights",
        &values(taken.weight.val().transpose()),
        &values(layer.weight.val()),
    );
    let bias = taken.bias.as_ref().unwrap();
    assert_same_bits("bias", &values(bias.val()), &values(layer.bias.as_ref().unwrap().val()));
    assert!(taken.weight.device().is_autodiff() && bias.device().is_autodiff());

    let device = Device::flex().autodiff();
    let features: Tensor<2> = tensor(&[0.5; 12], [2, 6], &device, DType::F32);
    let labels = Tensor::from_data([1, 3], &device);
    let gradients = taken.forward(features, labels, 0.0).unwrap().loss.backward();
    assert!(taken.weight.val().grad(&gradients).is_some() && bias.val().grad(&gradients).is_some());

    let setup = Setup::new(Way::ComposedF64, &Batch::random(62, 3, 6, 5));
    let wide =
        LSoftmaxConfig::new(6, 5).init(&device).with_linear(&setup.head.to_linear()).unwrap();
    assert_eq!(wide.weight.dtype(), DType::F64);
    assert_same_bits("f64", &values(wide.weight.val()), &values(setup.head.weight.val()));
}

#[test]
fn a_linear_layer_of_other_sizes_is_rejected() {
    let head = || LSoftmaxConfig::new(6, 5).init(&Device::flex());
    let layer = |features, classes| LinearConfig::new(features, classes).init(&Device::flex());
    let error = head().with_linear(&layer(7, 5)).unwrap_err();
    assert_eq!(error, HeadError::Features { expected: 6, found: 7 });
    let error = head().with_linear(&layer(6, 4)).unwrap_err();
    let what = "the layer's weights";
    assert_eq!(error, ShapeError::Length { what, expected: 30, found: 24 }.into());
}

/// A layer converted from a head is independent: gradients of one do not reach the other.
#[test]
fn a_linear_layer_converted_from_a_head_is_not_part_of_its_graph() {
    let setup = Setup::new(Way::Fused, &Batch::random(63, 3, 6, 5).with_bias(true));
    let layer = setup.head.to_linear();
    let own = setup.output().loss.backward();
    let other = layer.forward(setup.features.clone()).sum().backward();
    assert!(layer.weight.val().grad(&own).is_none() && layer.weight.val().grad(&other).is_some());
    assert!(setup.head.weight.val().grad(&other).is_none());
    assert!(layer.bias.as_ref().unwrap().val().grad(&own).is_none());
    assert!(setup.head.bias.as_ref().unwrap().val().grad(&other).is_none());
}

#[test]
fn a_record_in_a_file_is_loaded_exactly() {
    let setup = Setup::new(Way::Fused, &Batch::random(64, 3, 6, 5).with_bias(true));
    let path = std::env::temp_dir().join(format!("lsoftmax-head-{}.bpk", std::process::id()));
    setup.head.clone().save_file(&path).unwrap();
    let config = LSoftmaxConfig::new(6, 5).with_bias(true).with_margin(2);
    let loaded = config.init(&Device::flex().autodiff()).load_file(&path);
    // Burn reads a parameter at first use; the file must exist until then.
    assert_same_bits("weights", &values(loaded.weight.val()), &values(setup.head.weight.val()));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(loaded.weight.id, setup.head.weight.id, "the optimiser's state is found by it");
    assert_eq!(loaded.margin.value(), 2.0, "a record has no margin: that is configuration");
}
