"""``python -m olsq``: the command line."""

from olsq.cli import main

if __name__ == "__main__":
    main()
