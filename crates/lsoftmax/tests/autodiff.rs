//! The fused operation inside Burn: views, graphs, threads, frozen parameters.

mod support;

use burn::module::{Module, Param};
use burn::nn::LinearConfig;
use burn::tensor::{Device, Tensor};
use support::way::{tensor, values};
use support::{
    Batch, Gradients, Run, Setup, Way, assert_close, assert_gradients_close, assert_same_bits,
};

/// The tolerance between two f32 computations with different summation orders.
const ROUNDING: f64 = 1e-5;

fn batch() -> Batch {
    Batch::random(31, 13, 10, 21).with_bias(true).with_margin(4.0).with_lambda(0.7)
}

fn assert_same(what: &str, found: &Gradients, expected: &Gradients) {
    for ((part, found), (_, expected)) in found.parts().into_iter().zip(expected.parts()) {
        assert_same_bits(&format!("{what}, {part}"), found, expected);
    }
}

/// The features as views of other tensors, each with the leaf whose gradient is compared.
#[test]
fn views_of_features_and_weights_are_supported() {
    let batch = batch();
    let expected = Run::new(Way::Fused, &batch);
    let device = Device::flex().autodiff();
    let [n, d] = [batch.samples(), batch.depth];
    let plain = || -> Tensor<2> { tensor(&batch.features, [n, d], &device, Way::Fused.dtype()) };

    let transposed = plain().transpose();
    let wide = Tensor::cat(vec![plain().zeros_like(), plain(), plain().ones_like()], 1);
    let tall = Tensor::cat(vec![plain().ones_like(), plain()], 0);
    let spread = Tensor::stack::<3>(vec![plain(), plain().ones_like()], 1).reshape([2 * n, d]);
    type View = fn(Tensor<2>, usize, usize) -> Tensor<2>;
    let views: [(&str, Tensor<2>, View); 5] = [
        ("transposed", transposed, |leaf, _, _| leaf.transpose()),
        ("columns of", wide, |leaf, n, d| leaf.slice([0..n, d..2 * d])),
        ("rows of", tall, |leaf, n, d| leaf.slice([n..2 * n, 0..d])),
        ("every other row of", spread, |leaf, n, d| {
            leaf.reshape([n, 2, d]).slice([0..n, 0..1, 0..d]).reshape([n, d])
        }),
        ("flipped twice", plain(), |leaf, _, _| leaf.flip([0, 1]).flip([0, 1])),
    ];
    for (what, leaf, view) in views {
        let leaf = leaf.set_require_grad(true);
        let setup = Setup { features: view(leaf.clone(), n, d), ..Setup::new(Way::Fused, &batch) };
        let output = setup.output();
        assert_same_bits(what, &values(output.losses.clone()), &expected.losses);
        let gradients = output.loss.backward();
        let found = view(leaf.grad(&gradients).unwrap(), n, d);
        assert_same_bits(what, &values(found), &expected.gradients.features);
    }

    let [k, d] = [batch.classes, batch.depth];
    let rows: Tensor<2> = tensor(&batch.weights, [k, d], &device, Way::Fused.dtype());
    let columns: Vec<f64> = values(rows.clone().transpose());
    let columns: Tensor<2> = tensor(&columns, [d, k], &device, Way::Fused.dtype());
    let padded = Tensor::cat(vec![rows.clone(), rows.ones_like()], 1);
    for (what, weight) in
        [("transposed", columns.transpose()), ("columns of", padded.slice([0..k, 0..d]))]
    {
        let mut setup = Setup::new(Way::Fused, &batch);
        setup.head.weight = Param::from_tensor(weight);
        let output = setup.output();
        assert_same_bits(what, &values(output.losses.clone()), &expected.losses);
        assert_same(what, &setup.gradients(&output.loss), &expected.gradients);
    }
}

/// Weighted losses, whose upstream gradients have various memory layouts.
#[test]
fn weighted_losses_have_the_gradients_of_the_composed_operation() {
    let batch = Batch::random(32, 12, 7, 9).with_bias(true).with_margin(3.0);
    let device = Device::flex().autodiff();
    let shares: Vec<f64> = (0..12).map(|i| f64::from(i) - 4.5).collect();
    let shares = || -> Tensor<1> { tensor(&shares, [12], &device, Way::Fused.dtype()) };
    type Weigh<'a> = &'a dyn Fn(Tensor<1>) -> Tensor<1>;
    let kinds: [(&str, Weigh); 8] = [
        ("product", &|losses| (losses * shares()).sum()),
        ("sum", &|losses| losses.sum()),
        ("negative", &|losses| losses.sum().neg()),
        ("through a transpose", &|losses| {
            (losses.reshape([3, 4]).transpose() * shares().reshape([4, 3])).sum()
        }),
        ("repeated", &|losses| (losses.expand([5, 12]) * shares().expand([5, 12])).sum()),
        ("flipped", &|losses| (losses.flip([0]) * shares()).sum()),
        ("a part", &|losses| losses.narrow(0, 3, 6).sum()),
        ("squared", &|losses| losses.clone().mul(losses).mean()),
    ];
    for (what, weigh) in kinds {
        let found = [Way::Fused, Way::Composed].map(|way| {
            let setup = Setup::new(way, &batch);
            let loss = weigh(setup.output().losses);
            (values(loss.clone()), setup.gradients(&loss))
        });
        let [(fused_loss, fused), (composed_loss, composed)] = found;
        assert_close(what, &fused_loss, &composed_loss, ROUNDING * composed_loss[0].abs().max(1.0));
        assert_gradients_close(what, &fused, &composed, ROUNDING);
    }
}

#[test]
fn frozen_parameters_have_no_gradient_and_do_not_affect_the_others() {
    let batch = batch();
    let expected = Run::new(Way::Fused, &batch).gradients;
    for (features, weights, bias) in [
        (false, true, true),
        (true, false, true),
        (true, true, false),
        (true, false, false),
        (false, false, true),
    ] {
        let mut setup = Setup::new(Way::Fused, &batch);
        setup.features = setup.features.detach().set_require_grad(features);
        setup.head.weight = setup.head.weight.set_require_grad(weights);
        setup.head.bias = setup.head.bias.map(|b| b.set_require_grad(bias));
        let found = setup.output().loss.backward();
        let what = format!("features {features}, weights {weights}, bias {bias}");
        let check = |part: &str, wanted: bool, found: Option<Vec<f64>>, expected: &[f64]| {
            assert_eq!(found.is_some(), wanted, "{what}: {part}");
            found.iter().for_each(|found| assert_same_bits(&what, found, expected));
        };
        let bias_value = setup.head.bias.as_ref().unwrap().val();
        check("features", features, setup.features.grad(&found).map(values), &expected.features);
        check(
            "weights",
            weights,
            setup.head.weight.val().grad(&found).map(values),
            &expected.weights,
        );
        check("bias", bias, bias_value.grad(&found).map(values), expected.bias.as_ref().unwrap());
    }
}

/// A tensor on a device without autodiff counts as frozen; labels may be on either.
#[test]
fn a_tensor_without_autodiff_does_not_affect_the_gradient_of_the_other() {
    let batch = batch();
    for way in [Way::Fused, Way::Composed] {
        let expected = Run::new(way, &batch).gradients;
        let plain = || Setup::on(&Device::flex(), way, &batch);
        let fixed =
            Setup { features: plain().features, labels: plain().labels, ..Setup::new(way, &batch) };
        let weights = fixed.head.weight.val().grad(&fixed.output().loss.backward()).unwrap();
        assert_same_bits(&format!("{way:?}"), &values(weights), &expected.weights);
        let fixed = Setup { head: plain().head, ..Setup::new(way, &batch) };
        let features = fixed.features.grad(&fixed.output().loss.backward()).unwrap();
        assert_same_bits(&format!("{way:?}"), &values(features), &expected.features);
    }
}

#[test]
fn a_device_without_autodiff_gives_the_same_losses() {
    let batch = batch();
    for way in Way::ALL {
        let plain = Setup::on(&Device::flex(), way, &batch).output();
        let tracked = Setup::new(way, &batch).output();
        assert_same_bits(
            &format!("{way:?}"),
            &values(plain.losses.clone()),
            &values(tracked.losses.clone()),
        );
        assert_eq!(plain.report(), tracked.report(), "{way:?}");
    }
}

#[test]
fn gradient_checkpointing_changes_nothing() {
    let batch = batch();
    let device = Device::flex().autodiff().gradient_checkpointing();
    for way in Way::ALL {
        let setup = Setup::on(&device, way, &batch);
        let found = setup.gradients(&setup.output().loss);
        assert_same(&format!("{way:?}"), &found, &Run::new(way, &batch).gradients);
    }
}

#[test]
fn the_gradients_of_two_forward_passes_add_up() {
    let batch = batch();
    for way in [Way::Fused, Way::Composed] {
        let setup = Setup::new(way, &batch);
        let (first, second) = (setup.output(), Setup { lambda: 9.0, ..Setup::new(way, &batch) });
        let second = Setup { features: setup.features.clone(), head: setup.head.clone(), ..second };
        let both = setup.gradients(&(first.loss + second.output().loss.mul_scalar(2.0)));
        let one = Run::new(way, &batch).gradients;
        let other = Run::new(way, &batch.clone().with_lambda(9.0)).gradients;
        let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + 2.0 * b).collect();
        let expected = Gradients {
            features: sum(&one.features, &other.features),
            weights: sum(&one.weights, &other.weights),
            bias: Some(sum(&one.bias.unwrap(), &other.bias.unwrap())),
        };
        assert_gradients_close(&format!("{way:?}"), &both, &expected, 1e-6);
    }
}

/// Results come from a pool of buffers: those still in use must not be reused.
#[test]
fn later_steps_do_not_overwrite_the_results_of_earlier_ones() {
    let batches: Vec<Batch> =
        (0..12).map(|seed| Batch { lambda: seed as f64, ..batch() }).collect();
    let alone: Vec<Run> = batches.iter().map(|batch| Run::new(Way::Fused, batch)).collect();
    let setups: Vec<Setup> = batches.iter().map(|batch| Setup::new(Way::Fused, batch)).collect();
    let outputs: Vec<_> = setups.iter().map(Setup::output).collect();
    let stores: Vec<_> = outputs.iter().map(|output| output.loss.backward()).collect();
    for (((alone, setup), output), store) in alone.iter().zip(&setups).zip(&outputs).zip(&stores) {
        assert_same_bits("losses", &values(output.losses.clone()), &alone.losses);
        let features = setup.features.grad(store).unwrap();
        let weights = setup.head.weight.val().grad(store).unwrap();
        assert_same_bits("features", &values(features), &alone.gradients.features);
        assert_same_bits("weights", &values(weights), &alone.gradients.weights);
    }
}

/// Large enough for several threads and more than one block of classes.
#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for (samples, depth, classes) in [(64, 100, 600), (9, 40, 7000)] {
        let batch = Batch::random(33, samples, depth, classes).with_bias(true).with_margin(4.0);
        for way in [Way::Fused, Way::FusedBf16] {
            let run = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| Run::new(way, &batch))
            };
            let one = run(1);
            for threads in [2, 3] {
                let many = run(threads);
                assert_same_bits("losses", &many.losses, &one.losses);
                assert_same(
                    &format!("{threads} threads ({way:?})"),
                    &many.gradients,
                    &one.gradients,
                );
            }
        }
    }
}

/// Logits are cached for the backward pass only up to a limit (24 MB); this batch exceeds it, so that
/// some are recomputed.
#[test]
fn recomputed_logits_give_the_same_results() {
    let batch = Batch::random(34, 250, 6, 27_000).with_bias(true).with_margin(3.0);
    let [fused, composed] = [Way::Fused, Way::Composed].map(|way| Run::new(way, &batch));
    assert_close("losses", &fused.losses, &composed.losses, ROUNDING * composed.loss);
    assert_gradients_close("gradients", &fused.gradients, &composed.gradients, ROUNDING);
}

/// The gradient propagates to the layers before the head.
#[test]
fn the_layers_before_the_head_get_the_composed_gradient() {
    let batch = batch();
    let device = Device::flex().autodiff();
    device.seed(5);
    let trunk = LinearConfig::new(batch.depth, batch.depth).init(&device);
    let found = [Way::Fused, Way::Composed].map(|way| {
        let setup = Setup::new(way, &batch);
        let features = trunk.forward(setup.features.clone()).tanh();
        let setup = Setup { features, ..setup };
        let gradients = setup.output().loss.backward();
        values(trunk.weight.val().grad(&gradients).unwrap())
    });
    let largest = found[1].iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    assert_close("trunk", &found[0], &found[1], ROUNDING * largest);
}

#[test]
fn a_head_for_inference_has_the_trained_weights() {
    let setup = Setup::new(Way::Fused, &batch());
    let inference = setup.head.clone().valid();
    let features = setup.features.clone().inner();
    let expected = values(setup.head.logits(setup.features.clone()));
    assert_same_bits("logits", &values(inference.logits(features)), &expected);
    assert_eq!(setup.head.num_params(), batch().weights.len() + batch().classes);
}
