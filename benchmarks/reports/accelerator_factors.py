"""Time mesa with factors made in one of four ways: fused, library, rolled or package.

    python benchmarks/reports/accelerator_factors.py WAY OUT.json
"""
import fcntl, json, sys, time, importlib
sys.path[:0] = [".", "examples"]
import jax, jax.numpy as jnp, numpy as np
import olsq.sequence.jax.triangular as tri

way, out = sys.argv[1], sys.argv[2]
package = tri.inverse_cholesky

def library(a):
    low = jnp.linalg.cholesky(a)
    eye = jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return jax.lax.linalg.triangular_solve(low, eye, left_side=True, lower=True)

if way == "fused":
    from pallas_factors import fused_inverse_cholesky as chosen
elif way == "library":
    chosen = library
elif way == "rolled":
    tri.by_platform = lambda choose, run: run(False)
    chosen = package
else:
    chosen = package

row = {"way": way}
def store(**k):
    row.update(k); open(out, "w").write(json.dumps(row)); print(row, flush=True)

lock = open("/tmp/gpu.lock", "w")
def best(run, rounds=10):
    jax.block_until_ready(run())
    fcntl.flock(lock, fcntl.LOCK_EX)
    s = []
    for _ in range(rounds):
        b = time.perf_counter(); jax.block_until_ready(run()); s.append(time.perf_counter() - b)
    fcntl.flock(lock, fcntl.LOCK_UN)
    return 1e3 * min(s)

def compiled(f, *args):
    b = time.perf_counter(); c = jax.jit(f).lower(*args).compile(); return c, time.perf_counter() - b

rng = np.random.default_rng(0)
small = len(sys.argv) > 3
try:
  for n, batch in ((64, 4096), (128, 4096)) if not small else ((16, 4),):
    half = jnp.asarray(rng.normal(size=(batch, n, 2 * n)), jnp.float32)
    a = jnp.einsum("bij,bkj->bik", half, half, precision="highest")
    few = np.asarray(a[:64], np.float64); exact = np.linalg.inv(np.linalg.cholesky(few))
    c, sec = compiled(chosen, a)
    err = float(np.abs(np.asarray(c(a)[:64], np.float64) - exact).max() / np.abs(exact).max())
    store(**{f"factor {n}": {"error": err, "ms": best(lambda: c(a)), "compile_s": sec}})
except Exception as e:
  store(factor_error=repr(e)[:600])
if chosen is not package:
    for m in ("triangular", "factor", "inputs", "dense", "recursive"):
        module = importlib.import_module("olsq.sequence.jax." + m)
        if hasattr(module, "inverse_cholesky"):
            module.inverse_cholesky = chosen
from benchmarks.reports.accelerator import arguments, ours, error_of
sizes = (4, 8, 128) if not small else (1, 2, 8)
for t in ((2048, 8192) if not small else (64,)):
    try:
        run = ours("mesa")
        given = arguments("mesa", t, "float32", sizes)
        c, sec = compiled(run, *given)
        r = {"forward_compile_s": sec, "forward_ms": best(lambda: c(*given))}
        store(**{f"mesa {t}": r})
        f = lambda arrays, named: (run(arrays, named).astype(jnp.float32) ** 2).sum()
        g, sec = compiled(jax.value_and_grad(f), *given)
        r |= {"both_compile_s": sec, "both_ms": best(lambda: g(*given))}
        store(**{f"mesa {t}": r})
    except Exception as e:
        store(**{f"mesa {t} failed": repr(e)[:600]})
try:
    store(error=error_of("mesa", jax.jit(ours("mesa")), "float32", sizes))
except Exception as e:
    store(error_failed=repr(e)[:600])
