"""The rungs that a chapter climbs and no operation uses, in order, each named for its one idea."""
