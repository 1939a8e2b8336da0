"""Where runs are kept: the ports of stores, the codec, group commit, and stores in memory, SQLite and PostgreSQL."""
