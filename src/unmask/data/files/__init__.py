"""Files on disk: lines of text files of any compression and encoding; rows of tables with named columns."""
