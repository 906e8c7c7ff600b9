"""Documents in YAML, read strictly; every value knows the file, line and column it stands at."""
