"""The loss stack."""
