"""Batches reach a GPU although PyTorch no longer has streams for the numbers of GPUs."""

import pytest

torch = pytest.importorskip("torch")

MMCV = {
    "mmcv/parallel/_functions.py": """
        from torch.nn.parallel._functions import _get_stream
        class Scatter:
            @staticmethod
            def forward(target_gpus, input):
                if target_gpus != [-1]:
                    for device in target_gpus:
                        _get_stream(device)
                return target_gpus, input
    """
}


def test_numbers_of_gpus_become_devices(use, project):
    project.write(MMCV)
    use("mmcv", "mmcv.scatter").run("""
        report = apply()
        from mmcv.parallel._functions import Scatter
        import torch
        gpus = [torch.device("cuda", 0), torch.device("cuda", 2)]
        assert Scatter.forward([0, 2], "batch") == (gpus, "batch")
        assert Scatter.forward(target_gpus=range(1), input="batch") == (gpus[:1], "batch")
        assert Scatter.forward([-1], "batch") == ([-1], "batch")
        assert Scatter.forward(gpus, "batch") == (gpus, "batch")
        assert state(report, "mmcv.scatter") == "applied", str(report)
    """)
