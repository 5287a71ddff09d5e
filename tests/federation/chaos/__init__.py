"""A federation of real processes, killed at random moments: who plays, in which order they die, and what must hold."""
