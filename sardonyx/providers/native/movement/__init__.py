"""Data movement: views, copies, transposes, gathers and scatters."""
