"""Formulas of known mistakes: what an answer gives that makes one, so that the check can name it."""
