"""The command line, `tile …`, above the lab and the classroom."""
