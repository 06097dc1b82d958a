// Package kruise stands in for OpenKruise in tests: the CustomResourceDefinitions of CloneSet, Advanced StatefulSet and Advanced DaemonSet, and a small
// controller that moves their pods by the same rules, as far as a rollout can tell: partition, maxUnavailable, maxSurge, minReadySeconds, paused, and the
// revisions. What it leaves out, it does not need: in-place updates, lifecycle hooks, volume claims, priorities.
package kruise
