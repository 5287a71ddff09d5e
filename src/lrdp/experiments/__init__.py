"""The paper's figures, and beyond: tasks with data, and the studies made of them."""
