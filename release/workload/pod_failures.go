package workload

import (
	"slices"
	"time"
)

// Severity rates a pod's reason for not being ready.
type Severity int

const (
	noProblem Severity = iota
	// unclear: it may pass at any time; it fails the operation only at the deadline.
	unclear
	// blocked: the cluster names what keeps the pod from starting, which may pass at any time; it is reported, and
	// fails the operation only at the deadline.
	blocked
	// persistent: it rarely passes by itself; it fails the operation after PatienceLimit.
	persistent
	// fatal: it cannot pass; it fails the operation at once.
	fatal
)

// The reasons of pods that have no node, and of those whose kubelet cannot start them. The latter are reasons of
// events.
const (
	reasonUnschedulable   = "Unschedulable"
	reasonSchedulingGated = "SchedulingGated"
	reasonSandbox         = "FailedCreatePodSandBox"
	reasonMount           = "FailedMount"
	reasonAttach          = "FailedAttachVolume"
)

// StartReasons are the reasons of the events in which a kubelet reports that it cannot start a pod: the pod's status
// does not say so.
var StartReasons = []string{reasonSandbox, reasonMount, reasonAttach}

// silentReasons are those of pods whose status does not say why they do not start.
var silentReasons = []string{"ContainerCreating", "PodInitializing", "Pending"}

// askStartAfter is how long a pod may start before its events are read.
const askStartAfter = 4 * time.Second

// Silent reports whether the pod has not started for a while and its status does not say why.
func (p Pod) Silent(now time.Time) bool {
	return p.Alive() && !p.Ready && slices.Contains(silentReasons, p.Reason) && now.Sub(p.Since) >= askStartAfter
}

var severities = map[string]Severity{
	reasonUnschedulable:          blocked,
	reasonSchedulingGated:        blocked,
	reasonSandbox:                blocked,
	reasonMount:                  blocked,
	reasonAttach:                 blocked,
	"InvalidImageName":           fatal,
	"ImagePullBackOff":           persistent,
	"ErrImagePull":               persistent,
	"ErrImageNeverPull":          persistent,
	"ImageInspectError":          persistent,
	"RegistryUnavailable":        persistent,
	"CrashLoopBackOff":           persistent,
	"CreateContainerConfigError": persistent,
	"CreateContainerError":       persistent,
	"RunContainerError":          persistent,
	"StartError":                 persistent,
}

// Severity rates why the pod is not ready.
func (p Pod) Severity() Severity {
	if p.Ready || !p.Alive() {
		return noProblem
	}
	if t, ok := severities[p.Reason]; ok {
		return t
	}
	return unclear
}

// Stuck reports whether the pod has a problem that rarely passes by itself (PatienceLimit).
func (p Pod) Stuck() bool { return p.Severity() >= persistent }
