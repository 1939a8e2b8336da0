"""Where runs are kept: one port, one codec, and the databases behind them. May import loom.core and loom.steps."""
