"""Pictures: decoding of files, augmentation, patches, and labelled pictures."""
