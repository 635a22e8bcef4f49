"""Frames to tables: everything that is concluded from a study, from its `trials` and `curves` alone."""

from __future__ import annotations

from ablate.analysis.verdicts import contrasts

__all__ = ["contrasts"]
