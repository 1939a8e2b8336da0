"""What a command does in the world: running the bodies of steps, and the actions of flows in `actions`."""
