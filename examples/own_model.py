"""A model of your own on real images: mutable state in the forward pass, a compiled step, no trainer.

Run: python examples/own_model.py      (seconds on a laptop; reaches 97 % of the held-out digits)
"""

import jax
import optax

import framework as fw


class Classifier(fw.Module):
    seen: fw.State  # counts examples inside of the compiled step

    def __init__(self, rngs: fw.Rngs) -> None:
        self.hidden = [fw.nn.Linear(64, 128, rngs=rngs), fw.nn.Linear(128, 128, rngs=rngs)]
        self.norms = [fw.nn.BatchNorm(128), fw.nn.BatchNorm(128)]
        self.head = fw.nn.Linear(128, 10, rngs=rngs)
        self.seen = 0

    def __call__(self, x: jax.Array) -> jax.Array:
        if self.training:
            self.seen = self.seen + x.shape[0]
        for layer, norm in zip(self.hidden, self.norms, strict=True):
            x = jax.nn.relu(norm(layer(x)))
        return self.head(x)


@fw.jit
def train_step(model: Classifier, optimizer: fw.Optimizer, batch: dict[str, jax.Array]) -> jax.Array:
    def loss(model: Classifier) -> jax.Array:
        logits = model(batch["image"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

    value, gradients = fw.value_and_grad(loss)(model)
    optimizer.update(gradients)
    return value


@fw.jit
def count(model: Classifier, accuracy: fw.trackers.Accuracy, batch: dict[str, jax.Array]) -> None:
    accuracy.update(model(batch["image"]), batch["label"], batch.get("mask"))


def main(steps: int = 400) -> float:
    data = fw.data.digits(batch_size=64, flat=True)
    model = Classifier(fw.Rngs(0))
    optimizer = fw.Optimizer(optax.adamw, model, learning_rate=optax.cosine_decay_schedule(3e-3, steps))
    for number, batch in zip(range(steps), data.train, strict=False):
        loss = train_step(model, optimizer, batch)
        if number % 100 == 0:
            print(f"step {number}: loss {loss:.4f}")
    accuracy = fw.trackers.Accuracy()
    assert data.test is not None
    with model.eval():
        for batch in data.test:
            count(model, accuracy, batch)
    print(f"test accuracy {accuracy.compute():.4f} after {int(model.seen)} examples, {len(train_step.traces)} trace")
    return float(accuracy.compute())


if __name__ == "__main__":
    main()
