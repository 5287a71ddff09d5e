"""What client and server have in common: frames, questions and answers, a model as a vector, and the borders."""
