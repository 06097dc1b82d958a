package workloadops

import "time"

// PatienceLimit is how long a trouble that a pod rarely gets over by itself may last before the operation fails early; half the deadline
// when that is shorter.
const PatienceLimit = 60 * time.Second

// Pod is what a decision goes by of one pod.
type Pod struct {
	Name string
	UID  string
	// Version is the pod's resourceVersion: a pod is deleted only as it was seen, so that a late decision of an abandoned attempt does no
	// harm.
	Version string
	// Revision is the hash or name of the pod's revision, and Marker the AnnotationRestartedBy that it was made with.
	Revision string
	Marker   string
	// Ordinal is a StatefulSet pod's number, -1 for others.
	Ordinal int32
	// Ready says that the pod is ready; Available that it has been so for the workload's minReadySeconds.
	Ready     bool
	Available bool
	// Deleting says that the pod is on its way out; Finished that it has run to its end and never runs again (phase Succeeded or Failed).
	Deleting bool
	Finished bool
	// Since is when the pod stopped being ready, or was made.
	Since time.Time
	// Reason and Message are the pod's own word on why it is not ready: "ImagePullBackOff", `Back-off pulling image "x:bad"`.
	Reason  string
	Message string
}

// Alive says that the pod is neither on its way out nor at its end.
func (p Pod) Alive() bool { return !p.Deleting && !p.Finished }

// trouble says how a pod's reason is judged.
type trouble int

const (
	noTrouble trouble = iota
	// unclear: it may pass at any time; judged at the deadline only.
	unclear
	// lasting: it rarely passes by itself; fails the operation once it has lasted (PatienceLimit).
	lasting
	// hopeless: it cannot pass; fails the operation at once.
	hopeless
)

var judgement = map[string]trouble{
	"InvalidImageName":           hopeless,
	"ImagePullBackOff":           lasting,
	"ErrImagePull":               lasting,
	"ErrImageNeverPull":          lasting,
	"ImageInspectError":          lasting,
	"RegistryUnavailable":        lasting,
	"CrashLoopBackOff":           lasting,
	"CreateContainerConfigError": lasting,
	"CreateContainerError":       lasting,
	"RunContainerError":          lasting,
	"StartError":                 lasting,
}

func (p Pod) trouble() trouble {
	if p.Ready || !p.Alive() {
		return noTrouble
	}
	if t, ok := judgement[p.Reason]; ok {
		return t
	}
	return unclear
}

// Stuck says that the pod is in trouble that it rarely gets over by itself (PatienceLimit).
func (p Pod) Stuck() bool { return p.trouble() >= lasting }

// PatienceLeft is how long a pod that is stuck may still be so; nothing is left to a hopeless one. Trouble from before the job counts from
// its begin.
func (s Snapshot) PatienceLeft(p Pod, deadline time.Duration) time.Duration {
	if p.trouble() == hopeless {
		return 0
	}
	patience := min(deadline/2, PatienceLimit)
	return min(patience, patience-min(s.Elapsed, s.Now.Sub(p.Since)))
}

// WorstPod is the word of the pod that explains most, by rank: "pod order-abc: ImagePullBackOff: Back-off pulling"; "" when none has one.
func WorstPod(pods []Pod, rank func(Pod) int) string {
	var worst *Pod
	for i := range pods {
		p := &pods[i]
		if p.Reason != "" && (!p.Ready || p.Deleting) && !p.Finished && (worst == nil || rank(*p) > rank(*worst)) {
			worst = p
		}
	}
	if worst == nil {
		return ""
	}
	text := "pod " + worst.Name + ": " + worst.Reason
	if worst.Message != "" {
		text += ": " + worst.Message
	}
	return text
}
