"""Convert weights to and from flash-linear-attention, for every rule that both compute alike.

Names, shapes and formulas are those of its ``fla/layers`` and ``fla/models``.  What differs from
ours in layout: projections are (outputs, inputs); the taps of a convolution are (channels, 1,
width) with the current token last; one norm's scale is shared by all heads; the forget gates of
delta rules have the other sign inside.  What differs in mathematics is an option of ours.
"""

from olsq.nn.fla.reading import from_fla
from olsq.nn.fla.writing import FlaWeights, to_fla

__all__ = ["FlaWeights", "from_fla", "to_fla"]
