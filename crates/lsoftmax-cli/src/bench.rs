//! `lsoftmax bench`.

use lsoftmax::Precision;
use lsoftmax_lab::bench::{HeadBench, HeadTiming, Heap, Length, TrainBench, TrainTiming};
use lsoftmax_nn::NetworkConfig;
use peakmem_alloc::{PeakMemAlloc, PeakMemAllocTrait};
use std::alloc::System;

use crate::arguments::{Bench, HeadArguments, TrainBenchArguments};

/// The program's allocator, as the lab sees it.
struct Counted(&'static PeakMemAlloc<System>);

impl Heap for Counted {
    fn reset(&self) {
        self.0.reset_peak_memory();
    }

    fn peak(&self) -> usize {
        self.0.get_peak_memory()
    }
}

pub fn run(bench: Bench) -> anyhow::Result<String> {
    match bench {
        Bench::Head(arguments) => head(arguments),
        Bench::Train(arguments) => train(arguments),
    }
}

fn head(arguments: HeadArguments) -> anyhow::Result<String> {
    let bench = HeadBench {
        samples: arguments.samples,
        features: arguments.features,
        classes: arguments.classes,
        margin: arguments.margin,
        lambda: arguments.lambda,
        precision: arguments.precision,
        bias: arguments.bias,
        length: arguments.steps.map_or(Length::Time(arguments.seconds), Length::Steps),
        threads: arguments.threads.map(usize::from),
    };
    if bench.threads.is_none() {
        lsoftmax_lab::threads::start()?;
    }
    let timing = bench.run(&Counted(crate::HEAP))?;
    if arguments.json { crate::json(&timing) } else { Ok(head_text(&timing)) }
}

fn train(arguments: TrainBenchArguments) -> anyhow::Result<String> {
    let network = NetworkConfig::named(&arguments.network)?;
    let classes = arguments.classes.unwrap_or(match arguments.network.as_str() {
        "cifar100" => 100,
        "lfw" => 10_572,
        _ => 10,
    });
    let bench = TrainBench {
        name: arguments.network,
        network,
        classes,
        batch: arguments.batch,
        margin: arguments.margin,
        precision: if arguments.composed { Precision::F32 } else { arguments.precision },
        composed: arguments.composed,
        steps: arguments.steps,
        threads: arguments.threads.map(usize::from),
    };
    if bench.threads.is_none() {
        lsoftmax_lab::threads::start()?;
    }
    let timing = bench.run(&Counted(crate::HEAP))?;
    if arguments.json { crate::json(&timing) } else { Ok(train_text(&timing)) }
}

fn train_text(timing: &TrainTiming) -> String {
    let TrainTiming { network, batch, classes, margin, precision, path, threads, .. } = timing;
    format!(
        "{network}, batches of {batch}, {classes} classes: m = {margin}, {precision} on {path}, {}\n\
         training {:.1} images/s (median of {} steps), {:.0} Gflop/s, {:.0} % of the loop's peak of \
         {:.0}; inference {:.1} images/s; {:.0} MB at most\n\
         the loader makes {:.0} images/s ready on one thread",
        count(*threads),
        timing.images_per_second,
        timing.steps,
        timing.gflops,
        100.0 * timing.gflops / timing.peak_gflops,
        timing.peak_gflops,
        timing.inference_images_per_second,
        timing.peak_bytes as f64 / 1e6,
        timing.loader_images_per_second,
    )
}

fn count(threads: usize) -> String {
    if threads == 1 { "1 thread".into() } else { format!("{threads} threads") }
}

fn head_text(timing: &HeadTiming) -> String {
    let HeadTiming {
        samples, features, classes, margin, lambda, precision, kernel, threads, ..
    } = timing;
    let bias = if timing.bias { ", bias" } else { "" };
    let threads = count(*threads);
    format!(
        "head {samples} x {features} -> {classes}: m = {margin}, λ = {lambda}{bias}, \
         {precision} on {kernel}, {threads}\n\
         {:.3} ms forward and backward (median of {} steps, fastest {:.3}), {:.0} Gflop/s, \
         {:.1} MB beside x, W and their gradients",
        timing.milliseconds,
        timing.steps,
        timing.fastest_milliseconds,
        timing.gflops,
        timing.peak_bytes as f64 / 1e6,
    )
}
