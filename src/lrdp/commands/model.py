"""``lrdp model``: what a model file is, which receipt proves it, and how others get it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lrdp.commands.integrity import read_pin
from lrdp.commands.output import AsJson, print_record, say
from lrdp.errors import InvalidInput
from lrdp.federation.wire.requirements import require_model_files

if TYPE_CHECKING:
    from lrdp.federation.wire.model_files import AnyModel

model_app = typer.Typer(help="Models: what is in a file, which receipt proves it, and exports.", no_args_is_help=True)

ModelFile = Annotated[
    Path,
    typer.Argument(help="A model-….safetensors of a server's folder, or what lrdp model export made of one."),
]


@model_app.command("show")
def model_show(path: ModelFile, as_json: AsJson = False) -> None:
    """Print which rounds of which session a model comes from; its parameters are hashed, and nothing is proved.

    Example: lrdp model show server/model-1f00c3d2a4b5e697-00012.safetensors
    """
    print_record(_summary(_read(path)), as_json)


@model_app.command("verify")
def model_verify(
    path: ModelFile,
    pin: Annotated[str, typer.Option(help="The registry's hash that you pinned, 64 hexadecimal digits.")],
    receipts: Annotated[
        Path | None, typer.Option(help="The session's receipts, or the server's folder (default: the file's folder).")
    ] = None,
    models: Annotated[
        Path | None, typer.Option(help="For an average: the folder of its models (default: that of the receipts).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the receipt that proves a model: a quorum accepted the round that led to it; exit code 5 where none does.

    The receipt proves the values, and its session the names and shapes: a file that gives them others is refused too.

    For an average, every model that went in is proved, and the average is computed again from their files.

    Example: lrdp model verify model.safetensors --receipts server --pin HASH
    """
    require_model_files()
    from lrdp.federation.local.exporting import proved

    kept, own = _read(path), read_pin(pin)
    where = receipts or path.parent
    file = where / f"receipts-{kept.session[:16]}.txt" if where.is_dir() else where
    if not file.exists():
        raise InvalidInput(
            f"{file} is not there: name the receipts of the session, or the server's folder, with --receipts; nothing "
            f"was verified."
        )
    steps = proved(kept, file, own)
    kept.check_made_of(models or (where if where.is_dir() else where.parent))
    names = sorted({name for step in steps for name in step.participants})
    print_record({**_summary(kept), "verified": True, "participants": names}, as_json)


@model_app.command("average")
def model_average(
    out: Annotated[Path, typer.Argument(help="The new file, .safetensors.")],
    models: Annotated[list[Path], typer.Argument(help="Model files of one session, in the order of their rounds.")],
    decay: Annotated[
        float, typer.Option(help="How many times as much as the one after it each model weighs; 1 for the plain mean.")
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Average verified models, at no cost in privacy; `lrdp model verify` then proves each, and averages them again.

    Example: lrdp model average average.safetensors server/model-1f00c3d2a4b5e697-0000[7-9].safetensors
    """
    require_model_files()
    from lrdp.federation.wire.averaging import Averaging
    from lrdp.federation.wire.model_averages import averaged
    from lrdp.federation.wire.model_files import read_model, write_model

    if out.exists() or out.suffix != ".safetensors":
        raise InvalidInput(f"{out} must be a new file that ends in .safetensors: nothing was written.")
    average = averaged(Averaging(rounds=len(models), decay=decay), [read_model(path) for path in models])
    write_model(out, average)
    say(f"Wrote {out}.")
    print_record(_summary(average), as_json)


@model_app.command("export")
def model_export(
    out: Annotated[
        Path, typer.Argument(help="The new file: .safetensors, .pt for torch.load(weights_only=True), or .onnx.")
    ],
    path: Annotated[Path | None, typer.Option("--model", help="A model file of a server.")] = None,
    client: Annotated[
        Path | None, typer.Option(help="A client's folder: the last model that it verified itself.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="For .onnx: the model's code, MODULE:NAME of a task or model.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="For .onnx: one record's input, as 4, 1x28x28 or int64:128; one for each."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a model in another format, with its parameters named as in the task.

    What an earlier version wrote lacks the session's nonce, and gets it if it lies in the server's folder.

    Example: lrdp model export model.pt --client hospital-0
    """
    if (path is None) == (client is None):
        raise InvalidInput("name the model to export: --model FILE of a server, or --client FOLDER; not both.")
    require_model_files()
    from lrdp.federation.local.exporting import export, verified_by

    kept = verified_by(client) if client is not None else _of_server(path or Path())
    if out.suffix == ".onnx" and not out.exists() and task and inputs:
        _to_onnx(kept, out, task, inputs)
    else:
        export(kept, out)
    say(f"Wrote {out}.")
    print_record(_summary(kept), as_json)


def _of_server(path: Path) -> AnyModel:
    from lrdp.federation.local.exporting import completed

    return completed(_read(path), path.parent)


def _to_onnx(kept: AnyModel, out: Path, task: str, inputs: list[str]) -> None:
    from lrdp.federation.client.local_task import LocalTask
    from lrdp.federation.local.onnx_files import ModelInput, write_onnx
    from lrdp.training import Task, loading

    forms = [ModelInput.read(each) for each in inputs]
    named = loading.load(task, Task, LocalTask)
    model = named.model if isinstance(named, Task) else named
    if isinstance(named, LocalTask):
        model = loading.made_by(named.model)
    write_onnx(out, kept, model, forms)


def _read(path: Path) -> AnyModel:
    require_model_files()
    from lrdp.federation.local.onnx_files import read_onnx
    from lrdp.federation.local.torch_files import read_torch
    from lrdp.federation.wire.model_averages import read_kept

    return {".onnx": read_onnx, ".pt": read_torch}.get(path.suffix, read_kept)(path)


def _summary(kept: AnyModel) -> dict[str, Any]:
    return {
        "session": kept.session,
        **kept.words,
        "model": kept.digest,
        "parameters": kept.layout.size,
        "tensors": len(kept.layout.shapes),
        "lrdp": kept.version,
    }
