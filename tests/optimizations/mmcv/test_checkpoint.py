"""Checkpoints with numpy in their meta data load, and none runs code unless it is trusted."""

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

MMCV = {
    "mmcv/runner/checkpoint.py": """
        import torch
        class CheckpointLoader:
            @classmethod
            def load_checkpoint(cls, filename, map_location=None, logger=None):
                assert cls is CheckpointLoader
                return torch.load(filename, map_location=map_location)
        def load_checkpoint(filename):
            return CheckpointLoader.load_checkpoint(filename, "cpu", None)
    """
}
META = {
    "double": np.float64(0.5),
    "whole": np.int64(3),
    "half": np.float16(2),
    "truth": np.bool_(True),
    "text": np.str_("x"),
    "array": np.arange(6.0).reshape(2, 3).T,
    "names": np.array(["car", "bus"]),
}


class Command:
    def __reduce__(self):
        return print, ("the checkpoint runs code",)


def save(project, meta):
    torch.save({"state_dict": {"weight": torch.ones(2)}, "meta": meta}, project.path / "file.pth")


LOAD = """
    report = apply()
    from mmcv.runner.checkpoint import load_checkpoint
    import numpy as np, torch
    found = load_checkpoint("file.pth")
    assert torch.equal(found["state_dict"]["weight"], torch.ones(2))
    assert state(report, "mmcv.load_checkpoint") == "applied", str(report)
    print({key: getattr(value, "tolist", lambda: value)() for key, value in found["meta"].items()})
"""


def test_numbers_and_arrays_of_numpy_load(use, project):
    save(project, META)
    printed = use("mmcv", "mmcv.load_checkpoint").write(MMCV).run(LOAD)
    assert printed == f"{ {key: value.tolist() for key, value in META.items()} }\n"


@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_whichever_numpy_wrote_them(use, project, module):
    save(project, META)
    file = project.path / "file.pth"
    content, (ours, theirs) = file.read_bytes(), (b"numpy._core.multiarray", module.encode())
    if np.lib.NumpyVersion(np.__version__) < "2.0.0":
        ours = b"numpy.core.multiarray"
    file.write_bytes(_rewritten(content, ours, theirs))
    use("mmcv", "mmcv.load_checkpoint").write(MMCV).run(LOAD)


def _rewritten(content, ours, theirs):
    import io
    import zipfile

    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(result, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            assert not name.endswith("data.pkl") or ours in data
            new.writestr(name, data.replace(ours, theirs) if name.endswith("data.pkl") else data)
    return result.getvalue()


@pytest.mark.parametrize("hidden", [Command(), np.array([Command()], dtype=object)])
def test_a_checkpoint_that_runs_code_is_refused(use, project, hidden):
    save(project, {"hidden": hidden})
    use("mmcv", "mmcv.load_checkpoint").write(MMCV)
    done = project.script(LOAD, code=1)
    assert "Weights only load failed" in done.stderr
    assert "the checkpoint runs code" not in done.stdout


def test_unless_it_is_trusted(use, project):
    save(project, {"hidden": Command()})
    use("mmcv", "mmcv.load_checkpoint", options="{trusted: true}").write(MMCV)
    assert "the checkpoint runs code" in project.run(LOAD)
    done = project.script(
        LOAD + "\n    torch.load('file.pth')  # others are asked as before", code=1
    )
    assert "Weights only load failed" in done.stderr
