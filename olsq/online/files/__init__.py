"""The state file: its format, the checks of its content, and saving."""
