"""Batches reach a GPU although PyTorch has no streams for the numbers of GPUs any more."""

import pytest

torch = pytest.importorskip("torch")

MMCV = {
    "mmcv/parallel/_functions.py": """
        from torch.nn.parallel._functions import _get_stream
        def scatter(input, devices, streams=None):
            streams = streams or [None] * len(devices)
            if isinstance(input, list):
                size = (len(input) - 1) // len(devices) + 1
                return [scatter(each, [devices[i // size]], [streams[i // size]])
                        for i, each in enumerate(input)]
            return input, devices[0], streams[0]
        class Scatter:
            @staticmethod
            def forward(target_gpus, input):
                streams = None
                if target_gpus != [-1]:
                    streams = [_get_stream(device) for device in target_gpus]
                outputs = scatter(input, target_gpus, streams)
                return tuple(outputs) if isinstance(outputs, list) else (outputs,)
    """
}
SCATTER = """
    report = apply() if len(sys.argv) < 2 else None
    from mmcv.parallel._functions import Scatter
    print(Scatter.forward([-1], ["a"]), Scatter.forward([-1], "a"))
    print(Scatter.forward([0, 2], ["a", "b"]), Scatter.forward(range(1), input="a"))
    assert state(report, "mmcv.scatter") == "applied", str(report)
"""
TO_CPU = "(('a', -1, None),) (('a', -1, None),)\n"
TO_GPU = "(('a', 0, None), ('b', 2, None)) (('a', 0, None),)\n"


def test_each_gpu_gets_its_share_in_the_current_stream(use, project):
    use("mmcv", "mmcv.scatter").write(MMCV)
    assert project.run(SCATTER) == TO_CPU + TO_GPU
    original = project.python("main.py", "original", code=1)
    assert original.stdout == TO_CPU
    assert "'int' object has no attribute 'type'" in original.stderr
