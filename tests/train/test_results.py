"""Results of training: figures, tables and records, each against its definition."""

import csv
import warnings

import numpy as np
import pytest

from olsq.train import (
    CorpusTrainer,
    Evaluation,
    Log,
    Packed,
    Record,
    decay_mask,
    load_run,
    plot_loss,
    plot_perplexity,
    write_results,
)
from tests.train.small import SmallModel, config, corpus

NAN = float("nan")
LOSSES = np.random.default_rng(3).uniform(1.0, 2.0, (6, 9)).astype(np.float32)


def log_of(skipped=(), validated=()):
    """Ten steps; those skipped have no loss, those validated one of 2."""
    log = Log()
    for step in range(1, 11):
        out = step in skipped
        loss = NAN if out else 4.0 / step
        log.append(Record(step, loss, 0.5, 1e-3, out, 2.0 if step in validated else None))
    return log


def test_the_figure_of_the_loss_shows_what_is_in_the_log():
    axes = plot_loss(log_of(skipped=(4,), validated=(5, 10)), title="a run").axes[0]
    steps, _, validation, marks = axes.lines
    np.testing.assert_array_equal(steps.get_xdata(), [1, 2, 3, 5, 6, 7, 8, 9, 10])
    np.testing.assert_allclose(steps.get_ydata(), 4 / np.asarray(steps.get_xdata()))
    np.testing.assert_array_equal(validation.get_xdata(), [5, 10])
    np.testing.assert_array_equal(marks.get_xdata(), [4])
    assert [text.get_text() for text in axes.texts] == [
        "skipped, not finite: 1", "training,\naveraged", "validation\n2.000"
    ]  # fmt: skip
    assert axes.get_legend() is None
    low, high = axes.get_ylim()
    assert low < 0.4
    assert high > 2.0

    axes = plot_loss(log_of()).axes[0]  # neither
    assert len(axes.lines) == 3
    assert [text.get_text() for text in axes.texts] == ["training,\naveraged"]


def test_the_figure_of_the_perplexity_has_means_and_bars():
    evaluation = Evaluation(LOSSES)
    axes = plot_perplexity(evaluation).axes[0]
    bins = evaluation.binned()
    np.testing.assert_allclose(axes.lines[0].get_ydata(), np.exp(bins.loss), rtol=1e-6)
    segments = axes.collections[0].get_segments()
    for segment, mean, error in zip(segments, bins.loss, bins.error, strict=True):
        np.testing.assert_allclose(
            np.log(segment[:, 1]), [mean - 1.96 * error, mean + 1.96 * error], rtol=1e-6
        )
    assert axes.texts[0].get_text() == f"all\n{np.exp(LOSSES.mean(dtype=float)):.2f}"


@pytest.mark.full
def test_results_of_a_run_are_written(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = write_results(tmp_path / "new", log_of((), (10,)), Evaluation(LOSSES), title="t")
    assert [path.name for path in paths] == ["loss.png", "perplexity.png", "positions.csv"]
    assert all(path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for path in paths[:2])
    with paths[2].open() as file:
        rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
    assert [row["position"] for row in rows] == list(range(1, 10))
    means = LOSSES.mean(0, dtype=float)
    np.testing.assert_allclose([row["loss"] for row in rows], means, rtol=1e-8)
    np.testing.assert_allclose([row["perplexity"] for row in rows], np.exp(means), rtol=1e-8)


def test_records_leave_out_what_there_is_not():
    whole = Record(7, 2.5, 0.5, 1e-3, False, 2.25, {"nll": 1.0}).numbers()
    assert whole == {
        "loss": 2.5, "gradient_norm": 0.5, "learning_rate": 1e-3, "skipped": 0.0,
        "validation_loss": 2.25, "nll": 1.0,
    }  # fmt: skip
    assert "learning_rate" not in Record(7, 2.5, 0.5, NAN, False, None).numbers()


def test_parts_of_data_are_what_they_say():
    whole = corpus()
    assert whole.size == len(whole.train) + len(whole.validation)
    numbers = np.arange(12, dtype=np.int32).reshape(3, 4)
    some = Packed(numbers, numbers + 1, 0 * numbers).rows([2, 0])
    assert isinstance(some, Packed)
    np.testing.assert_array_equal(some.tokens, numbers[[2, 0]])
    np.testing.assert_array_equal(some.targets, numbers[[2, 0]] + 1)
    np.testing.assert_array_equal(some.segment_ids, 0)


def test_what_cannot_be_decayed_or_read(tmp_path):
    with pytest.raises(ValueError, match=r"kinds must be some of .*matrix.*, got 'matrices'"):
        decay_mask(SmallModel(), kinds=("matrix", "matrices"))
    with pytest.raises(FileNotFoundError, match="it is no finished run"):
        load_run(tmp_path)
    (tmp_path / "checkpoint.safetensors").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="not finished: go on with --resume"):
        load_run(tmp_path)


def test_a_run_broken_off_is_resumed_by_fit(tmp_path):
    options = config(steps=4)
    first = CorpusTrainer(SmallModel(), corpus(), options, directory=tmp_path)
    steps = first.run()
    for _ in range(2):
        next(steps)
    steps.close()
    first.save()
    begun = first.step
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"")  # the tokens were given, so nobody knows their text
    with pytest.raises(ValueError, match="has no tokenizer: its run was not made from text"):
        load_run(tmp_path)
    weights.unlink()
    second = CorpusTrainer(SmallModel(seed=1), corpus(), options, directory=tmp_path)
    second.fit(resume=True)
    whole = CorpusTrainer(SmallModel(), corpus(), options).fit()
    assert 2 <= begun < 4
    np.testing.assert_array_equal(second.log["loss"], whole.log["loss"])
