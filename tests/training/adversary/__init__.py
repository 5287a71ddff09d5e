"""A search for weights and records with which one record moves the computed sum by more than the clip norm.

The adversary chooses everything but the code: the weights, the records of the whole batch, the slope at every output,
the clip norm, whether denormals are flushed. Moves are drawn at random and the best are climbed from, by units in the
last place and by powers of two. What is maximised is the share: how far one record moves the sum that noise is added
to, in clip norms, so that more than 1 is a breach. From the command line:

    PYTHONPATH=tests python -m training.adversary --seconds 300 --json found.json
"""
