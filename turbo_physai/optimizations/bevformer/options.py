"""The options of BEVFormer's Groups. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs import validators

from turbo_physai.declarations import option


@attrs.frozen
class SpatialCrossAttentionOptions:
    """Of `<model>.sca`."""

    visibility: Literal["first_item", "per_item"] = option(
        "first_item",
        help="whose cameras see a query, in a batch: the first item's for all (as published), or "
        "each item's own",
    )


@attrs.frozen
class TrainingOptions:
    """Of `bevformer.training`."""

    fused_optimizer: bool = option(
        True, help="whether the optimizer updates all parameters in one kernel"
    )
    channels_last: bool = option(
        False,
        help="whether backbone and neck lie channels last: for GPUs with tensor cores, in 16 bits "
        "or TF32",
    )


@attrs.frozen
class DataOptions:
    """Of `bevformer.data`."""

    start_method: Literal["fork", "spawn", "forkserver"] | None = option(
        None, help="how workers of the loader are started; null: as Python chooses"
    )
    prefetch_factor: int | None = option(
        None,
        help="batches that each worker holds ready; null: as torch chooses",
        validator=validators.optional(validators.ge(1)),
    )
    pin_memory: bool | None = option(
        None, help="whether batches are copied to pinned memory; null: where there is a GPU"
    )
