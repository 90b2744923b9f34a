//! Evaluating a model whose head is divided over ranks.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use lsoftmax::HeadError;
use lsoftmax_data::{Images, Mean};

use super::ShardedLearner;
use crate::batch;
use crate::evaluate::{
    Classified, EvaluateError, Evaluation, EvaluationSums, WatchImages, for_each_batch,
};
use crate::model::ModelError;
use crate::test_details::{DetailSums, TestDetails};

impl ShardedLearner {
    /// Evaluates the model on all images, on all ranks.
    pub fn evaluate(
        &self,
        images: &Arc<Images>,
        mean: &Mean,
        watch: &mut WatchImages<'_>,
    ) -> Result<Evaluation, EvaluateError> {
        let mut sums = EvaluationSums::default();
        self.for_each_image(images, mean, |_, _, found| sums.add(found), watch)?;
        Ok(sums.evaluation())
    }

    /// As [`ShardedLearner::evaluate`], with what a finished run tells about its test images; but without the picture
    /// of a network with two features, which would take the weights of all classes.
    pub fn evaluate_with_details(
        &self,
        images: &Arc<Images>,
        mean: &Mean,
        watch: &mut WatchImages<'_>,
    ) -> Result<(Evaluation, TestDetails), EvaluateError> {
        let classes = self.head().layout().all_classes();
        let mut details = DetailSums::new(classes, self.head().features());
        let visit = |features: &[f32], label: u32, found: Classified| {
            details.add(features, label, found);
        };
        self.for_each_image(images, mean, visit, watch)?;
        Ok(details.result(None))
    }

    /// Calls `visit` with the features and the label of every image, in order, and how it is classified.
    fn for_each_image(
        &self,
        images: &Arc<Images>,
        mean: &Mean,
        mut visit: impl FnMut(&[f32], u32, Classified),
        watch: &mut WatchImages<'_>,
    ) -> Result<(), EvaluateError> {
        let head = self.head().for_evaluation().map_err(HeadError::from);
        let (network, head) = (self.trunk().network.valid(), head.map_err(ModelError::from)?);
        let (device, width) = (self.device(), head.features());
        let features = |batch| {
            let features = network.forward(batch::images(batch, &device));
            let features = features.map_err(ModelError::from)?;
            Ok(features.into_data().iter::<f32>().collect())
        };
        let classify = |rows: &[f32], labels: &[u32]| {
            let shape = [labels.len(), width];
            let x = Tensor::<2>::from_data(TensorData::new(rows.to_vec(), shape), &device);
            let y: Vec<i64> = labels.iter().copied().map(i64::from).collect();
            let y = Tensor::from_data(TensorData::new(y, [labels.len()]), &device);
            let output = head.forward(x, y, 0.0).map_err(ModelError::from)?;
            let found = output.losses().iter().zip(output.correct()).zip(output.degrees());
            let images = rows.chunks_exact(width).zip(labels).zip(found);
            for ((features, label), ((loss, correct), degrees)) in images {
                visit(features, *label, Classified { correct, loss: (*loss).into(), degrees });
            }
            Ok(())
        };
        for_each_batch(network.ranks(), images, mean, width, features, classify, watch)
    }
}
