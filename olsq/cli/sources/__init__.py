"""Inputs of the command line: CSV and Parquet, read in chunks of a fixed number of rows."""
