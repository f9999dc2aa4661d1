"""Lets the official BEVFormer repository run, as it is, on a current stack and without a GPU."""
