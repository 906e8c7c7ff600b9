"""Studies: many runs or many figures, one question."""
