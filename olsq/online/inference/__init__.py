"""What a fitted estimator says about new rows and about its coefficients."""
