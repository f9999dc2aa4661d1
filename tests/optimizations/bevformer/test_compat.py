"""The plugin of BEVFormer can be imported without detectron2, and trains without a GPU."""

import ast
import re
from pathlib import Path

import pytest

from turbo_physai.optimizations.bevformer.compat import catalog

torch = pytest.importorskip("torch")

HEAD = {
    "head.py": """
        from detectron2.layers import Conv2d, cat
        from detectron2.modeling.postprocessing import detector_postprocess as resize
        from detectron2.structures import Boxes, Instances
        from detectron2.structures.boxes import BoxMode
        from detectron2.data import transforms as T
        from detectron2.utils import comm
        from detectron2.utils.comm import get_world_size
        from detectron2.utils.env import TORCH_VERSION
        class Head:
            def __init__(self):
                self.conv = Conv2d(3, 3, kernel_size=1)
            def world(self):
                return comm.get_world_size()
            def mode(self):
                return BoxMode.XYXY_ABS
            def is_new(self):
                return TORCH_VERSION >= (1, 7)
    """
}


def test_a_head_made_of_detectron2_is_imported_and_says_what_it_lacks_when_used(use, project):
    project.write(HEAD)
    use("bevformer.compat", "bevformer.compat.detectron2").run("""
        report = apply()
        from head import Head
        assert state(report, "bevformer.compat.detectron2") == "applied", str(report)
        head = object.__new__(Head)
        for use, name in [(Head, "Conv2d"), (head.world, "comm"), (head.mode, "BoxMode"),
                          (head.is_new, "TORCH_VERSION")]:
            try:
                use()
            except ModuleNotFoundError as error:
                assert error.name == "detectron2" and f"detectron2's {name!r}" in str(error)
                assert "install it" in str(error)
            else:
                raise AssertionError(name)
        import importlib.util
        from detectron2.layers import Conv2d
        try:
            class Own(Conv2d): ...
        except ModuleNotFoundError:
            pass
        else:
            raise AssertionError("no class is made of what is not there")
    """)


def test_who_asks_for_detectron2_is_told_that_it_is_not_installed(use, project):
    use("bevformer.compat", "bevformer.compat.detectron2").run("""
        apply()
        from importlib.util import find_spec
        assert find_spec("detectron2") is None
        import detectron2
        try:
            import detectron2.engine
        except ModuleNotFoundError as error:
            assert error.name == "detectron2.engine"
    """)


def test_an_installed_detectron2_is_left_alone(use, project):
    modules = {name.replace(".", "/") + "/__init__.py": "" for name in catalog.DETECTRON2}
    modules["detectron2/layers/__init__.py"] = "Conv2d = 'its own'\n"
    project.write(modules)
    use("bevformer.compat", "bevformer.compat.detectron2").run(f"""
        report = apply()
        for name in {catalog.DETECTRON2}:
            __import__(name)
        assert sys.modules["detectron2.layers"].Conv2d == "its own"
        members = report.execution["bevformer.compat.detectron2"].members
        assert all("not needed" in member.note for member in members)
    """)


TRAIN = {
    "projects/mmdet3d_plugin/bevformer/apis/mmdet_train.py": """
        import torch
        def custom_train_detector(model, dataset, cfg, distributed=False, validate=False,
                                  timestamp=None, eval_model=None, meta=None):
            if eval_model is not None:
                eval_model.cuda()
            return model.cuda(0), dataset, cfg, meta
    """
}


def test_a_model_stays_where_it_is_without_a_gpu_and_only_then(use, project):
    project.write(TRAIN)
    use("bevformer.compat", "bevformer.compat.cpu_training").run("""
        report = apply()
        import torch
        from projects.mmdet3d_plugin.bevformer.apis.mmdet_train import custom_train_detector
        class Model(torch.nn.Linear):
            moves = []
            def cuda(self, device=None):
                self.moves.append(device)
                return "moved", device
        torch.cuda.is_available = lambda: False
        model, other = Model(2, 2), Model(2, 2)
        found = custom_train_detector(model, "data", cfg="cfg", eval_model=other, meta=3)
        assert found == (model, "data", "cfg", 3)
        again = custom_train_detector(model, 1, 2, False, False, None, other)
        assert again == (model, 1, 2, None) and Model.moves == []
        assert model.cuda(1) == ("moved", 1) and other.cuda() == ("moved", None), "only that once"
        torch.cuda.is_available = lambda: True
        assert custom_train_detector(model=model, dataset=1, cfg=2)[0] == ("moved", 0)
        assert state(report, "bevformer.compat.cpu_training") == "applied", str(report)
    """)


def test_the_plugin_of_the_official_repository_imports_nothing_else_of_detectron2(request):
    """Where a checkout is given with --bevformer-repo."""
    repo = request.config.getoption("--bevformer-repo", None)
    if repo is None:
        pytest.skip("no --bevformer-repo")
    wanted = set()
    for file in Path(repo, "projects").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and re.match("detectron2", node.module or ""):
                wanted.add(node.module)
    parents = {name.rpartition(".")[0] for name in wanted} - {""}
    assert wanted | parents == set(catalog.DETECTRON2)
