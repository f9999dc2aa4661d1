"""The commands of `turbo-physai`, a file for each group of them: they parse, and hand on."""
