"""``train_text.py`` with Ctrl-C pressed after its third step, as a program.

Bits are compared between processes only: inside one that has run other tests JAX may go on with
a program that they compiled, with the same meaning and other rounding.
"""

import os
import signal
import sys

import train_text

STEP = 3


def interrupting(show):
    def interrupt(trainer, record, begun):
        show(trainer, record, begun)
        if record.step == STEP:
            os.kill(os.getpid(), signal.SIGINT)

    return interrupt


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.argv = ["train_text.py", "x y"]  # what the message quotes
    train_text.show = interrupting(train_text.show)
    sys.exit(train_text.main(arguments))
