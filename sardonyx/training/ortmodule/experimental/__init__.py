"""Parts of ortmodule that the original calls experimental."""
