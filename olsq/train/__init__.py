"""Training language models: text, batches, AdamW, evaluation, and checkpoints that resume exactly.

Needs ``pip install "olsq[nn]"``.  The command is ``olsq train``.
"""

from olsq.train.checkpoint import (
    Checkpoint,
    CheckpointError,
    CheckpointMismatch,
    read_checkpoint,
)
from olsq.train.config import TrainConfig
from olsq.train.corpus import Corpus
from olsq.train.evaluation import Evaluation, PositionBins, evaluate
from olsq.train.figures import plot_loss, plot_perplexity
from olsq.train.log import Log, Record
from olsq.train.results import sample_text, write_results
from olsq.train.tokenizers import (
    BytePairTokenizer,
    ByteTokenizer,
    make_tokenizer,
    tokenizer_from_dict,
)
from olsq.train.trainer import Trainer, TrainingError, fit

__all__ = [
    "BytePairTokenizer",
    "ByteTokenizer",
    "Checkpoint",
    "CheckpointError",
    "CheckpointMismatch",
    "Corpus",
    "Evaluation",
    "Log",
    "PositionBins",
    "Record",
    "TrainConfig",
    "Trainer",
    "TrainingError",
    "evaluate",
    "fit",
    "make_tokenizer",
    "plot_loss",
    "plot_perplexity",
    "read_checkpoint",
    "sample_text",
    "tokenizer_from_dict",
    "write_results",
]
