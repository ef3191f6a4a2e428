"""The steps, from the first schema to the newest."""
