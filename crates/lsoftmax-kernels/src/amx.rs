//! AMX
use crate::avx512::Avx512Bf16;
pub(crate) type Amx = Avx512Bf16;
