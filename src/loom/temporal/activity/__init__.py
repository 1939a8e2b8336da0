"""Bodies of steps as activities: one activity for all steps, its heartbeats, and the way back to the run."""
