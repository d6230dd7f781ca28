"""What the command line reads: CSV and Parquet, in chunks of a fixed number of rows."""
