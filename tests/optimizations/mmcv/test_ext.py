"""mmcv without its compiled operators can be imported, and what we cover of them works."""

import pytest

torch = pytest.importorskip("torch")

MMCV = {
    "mmcv/utils/ext_loader.py": """
        import importlib
        def load_ext(name, functions):
            ext = importlib.import_module("mmcv." + name)
            for function in functions:
                assert hasattr(ext, function), f"{function} miss in module {name}"
            return ext
    """,
    "mmcv/ops/info.py": """
        from ..utils import ext_loader
        ext = ext_loader.load_ext("_ext", ["get_compiler_version", "get_compiling_cuda_version"])
    """,
    "mmcv/ops/nms.py": """
        from ..utils import ext_loader
        ext = ext_loader.load_ext("_ext", ["nms", "softnms"])
    """,
    "mmcv/ops/multi_scale_deform_attn.py": """
        from ..utils import ext_loader
        ext = ext_loader.load_ext("_ext", ["ms_deform_attn_forward", "ms_deform_attn_backward"])
    """,
}


def test_everything_that_asks_for_operators_can_be_imported(use, project):
    project.write(MMCV)
    use("mmcv", "mmcv.ext").run("""
        report = apply()
        from mmcv.ops import info, nms, multi_scale_deform_attn
        assert state(report, "mmcv.ext") == "applied" and report.final, str(report)
        for told in info.ext.get_compiler_version(), info.ext.get_compiling_cuda_version():
            assert "turbo_physai stands in" in told
        import mmcv._ext
        try:
            mmcv._ext.__wrapped__
        except AttributeError:
            pass
        else:
            raise AssertionError("only operators are made up")
        assert not any(name.startswith("torch") for name in sys.modules)
    """)


def test_an_operator_that_is_not_covered_says_so_when_it_is_called(use, project):
    project.write(MMCV)
    use("mmcv", "mmcv.ext").run("""
        apply()
        from mmcv.ops import nms
        try:
            nms.ext.nms(1, iou_threshold=0.5)
        except NotImplementedError as error:
            assert "the operator nms of mmcv is not compiled" in str(error)
            assert "mmcv-full" in str(error) and "ms_deform_attn_forward" in str(error)
        else:
            raise AssertionError
    """)


def test_who_asks_whether_the_operators_are_compiled_is_told_the_truth(use, project):
    project.write(MMCV)
    use("mmcv", "mmcv.ext").run("""
        apply()
        import importlib.util, mmcv.ops.info
        assert importlib.util.find_spec("mmcv") is not None
        del sys.modules["mmcv._ext"]
        assert importlib.util.find_spec("mmcv._ext") is None
    """)


def test_compiled_operators_are_left_alone(use, project):
    project.write(MMCV | {"mmcv/_ext.py": "def __getattr__(name): return lambda *a: 'compiled'\n"})
    use("mmcv", "mmcv.ext").run("""
        report = apply()
        from mmcv.ops import nms
        assert nms.ext.nms() == "compiled"
        assert state(report, "mmcv.ext") == "applied"
        assert "not needed" in report.execution["mmcv.ext"].members[0].note
        assert "turbo_physai.optimizations.mmcv.ext" not in sys.modules
    """)


def test_deformable_attention_works_through_the_module(use, project):
    project.write(MMCV)
    use("mmcv", "mmcv.ext").run("""
        apply()
        import torch
        from mmcv.ops import multi_scale_deform_attn as module
        from turbo_physai.kernels import ms_deform_attn
        value = torch.randn(2, 20, 4, 8)
        shapes, starts = torch.tensor([[4, 5]]), torch.tensor([0])
        locations, weights = torch.rand(2, 7, 4, 1, 3, 2), torch.rand(2, 7, 4, 1, 3)
        arguments = value, shapes, starts, locations, weights
        out = module.ext.ms_deform_attn_forward(*arguments, im2col_step=64)
        for each in value, locations, weights:
            each.requires_grad_()
        expected = ms_deform_attn(value, shapes, starts, locations, weights)
        assert torch.equal(out, expected.detach())
        found = [torch.zeros_like(each) for each in (value, locations, weights)]
        module.ext.ms_deform_attn_backward(
            *(each.detach() for each in arguments), torch.ones_like(out), *found, im2col_step=64
        )
        wanted = torch.autograd.grad(expected.sum(), (value, locations, weights))
        for mine, theirs in zip(found, wanted):
            torch.testing.assert_close(mine, theirs)
    """)


def test_every_covered_operator_is_there():
    from turbo_physai.kernels.faces import mmcv_ext

    from turbo_physai.optimizations.mmcv import ext

    assert set(ext.COVERED) == set(mmcv_ext.__all__)
    assert mmcv_ext.__name__ == ext.KERNELS
