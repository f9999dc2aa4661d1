"""``turbo-physai optimization``: make OptimizationConfigs, look at them, check them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from turbo_physai.authoring import decisions, resolved
from turbo_physai.authoring.generate import Generated, generate_with_sources
from turbo_physai.authoring.init import init as begin
from turbo_physai.authoring.options_table import as_tables
from turbo_physai.commands.output import AsJson, print_json, print_table
from turbo_physai.config import select
from turbo_physai.config.selection import config_file
from turbo_physai.errors import Fault, OptimizationConfigError
from turbo_physai.evidence import validated
from turbo_physai.launch import annotations as given
from turbo_physai.launch.activation import program_folders
from turbo_physai.launch.checks import require
from turbo_physai.plan import PreparedExecution

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True, help="Make OptimizationConfigs, look at them and check them."
)

Checkout = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Look for the model's code here before where python looks."),
]


def _made(step: Callable[[], T]) -> T:
    """What a step returns; its faults end the program with the exit code 2."""
    made: list[T] = []
    require(lambda: made.append(step()))
    return made[0]


def _config(argument: str, name: str) -> Path:
    return _made(lambda: config_file(argument, name))


@app.command()
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the package and its model.")],
    directory: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write it here, not into ./NAME.")
    ] = None,
) -> None:
    """Begin a package that ships Groups: a catalog, a replacement, a recipe, tests that pass and a
    README that says how to make it yours. Nothing is overwritten."""
    folder = (directory or Path(name)).absolute()
    written = _made(lambda: begin(name, folder))
    for file in written:
        print(file.relative_to(folder))
    print(f"\nNext: see {folder / 'README.md'}")


@app.command()
def generate(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A config without trust.")],
    checkout: Annotated[
        Path, typer.Option(metavar="DIR", help="The validated code: the folder on sys.path.")
    ],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it here, not to the terminal.")
    ] = None,
    commit: Annotated[
        bool,
        typer.Option("--commit", help="State the checkout's commit; its work tree must be clean."),
    ] = False,
    keep_source: Annotated[
        bool,
        typer.Option(
            "--keep-source",
            help="Keep the validated code beside FILE, so that a change can be shown.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Make a config that trusts the code of a checkout, and no other, from a recipe. The modules
    that the recipe names are looked for in DIR, beside the recipe, in the working directory, and
    where python looks."""

    def make() -> Generated:
        if keep_source and output is None:
            raise OptimizationConfigError(Fault("--keep-source", "no --output", "both of them"))
        _refuse_overwriting(output, recipe, force=force)
        with program_folders(str(recipe.absolute().parent)):
            return generate_with_sources(
                recipe.absolute(), checkout.absolute(), state_commit=commit
            )

    made = _made(make)
    if output is None:
        print(made.config, end="")
        return
    require(lambda: _write(output, made.config, force=force))
    if keep_source:
        require(lambda: _write(validated.beside(output), made.sources, force=True))


def _refuse_overwriting(output: Path | None, recipe: Path, *, force: bool) -> None:
    if output is None or not output.exists():
        return
    if recipe.exists() and output.samefile(recipe):
        fault = Fault("--output", f"{output}, the recipe itself", "another file")
    elif not force:
        fault = Fault("--output", f"{output}, which exists", "a new file, or --force to replace it")
    else:
        return
    raise OptimizationConfigError(fault)


def _write(output: Path, text: str, *, force: bool) -> None:
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        found = f"{output}: {error.strerror}"
        raise OptimizationConfigError(Fault("--output", found, "a file to write")) from error


@app.command()
def options(
    model: given.Model = None, optimization_config: given.OptimizationConfigFile = None
) -> None:
    """Show the options of each Group: type, default, value in a config, and what it is for."""
    found = _resolved(_made(lambda: select(optimization_config, model)))
    print(as_tables(found.prepared.groups.values()))


def _resolved(config: Path) -> resolved.Resolved:
    def read() -> resolved.Resolved:
        with program_folders(str(config.parent)):
            return resolved.resolve(config)

    return _made(read)


@app.command()
def validate(
    configs: Annotated[
        list[str],
        typer.Argument(metavar="CONFIG...", help="Files, names of models or package:file."),
    ],
) -> None:
    """Read configs with all that they extend, and say everything that is wrong: in the files, in
    the modules that declare their Groups, in options and ids. The exit code is 2 if anything is."""
    lines: list[str] = []

    def read(config: str) -> None:
        path = config_file(config, "CONFIG")
        with program_folders(str(path.parent)):
            groups = resolved.resolve(path).config.groups
        enabled = sum(entry.is_enabled for entry in groups)
        lines.append(f"{path}: valid, {len(groups)} Groups, {enabled} of them enabled")

    try:
        require(*(lambda config=config: read(config) for config in configs))
    finally:
        for line in lines:
            print(line)


@app.command()
def show(
    model: given.Model = None,
    optimization_config: given.OptimizationConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a config with all that it extends merged, each value with the file and line that state
    it."""
    found = resolved.values(_resolved(_made(lambda: select(optimization_config, model))))
    if as_json:
        print_json([each._asdict() for each in found])
    else:
        print_table(("key", "value", "from"), _shortened(found))


def _shortened(found: Iterable[resolved.Value]) -> Iterator[tuple[str, object, str]]:
    """Rows for people: Groups under their ids, hashes counted, files as seen from here."""
    group = ""
    counted: dict[tuple[str, str], int] = {}
    for each in found:
        if ".trust." in each.key:
            key = each.key[each.key.index("]") + 2 : each.key.rindex("[")]
            counted[key, each.origin] = counted.get((key, each.origin), 0) + 1
            continue
        yield from _hashes(counted)
        key = each.key
        if key.startswith("optimization_groups["):
            id_, _, key = key.removeprefix("optimization_groups[").partition("].")
            if id_ != group:
                group = id_
                yield f"\n{id_}", "", ""
            key = f"  {key}"
        value = ", ".join(map(str, each.value)) if isinstance(each.value, list) else each.value
        yield key, value, _from_here(each.origin)
    yield from _hashes(counted)


def _hashes(counted: dict[tuple[str, str], int]) -> Iterator[tuple[str, object, str]]:
    for (key, origin), count in counted.items():
        yield f"  {key}", f"of {count} targets", _from_here(origin)
    counted.clear()


def _from_here(origin: str) -> str:
    return ", ".join(each.removeprefix(f"{Path.cwd()}/") for each in origin.split(", "))


@app.command()
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A config, or a checkout.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Another one.")],
    model: given.Model = None,
    optimization_config: given.OptimizationConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what two configs state differently, or how the targets of a config differ between two
    checkouts of the model. The exit code is 1 if anything differs."""
    if Path(old).is_dir() and Path(new).is_dir():
        config = _made(lambda: select(optimization_config, model))

        def compare() -> dict[str, str]:
            with program_folders(str(config.parent)):
                return decisions.between(config, Path(old).absolute(), Path(new).absolute())

        found = _made(compare)
        if as_json:
            print_json(found)
        for target, text in {} if as_json else found.items():
            print(f"{target}\n{text}\n")
        sys.exit(bool(found))
    before, after = (
        resolved.values(_resolved(_config(each, name)))
        for each, name in ((old, "OLD"), (new, "NEW"))
    )
    rows = [
        (key, *("" if each is None else each.value for each in (one, other)))
        for key, one, other in resolved.differences(before, after)
    ]
    if as_json:
        print_json([dict(zip(("key", "old", "new"), row, strict=True)) for row in rows])
    elif rows:
        print_table(("key", "old", "new"), rows)
    sys.exit(bool(rows))


@app.command()
def check(
    checkout: Checkout = None,
    model: given.Model = None,
    optimization_config: given.OptimizationConfigFile = None,
    force_group: given.ForceGroups = None,
    disable_group: given.DisableGroups = None,
    as_json: AsJson = False,
) -> None:
    """Show what would become of each Group, from source alone: nothing of the model is imported.
    The exit code is 1 if a Group would not be applied that is to be."""
    config = _made(lambda: select(optimization_config, model))
    folder = None if checkout is None else checkout.absolute()

    def decide() -> tuple[PreparedExecution, dict[str, str]]:
        with program_folders(str(config.parent)):
            prepared = decisions.decide(config, folder, force_group or (), disable_group or ())
            return prepared, decisions.changes(prepared, folder)

    prepared, changes = _made(decide)
    if as_json:
        print_json({**prepared.to_dict(), "changes": changes})
    else:
        print(prepared)
        for target, text in changes.items():
            print(f"\n{target}\n{text}")
    sys.exit(any(group.decision == "block" for group in prepared.groups.values()))
