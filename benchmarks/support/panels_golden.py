"""Golden values of the tests: what linearmodels and pyfixest say of two panels.

    python -m benchmarks.support.panels_golden

Writes ``tests/golden/panels.json``; needs linearmodels 7.1 and pyfixest 0.60.  The panels are
Grunfeld's and one of random numbers: unbalanced, with groups of one row and of fewer rows than
coefficients, and a regressor that is constant in some groups.
"""

import importlib.metadata
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyfixest
from linearmodels import FamaMacBeth, PanelOLS, PooledOLS

ROOT = Path(__file__).parents[2]


def random_panel():
    rng = np.random.default_rng(20260101)
    sizes = [1, 2, 3, 1, 12, 8, 5, 20, 9, 4, 7, 2, 15]
    group = np.repeat(np.arange(len(sizes)), sizes)
    year = np.concatenate([rng.permutation(24)[:size] for size in sizes])
    n = group.size
    X = rng.standard_normal((n, 3)) + rng.standard_normal((len(sizes), 3))[group] + 5.0
    X[group % 3 == 1, 2] = 4.0
    noise = rng.standard_normal(n) * (1 + (group % 4)) + rng.standard_normal(len(sizes))[group]
    y = X @ [1.0, -2.0, 0.5] + noise
    weight = rng.uniform(0.5, 2.0, n)
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(
        y=y, weight=weight, group=group, year=year
    )


def results(fit):
    return {
        "params": fit.params.to_list(),
        "cov": np.asarray(fit.cov).tolist(),
        "rsquared": float(fit.rsquared),
        "df_resid": int(fit.df_resid),
    }


def of_panel(frame, target, columns):
    indexed = frame.set_index(["group", "year"])
    y, X = indexed[target], indexed[columns]
    with_ones = X.assign(one=1.0)[["one", *columns]]
    clustered = {"cov_type": "clustered", "cluster_entity": True, "group_debias": True}
    found = {}
    for suffix, weights in (("", None), (" weighted", indexed["weight"])):
        pooled = PooledOLS(y, with_ones, weights=weights)
        within = PanelOLS(y, X, weights=weights, entity_effects=True, singletons=True)
        found["pooled nonrobust" + suffix] = results(pooled.fit())
        found["pooled cluster" + suffix] = results(pooled.fit(**clustered))
        found["within nonrobust" + suffix] = results(plain := within.fit())
        found["within cluster" + suffix] = results(within.fit(**clustered))
        effects = plain.estimated_effects["estimated_effects"].groupby(level=0, sort=False).first()
        found["effects" + suffix] = effects.to_list()
    macbeth = FamaMacBeth(y, with_ones)
    found["fama_macbeth"] = results(macbeth.fit())
    found["fama_macbeth 3 lags"] = results(macbeth.fit(cov_type="kernel", bandwidth=3))
    fixed = pyfixest.feols(
        f"{target} ~ {' + '.join(columns)} | group", frame, vcov={"CRV1": "group"}, fixef_rm="none"
    )
    found["fixest within cluster"] = {
        "params": fixed.coef().to_list(),
        "stderr": fixed.se().to_list(),
        "pvalue": fixed.pvalue().to_list(),
    }
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    grunfeld = pd.read_csv(ROOT / "olsq" / "datasets" / "grunfeld.csv")
    grunfeld = grunfeld.rename(columns={"firm": "group"}).assign(weight=1.0)
    unbalanced = random_panel()
    values = {
        "source": {name: importlib.metadata.version(name) for name in ("linearmodels", "pyfixest")},
        "grunfeld": of_panel(grunfeld, "invest", ["value", "capital"]),
        "random": of_panel(unbalanced, "y", ["a", "b", "c"]),
        "random rows": unbalanced.to_dict("list"),
    }
    (ROOT / "tests" / "golden" / "panels.json").write_text(json.dumps(values, indent=1) + "\n")
