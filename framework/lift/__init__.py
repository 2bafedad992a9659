"""How mutable objects cross a JAX transformation."""
