"""What the actions of flows do in the world: requests, handlers of the author's, child runs, waits for people."""
