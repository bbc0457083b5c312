"""The paths of the package's files."""

from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parents[1]
DATA: Final = PACKAGE / "data"
SIMULATOR: Final = PACKAGE / "simulator"
NEWEST_SIMULATOR: Final = SIMULATOR / "libascendcl.so"
