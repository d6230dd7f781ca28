"""Learning to learn sines from a few points: MAML, sparse-MAML, implicit MAML, an exact head.

    python examples/meta_learning.py                     # five seeds, resumed where it stopped
    python examples/meta_learning.py --quick             # gradients against their equations
    python examples/experiments/meta_learning_report.py  # the figure and the page

A task is y = a sin(x + b), a ~ U(.1, 5), b ~ U(0, pi), x ~ U(-5, 5) (Finn et al. 2017).  Its
learner sees 1 to 10 points and is judged on ten others.  Every method has the same network,
1 - 40 - 40 - 1 with ReLU, the same start, the same tasks in the same order and as many meta-steps:

* MAML: five steps of gradient descent from a learned start, differentiated through;
* first-order MAML: the same, the second derivatives left out;
* head only: first-order, and only the output layer moves (ANIL, Raghu et al. 2020);
* sparse-MAML: first-order, and a learned mask says which parameters move (von Oswald et al. 2021,
  the thesis' chapter 4, equations 4.3, 4.8 and 4.9);
* implicit MAML: the inner loss has lambda / 2 |phi - theta|^2 added, and the meta-gradient is
  (I + H / lambda)^-1 g, by five steps of conjugate gradient (Rajeswaran et al. 2019, equation 6);
* exact head: the last layer is solved, not stepped: ``olsq.online_lstsq`` on the features, after
  every point, with its derivative through every prefix's solve; the start, the ridge and the
  forgetting are learned.

Results: docs/results/meta-learning.json.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

sys.path.insert(0, str(Path(__file__).resolve().parent / "experiments"))

import meta_learners as learners
from icl_training import options, run_notes, x64
from meta_learners import METHODS, TEST_SHOTS, Method, Task, draw, exam
from task_training import add_result, load_results, save_results

from olsq.train import make_scan

NAME = "meta-learning"
BATCH, META_STEPS, TUNING_STEPS, EVERY = 16, 4_000, 1_500, 500
TUNING_SEED = 100
LOST = 100.0  # mean square error; the largest sine has 12.5 about 0


def errors(method: Method, p: Any, o: Any, x: Any, y: Any, shots: Any) -> Any:
    """Mean square error on each task's queries, (shots, tasks)."""
    n = max(TEST_SHOTS)

    def one(x: Any, y: Any, count: Any) -> Any:
        if method.adapt is None:  # queries follow the points, and weigh nothing
            weight = (jnp.arange(len(x)) < count).astype(x.dtype)
            found = learners.solved_head(p, x, y, x, weight)[n:]
        else:
            seen = (jnp.arange(n) < count).astype(x.dtype)
            found = learners.predict(
                method.adapt(p, Task(x[:n], y[:n], seen, None, None), o), x[n:]
            )
        return jnp.square(found - y[n:]).mean()

    return jax.vmap(lambda c: jax.vmap(lambda x, y: one(x, y, c))(x, y))(jnp.array(shots))


def tune(o: dict[str, Any]) -> Any:
    """Adam; the mask takes plain steps, as equation 4.9 has it."""
    adam = optax.scale_by_adam()

    def update(slope: Any, memory: Any, p: Any = None) -> Any:
        change, memory = adam.update(slope.get("start", slope), memory)
        start = jax.tree.map(lambda d: -o["lr"] * d, change)
        if "mask" not in slope:
            return start, memory
        mask = jax.tree.map(lambda g: -o["mask lr"] * g, slope["mask"])
        return {"start": start, "mask": mask}, memory

    return optax.GradientTransformation(lambda p: adam.init(p.get("start", p)), update)


def clipped(slope: Any) -> Any:
    """One task's meta-gradient, of norm 10 at most; 0 if its inner loop has diverged."""
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(slope)))
    scale = jnp.where(jnp.isfinite(norm), 10.0 / jnp.maximum(norm, 10.0), 0.0)
    return jax.tree.map(lambda g: jnp.where(scale > 0, scale * g, 0.0), slope)


def frozen(p: dict[str, Any]) -> dict[str, Any]:
    """The share of parameters that do not learn, by layer (|1_{m<0}|^2 / dim m), and of all."""
    m = p["mask"]
    total = sum((x < 0).sum() for x in m.values()) / sum(x.size for x in m.values())
    return {**{name: (x < 0).mean() for name, x in m.items()}, "all": total}


def train(name: str, choices: dict[str, Any], seeds: Any, steps: int, every: int = EVERY) -> Any:
    """One run for each of ``choices`` (arrays) and ``seeds``, side by side; weights and records."""
    method = METHODS[name]
    test = exam(7_000, 100, queries=10)

    def advance(p: Any, memory: Any, o: Any, seed: Any, start: Any) -> Any:
        key = jax.random.key(seed + 1_000, impl="rbg")

        def tasks(key: Any) -> Any:
            return (jax.vmap(draw)(jax.random.split(key, BATCH)),)

        def gradient(p: Any, tasks: Any) -> Any:
            value, slope = jax.vmap(lambda task: method.gradient(p, task, o))(tasks)
            # A task whose inner loop has diverged has no loss; its gradient counts as 0.
            value = jnp.where(jnp.isfinite(value), value, 0.0).mean()
            return value, jax.tree.map(lambda g: g.mean(0), jax.vmap(clipped)(slope))

        scan = make_scan(None, tune(o), tasks, steps=every, gradient=gradient)
        return scan(p, memory, key, start)[:2]

    def look(p: Any, o: Any) -> Any:
        seen = {"error": errors(method, p, o, *test, (5, 10)).mean(-1)}
        return {**seen, "frozen": frozen(p)} if "mask" in p else seen

    seeds = jnp.asarray(seeds)
    p = jax.vmap(lambda seed: method.begin(jax.random.key(seed)))(seeds)
    memory = jax.vmap(tune(choices)[0])(p)
    advance, look = jax.jit(jax.vmap(advance, (0, 0, 0, 0, None))), jax.jit(jax.vmap(look))
    record = {0: jax.tree.map(np.asarray, look(p, choices))}
    for start in range(0, steps, every):
        p, memory = advance(p, memory, choices, seeds, start)
        record[start + every] = jax.tree.map(np.asarray, look(p, choices))
        shown = np.round(record[start + every]["error"].mean(-1), 3)
        print(f"{name}: step {start + every:5d}  {shown}", flush=True)
    return p, record


def search(name: str, steps: int = TUNING_STEPS) -> dict[str, Any]:
    """Every point of a method's grid, short runs of one seed; which has the least error."""
    grid = METHODS[name].grid
    mesh = np.meshgrid(*grid.values(), indexing="ij")
    choices = {k: jnp.asarray(v.ravel(), jnp.float32) for k, v in zip(grid, mesh, strict=True)}
    _, record = train(name, choices, np.full(mesh[0].size, TUNING_SEED), steps)
    found = np.nan_to_num(record[steps]["error"].mean(-1), nan=np.inf)
    points = [{k: float(v.ravel()[i]) for k, v in zip(grid, mesh, strict=True)}
              for i in range(mesh[0].size)]  # fmt: skip
    tried = [{**o, "error": float(e) if np.isfinite(e) else None}
             for o, e in zip(points, found, strict=True)]  # fmt: skip
    if "frozen" in record[steps]:
        for row, share in zip(tried, record[steps]["frozen"]["all"], strict=True):
            row["frozen"] = float(share)
    return {"tried": tried, "best": points[int(found.argmin())]}


def final(name: str, best: dict[str, float], seeds: list[int]) -> dict[str, Any]:
    """A method's runs at its best choice: records, and errors by shots on tasks it never saw."""
    choices = {k: jnp.full(len(seeds), v) for k, v in best.items()}
    p, record = train(name, choices, seeds, META_STEPS)
    found: dict[str, Any] = {"choice": best, "seeds": list(seeds), "step": list(record)}
    for label, frequency in (("same", 0.0), ("other frequencies", 0.3)):
        test = exam(9_000, 400, frequency)
        score = jax.jit(jax.vmap(lambda p, o, t=test: errors(METHODS[name], p, o, *t, TEST_SHOTS)))
        each = np.asarray(score(p, choices), np.float64)  # (seeds, shots, tasks)
        # An inner loop that diverges on one task leaves no mean: medians, and the share of them.
        lost = ~(each < LOST)
        found[label] = {
            "median": np.median(np.where(lost, np.inf, each), -1).tolist(),
            "mean of the rest": np.nanmean(np.where(lost, np.nan, each), -1).tolist(),
            "lost": lost.mean(-1).tolist(),
        }
    found["record"] = [r["error"].tolist() for r in record.values()]
    if "mask" in p:
        found["frozen"] = [jax.tree.map(lambda x: x.tolist(), r["frozen"]) for r in record.values()]
    if "forget" in p:
        found["forget"] = jax.nn.sigmoid(p["forget"]).tolist()
        ridge = jnp.exp(p["ridge"])
        found["ridge"] = jnp.quantile(ridge, jnp.array([0.0, 0.5, 1.0]), axis=-1).T.tolist()
    return found


def quick() -> None:
    """Meta-gradients are their equations'; every method is traced, as training and tests run it."""
    with x64(True):
        p = jax.tree.map(lambda x: x.astype(float), learners.network(jax.random.key(0), 8))
        task = jax.tree.map(lambda x: x.astype(float), draw(jax.random.key(1)))
        check_sparse(p, task)
        check_implicit(p, task)
        check_head(p, task)
    for method in METHODS.values():
        check_shapes(method)


def check_shapes(method: Method) -> None:
    """A meta-step and a test, traced only."""
    o = {k: jnp.asarray(v[0]) for k, v in method.grid.items()}
    x, y = (jax.ShapeDtypeStruct((2, 23, 1), jnp.float32) for _ in range(2))
    begin, update = tune(o)

    def step(key: Any, x: Any, y: Any) -> Any:
        p = method.begin(key)
        _, slope = method.gradient(p, draw(key), o)
        change, _ = update(clipped(slope), begin(p), p)
        return p, optax.apply_updates(p, change), errors(method, p, o, x, y, (1, 5))

    before, after, scores = jax.eval_shape(step, jax.random.key(0), x, y)
    assert jax.tree.map(jnp.shape, before) == jax.tree.map(jnp.shape, after)
    assert scores.shape == (2, 2)


def check_sparse(p: Any, task: Task) -> None:
    """Equations 4.8 and 4.9, step by step."""
    mask = jax.tree.map(lambda x: jnp.sin(7.0 * x) + 0.1, p)
    open_ = jax.tree.map(lambda m: m >= 0, mask)
    slope, rate = jax.jit(jax.grad(learners.inner_loss)), 0.01
    end, total = p, jax.tree.map(jnp.zeros_like, p)
    for _ in range(learners.STEPS):
        g = slope(end, task)
        total = jax.tree.map(jnp.add, total, g)
        end = jax.tree.map(lambda a, m, g: a - rate * m * g, end, open_, g)
    g = jax.grad(learners.outer_loss)(end, task)
    want = {"start": g, "mask": jax.tree.map(lambda a, b: -rate * a * b, g, total)}
    meta = {"start": p, "mask": mask}
    _, got = jax.jit(METHODS["sparse-MAML"].gradient)(meta, task, {"rate": rate})
    same(got, want, 1e-10)


def check_implicit(p: Any, task: Task) -> None:
    """With the inner problem solved, it is the derivative of what descent reaches."""
    o = {"rate": 0.05, "pull": 4.0}

    @jax.jit
    def unrolled(p: Any) -> Any:
        end = learners.descend(p, task, o["rate"], pull=o["pull"], steps=400)
        return learners.outer_loss(end, task)

    want = jax.grad(unrolled)(p)
    _, got = jax.jit(lambda p: learners.implicit_gradient(p, task, o, steps=60, inner=400))(p)
    same(got, want, 1e-6)


def check_head(p: Any, task: Task) -> None:
    """Each prefix's prediction is that of normal equations."""
    p = {**p, "ridge": jnp.linspace(-1.0, 1.0, 9), "forget": jnp.array(1.5)}

    def dense(p: Any) -> Any:
        phi, asked = learners.head_inputs(p, task.x), learners.head_inputs(p, task.query)
        miss, forget = task.y - learners.predict(p, task.x), jax.nn.sigmoid(p["forget"])
        found = []
        for t in range(1, len(phi) + 1):
            scale = forget ** jnp.arange(t - 1, -1, -1.0)[:, None]
            gram = phi[:t].T @ (scale * phi[:t]) + jnp.diag(jnp.exp(p["ridge"]))
            found.append(asked[t - 1] @ jnp.linalg.solve(gram, phi[:t].T @ (scale * miss[:t])))
        error = learners.predict(p, task.query) + jnp.stack(found) - task.target
        return jnp.square(error).mean()

    same(jax.jit(learners.head_loss)(p, task), jax.jit(dense)(p), 1e-10)


def same(got: Any, want: Any, tol: float) -> None:
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.abs(a - b).max() <= tol * (1 + np.abs(b).max()), (a, b)


def main(argv: list[str] | None = None) -> None:
    args = options(__doc__, range(5)).parse_args(argv)
    if args.quick:
        quick()
        return
    results, began = load_results(NAME), time.process_time()
    for name in METHODS:
        for part in ("search", "final"):
            if part in results.get("methods", {}).get(name, {}):
                continue
            start = time.process_time()
            if part == "search":
                found = search(name)
            else:
                found = final(name, results["methods"][name]["search"]["best"], args.seeds)
            found["processor seconds"] = round(time.process_time() - start, 1)
            results = add_result(NAME, ("methods", name, part), found)
    spent = results.get("run", {}).get("processor_seconds", 0.0) + time.process_time() - began
    note = run_notes("python examples/meta_learning.py", time.perf_counter())
    results["run"] = {**note, "processor_seconds": round(spent, 1)}
    del results["run"]["seconds"]
    save_results(NAME, results)


if __name__ == "__main__":
    main()
