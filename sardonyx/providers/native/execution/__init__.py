"""How a program runs: its arguments as words of memory, where buffers lie, outputs, batches in parts."""
