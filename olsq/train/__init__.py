"""Training language models: text, batches, AdamW, evaluation, and checkpoints that resume exactly.

Needs the extra ``nn``.  ``examples/train_text.py`` trains from the terminal.
"""

try:
    import equinox as _equinox  # noqa: F401
    import optax as _optax  # noqa: F401
    import safetensors as _safetensors  # noqa: F401
except ImportError as error:
    raise ImportError(
        f'olsq.train needs {error.name}: pip install ".[nn]" in a checkout of olsq', name=error.name
    ) from error

from olsq.train.batches import Batches, shuffled
from olsq.train.checkpoint import (
    Checkpoint,
    CheckpointError,
    CheckpointMismatch,
    read_checkpoint,
)
from olsq.train.config import TrainConfig
from olsq.train.corpus import Corpus
from olsq.train.evaluation import Evaluation, PositionBins, evaluate
from olsq.train.huggingface import HuggingFaceTokenizer
from olsq.train.log import Log, Record
from olsq.train.losses import IGNORE, BatchLoss, next_token_loss, token_loss, token_losses
from olsq.train.optimiser import AverageState, averaged, decay_mask, with_average
from olsq.train.packing import Packed, pack
from olsq.train.results import Run, load_run, plot_loss, plot_perplexity, sample_text, write_results
from olsq.train.step import Metrics, make_scan, make_step
from olsq.train.text import CorpusTrainer, fit
from olsq.train.token_files import Progress, TokenFiles, open_tokens, write_tokens
from olsq.train.tokenizers import (
    BytePairTokenizer,
    ByteTokenizer,
    make_tokenizer,
    tokenizer_from_dict,
)
from olsq.train.trainer import Trainer, TrainingError

__all__ = [
    "IGNORE",
    "AverageState",
    "BatchLoss",
    "Batches",
    "BytePairTokenizer",
    "ByteTokenizer",
    "Checkpoint",
    "CheckpointError",
    "CheckpointMismatch",
    "Corpus",
    "CorpusTrainer",
    "Evaluation",
    "HuggingFaceTokenizer",
    "Log",
    "Metrics",
    "Packed",
    "PositionBins",
    "Progress",
    "Record",
    "Run",
    "TokenFiles",
    "TrainConfig",
    "Trainer",
    "TrainingError",
    "averaged",
    "decay_mask",
    "evaluate",
    "fit",
    "load_run",
    "make_scan",
    "make_step",
    "make_tokenizer",
    "next_token_loss",
    "open_tokens",
    "pack",
    "plot_loss",
    "plot_perplexity",
    "read_checkpoint",
    "sample_text",
    "shuffled",
    "token_loss",
    "token_losses",
    "tokenizer_from_dict",
    "with_average",
    "write_results",
    "write_tokens",
]
