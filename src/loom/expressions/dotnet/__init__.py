"""What the language takes from .NET: timestamps, cultures, formats of dates and numbers, zones, durations. Pure."""
