"""Table of the rules: the state each keeps, its cost, its loss, its source, and its layers.

The mixers of :mod:`olsq.nn`, the conversion of weights and the documentation's page "Attention
rules as online learners" are made from these rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from olsq import attention

Shapes = dict[str, tuple[Any, ...]]


class Layer(NamedTuple):
    """Layer of :mod:`olsq.nn` that computes a rule.

    Attributes
    ----------
    mixer : str
        Its name in models, files and the command line.
    place : str
        Module and class in ``olsq.nn``, ``"linear:GLA"``.
    weights : str
        Module and class in ``olsq.nn.fla`` that converts flash-linear-attention's weights; empty
        where that has no such layer.
    """

    mixer: str
    place: str
    weights: str = ""


@dataclass(frozen=True)
class Rule:
    """A sequence-mixing rule as an online learner.

    Attributes
    ----------
    name : str
        Of the function in :mod:`olsq.attention`, of its step, ``<name>_step``, and of its oracle
        in ``olsq.reference``.
    recurrence : str
        What a token does, per head.
    state : callable
        ``state(K, V)`` gives the shape of each part of a head's state; "T" and "w" stand for the
        tokens so far and the window.
    gates : str
    flops : dict
        Multiplications and additions of a token's update and read, leading terms: how many of each
        product of K, V, T and w.
    loss : str
        What the state descends, as test-time regression.
    place : (str, str)
        The rule's row and column in the map of the field: of ``OBJECTIVES`` and ``METHODS``, which
        is the kind of its step.
    source : str
        Paper and equation.
    layers : tuple of Layer
    """

    name: str
    recurrence: str
    state: Callable[[Any, Any], Shapes]
    gates: str
    flops: dict[str, float]
    loss: str
    place: tuple[str, str]
    source: str
    layers: tuple[Layer, ...]

    @property
    def function(self) -> Callable[..., Any]:
        """The rule on whole sequences."""
        return getattr(attention, self.name)

    @property
    def one_token(self) -> Callable[..., Any] | None:
        """The rule on one token; None where a query sees the future."""
        return getattr(attention, f"{self.name}_step", None)

    @property
    def corner(self) -> tuple[str, str]:
        """Corner of the map: "global" or "local", "constant" or "linear" (networks too)."""
        local = self.place[0] in (KERNEL, LOCAL)
        keyless = self.state(1, 1) == self.state(2, 1)  # a state without keys: an average
        constant = self.place[0] == KERNEL or keyless
        return "local" if local else "global", "constant" if constant else "linear"

    def state_size(self, K: int, V: int, T: int = 0, w: int = 0) -> int:
        """Count the numbers that one head remembers, after T tokens or with a window of w."""
        named = {"T": T, "w": w - 1}
        shapes = self.state(K, V).values()
        return sum(prod(named[n] if isinstance(n, str) else n for n in shape) for shape in shapes)

    def flop_count(self, K: int, V: int, T: int = 0, w: int = 0) -> float:
        """Count the multiplications and additions of one token and head."""
        sizes = {"K": K, "V": V, "T": T, "w": w}
        return sum(c * prod(sizes[n] for n in term) for term, c in self.flops.items())


def _memory(K: Any, V: Any) -> Shapes:
    return {"memory": (V, K)}


def _pairs(K: Any, V: Any) -> Shapes:
    return {"keys": ("T", K), "values": ("T", V)}


def _moments(K: Any, V: Any) -> Shapes:
    return {"gram": (K, K), "cross": (V, K)}


OBJECTIVES = (
    "dot product with this token's value",
    "squared error at this token",
    "squared error at all tokens",
    "kernel-weighted average",
    "kernel-weighted squared error of a line",
)
METHODS = ("gradient step", "preconditioned or implicit step", "mini-batch gradient", "exact")
DOT, TOKEN, ALL, KERNEL, LOCAL = OBJECTIVES
GRADIENT, CONDITIONED, BATCH, EXACT = METHODS

HOPFIELD = "-v . S k"
SQUARED = "|v - S k|^2 / 2"
CUMULATIVE = "sum_i zeta_i beta_i |v_i - S k_i|^2 / 2 + tr(S Lambda S^T) / 2"

RULES: tuple[Rule, ...] = (
    Rule(
        "softmax", "o = sum_i softmax_i(q . k_i / sqrt(K)) v_i", _pairs, "none", {"TK": 2, "TV": 2},
        "sum_i exp(q . k_i) |v_i - o|^2", (KERNEL, EXACT), "Vaswani et al. 2017, eq. 1",
        (Layer("softmax", "softmax:Softmax", "sums:SoftmaxLayout"),),
    ),
    Rule(
        "sliding_window", "softmax over the last w tokens",
        lambda K, V: {"keys": ("w", K), "values": ("w", V)}, "window", {"wK": 2, "wV": 2},
        "sum_{i > t - w} exp(q . k_i) |v_i - o|^2", (KERNEL, EXACT),
        "Beltagy et al. 2020, sec. 3.1",
        (Layer("sliding_window", "softmax:SlidingWindow", "sums:WindowLayout"),),
    ),
    Rule(
        "forgetting", "o = sum_i softmax_i(q . k_i / sqrt(K) + log gates i+1..t) v_i",
        lambda K, V: {"keys": ("T", K), "values": ("T", V), "log_decay": ("T",)}, "forget",
        {"TK": 2, "TV": 2, "T": 2},
        "sum_i zeta_i exp(q . k_i) |v_i - o|^2", (KERNEL, EXACT), "Lin et al. 2025, sec. 3",
        (Layer("forgetting", "softmax:Forgetting", "sums:ForgettingLayout"),),
    ),
    Rule(
        "local_linear", "(S + ridge) x = q - kbar; o = vbar + C x, moments weighted by softmax",
        _pairs, "ridge, window (costs are of 10 steps of conjugate gradient)", {"TK": 48, "TV": 4},
        "sum_i exp(q . k_i) |v_i - o - B (k_i - q)|^2 + ridge |B|^2", (LOCAL, EXACT),
        "Zuo et al. 2025",
        (Layer("local_linear", "local:LocalLinear"),),
    ),
    Rule(
        "parallax", "o = vbar (1 + E[r . k]) - E[v (r . k)], averages weighted by softmax", _pairs,
        "direction r, window", {"TK": 6, "TV": 4},
        "sum_i exp(q . k_i) |v_i - o - B (k_i - q)|^2", (LOCAL, CONDITIONED),
        "Parallax 2026, alg. 1",
        (Layer("parallax", "local:Parallax", "sums:ParallaxLayout"),),
    ),
    Rule(
        "gsa", "k_m = a_m k_m + (1 - a_m) k; v_m likewise; o = sum_m softmax_m(q . k_m) v_m",
        lambda K, V: {"keys": (K, K), "values": (K, V)},
        "forget per slot, weight (costs are of K slots)", {"KK": 5, "VK": 5},
        "sum_m exp(q . k_m) |v_m - o|^2, and |k - k_m|^2 + |v - v_m|^2 of each slot",
        (KERNEL, GRADIENT), "Zhang et al. 2024, sec. 3",
        (Layer("gsa", "gsa:GSA", "sums:GSALayout"),),
    ),
    Rule(
        "linear", "S += w v phi(k)^T; o = S phi(q) [/ z . phi(q)]", _memory, "weight", {"VK": 4},
        HOPFIELD, (DOT, GRADIENT), "Katharopoulos et al. 2020, eq. 10-12",
        (Layer("linear", "linear:LinearAttention", "sums:LinearLayout"),),
    ),
    Rule(
        "retention", "S = gamma_h S + v k^T", _memory, "fixed per head", {"VK": 5},
        f"{HOPFIELD} + (1 - gamma) |S|^2 / 2", (DOT, GRADIENT), "Sun et al. 2023, eq. 5-8",
        (Layer("retention", "linear:Retention", "sums:RetentionLayout"),),
    ),
    Rule(
        "mamba2", "S = gamma S + v k^T", _memory, "forget (may be signed)", {"VK": 5},
        f"{HOPFIELD} + (1 - gamma) |S|^2 / 2", (DOT, GRADIENT), "Dao and Gu 2024, sec. 5",
        (Layer("mamba2", "linear:Mamba2"),),
    ),
    Rule(
        "log_linear_mamba2",
        "S_0 = v k^T; S_l = gamma S_l, merging as a Fenwick tree; o = sum_l lambda_l S_l q",
        lambda K, V: {"memory": (11, V, K)},
        "forget, weight of each level (costs are of 11 levels: 1,024 tokens)", {"VK": 46},
        f"{HOPFIELD} + (1 - gamma) |S|^2 / 2 of each block of tokens", (DOT, GRADIENT),
        "Guo et al. 2025, sec. 3",
        (Layer("log_linear_mamba2", "log_linear:LogLinearMamba2"),),
    ),
    Rule(
        "mamba3", "S = gamma (S + (1 - x) d v' k'^T) R^T + x d v k^T, v', k' of the token before",
        lambda K, V: {"memory": (V, K), "key": (K,), "value": (V,)},
        "forget, step d and its share x, angles of R", {"VK": 8},
        "-v . S k at both ends of a step, + (1 - gamma) |S|^2 / 2", (DOT, GRADIENT),
        "Lahoti et al. 2026",
        (Layer("mamba3", "mamba3:Mamba3", "spaces:Mamba3Layout"),),
    ),
    Rule(
        "gla", "S = gamma S + beta v k^T, or S = S diag(a) + beta v k^T", _memory,
        "forget (scalar or per key dimension; may be signed), weight", {"VK": 5},
        f"{HOPFIELD} + (1 - gamma) |S|^2 / (2 beta)", (DOT, GRADIENT),
        "Yang et al. 2024a, eq. 3; MesaNet eq. 2",
        (Layer("gla", "linear:GLA", "sums:GLALayout"),),
    ),
    Rule(
        "hgrn2", "S = S diag(a) + v (1 - a)^T", _memory, "forget per key dimension, is the key",
        {"VK": 5},
        "-v . S (1 - a) + tr(S diag(1 - a) S^T) / 2", (DOT, GRADIENT), "Qin et al. 2024, eq. 6",
        (Layer("hgrn2", "linear:HGRN2", "sums:HGRN2Layout"),),
    ),
    Rule(
        "rwkv6", "o = (S + v (u k)^T) q; S = S diag(w) + v k^T", _memory,
        "forget per key dimension, after the read", {"VK": 5},
        f"{HOPFIELD} + tr(S diag(1 - w) S^T) / 2", (DOT, GRADIENT), "Peng et al. 2024, eq. 19-20",
        (Layer("rwkv6", "linear:RWKV6"),),
    ),
    Rule(
        "mamba", "S = S exp(-dt exp(A)) + (dt x) k^T; o = S q + D x", _memory,
        "step per value channel", {"VK": 7},
        f"{HOPFIELD} + decay of each entry", (DOT, GRADIENT), "Gu and Dao 2023, eq. 2-4",
        (Layer("mamba", "recurrent:Mamba"),),
    ),
    Rule(
        "mlstm", "S = f S + i v k^T; z = f z + i k; o = S q / max(1, |z . q|)",
        lambda K, V: {"memory": (V, K), "normaliser": (K,), "maximum": ()},
        "forget, weight or log_weight (exponential)", {"VK": 5, "K": 5},
        HOPFIELD, (DOT, GRADIENT), "Beck et al. 2024, eq. 19-27",
        (Layer("mlstm", "linear:MLSTM"),),
    ),
    Rule(
        "delta", "S = S (I - beta k k^T) + beta v k^T", _memory, "weight", {"VK": 6},
        SQUARED, (TOKEN, GRADIENT), "Schlag et al. 2021, eq. 24",
        (Layer("delta", "delta:Delta", "regressions:DeltaLayout"),),
    ),
    Rule(
        "gated_delta", "S = gamma S (I - beta k k^T) + beta v k^T", _memory,
        "forget (may be signed), weight", {"VK": 7},
        SQUARED, (TOKEN, GRADIENT), "Yang et al. 2025, eq. 10",
        (Layer("gated_delta", "delta:GatedDelta", "regressions:GatedDeltaLayout"),),
    ),
    Rule(
        "gated_delta_product",
        "S = gamma S; n times: S = S (I - beta_j k_j k_j^T) + beta_j v_j k_j^T", _memory,
        "forget, weight per step (costs are of 2 steps)", {"VK": 11},
        f"{SQUARED} at each of n pairs", (TOKEN, GRADIENT), "Siems et al. 2025, sec. 3",
        (
            Layer(
                "gated_delta_product", "delta_product:GatedDeltaProduct",
                "regressions:DeltaProductLayout",
            ),
        ),
    ),
    Rule(
        "kda", "S = S diag(a) (I - beta k k^T) + beta v k^T", _memory,
        "forget (scalar or per key dimension), weight, erase", {"VK": 7},
        SQUARED, (TOKEN, GRADIENT), "Kimi Team 2025, sec. 3; Gated DeltaNet-2 (2026) for erase",
        (
            Layer("kda", "delta:KDA", "regressions:KDALayout"),
            Layer("gated_delta2", "delta:GatedDelta2", "regressions:GatedDelta2Layout"),
        ),
    ),
    Rule(
        "comba", "S = S (gamma I - b beta k k^T) + beta v k^T", _memory, "forget, weight, feedback",
        {"VK": 7},
        "|v - b S k|^2 / (2 b)", (TOKEN, GRADIENT), "Hu et al. 2025",
        (Layer("comba", "delta_product:Comba"),),
    ),
    Rule(
        "momentum_delta", "M = mu M + eta (v - S p) k^T; S = alpha S + beta M, p = alpha k",
        lambda K, V: {"memory": (V, K), "velocity": (V, K)},
        "forget alpha, momentum mu, weight eta, step size beta", {"VK": 10},
        SQUARED, (TOKEN, GRADIENT), "Huang et al. 2026, sec. 3",
        (Layer("momentum_delta", "filtered:MomentumDelta"),),
    ),
    Rule(
        "rwkv7", "S = S (diag(w) - r (a*r)^T) + v k^T", _memory,
        "forget per key dimension, removal key and rate", {"VK": 9},
        "|v - S r|^2 / 2, where k = a*r", (TOKEN, CONDITIONED), "Peng et al. 2025a",
        (Layer("rwkv7", "rwkv7:RWKV7"),),
    ),
    Rule(
        "longhorn", "S = S (1 - d k*k) + d v k^T, d = beta / (1 + beta k . k)", _memory,
        "weight, per token or value channel", {"VK": 5},
        f"{SQUARED} + |S - S_old|^2 / (2 beta)", (TOKEN, CONDITIONED), "Liu et al. 2024, eq. 7",
        (Layer("longhorn", "delta:Longhorn"),),
    ),
    Rule(
        "preconditioned_delta",
        "a = c a + d k*k; S = gamma S (I - beta k (M k)^T) + beta v (M k)^T",
        lambda K, V: {"memory": (V, K), "curvature": (K,)},
        "forget (scalar or per key dimension), weight, of the curvature too", {"VK": 7, "K": 12},
        SQUARED, (TOKEN, CONDITIONED), "Tumma et al. 2026",
        (
            Layer("preconditioned_delta", "delta:PreconditionedDelta"),
            Layer(
                "preconditioned_gated_delta", "curvature:PreconditionedGatedDelta",
                "regressions:PreconditionedGatedDeltaLayout",
            ),
            Layer(
                "preconditioned_kda", "curvature:PreconditionedKDA",
                "regressions:PreconditionedKDALayout",
            ),
        ),
    ),
    Rule(
        "kalman_delta",
        "z = a*a / c + w; S = S diag(a); S = S + (v - S k) (z*k)^T / (r + z . k*k); "
        "c = 1 / z + i k*k / r",
        lambda K, V: {"memory": (V, K), "covariance": (K,)},
        "forget (scalar or per key dimension), weight 1 / r, drift w", {"VK": 7, "K": 14},
        "|v - S k|^2 / (2 r) + tr((S - S_old) diag(1 / z) (S - S_old)^T) / 2", (TOKEN, CONDITIONED),
        "Kalman Delta Networks 2026",
        (Layer("kalman_delta", "filtered:KalmanDelta"),),
    ),
    Rule(
        "rg_lru", "h = a h + sqrt(1 - a^2) (i * x)", lambda K, V: {"hidden": (V,)},
        "input and recurrence, per channel", {"V": 10},
        "|h - x|^2 / 2 of each channel", (TOKEN, GRADIENT), "De et al. 2024, eq. 1-4",
        (Layer("hawk", "recurrent:Hawk"),),
    ),
    Rule(
        "ttt_linear", "f(x) = x + LN(W x + b)",
        lambda K, V: {
            "weight": (V, K), "bias": (V,), "start_weight": (V, K), "start_bias": (V,),
            "position": (),
        },
        "learning_rate, query_factor", {"VK": 6},
        "|v - f(k)|^2 / 2", (TOKEN, BATCH), "Sun et al. 2024, sec. 2",
        (Layer("ttt_linear", "ttt:TTTLinear"),),
    ),
    Rule(
        "ttt_mlp", "f(x) = x + LN(W2 gelu(W1 x + b1) + b2)",
        lambda K, V: {
            "w1": (4 * K, K), "b1": (4 * K,), "w2": (V, 4 * K), "b2": (V,),
            "start_w1": (4 * K, K), "start_b1": (4 * K,), "start_w2": (V, 4 * K),
            "start_b2": (V,), "position": (),
        },
        "learning_rate, query_factor", {"KK": 24, "VK": 32},
        "|v - f(k)|^2 / 2", (TOKEN, BATCH), "Sun et al. 2024, sec. 2",
        (Layer("ttt_mlp", "ttt:TTTMLP"),),
    ),
    Rule(
        "mesa", "H = gamma H + beta k k^T; G = gamma G + beta v k^T; o = G (H + Lambda)^-1 q",
        _moments, "forget (may be signed), weight, ridge", {"VK": 5, "KK": 3, "KKK": 2},
        CUMULATIVE, (ALL, EXACT), "von Oswald et al. 2025, eq. 4-6",
        (Layer("mesa", "solved:Mesa", "regressions:MesaLayout"),),
    ),
    Rule(
        "mesa_discounted", "mesa with a ridge that is forgotten with the data", _moments,
        "forget, weight, ridge at the start", {"VK": 5, "KK": 3, "KKK": 2},
        "sum_i zeta_i beta_i |v_i - S k_i|^2 / 2 + zeta_0 tr(S Lambda S^T) / 2", (ALL, EXACT),
        "von Oswald et al. 2025, eq. 17-24",
        (Layer("mesa_discounted", "solved:MesaDiscounted"),),
    ),
    Rule(
        "mesa_channel", "H = D H D + beta k k^T; S = S + beta (v - S k) ((H + Lambda)^-1 k)^T",
        lambda K, V: {"memory": (V, K), "gram": (K, K)},
        "forget (scalar or per key dimension: D^2), weight, ridge", {"VK": 6, "KK": 4, "KKK": 2},
        "beta |v - S k|^2 / 2 + tr((S - S_old) (D H_old D + Lambda) (S - S_old)^T) / 2",
        (ALL, CONDITIONED), "vector forgetting: Saelid and Foss 1983",
        (Layer("mesa_channel", "regressions:MesaChannel"),),
    ),
    Rule(
        "mesa_window", "mesa over the last w tokens",
        lambda K, V: {
            "keys": ("w", K), "values": ("w", V), "forget": ("w",), "weight": ("w",)
        },
        "window, forget, weight, ridge", {"wKK": 2, "wK": 2, "wV": 2, "KKK": 2},
        "mesa's, over the window", (ALL, EXACT), "Behrouz et al. 2025",
        (Layer("mesa_window", "regressions:MesaWindow"),),
    ),
    Rule(
        "kalman", "mesa with Lambda = ratio |H|_F; o = G (x (H + Lambda)^-1 + 1 - x) q", _moments,
        "forget, weight, mix", {"VK": 5, "KK": 63},
        CUMULATIVE, (ALL, EXACT), "Peng et al. 2025",
        (Layer("kalman", "regressions:Kalman"),),
    ),
    Rule(
        "intention", "o_t = G_T (H_T + Lambda)^-1 q_t, not causal", _moments, "weight, ridge",
        {"VK": 5, "KK": 3},
        "mesa's, of the whole context", (ALL, EXACT), "Garnelo and Czarnecki 2023, eq. 3",
        (Layer("intention", "regressions:Intention"),),
    ),
)  # fmt: skip

BY_NAME: dict[str, Rule] = {rule.name: rule for rule in RULES}
