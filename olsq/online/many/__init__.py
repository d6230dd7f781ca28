"""Many regressions of one size in compiled loops: banks of filters, regressions by label."""
