"""Weights, losses, layers and data sets with which one record shows itself, and what of a reply anybody can see.

A server chooses the weights. It knows a record, its *target*, and asks whether it is among a client's: with a layer
that answers to the target alone, it can have that record overflow, be undefined, or raise whatever a loss raises.
"""
