"""The table on which the NumPy kernels register themselves, and what they declare about the memory of their outputs."""

from sardonyx.providers.kernel_table import KernelTable
from sardonyx.providers.steps import ANY
from sardonyx.startup.families import Families

cpu = KernelTable("CPUExecutionProvider", Families("sardonyx.providers.cpu", "kernels"))

FIRST = ((0, 0),)
"""The first output lies, or may lie, where the first input does."""
EVERY = ((0, ANY),)
"""All outputs lie where the first input does."""
OVER_ANY = ((ANY, 0),)
"""The first output may be written over any input."""
