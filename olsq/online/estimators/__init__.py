"""The recursive and rolling estimators, and what all estimators share."""
