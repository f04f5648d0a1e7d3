"""Answers that the check must reject, each with the reason it must give."""
