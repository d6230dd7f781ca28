"""Entry point of ``python -m olsq.cli``."""

from olsq.cli import main

main()
