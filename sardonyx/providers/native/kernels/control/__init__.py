"""Control flow: If, Loop and Scan as steps that jump."""
