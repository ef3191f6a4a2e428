"""Routes: the protocols that a server speaks, one file each."""
