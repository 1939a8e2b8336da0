"""What a process asks of a cluster: starting, sending, reading, listing and purging runs; entries and documents."""
