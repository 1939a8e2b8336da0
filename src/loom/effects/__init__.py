"""What a command does in the world: running the bodies of steps. May import loom.steps and loom.core."""
