"""Many regressions of one size in compiled loops: filter banks, and regressions by group."""
