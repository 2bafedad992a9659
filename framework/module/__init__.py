"""What a mutable object is: fields, hyperparameters, containers, paths."""
