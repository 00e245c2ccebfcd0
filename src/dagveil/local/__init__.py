"""Local privacy: each record is randomised before it leaves the person, so nobody needs to be trusted with it.

A *channel* is a matrix of probabilities; what it promises is computed from that matrix, not from a formula about it.
"""
