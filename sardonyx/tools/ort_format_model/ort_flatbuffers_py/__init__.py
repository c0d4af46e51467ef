"""Readers of the tables of an ORT file, one by one: `fbs` has a module for each. Whole models are read by `sardonyx.formats.ort`."""
