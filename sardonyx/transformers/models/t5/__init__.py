"""T5 and mT5 as files."""
