"""In-context learning: attention layers that are least-squares algorithms, and their closed forms.

``from_products``, ``attend`` and ``run_layers`` run layers with given weights; the constructions
give the weights; ``descend`` and its like say in closed form what they compute.
"""

from olsq.icl import autoregressive, autoregressive_losses, autoregressive_optima
from olsq.icl.attention import attend, attention_update, roll_out, run_layers
from olsq.icl.constructions import (
    embed_inputs,
    gd_weights,
    gdpp_weights,
    merge_weights,
    regression_tokens,
    with_positions,
)
from olsq.icl.dynamics import (
    dynamics_tokens,
    mesa_gd_weights,
    neumann_weights,
    online_gd_weights,
    preconditioned_weights,
)
from olsq.icl.gradient_descent import (
    best_rate,
    descend,
    gdpp_condition,
    gdpp_hessian,
    gdpp_peak,
    gdpp_roots,
    gdpp_spectrum,
)
from olsq.icl.interpolation import interpolate, rescale
from olsq.icl.mesa import (
    mesa_update,
    neumann_queries,
    neumann_scale,
    next_covariance,
    preconditioned_queries,
    previous_covariance,
)
from olsq.icl.probes import Probe, implicit_predictions, inverse_targets, linear_probe
from olsq.icl.reverse import (
    Blocks,
    extract_blocks,
    fit_revalg1,
    from_blocks,
    revalg1,
    revalg1_coefficients,
    revalg1_terms,
)
from olsq.icl.weights import (
    AttentionWeights,
    Products,
    from_products,
    products,
    random_attention,
)

__all__ = [
    "AttentionWeights",
    "Blocks",
    "Probe",
    "Products",
    "attend",
    "attention_update",
    "autoregressive",
    "autoregressive_losses",
    "autoregressive_optima",
    "best_rate",
    "descend",
    "dynamics_tokens",
    "embed_inputs",
    "extract_blocks",
    "fit_revalg1",
    "from_blocks",
    "from_products",
    "gd_weights",
    "gdpp_condition",
    "gdpp_hessian",
    "gdpp_peak",
    "gdpp_roots",
    "gdpp_spectrum",
    "gdpp_weights",
    "implicit_predictions",
    "interpolate",
    "inverse_targets",
    "linear_probe",
    "merge_weights",
    "mesa_gd_weights",
    "mesa_update",
    "neumann_queries",
    "neumann_scale",
    "neumann_weights",
    "next_covariance",
    "online_gd_weights",
    "preconditioned_queries",
    "preconditioned_weights",
    "previous_covariance",
    "products",
    "random_attention",
    "regression_tokens",
    "rescale",
    "revalg1",
    "revalg1_coefficients",
    "revalg1_terms",
    "roll_out",
    "run_layers",
    "with_positions",
]
