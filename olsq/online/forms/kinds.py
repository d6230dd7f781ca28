"""The forms by name, and rebuilding a form from saved arrays."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from olsq.online.forms.adaptive import AdaptiveForm
from olsq.online.forms.covariance import CovarianceForm
from olsq.online.forms.form import Form
from olsq.online.forms.information import InformationForm
from olsq.online.forms.square_root import SquareRootForm

FORMS: dict[str, Any] = {
    kind.name: kind for kind in (SquareRootForm, CovarianceForm, InformationForm, AdaptiveForm)
}


def restore(description: dict[str, Any], arrays: dict[str, NDArray]) -> Form:
    """Rebuild the form from the results of :meth:`Form.describe` and :meth:`Form.arrays`."""
    kind = FORMS[description["form"]]
    arguments = dict(description["arguments"])
    arguments["precision"] = tuple(arguments["precision"])
    names = (*kind.ARRAYS, *(name for name in kind.OPTIONAL if name in arrays))
    return kind(**{name: arrays[name] for name in names}, **arguments)
