"""Makes the example's modules importable, as running its script does."""

import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "bevformer"
sys.path.append(str(EXAMPLE))
