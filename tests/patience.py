"""How long tests wait for what must come: long enough for the most loaded machine, so that only a hang ends a wait."""

HANG_SECONDS = 1200
