"""BERT and its relatives that answer questions, measured."""
