"""The options of mmcv's Groups. Nothing heavy is imported here."""

from __future__ import annotations

import attrs

from turbo_physai.declarations import option


@attrs.frozen
class CheckpointOptions:
    """Of `mmcv.load_checkpoint`."""

    trusted: bool = option(
        False, help="whether a checkpoint may run code when it is loaded: for files of known origin"
    )
