"""What counts as an optimizer step, and what its loss is, in the loops that people write."""

import math

import pytest

torch = pytest.importorskip("torch")

from turbo_physai.measure.losses import BackwardLosses, NamedLosses  # noqa: E402
from turbo_physai.measure.steps import Steps  # noqa: E402


class Observed:
    """The steps that were counted, with their losses."""

    def __init__(self, last, losses):
        self.losses = []
        self.is_finished = False
        self.steps = Steps(last, self.ended, self.finish)
        self.source = losses

    def ended(self, number, device, frame):
        assert number == len(self.losses) + 1
        loss = self.source.take(frame)
        self.losses.append(None if loss is None else round(float(loss), 5))

    def finish(self):
        self.is_finished = True

    @property
    def count(self):
        return self.steps.count


@pytest.fixture
def observe(monkeypatch):
    """Begins to observe this process, until the test ends."""
    made = []

    def begin(last=1000, losses=None):
        scaler = torch.amp.GradScaler
        for owner, name in ((torch.Tensor, "backward"), (scaler, "step"), (scaler, "scale")):
            monkeypatch.setattr(owner, name, getattr(owner, name))
        observed = Observed(last, losses or BackwardLosses())
        made.append(observed)
        observed.steps.install()
        observed.steps.install_scaler()
        observed.source.install()
        observed.source.install_scaler()
        return observed

    yield begin
    for observed in made:
        observed.steps.hook.remove()


def parameter(value=1.0):
    return torch.nn.Parameter(torch.tensor([value]))


def sgd(*parameters):
    return torch.optim.SGD(parameters or [parameter()], lr=0.1)


def loss_of(optimizer, factor=1.0):
    (weight,) = optimizer.param_groups[0]["params"]
    return (weight * factor).sum()


def test_each_step_of_a_plain_loop_counts_and_has_the_loss_that_was_differentiated(observe):
    observed, optimizer = observe(), sgd()
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(optimizer).backward()
        optimizer.step()
    assert observed.losses == [1.0, 0.9, 0.8]


def test_with_accumulation_a_step_has_the_sum_of_its_losses(observe):
    observed, optimizer = observe(), sgd()
    for i in range(4):
        (loss_of(optimizer) / 2).backward()
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
    assert observed.losses == [1.0, 0.9]


def test_several_optimizers_make_one_step_when_the_first_one_steps_again(observe):
    observed, first, second = observe(), sgd(), sgd()
    for _ in range(3):
        for optimizer in (first, second, second):
            loss_of(optimizer).backward()
            optimizer.step()
    assert observed.count == 3


def test_a_later_optimizer_is_counted_once_the_first_one_has_gone(observe):
    observed = observe()
    for _ in range(2):
        optimizer = sgd()
        loss_of(optimizer).backward()
        optimizer.step()
        del optimizer
    assert observed.count == 2


def test_a_step_that_calls_that_of_its_base_class_counts_once(observe):
    class Own(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    observed = observe()
    sgd()  # torch hooks a class when the first of its optimizers is made
    optimizer = Own([parameter()], lr=0.1)
    loss_of(optimizer).backward()
    optimizer.step()
    assert observed.count == 1


def test_a_closure_runs_inside_of_its_step(observe):
    observed, optimizer = observe(), sgd()

    def closure():
        optimizer.zero_grad()
        loss = loss_of(optimizer)
        loss.backward()
        return loss

    optimizer.step(closure)
    optimizer.step(closure)
    assert observed.losses == [1.0, 0.9]


def test_a_grad_scaler_hides_neither_losses_nor_the_steps_it_leaves_out(observe):
    observed, optimizer = observe(), sgd()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for factor in (1.0, math.inf, 1.0):
        optimizer.zero_grad()
        scaler.scale(loss_of(optimizer, factor)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert observed.losses == [1.0, math.inf, 0.9]
    assert observed.steps.skipped == [2]


def test_a_runner_whose_hooks_make_the_step_counts(observe):
    """As in mmcv: the runner holds the outputs, and a hook calls backward and step."""

    class OptimizerHook:
        def after_train_iter(self, runner):
            runner.optimizer.zero_grad()
            runner.outputs["loss"].backward()
            runner.optimizer.step()

    class Runner:
        def __init__(self):
            self.optimizer = sgd()
            self.hooks = [OptimizerHook()]

        def run(self, iterations):
            for _ in range(iterations):
                loss = loss_of(self.optimizer)
                self.outputs = {"loss": loss, "log_vars": {"loss_cls": 2 * loss.item()}}
                for hook in self.hooks:
                    hook.after_train_iter(self)

    by_backward = observe()
    Runner().run(2)
    assert by_backward.losses == [1.0, 0.9]
    by_name = observe(losses=NamedLosses("runner.outputs.log_vars.loss_cls"))
    Runner().run(2)
    assert by_name.losses == [2.0, 1.8]


@pytest.mark.parametrize("name", ["missing", "loss.missing", "optimizer"])
def test_a_named_loss_that_is_no_number_is_none(observe, name):
    observed, optimizer = observe(losses=NamedLosses(name)), sgd()
    loss = loss_of(optimizer)
    loss.backward()
    optimizer.step()
    assert observed.losses == [None]


def test_a_vector_that_gets_its_gradient_from_elsewhere_is_no_loss(observe):
    observed, optimizer = observe(), sgd()
    (weight,) = optimizer.param_groups[0]["params"]
    (weight * torch.ones(3)).backward(torch.ones(3))
    optimizer.step()
    assert observed.losses == [None]


def test_the_program_ends_with_0_after_the_last_step_and_its_cleanup_runs(observe, monkeypatch):
    # The one that ends a program which does not end by itself must not end this one.
    monkeypatch.setattr("turbo_physai.measure.steps._PATIENCE", 1e6)
    observed, optimizer = observe(last=2), sgd()
    cleaned = []

    def train():
        try:
            while True:
                loss_of(optimizer).backward()
                optimizer.step()
        finally:
            cleaned.append(True)

    with pytest.raises(SystemExit) as ended:
        train()
    assert ended.value.code == 0
    assert observed.count == 2
    assert observed.is_finished
    assert cleaned
