"""How each op is quantized: one class for each form that a model can take. `registry` says which."""
