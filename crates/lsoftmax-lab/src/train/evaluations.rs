//! The evaluations of a run: of the held-out images as it goes, of the test images at its end.

use std::ops::ControlFlow;
use std::sync::Arc;

use lsoftmax_data::Images;

use super::divergence::{Settings, check_evaluation, check_loss};
use super::journal::Observer;
use super::trainer::Trainer;
use super::training::Training;
use super::{Phase, TrainError};
use crate::evaluate::{Evaluation, evaluate_watched};
use crate::model::Classifier;
use crate::run::Metric;
use crate::test_details::{TestDetails, evaluate_with_details};

/// The results on the held-out images and on the test images.
type FinalEvaluations = (Option<Evaluation>, Option<(Evaluation, TestDetails)>);

impl Trainer<'_> {
    /// Evaluates the held-out images, and the test images if the recipe asks for their curve. Nothing is
    /// logged until both are done, so that they can be interrupted and made again.
    pub(super) fn evaluate(
        &mut self,
        settings: Settings,
        observe: &mut Observer<'_>,
    ) -> Result<(), TrainError> {
        let (step, steps) = (self.step, self.recipe.steps);
        let validation = self.validate(observe)?;
        if let Some(found) = &validation {
            check_evaluation((step, steps), found, self.data.classes, settings)?;
        }
        let test = self.test_for_curve(observe)?;
        if let Some(found) = validation {
            let metric = Metric::Validation { step, loss: found.loss, error: found.error };
            self.journal.log(&metric, observe)?;
            let mut schedule = self.schedule();
            schedule.record_evaluation(found.loss);
            self.rate = schedule.state;
            self.select(step, found);
            self.validated = Some((step, found));
        }
        if let Some(found) = test {
            let metric = Metric::Test { step, loss: found.loss, error: found.error };
            self.journal.log(&metric, observe)?;
        }
        Ok(())
    }

    /// The evaluations of the model that is kept; that on the held-out images has usually been made.
    pub(super) fn final_evaluations(
        &self,
        kept: Option<&Classifier>,
        observe: &mut Observer<'_>,
    ) -> Result<FinalEvaluations, TrainError> {
        let validation = match (self.best_kept(), self.validated) {
            (Some(best), _) => Some(best.evaluation),
            (None, Some((step, found))) if step == self.step => Some(found),
            _ => self.validate(observe)?,
        };
        let settings = self.settings(self.next_settings());
        if let Some(found) = &validation {
            check_loss(self.step, "held-out", found.loss, settings)?;
        }
        let Some(images) = &self.data.test else { return Ok((validation, None)) };
        let (mean, mut watch) = (self.data.loader.mean(), self.watch(Phase::Test, images, observe));
        let test = match (&self.training, kept) {
            (Training::Sharded(learner), _) => {
                learner.evaluate_with_details(images, mean, &mut watch)?
            }
            (_, Some(kept)) => evaluate_with_details(kept, images, mean, &mut watch)?,
            (_, None) => unreachable!("a model that is not divided is whole"),
        };
        check_loss(self.step, "test", test.0.loss, settings)?;
        Ok((validation, Some(test)))
    }

    fn validate(&self, observe: &mut Observer<'_>) -> Result<Option<Evaluation>, TrainError> {
        let Some(images) = &self.data.validation else { return Ok(None) };
        self.evaluate_images(Phase::Validation, images, observe).map(Some)
    }

    /// The evaluation on the test images, if the recipe asks for their curve. Nothing depends on it: a
    /// loss that is not finite is left out of the log, and detected elsewhere.
    fn test_for_curve(&self, observe: &mut Observer<'_>) -> Result<Option<Evaluation>, TrainError> {
        let Some(images) = self.data.test.as_ref().filter(|_| self.recipe.test_curve) else {
            return Ok(None);
        };
        let found = self.evaluate_images(Phase::Test, images, observe)?;
        Ok(Some(found).filter(|found| found.loss.is_finite()))
    }

    /// Evaluates the current model.
    fn evaluate_images(
        &self,
        phase: Phase,
        images: &Arc<Images>,
        observe: &mut Observer<'_>,
    ) -> Result<Evaluation, TrainError> {
        let (mean, mut watch) = (self.data.loader.mean(), self.watch(phase, images, observe));
        Ok(match (&self.training, self.current_model()) {
            (Training::Sharded(learner), _) => learner.evaluate(images, mean, &mut watch)?,
            (_, Some(model)) => evaluate_watched(&model, images, mean, &mut watch)?,
            (_, None) => unreachable!("a model that is not divided is whole"),
        })
    }

    /// Reports the progress of an evaluation, and stops it with the run.
    fn watch(
        &self,
        phase: Phase,
        images: &Images,
        observe: &mut Observer<'_>,
    ) -> impl FnMut(usize) -> ControlFlow<()> {
        let (total, stop) = (images.len(), &self.options.stop);
        move |done| phase.report((done, total), stop, observe)
    }
}
