"""What is learned (`Task`) and the loop that does it (`Trainer`)."""

from framework.train.classification import Classification as Classification
from framework.train.language_model import LanguageModel as LanguageModel
from framework.train.task import Task as Task
from framework.train.task import masked_mean as masked_mean
from framework.train.trainer import Trainer as Trainer
