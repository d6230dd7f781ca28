"""Solve one long sequence on several devices: time is cut, moments are merged.

    python examples/gallery/shard_sequence.py [--devices 4] [--figure shards.png]

Moments of two pieces of a stream merge exactly.  So each device summarises its piece, the summaries
are merged in order, and every device solves its own tokens from the right state.  Virtual devices
of a CPU stand in for a cluster here: the answers are what is shown, not the speed.
"""

from __future__ import annotations

import os

import figures


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments, devices=4, tokens=2048)
    flags = os.environ.get("XLA_FLAGS", "")  # to be set before JAX starts
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={options.devices}"
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    import olsq

    T, d = options.tokens, 16
    k, v, q = jax.random.normal(jax.random.key(0), (3, T, d)) / d**0.5
    # [use]
    mesh = Mesh(np.array(jax.devices()), ("time",))
    here = NamedSharding(mesh, P("time", None))
    parts = [jax.device_put(x, here) for x in (k, v, q)]  # T / devices tokens on each

    solver = olsq.ChunkExact(shards=mesh.size)

    @jax.jit
    def solve(k, v, q):
        return olsq.online_lstsq(k, v, q, forget=0.999, ridge=0.1, solver=solver)

    sharded = solve(*parts)
    # [end]
    whole = olsq.online_lstsq(k, v, q, forget=0.999, ridge=0.1)
    error = np.abs(np.asarray(sharded.value) - np.asarray(whole.value))
    print(f"{T} tokens on {mesh.size} devices; largest difference to one device: {error.max():.1e}")
    assert len({s.device for s in parts[0].addressable_shards}) == mesh.size == options.devices
    assert error.max() < 1e-4

    def draw(ax):
        colours = ["#2166ac", "#d9730d"]
        for i, edge in enumerate(np.linspace(0, T, mesh.size + 1)[:-1]):
            piece = slice(int(edge), int(edge) + T // mesh.size)
            y = np.asarray(sharded.value)[piece, 0]
            ax.plot(np.arange(T)[piece], y, color=colours[i % 2], lw=0.6)
        ax.set_xlabel("token; colours change with the device")
        ax.set_title("First output", loc="left")

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()
