"""Layers: modules with parameters, and a few models made of them."""

from framework.nn import models as models
from framework.nn.attention import MultiHeadAttention as MultiHeadAttention
from framework.nn.batch_norm import BatchNorm as BatchNorm
from framework.nn.conv import Conv as Conv
from framework.nn.dropout import Dropout as Dropout
from framework.nn.embedding import Embedding as Embedding
from framework.nn.layer_norm import LayerNorm as LayerNorm
from framework.nn.linear import Linear as Linear
from framework.nn.sequential import Sequential as Sequential
