"""On the example, as a user runs it: a wrong sign in a gradient never reaches the optimizer."""

import json
import os
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

EXAMPLE = Path(__file__).parents[2] / "examples" / "bevformer"
SMALL = ["--bev", "12", "--embed-dims", "32", "--encoder-layers", "1", "--queries", "80"]
TARGET = "projects.mmdet3d_plugin.bevformer.modules.temporal_self_attention.TemporalSelfAttention"
WRONG = """
    def wrong(original, options):
        def forward(self, query, *args, **kwargs):
            # The value of the original, and minus its gradient.
            result = original(self, query, *args, **kwargs)
            return 2 * result.detach() - result
        return forward
"""


RANKS = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [[], RANKS], ids=["alone", "ranks"])
def test_a_wrong_sign_is_named_and_the_losses_are_those_of_an_unoptimized_run(project, launcher):
    project.declare(f"group('wrong', wrap('{TARGET}.forward', 'bad:wrong'))")
    project.write({"bad.py": WRONG})

    def losses(*options, **environment):
        config = ["--optimization-config", "optimization.yaml", *options]
        script = [str(EXAMPLE / "train.py"), "--device", "cpu", "--steps", "3", *SMALL]
        run = ["-m", "turbo_physai.run", *config, *launcher, *script]
        done = project.python(*run, OMP_NUM_THREADS="1", **environment)
        return re.findall(r"step \d+ loss (\S+)", done.stdout), done.stderr

    plain, _ = losses("--disable")
    wrong, _ = losses()
    verified, said = losses("--verify", "2")
    assert verified == plain != wrong
    assert "the Group wrong is not applied (rolled_back)" in said
    assert re.search(r"MismatchError: call 1: gradient of \S+", said)
    newest = max(project.path.glob("reports/*.json"), key=os.path.getmtime)
    (member,) = json.loads(newest.read_text())["execution"]["wrong"]["members"]
    assert member["verification"]["mismatch"].startswith("call 1: gradient of ")
