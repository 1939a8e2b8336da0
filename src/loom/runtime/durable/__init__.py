"""The durable runtime: runs that live in a store, and in memory only while something happens to them."""
