//! The shards of a head in a checkpoint, and the file of the finished model. Rank 0 has the directory of the run:
//! the other ranks send it their shards, one at a time, so that it never has more than one that is not its own.

use std::collections::HashMap;
use std::io::Write;

use burn::module::Module;
use burn::store::ModuleRecord;
use burn::tensor::{Bytes, Tensor, TensorData};
use lsoftmax::{HeadShard, RowSgd};
use lsoftmax_data::files::{persist, temporary};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use sha2::{Digest, Sha256};

use super::ShardedLearner;
use super::shards::ShardOptimiser;
use crate::model_file::{DESCRIPTION, ModelDescription, WEIGHTS, each_network_tensor, hexadecimal};
use crate::run::{RunDirectory, RunError, read_shard, write_shard};

impl ShardedLearner {
    /// The records of what every rank has: network and scale, and their optimiser.
    pub fn trunk_records(&self) -> Result<[Vec<u8>; 2], String> {
        let text = |error: burn::store::RecordError| error.to_string();
        let model = self.trunk().clone().into_record().into_bytes().map_err(text)?;
        let optimiser = self.optimiser.into_bytes().map_err(|error| error.to_string())?;
        Ok([model.to_vec(), optimiser.to_vec()])
    }

    /// Continues from these records.
    pub fn load_trunk(&mut self, model: Vec<u8>, optimiser: Vec<u8>) -> Result<(), String> {
        let record = ModuleRecord::from_bytes(Bytes::from_bytes_vec(model));
        let record = record.map_err(|error| error.to_string())?;
        let trunk = self.trunk.take().expect("only an update takes it, and puts it back");
        let trunk = trunk.try_load_record(record).map_err(|error| error.to_string())?;
        self.shards.head.log_scale.clone_from(&trunk.log_scale);
        self.trunk = Some(trunk);
        let loaded = self.optimiser.clone().from_bytes(Bytes::from_bytes_vec(optimiser));
        self.optimiser = loaded.map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Writes all shards with their optimisers to the checkpoint of a step; returns their digests, on rank 0.
    pub fn write_shards(&self, run: &RunDirectory, step: u64) -> Result<Vec<String>, RunError> {
        let (layout, ranks) = (self.head().layout(), self.ranks());
        let mut digests = Vec::new();
        for shard in 0..layout.count() {
            let owner = layout.rank_of(shard, ranks.size());
            let bytes = if owner == ranks.rank() { self.shard_record(shard) } else { Vec::new() };
            let bytes = ranks.send(owner, 0, bytes);
            if ranks.is_first() {
                digests.push(write_shard(run, step, shard, &bytes)?);
            }
        }
        Ok(digests)
    }

    /// Reads the shards of this rank from the checkpoint of a step. Rank 0 reads them for all; the digests of the
    /// others are not needed.
    pub fn load_shards(
        &mut self,
        run: &RunDirectory,
        step: u64,
        digests: &[String],
    ) -> Result<(), RunError> {
        let layout = self.head().layout();
        let ranks = self.head().ranks().clone();
        let mut shards = std::mem::take(&mut self.shards.head.shards).into_iter();
        for shard in 0..layout.count() {
            let owner = layout.rank_of(shard, ranks.size());
            let (path, bytes) = match ranks.is_first() {
                true => read_shard(run, step, shard, digests)?,
                false => (run.path().to_owned(), Vec::new()),
            };
            let bytes = ranks.send(0, owner, bytes);
            if owner == ranks.rank() {
                let old = shards.next().expect("one per shard of this rank");
                let index = self.head().shards.len();
                let loaded = self.loaded_shard(shard, index, old, &bytes);
                let loaded = loaded.map_err(|problem| RunError::damaged(&path, problem))?;
                self.shards.head.shards.push(loaded);
            }
        }
        Ok(())
    }

    /// A shard and its optimiser: the length of the weights, the weights, the optimiser's record.
    fn shard_record(&self, shard: usize) -> Vec<u8> {
        let index = shard - self.head().mine().start;
        let weights = self.shard_bytes(index);
        let optimiser = match &self.shards.optimisers[index] {
            ShardOptimiser::All(optimiser) => {
                let record = optimiser.into_bytes();
                record.expect("the state of an optimiser is plain tensors").to_vec()
            }
            ShardOptimiser::Drawn(optimiser) => {
                optimiser.velocity().map_or(Vec::new(), |velocity| le_bytes(velocity.clone()))
            }
        };
        [&(weights.len() as u64).to_le_bytes()[..], &weights, &optimiser].concat()
    }

    fn loaded_shard(
        &mut self,
        shard: usize,
        index: usize,
        old: HeadShard,
        bytes: &[u8],
    ) -> Result<HeadShard, String> {
        let shape = old.weight.dims();
        drop(old);
        let truncated = || "is truncated".to_owned();
        let (length, rest) = bytes.split_first_chunk().ok_or_else(truncated)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (weights, optimiser) = rest.split_at_checked(length).ok_or_else(truncated)?;
        let tensor = |bytes: &[u8]| {
            let numbers: Vec<f32> =
                bytes.as_chunks().0.iter().map(|one| f32::from_le_bytes(*one)).collect();
            match numbers.len() == shape[0] * shape[1] {
                true => Ok(Tensor::<2>::from_data(TensorData::new(numbers, shape), &self.device())),
                false => Err("has another number of weights than its classes".to_owned()),
            }
        };
        let state = match &self.shards.optimisers[index] {
            ShardOptimiser::All(empty) => {
                let bytes = Bytes::from_bytes_vec(optimiser.to_vec());
                let read = empty.clone().from_bytes(bytes).map_err(|error| error.to_string())?;
                ShardOptimiser::All(read)
            }
            ShardOptimiser::Drawn(rows) => {
                let velocity = (!optimiser.is_empty()).then(|| tensor(optimiser)).transpose()?;
                ShardOptimiser::Drawn(Box::new(RowSgd::clone(rows).with_velocity(velocity)))
            }
        };
        let weights = tensor(weights)?;
        self.shards.optimisers[index] = state;
        Ok(HeadShard::new(shard, weights))
    }

    /// The weights of a shard of this rank.
    fn shard_bytes(&self, index: usize) -> Vec<u8> {
        le_bytes(self.head().shards[index].weight.val())
    }

    /// Writes the finished model, as [`model_file::write`](crate::model_file::write) does, shard by shard.
    pub fn write_model(
        &self,
        run: &RunDirectory,
        description: &ModelDescription,
    ) -> Result<(), RunError> {
        let ranks = self.ranks();
        let (layout, width) = (self.head().layout(), self.head().features());
        let mut file = None;
        let path = run.file(WEIGHTS);
        let failed = || RunError::io(&path, "written");
        if ranks.is_first() {
            let mut written = HashedFile::new(temporary(run.path()).map_err(failed())?);
            let (header, trunk) = self.trunk_tensors([layout.all_classes(), width]);
            written.add(&header).and_then(|()| written.add(&trunk)).map_err(failed())?;
            file = Some(written);
        }
        for shard in 0..layout.count() {
            let owner = layout.rank_of(shard, ranks.size());
            let mine = owner == ranks.rank();
            let bytes =
                if mine { self.shard_bytes(shard - self.head().mine().start) } else { Vec::new() };
            let bytes = ranks.send(owner, 0, bytes);
            if let Some(file) = &mut file {
                file.add(&bytes).map_err(failed())?;
            }
        }
        if let Some(HashedFile { file, hash }) = file {
            persist(file, &path).map_err(failed())?;
            let weights_sha256 = Some(hexadecimal(&hash.finalize()));
            run.write_json(
                DESCRIPTION,
                &ModelDescription { weights_sha256, ..description.clone() },
            )?;
        }
        Ok(())
    }

    /// The header of a safetensors file with all tensors, and the contents of those before the head's weights, which
    /// come last.
    fn trunk_tensors(&self, head: [usize; 2]) -> (Vec<u8>, Vec<u8>) {
        let mut infos: Vec<(String, TensorInfo)> = Vec::new();
        let mut contents = Vec::new();
        let mut start = 0;
        let mut add = |name: String, shape: Vec<usize>| {
            let end = start + 4 * shape.iter().product::<usize>();
            infos.push((name, TensorInfo { dtype: Dtype::F32, shape, data_offsets: (start, end) }));
            start = end;
        };
        let mut network = self.trunk().network.clone();
        let added = each_network_tensor(&mut network, &mut |name, tensor| {
            let data = tensor.data();
            add(name, data.shape().iter().copied().collect());
            contents.extend(data.iter::<f32>().flat_map(f32::to_le_bytes));
            Ok(())
        });
        added.expect("reading a tensor does not fail");
        if let Some(log) = &self.trunk().log_scale {
            add("head.log_scale".into(), vec![1]);
            contents.extend(log.val().into_data().iter::<f32>().flat_map(f32::to_le_bytes));
        }
        add("head.weight".into(), head.into());
        let metadata = Metadata::new(None::<HashMap<String, String>>, infos);
        let metadata = metadata.expect("the tensors follow one another");
        let mut text = serde_json::to_vec(&metadata).expect("plain values become JSON");
        text.resize(text.len().next_multiple_of(8), b' ');
        let mut header = (text.len() as u64).to_le_bytes().to_vec();
        header.extend(text);
        (header, contents)
    }
}

/// A file that is being written, and the hash of its contents.
struct HashedFile {
    file: lsoftmax_data::files::NamedTempFile,
    hash: Sha256,
}

impl HashedFile {
    fn new(file: lsoftmax_data::files::NamedTempFile) -> Self {
        Self { file, hash: Sha256::new() }
    }

    fn add(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.hash.update(bytes);
        self.file.write_all(bytes)
    }
}

fn le_bytes(tensor: Tensor<2>) -> Vec<u8> {
    tensor.into_data().iter::<f32>().flat_map(f32::to_le_bytes).collect()
}
