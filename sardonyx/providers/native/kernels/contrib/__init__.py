"""Lowerings of com.microsoft's ops that belong to no other family."""
