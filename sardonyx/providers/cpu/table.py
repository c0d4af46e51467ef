"""The table on which the NumPy kernels register themselves, and what they declare about the memory of their outputs."""

from sardonyx.families import Families
from sardonyx.providers.kernel_table import KernelTable
from sardonyx.providers.steps import ANY

families = Families("sardonyx.providers.cpu")
cpu = KernelTable("CPUExecutionProvider", families)

FIRST = ((0, 0),)
"""The first output lies, or may lie, where the first input does."""
EVERY = ((0, ANY),)
"""All outputs lie where the first input does."""
OVER_ANY = ((ANY, 0),)
"""The first output may be written over any input."""
