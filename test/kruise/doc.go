// Package kruise replaces OpenKruise in tests. It has the CustomResourceDefinitions of CloneSet, Advanced StatefulSet
// and Advanced DaemonSet, and a small controller that follows the same rules as far as a rollout depends on them:
// partition, maxUnavailable, maxSurge, minReadySeconds, paused, and revisions. It does not implement in-place updates,
// lifecycle hooks, volume claims and priorities.
package kruise
