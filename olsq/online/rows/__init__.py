"""Rows as users pass them: checks, frames, times, durations, and the options of a call."""
