"""How a task was understood, in sentences: for whoever writes it as elsewhere, and asks what became of it."""

from __future__ import annotations

from lrdp.training.checked_records import unread_records
from lrdp.training.task import Task
from lrdp.training.torch_losses import as_loss


def understood(task: Task) -> tuple[str, ...]:
    """How its records, loss, optimiser and parameters are taken; only the form of records is looked at."""
    loss = as_loss(task.loss)
    blank = unread_records(task.dataset, loss).blank
    trained = [name for name, parameter in task.model.named_parameters() if parameter.requires_grad]
    return (
        *loss.told(task.model, blank),
        f"The loss is {loss.words}.",
        f"The optimiser is {task.constants.optimiser}; a server may set its lr (learning_rate or lr in train_config).",
        f"A server starts from the {len(trained)} trained parameters and no others, {trained[0]} first: "
        f"ArrayRecord({{name: p for name, p in model.named_parameters() if p.requires_grad}}).",
    )
