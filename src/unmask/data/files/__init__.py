"""Files on disk: bytes to lines, whatever their compression and encoding; tables as rows with named columns."""
