"""The kernels that a chapter shows on the way to the one that ships.

They import the helpers of the shipped files, never the other way round.
"""
