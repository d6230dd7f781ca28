"""The state file: its format, the checks of its content, saving, and frozen parameters."""
