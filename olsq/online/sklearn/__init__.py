"""scikit-learn's conventions, kept without importing scikit-learn."""
