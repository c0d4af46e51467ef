"""The table on which the NumPy kernels register themselves."""

from sardonyx.providers.base import KernelTable

cpu = KernelTable("CPUExecutionProvider")
