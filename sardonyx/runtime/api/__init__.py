"""The classes that users hold: sessions, options, values, bindings, and what these tell."""
