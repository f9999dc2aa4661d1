"""The Groups that ship with turbo_physai, one folder a model."""
