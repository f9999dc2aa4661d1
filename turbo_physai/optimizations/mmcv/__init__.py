"""Lets mmcv 1.x work where its operators were not compiled, and on a current PyTorch."""
