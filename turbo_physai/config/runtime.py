"""The RuntimeConfig: environment variables and process settings of a launch."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

import attrs
import yaml

from turbo_physai.config.selection import existing, named
from turbo_physai.config.yaml_reader import Reader

SCHEMA: Final = "turbophysai/runtime-config/v1"
KIND: Final = "RuntimeConfig"


@attrs.frozen
class RuntimeConfig:
    """One RuntimeConfig file.

    Attributes:
        path: absolute path of the file.
        unset: names of variables that the launched command does not get.
        set: variables that it gets.
        numa: whether each rank is bound to the NUMA node that suits it.
    """

    path: Path
    unset: tuple[str, ...] = ()
    set: dict[str, str] = attrs.field(factory=dict)
    numa: bool = False

    def apply(self, environment: MutableMapping[str, str]) -> None:
        """Changes the variables in `environment`."""
        for name in self.unset:
            environment.pop(name, None)
        environment.update(self.set)


def select_runtime(
    path: str | os.PathLike[str] | None = None, model: str | None = None
) -> Path | None:
    """The absolute path of the RuntimeConfig to use: `path`, else ``runtime.yaml`` beside
    the config of `model`; None if there is none.

    Raises:
        OptimizationConfigNotFoundError: what was asked for is not there.
    """
    if path is not None:
        return existing(path, "runtime_config", "a RuntimeConfig")
    if model is not None:
        beside = named(model).with_name("runtime.yaml")
        return beside if beside.is_file() else None
    return None


def load_runtime(path: Path) -> RuntimeConfig:
    """Reads one RuntimeConfig file.

    Raises:
        OptimizationConfigError: with every fault found in the file.
    """
    reader = Reader(path)
    root = reader.document()
    config = None if root is None else _config(reader, root)
    reader.finish()
    assert config is not None
    return config


def _config(reader: Reader, root: yaml.Node) -> RuntimeConfig | None:
    def name(node: yaml.Node, key: str) -> str | None:
        text = reader.text(node, key)
        if text is not None and not is_variable_name(text):
            return reader.fault(node, key, "the name of a variable")
        return text

    def value(node: yaml.Node, key: str) -> str | None:
        # Numbers and booleans stand in the environment as they are written in the file.
        if not isinstance(node, yaml.ScalarNode) or str(node.tag).endswith(":null"):
            return reader.fault(node, key, "a text, number or boolean")
        if "\0" in node.value:
            return reader.fault(node, key, "a text without a NUL character")
        return str(node.value)

    top = reader.fields(
        root,
        "",
        {
            "schema_version": reader.constant(SCHEMA),
            "kind": reader.constant(KIND),
            "environment": lambda node, key: reader.fields(
                node, key, {"unset": reader.sequence(name), "set": reader.mapping_of(value)}
            ),
            "process": lambda node, key: reader.fields(node, key, {"numa": reader.boolean}),
        },
        required=("schema_version", "kind"),
    )
    if top is None or reader.faults:
        return None
    environment, process = top.get("environment", {}), top.get("process", {})
    unset, set_ = environment.get("unset", ()), environment.get("set", {})
    for each in set_:
        if each in unset:
            reader.fault(root, f"environment.set.{each}", "a name in one of unset and set", "both")
        elif not is_variable_name(each):
            reader.fault(root, f"environment.set.{each}", "the name of a variable", repr(each))
    return RuntimeConfig(reader.file, unset, set_, process.get("numa", False))


def is_variable_name(text: str) -> bool:
    return bool(text) and "=" not in text and "\0" not in text
