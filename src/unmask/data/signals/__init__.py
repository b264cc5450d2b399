"""Signals: records of sensors, such as electrocardiograms, as segments of samples."""
