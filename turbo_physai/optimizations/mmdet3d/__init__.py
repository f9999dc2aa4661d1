"""Lets mmdet3d 1.x work beside the last mmcv 1.x."""
