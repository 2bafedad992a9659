"""Metric trackers: objects that add up what they see, on the device."""

from framework.trackers.accuracy import Accuracy as Accuracy
from framework.trackers.base import Tracker as Tracker
from framework.trackers.group import Group as Group
from framework.trackers.mean import Mean as Mean
from framework.trackers.total import Sum as Sum
