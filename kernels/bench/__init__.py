"""`python -m turbo_physai.kernels.bench OPERATOR`: the operators against what they replace."""
