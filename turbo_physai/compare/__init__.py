"""Runs a command with and without Groups, in turns, and says what they change."""
