"""Where fusion and ONNX Runtime disagree on whether a model is valid, but for what `docs/limits.md` names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from onnx import TensorProto

from tests.frontends.limits.measure import Answer, Engine
from tests.frontends.limits.mutate import BIG
from tests.frontends.limits.seeds import Seed, model_of

Case = tuple[str, Seed]
"""What was changed, and the model."""

# What fusion may say where ONNX Runtime says the other.
_AGREE = {"runs": ("runs", "deferred"), "refused": ("refused", "deferred"), "crash": ("refused",), "hang": ("refused",)}
# ONNX Runtime's complaints of data that only the run knows, of what it has no kernel for, and of memory.
_NOT_OF_THE_MODEL = re.compile(
    r"NOT_IMPLEMENTED|Failed to allocate|out of (data )?bounds|out of range|invalid ind(ex|ice)|Invalid sequence length"
    r"|gather_elements\.cc:150|tensorscatter\.cc:83|modulo by zero|batch_indices value|invalid expand shape"
)
# A case, ours and theirs as in `text`, and the row of docs/limits.md.
_KNOWN: tuple[tuple[str, str], ...] = (
    (rf"{BIG}.*: refused .*ORT runs", "a number beyond 32 bits"),
    (r"(is \w+\[(\d+, )*0(, \d+)*\]|= \[\]).*: runs .*ORT refused", "a tensor without elements"),
    (r"(reduction|mode)=.*: refused .*ORT runs", "a mode that ONNX does not define"),
    (r"interleaved is -?\d+, .*ORT runs", "a flag that is neither 0 nor 1"),
    (r"^GatherND.*axes of .* differ.*ORT runs", "other batches"),
    (r"^ReverseSequence.*_axis -.*ORT runs|^ReverseSequence.*_axis is -.*ORT runs", "a negative axis"),
    (r"layout=1: runs .*ORT refused", "a layout without a kernel"),
    (r"^Attention.*attn_mask is \w+: runs .*ORT refused .*\(T\) of Optype \(Add\)", "a mask of integers"),
    (r"^CenterCropPad.*shape is int32: runs .*ORT refused", "sizes of int32"),
    (r"^RMSNormalization.*: runs .*ORT refused .*\(T\) of Optype \(Mul\)", "a scale of another dtype"),
    (r"^LRN.*: runs .*ORT refused .*lrn\.cc", "an image of other than four axes"),
    (r"^PRelu.*does not broadcast.*ORT runs", "a slope larger than its input"),
    (r"^STFT.*the window is .*ORT runs", "a window that is no row"),
    (r"Pool-.*: runs .*ORT refused .*padding values must be non-negative", "strides that skip elements"),
    (r"^CenterCropPad.*-\d.*: refused .*ORT runs", "a negative size"),
    (r"smaller than its window.*ORT runs|: runs .*pool_attributes\.h:236", "a window larger than its input"),
    (r"(is missing|input more): (deferred|runs) .*ORT crash", "an input left out at the end"),
    (r"^Constant-.*: refused .*F201", "a constant of several or unknown attributes"),
    (r"^MeanVarianceNormalization.*: refused .*ORT runs", "axes that the input has not"),
    (r"^Split-.*num_outputs is \d+, and there are.*ORT runs", "a number of outputs that are not there"),
    (r"^ReduceLogSum.*is int.*: refused .*ORT runs", "a logarithm of integers"),
    (r"input more: runs .*ORT refused|input \d is missing: runs .*ORT refused", "an input left out at the end"),
)


def disagreements(cases: Iterable[Case], onnxruntime: Engine, fusion: Engine) -> Iterator[str]:
    """Yield a line for each of `cases` that one engine takes and the other does not."""
    for what, seed in cases:
        theirs = onnxruntime.ask(model_of(seed).SerializeToString(), seed.values)
        kinds = theirs.kinds or [TensorProto.FLOAT] * sum(map(bool, seed.node.output))
        ours = fusion.ask(model_of(seed, kinds).SerializeToString(), seed.values)
        line = text(what, seed, ours, theirs)
        if ours.verdict not in _AGREE.get(theirs.verdict, ()) and not is_known(line, theirs):
            yield line


def text(what: str, seed: Seed, ours: Answer, theirs: Answer) -> str:
    """Return a case and the answers in one line."""
    constants = ",".join(sorted(seed.constants))
    return f"{seed.name}({constants}) {what}: {ours.verdict} [{ours.why}] ORT {theirs.verdict} [{theirs.why}]"


def is_known(line: str, theirs: Answer) -> bool:
    """Return whether a disagreement is one on purpose, or about what the model does not say."""
    return bool(_NOT_OF_THE_MODEL.search(theirs.why)) or any(re.search(pattern, line) for pattern, _ in _KNOWN)
