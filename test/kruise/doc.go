// Package kruise replaces OpenKruise in tests that share a cluster, or that need its definitions only. It has the
// CustomResourceDefinitions of CloneSet, Advanced StatefulSet and Advanced DaemonSet, and a small controller that follows
// the same rules as far as a rollout depends on them: partition, maxUnavailable, maxSurge, minReadySeconds, paused, and
// revisions. It does not implement in-place updates, lifecycle hooks, volume claims and priorities. OpenKruise's own
// manager, which works on a whole cluster, is started by harness.PrivateStack.
package kruise
