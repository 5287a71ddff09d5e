"""A hospital."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from digits.task import Net, load

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """One pass over the images, from the server's model on."""
    model, dataset = Net(), load(context.node_config)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    for images, labels in DataLoader(dataset, batch_size=32, shuffle=True):
        optimiser.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimiser.step()
    metrics = MetricRecord({"num-examples": len(dataset)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)
