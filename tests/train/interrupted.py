"""``olsq train`` with Ctrl-C pressed after its third step, as a program.

Bits are compared between processes only: inside one that has run other tests JAX may go on with
a program that they compiled, with the same meaning and other rounding.
"""

import os
import signal
import sys

from olsq.cli import main
from olsq.cli.train.report import StepProgress

STEP = 3


def interrupting(update):
    def interrupt(self, record):
        update(self, record)
        if record.step == STEP:
            os.kill(os.getpid(), signal.SIGINT)

    return interrupt


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.argv = ["olsq", "train", "x y"]  # what the message quotes
    StepProgress.update = interrupting(StepProgress.update)
    main(arguments)
