"""What chapters climb and nobody ships.

These import the shipped files' helpers, never the other way round.
"""
