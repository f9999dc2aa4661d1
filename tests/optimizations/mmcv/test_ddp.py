"""Data-parallel training through mmcv's wrapper, which knows an older PyTorch only."""

from textwrap import dedent

import pytest

torch = pytest.importorskip("torch")

MMCV = {
    "mmcv/parallel/scatter_gather.py": """
        class Container:
            def __init__(self, data):
                self.data = data
        def scatter_kwargs(inputs, kwargs, devices, dim=0):
            (device,) = devices
            where = "cpu" if device == -1 else device
            def move(value):
                if isinstance(value, Container):
                    return value.data.to(where)
                if isinstance(value, dict):
                    return {key: move(item) for key, item in value.items()}
                return value
            return (tuple(map(move, inputs)),), ({k: move(v) for k, v in kwargs.items()},)
    """,
    "mmcv/parallel/distributed.py": """
        from torch.nn.parallel.distributed import DistributedDataParallel
        class MMDistributedDataParallel(DistributedDataParallel):
            def train_step(self, *inputs, **kwargs):
                if self.require_forward_param_sync:
                    self._sync_params()
            def val_step(self, *inputs, **kwargs):
                self._sync_params()
            def _run_ddp_forward(self, *inputs, **kwargs):
                return self._use_replicated_tensor_module(*inputs, **kwargs)
    """,
}
PRELUDE = """\
import turbo_physai
report = turbo_physai.apply(optimization_config_path="optimization.yaml")
"""
TRAIN = """
    import sys, torch, torch.distributed as dist
    from mmcv.parallel.distributed import MMDistributedDataParallel
    from mmcv.parallel.scatter_gather import Container
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
        def forward(self, data):
            return self.used(data["x"])
        def train_step(self, data, optimizer):
            return {"loss": self(data).square().sum(), "log_vars": {"loss": 1.0}, "by": optimizer}
        def val_step(self, data, optimizer):
            return "validated", self(data)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)  # the wrapper makes parameters equal
    model = Model()
    wrapper = MMDistributedDataParallel(model, find_unused_parameters=True)
    for step in range(3):
        x = torch.full((4, 3), 1.0 + rank) + step
        done = wrapper.train_step({"x": Container(x)}, optimizer="sgd")
        assert done["by"] == "sgd" and done["log_vars"] == {"loss": 1.0}
        model.zero_grad()
        done["loss"].backward()
        parts = []
        for other in range(dist.get_world_size()):
            same = torch.full((4, 3), 1.0 + other) + step
            parts.append(torch.autograd.grad(
                model.train_step({"x": same}, None)["loss"], model.used.weight
            )[0])
        torch.testing.assert_close(model.used.weight.grad, torch.stack(parts).mean(0))
        with torch.no_grad():
            model.used.weight -= 0.01 * model.used.weight.grad
    with torch.no_grad():
        validated, out = wrapper.val_step({"x": Container(x)}, None)
        assert validated == "validated"
        assert torch.equal(out, wrapper({"x": Container(x)})) and out.shape == (4, 2)
    assert report.execution["mmcv.ddp"].state.value == "applied", str(report)
    sys.stdout.write(f"trained {rank}\\n")  # at once: the ranks share the pipe
"""


def run(project, processes):
    project.write(MMCV)
    project.write({"main.py": PRELUDE + dedent(TRAIN)})
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return project.python(*torchrun, "main.py", OMP_NUM_THREADS="1").stdout


@pytest.mark.slow
def test_train_step_reduces_gradients_and_val_step_and_forward_run(use, project):
    use("mmcv", "mmcv.ddp")
    assert sorted(run(project, 2).split("\n")) == ["", "trained 0", "trained 1"]
