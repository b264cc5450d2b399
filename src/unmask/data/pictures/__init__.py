"""Pictures: decoded from files, turned into patches, and read with labels."""
