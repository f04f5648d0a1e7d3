"""For teachers: hand out, collect and grade the exercises of a class."""
