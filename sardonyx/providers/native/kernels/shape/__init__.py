"""Data movement: views, copies, transposes, joining and filling."""
