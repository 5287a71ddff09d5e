"""Tasks as people write them elsewhere: torch's losses and optimisers, dict records, float64, labels of any type.

The oracle is torch itself: the mean over a batch that a user would have had, and the steps that its optimisers take.
"""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.nn import functional

from lrdp.accounting import FixedSizeGaussian
from lrdp.errors import InvalidInput, LrdpError
from lrdp.training import (
    Adam,
    AdamW,
    CrossEntropy,
    NamedCrossEntropy,
    OutputLoss,
    PublicConstants,
    Sgd,
    Task,
    as_loss,
    as_optimiser,
    check_gradients,
)

MECHANISM = FixedSizeGaussian(noise_multiplier=1.0, dataset_size=20, batch_size=4)
CONSTANTS = PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=0.1))
CHANCE = torch.Generator().manual_seed(5)


def drawn(*shape):
    return torch.rand(*shape, generator=CHANCE)


def whole(most, *shape):
    return torch.randint(0, most, shape, generator=CHANCE)


# ---------------------------------------- a mean over the batch is never taken for examples' losses
ROWS = 5
PAIRS = {
    "cross_entropy": (drawn(ROWS, 3), whole(3, ROWS)),
    "cross_entropy of places": (drawn(ROWS, 3, 2, 4), whole(3, ROWS, 2, 4)),
    "cross_entropy of probabilities": (drawn(ROWS, 3), drawn(ROWS, 3).softmax(1)),
    "nll_loss": (drawn(ROWS, 3).log_softmax(1), whole(3, ROWS)),
    "multi_margin_loss": (drawn(ROWS, 3), whole(3, ROWS)),
    "multilabel_margin_loss": (drawn(ROWS, 3), torch.tensor([[1, -1, 0]] * ROWS)),
    "mse_loss": (drawn(ROWS, 3, 2), drawn(ROWS, 3, 2)),
    "l1_loss": (drawn(ROWS), drawn(ROWS)),
    "smooth_l1_loss": (drawn(ROWS, 2), drawn(ROWS, 2)),
    "huber_loss": (drawn(ROWS, 2), drawn(ROWS, 2)),
    "binary_cross_entropy": (drawn(ROWS, 2), drawn(ROWS, 2)),
    "binary_cross_entropy_with_logits": (drawn(ROWS, 2), whole(2, ROWS, 2).float()),
    "kl_div": (drawn(ROWS, 3).log_softmax(1), drawn(ROWS, 3).softmax(1)),
    "poisson_nll_loss": (drawn(ROWS, 2), drawn(ROWS, 2)),
    "soft_margin_loss": (drawn(ROWS, 2), whole(2, ROWS, 2) * 2.0 - 1),
    "hinge_embedding_loss": (drawn(ROWS, 2), whole(2, ROWS, 2) * 2.0 - 1),
    "multilabel_soft_margin_loss": (drawn(ROWS, 3), whole(2, ROWS, 3).float()),
}
MODULES = {
    "cross_entropy": nn.CrossEntropyLoss(label_smoothing=0.1),
    "nll_loss": nn.NLLLoss(),
    "mse_loss": nn.MSELoss(),
    "l1_loss": nn.L1Loss(),
    "huber_loss": nn.HuberLoss(delta=0.3),
    "binary_cross_entropy_with_logits": nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0, 3.0])),
    "binary_cross_entropy": nn.BCELoss(),
    "kl_div": nn.KLDivLoss(reduction="batchmean"),
    "smooth_l1_loss": nn.SmoothL1Loss(beta=0.2),
}
GIVEN = [
    *((name, getattr(functional, name.partition(" ")[0])) for name in PAIRS),
    *MODULES.items(),
    ("huber_loss", partial(functional.huber_loss, delta=0.25)),
    ("kl_div", partial(functional.kl_div, reduction="batchmean")),
    ("mse_loss", nn.MSELoss),
]


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")
@pytest.mark.parametrize(("name", "given"), GIVEN, ids=[f"{name}-{number}" for number, (name, _) in enumerate(GIVEN)])
def test_torch_s_mean_over_a_batch_is_the_mean_of_the_examples_losses(name, given):
    output, target = PAIRS[name]
    made = as_loss(given)
    each = made(nn.Identity(), (output, target))
    assert each.shape == (ROWS,)
    known = given() if isinstance(given, type) else given
    torch.testing.assert_close(each.mean(), known(output, target))
    for row in range(ROWS):
        alone = made(nn.Identity(), (output[row : row + 1], target[row : row + 1]))
        torch.testing.assert_close(alone[0], each[row])
        torch.testing.assert_close(alone[0], known(output[row : row + 1], target[row : row + 1]))


def test_control_a_weighted_mean_is_no_mean_of_examples_losses():
    output, target = PAIRS["cross_entropy"]
    weight = torch.tensor([1.0, 5.0, 9.0])
    each = functional.cross_entropy(output, target, weight=weight, reduction="none")
    assert not torch.isclose(each.mean(), functional.cross_entropy(output, target, weight=weight))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (nn.CrossEntropyLoss(weight=torch.ones(3)), "divides by the labels of the whole batch"),
        (partial(functional.cross_entropy, weight=torch.ones(3)), "divides by the labels of the whole batch"),
        (nn.NLLLoss(ignore_index=0), "divides by the labels of the whole batch"),
        (nn.MSELoss(reduction="sum"), "reduction must be 'mean' or 'none', got 'sum'"),
        (partial(functional.mse_loss, reduction="sum"), "reduction must be 'mean' or 'none', got 'sum'"),
        (partial(functional.mse_loss, size_average=True), "size_average"),
        (nn.TripletMarginLoss(), "takes more than an output and a target"),
        (functional.ctc_loss, "takes more than an output and a target"),
        (type("Changed", (nn.MSELoss,), {})(), "or is changed"),
        ("cross_entropy", "loss must be loss"),
    ],
)
def test_a_loss_that_is_no_mean_over_examples_is_refused_with_what_to_write(given, words):
    with pytest.raises(InvalidInput, match=words) as caught:
        as_loss(given)
    assert str(caught.value).endswith(".")


def test_of_a_user_s_own_loss_a_batch_mean_is_refused_before_anything_is_charged():
    def mean(model, batch):
        return functional.cross_entropy(model(batch[0]), batch[1])

    with pytest.raises(InvalidInput, match="one value per example"):
        checked(nn.Linear(4, 3), [(drawn(4), 1)] * 20, mean)


# ---------------------------------------- records as they come
def checked(model, records, loss):
    return check_gradients(MECHANISM, Task(model=model, dataset=records, loss=loss, constants=CONSTANTS))


class Two(nn.Module):
    """As transformers have it: arguments by name, and logits in what comes back."""

    class Said:
        def __init__(self, logits):
            self.logits = logits

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, *, pixels, scale):
        return self.Said(self.inner(pixels * scale[:, None]))


def numbers(count, kind=np.float32):
    return [np.linspace(0, 1, 4).astype(kind) * number for number in range(1, count + 1)]


CASES = {
    "HF-style dicts with F.cross_entropy": (
        nn.Linear(4, 3),
        [{"img": values, "label": number % 3} for number, values in enumerate(numbers(20))],
        functional.cross_entropy,
    ),
    "dicts with several inputs": (
        Two(),
        [{"pixels": values, "scale": np.float32(0.5), "labels": 1} for values in numbers(20)],
        nn.CrossEntropyLoss(),
    ),
    "dicts with CrossEntropy": (nn.Linear(4, 3), [{"x": v, "y": 1} for v in numbers(20)], CrossEntropy(classes=3)),
    "float64 with nn.MSELoss()": (
        nn.Linear(4, 1),
        [(values, float(number)) for number, values in enumerate(numbers(20, np.float64))],
        nn.MSELoss(),
    ),
    "whole numbers with F.binary_cross_entropy_with_logits": (
        nn.Linear(4, 1),
        [(values, number % 2) for number, values in enumerate(numbers(20))],
        functional.binary_cross_entropy_with_logits,
    ),
    "a column of targets": (nn.Linear(4, 1), [(v, np.array([0.5])) for v in numbers(20)], nn.L1Loss()),
    "a float64 model": (nn.Linear(4, 1).double(), [(v, 0.5) for v in numbers(20, np.float64)], nn.MSELoss()),
}


@pytest.mark.parametrize("name", CASES)
def test_what_people_write_elsewhere_simply_works(name):
    assert checked(*CASES[name]).alone == ""


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.int16, np.uint8, np.bool_])
@pytest.mark.parametrize("column", [False, True])
def test_labels_may_be_of_any_whole_type_and_in_a_column(kind, column):
    model, labels = nn.Linear(4, 2), torch.from_numpy(np.array([0, 1, 1]).astype(kind))
    inputs = drawn(3, 4)
    known = functional.cross_entropy(model(inputs), labels.long(), reduction="none")
    for loss in (functional.cross_entropy, CrossEntropy(classes=2)):
        found = as_loss(loss)(model, (inputs, labels[:, None] if column else labels))
        torch.testing.assert_close(found, known)


def test_an_output_in_a_column_is_not_compared_with_everybody_s_target():
    """torch broadcasts (3, 1) against (3,) to every pair of examples, with a warning."""
    output, target = drawn(3, 1), drawn(3)
    torch.testing.assert_close(as_loss(nn.MSELoss())(nn.Identity(), (output, target)), (output[:, 0] - target) ** 2)


@pytest.mark.parametrize(
    ("records", "loss", "words"),
    [
        ([{"img": drawn(4), "diagnosis": 1}] * 20, functional.cross_entropy, r"'img', 'diagnosis'.*label=…"),
        ([{"img": drawn(4), "label": 1, "y": 1}] * 20, functional.cross_entropy, "one field that is called"),
        ([{"label": 1}] * 20, functional.cross_entropy, "at least one other"),
        ([drawn(4)] * 20, functional.cross_entropy, r"a tuple \(input, target\)"),
        ([(drawn(4), 1.0)] * 20, functional.cross_entropy, r"labels.long\(\)"),
        ([(drawn(4), drawn(2))] * 20, nn.MSELoss(), r"gives \(3,\) for each example and the target is \(2,\)"),
        (
            [(drawn(4).double(), 1)] * 20,
            lambda model, batch: model(batch[0])[:, 0],
            r"float64 and the weights float32.*x.float\(\)",
        ),
        ([(drawn(4), 1)] * 20, lambda outputs, targets: outputs - targets, r"called as loss\(model, batch\)"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(records, loss, words):
    with pytest.raises(LrdpError, match=words):
        checked(nn.Linear(4, 3), records, loss)


def test_the_label_s_own_name_is_told_to_the_loss():
    records = [{"img": drawn(4), "diagnosis": 1}] * 20

    class Named(nn.Linear):
        def forward(self, img):
            return super().forward(img)

    assert checked(Named(4, 3), records, NamedCrossEntropy(classes=3, label="diagnosis")).alone == ""


def test_a_loss_of_one_s_own_with_a_reduction_is_taken_by_name():
    def focal(output, target, gamma=2.0, reduction="mean"):
        each = functional.cross_entropy(output, target, reduction="none")
        each = (1 - (-each).exp()) ** gamma * each
        return each if reduction == "none" else each.mean()

    output, target = PAIRS["cross_entropy"]
    each = OutputLoss(focal)(nn.Identity(), (output, target))
    assert each.shape == (ROWS,)
    torch.testing.assert_close(each.mean(), focal(output, target))


# ---------------------------------------- optimisers
def torch_steps(make, gradients):
    parameter = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
    optimiser = make([parameter])
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimiser.step()
    return parameter.detach()


def our_steps(ours, gradients):
    parameter = torch.tensor([1.0, -2.0, 3.0])
    stepper = ours.start([parameter])
    for number, gradient in enumerate(gradients):
        stepper.step(number, 0, gradient.clone())
    return parameter


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (optim.SGD, Sgd(lr=0.001)),
        (partial(optim.SGD, lr=0.5, momentum=0.9, weight_decay=0.01), Sgd(lr=0.5, momentum=0.9, weight_decay=0.01)),
        (optim.Adam, Adam(lr=0.001)),
        (partial(optim.Adam, lr=0.1, betas=(0.8, 0.9), eps=1e-4), Adam(lr=0.1, betas=(0.8, 0.9), eps=1e-4)),
        (partial(optim.Adam, lr=torch.tensor(0.1)), Adam(lr=float(torch.tensor(0.1)))),
        (partial(optim.AdamW, lr=0.1), AdamW(lr=0.1, weight_decay=0.01)),
        (
            partial(optim.Adam, lr=0.1, weight_decay=0.3, decoupled_weight_decay=True),
            AdamW(lr=0.1, weight_decay=0.3),
        ),
        (lambda parameters: optim.SGD(parameters, lr=0.2), Sgd(lr=0.2)),
    ],
)
def test_an_optimiser_of_torch_s_takes_the_same_steps_as_ours(given, ours):
    gradients = [torch.tensor([0.3, -0.7, 1.1]) * (number + 1) for number in range(4)]
    assert as_optimiser(given) == ours
    assert type(as_optimiser(given)) is type(ours)
    assert PublicConstants(clip_norm=1.0, optimiser=given).optimiser == ours
    torch.testing.assert_close(our_steps(ours, gradients), torch_steps(given, gradients))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.5, momentum=0.9), r"write Sgd\(lr=0.5, momentum=0.9, "),
        (optim.Adam([nn.Parameter(torch.zeros(2))], lr=0.5), r"write Adam\(lr=0.5, betas="),
        (partial(optim.SGD, lr=0.1, momentum=0.9, nesterov=True), "nesterov=True takes other steps"),
        (partial(optim.SGD, lr=0.1, momentum=0.9, dampening=0.5), "dampening=0.5 takes other steps"),
        (partial(optim.Adam, lr=0.1, amsgrad=True), "amsgrad=True"),
        (partial(optim.SGD, lr=0.1, maximize=True), "maximize=True"),
        (optim.RMSprop, "RMSprop has no private counterpart"),
        (partial(optim.SGD, lr=-1.0), "cannot be made"),
        (Sgd, r"write it as Sgd\(lr=0.1\)"),
        (lambda _: 3, "makes a int"),
        (
            lambda parameters: optim.SGD([{"params": parameters}, {"params": [nn.Parameter(torch.zeros(1))], "lr": 1}]),
            "several groups",
        ),
    ],
)
def test_what_takes_other_steps_is_refused_with_what_to_write(given, words):
    with pytest.raises(InvalidInput, match=words) as caught:
        as_optimiser(given)
    assert str(caught.value).endswith(".")
