"""Recordings: files -> samples -> examples of frames."""
