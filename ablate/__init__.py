"""Ablation studies of sequence-model objectives: plan, run, record and judge."""

__version__ = "0.1.0"
