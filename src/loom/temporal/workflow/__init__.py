"""The reducer as a Temporal workflow: activations in, commands out. No code of an author runs here."""
