"""What flows ask of the world: http, handlers of the author's, actors, AI, child runs, waits."""
