"""GPT-2 as a file."""
