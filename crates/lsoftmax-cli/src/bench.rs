//! `lsoftmax bench`.

use lsoftmax_lab::bench::{HeadBench, HeadTiming, Heap, Length};
use peakmem_alloc::{PeakMemAlloc, PeakMemAllocTrait};
use std::alloc::System;

use crate::arguments::HeadArguments;

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

pub fn run(arguments: HeadArguments) -> anyhow::Result<String> {
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
    if arguments.json { crate::json(&timing) } else { Ok(text(&timing)) }
}

fn text(timing: &HeadTiming) -> String {
    let HeadTiming {
        samples, features, classes, margin, lambda, precision, kernel, threads, ..
    } = timing;
    let bias = if timing.bias { ", bias" } else { "" };
    let threads = if *threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
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
