"""`mmrl sweep`: `mmrl train` with `--over`, by its earlier name."""

from collections.abc import Sequence

from mmrl.commands import train
from mmrl.commands.options import Options as Options


def main(arguments: Sequence[str]) -> int:
    """Sweep as the command line says. Raises `RunError`, `ValueError` and KeyboardInterrupt."""
    return train.main(arguments, "sweep")
