"""What was allocated and freed, when, and at what the peak was."""
