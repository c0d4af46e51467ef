"""Where the original loads shared libraries before its own; there are none here."""
