package workload

// Severity rates a pod's reason for not being ready.
type Severity int

const (
	noProblem Severity = iota
	// unclear: it may pass at any time; it fails the operation only at the deadline.
	unclear
	// persistent: it rarely passes by itself; it fails the operation after PatienceLimit.
	persistent
	// fatal: it cannot pass; it fails the operation at once.
	fatal
)

var severities = map[string]Severity{
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
