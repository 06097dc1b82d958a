package rollouts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/test/harness"
)

const weight, header = "nginx.ingress.kubernetes.io/canary-weight", "nginx.ingress.kubernetes.io/canary-by-header"

// stage is the expected state of one step of a document.
type stage struct {
	// pods is the number of new pods while the step waits.
	pods int
	// passes is true for a last step of all pods, which does not wait.
	passes bool
	// on is the name of the canary Ingress without "-canary".
	on string
	// ingress are its annotations; nil if it must not exist.
	ingress map[string]string
}

// releaseCase is the case of a document that is released step by step.
type releaseCase struct {
	file   string
	reason string
	stages []stage
	// place creates the routed Services and their routes; may be nil.
	place func(s *appliedDocument)
	// labelled is true when the new pods of the first step must have the label that the document specifies.
	labelled bool
}

func plain(pods ...int) (all []stage) {
	for _, n := range pods {
		all = append(all, stage{pods: n})
	}
	return all
}

func nginx(s *appliedDocument) { s.route(s.workloadName, harness.Nginx) }

func shared(s *appliedDocument) {
	s.route("spring-cloud-a", harness.Nginx)
	s.routing()
	s.waitTraffic("Healthy")
}

// mse are the annotations that the TrafficRouting of the specification sets.
var mse = map[string]string{header: "User-Agent", "nginx.ingress.kubernetes.io/canary-by-header-value": "Andriod",
	"mse.ingress.kubernetes.io/request-header-control-update": "x-mse-tag gray"}

var shortDocuments = []releaseCase{
	{"workload-v1beta1", "a StatefulSet", []stage{{pods: 1}, {pods: size, passes: true}}, nil, false},
	{"workload-v1alpha1", "a StatefulSet in v1alpha1", []stage{{pods: 1}, {pods: size, passes: true}}, nil, false},
}

var longDocuments = []releaseCase{
	{"canary-v1beta1", "the first example", []stage{
		{pods: 1, on: "echoserver", ingress: map[string]string{weight: "5"}},
		{pods: 5, on: "echoserver", ingress: map[string]string{weight: "50"}},
		{pods: size, passes: true}}, nginx, false},
	{"canary-v1alpha1", "the first example in v1alpha1: a partition, with a weight in its first step only", []stage{
		{pods: 1, on: "echoserver", ingress: map[string]string{weight: "5"}}, {pods: 5, on: "echoserver"},
		{pods: size, passes: true}}, nginx, false},
	{"steps-v1beta1", "an extra workload with its own labels; without routes, steps move only pods", plain(1, 2), nil,
		true},
	{"steps-v1alpha1", "a weight is also the number of pods", plain(1, 1), nil, true},
	{"routings-v1beta1", "an Ingress, an HTTPRoute and a custom object: all of them apply", []stage{
		{pods: 1, on: "your-workload-name", ingress: map[string]string{weight: "20"}}, {pods: size, passes: true}},
		func(s *appliedDocument) { s.route(s.workloadName, harness.Nginx, harness.Gateway, harness.Istio) }, false},
	{"reference-v1beta1", "a TrafficRouting by reference; a partition has no separate pods to label",
		[]stage{{pods: 1, on: "spring-cloud-a", ingress: mse}}, shared, false},
	{"reference-v1alpha1", "the same by annotation, with the extra workload that is the default in v1alpha1",
		[]stage{{pods: 1, on: "spring-cloud-a", ingress: mse}}, shared, true},
	{"bluegreen-v1beta1", "all pods twice, then requests with a header, then all requests", []stage{
		{pods: size, on: "your-workload-name", ingress: map[string]string{weight: "0"}},
		{pods: size, on: "your-workload-name", ingress: map[string]string{header: "matched-header-name"}},
		{pods: size, on: "your-workload-name", ingress: map[string]string{weight: "100"}}}, nginx, false},
}

// Documents of the API specification, applied unchanged, go through their steps as specified. At each step they can be
// read and written in the other version.
func TestDocuments_AreReleasedAsSpecified(t *testing.T) {
	t.Parallel()
	releaseAll(t, shortDocuments)
}

// The same for all other documents, with their routes.
func TestLongDocuments_AreReleasedAsSpecified(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	releaseAll(t, longDocuments)
}

func releaseAll(t *testing.T, documents []releaseCase) {
	e, g := harness.StartGuarded(t)
	for _, d := range documents {
		t.Run(d.file, func(t *testing.T) {
			t.Parallel()
			s := document(t, e, g, d.file)
			s.workload()
			if d.place != nil {
				d.place(s)
			}
			s.apply()
			s.healthy()
			watch, before := s.watching(), s.routes()
			s.setImage()
			s.runThrough(d)
			require.Equal(t, before, s.routes(), "the routes are restored")
			s.requireRecord(d)
			s.requireShown(watch, d)
		})
	}
}

// runThrough approves every step and checks the state at each step and at the end.
func (s *appliedDocument) runThrough(d releaseCase) {
	s.t.Helper()
	for i, stage := range d.stages {
		if stage.passes {
			continue
		}
		step := int32(i + 1)
		s.wait(fmt.Sprintf("waiting at step %d", step), func(st v1beta1.RolloutStatus) bool {
			return commonIn(st).CurrentStepIndex == step && commonIn(st).CurrentStepState == "StepPaused"
		})
		count, labels := s.newPods()
		require.Equal(s.t, stage.pods, count, "new pods of step %d", step)
		if d.labelled && i == 0 {
			require.Equal(s.t, "gray", labels["opensergo.io/canary-gray"])
		}
		s.requireIngress(stage, step)
		s.waitRouting(stage, "Progressing")
		s.updateInOtherVersion(fmt.Sprint("step-", step))
		s.approve()
	}
	end := s.wait("complete", func(st v1beta1.RolloutStatus) bool {
		return st.Phase == v1beta1.PhaseHealthy && slices.ContainsFunc(st.Conditions, func(c v1beta1.Condition) bool {
			return c.Type == v1beta1.ConditionSucceeded && c.Status == "True"
		})
	})
	last := commonIn(statusIn(s.t, end))
	require.EqualValues(s.t, len(d.stages), last.CurrentStepIndex)
	require.EqualValues(s.t, -1, last.NextStepIndex)
	require.Equal(s.t, last.PodTemplateHash, last.StableRevision, "the new version is the stable one")
	require.True(s.t, poll(func() bool { count, _ := s.newPods(); return count == size }), "all pods are new")
	for _, stage := range d.stages {
		s.requireNoIngress(stage.on)
		s.waitRouting(stage, "Healthy")
	}
	s.updateInOtherVersion("end")
}

func (s *appliedDocument) requireIngress(stage stage, step int32) {
	s.t.Helper()
	if stage.ingress == nil {
		s.requireNoIngress(stage.on)
		return
	}
	found, err := s.Kube.NetworkingV1().Ingresses(s.namespace).Get(testContext(s.t), stage.on+"-canary",
		metav1.GetOptions{})
	require.NoError(s.t, err, "step %d routes", step)
	for key, value := range stage.ingress {
		require.Equal(s.t, value, found.Annotations[key], "step %d: %v", step, found.Annotations)
	}
}

// waitRouting waits for the phase of the TrafficRouting if the stage uses one.
func (s *appliedDocument) waitRouting(stage stage, phase string) {
	s.t.Helper()
	if stage.on != "" && stage.on != s.workloadName {
		s.waitTraffic(phase)
	}
}

// waitTraffic waits for the phase of the TrafficRouting.
func (s *appliedDocument) waitTraffic(phase string) {
	s.t.Helper()
	have := ""
	require.True(s.t, poll(func() bool {
		found, err := s.Dynamic(s.t).Resource(trafficRoutings).Namespace(s.namespace).Get(testContext(s.t),
			"mse-traffic", metav1.GetOptions{})
		require.NoError(s.t, err)
		have, _, _ = unstructured.NestedString(found.Object, "status", "phase")
		return have == phase
	}), "the TrafficRouting is %q, not %s", lazily(func() string { return have }), phase)
}

// lazily is a Stringer that evaluates its text when it is printed.
type lazily func() string

func (l lazily) String() string { return l() }

func (s *appliedDocument) requireNoIngress(name string) {
	s.t.Helper()
	if name == "" {
		return
	}
	_, err := s.Kube.NetworkingV1().Ingresses(s.namespace).Get(testContext(s.t), name+"-canary", metav1.GetOptions{})
	require.True(s.t, apierrors.IsNotFound(err), "Ingress %s-canary exists", name)
}

// requireRecord requires a history of exactly the start and the approvals.
func (s *appliedDocument) requireRecord(d releaseCase) {
	s.t.Helper()
	var have []string
	for _, entry := range s.engine.Rollout(s.object.GetName()).History {
		have = append(have, fmt.Sprintf("%s by %s (%s): %s", entry.Verb, entry.Actor, entry.Via, entry.Outcome))
	}
	want := []string{"start by alice (kubectl): accepted"}
	for _, stage := range d.stages {
		if !stage.passes {
			want = append(want, "approve by approver (kubectl): accepted")
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	require.Equal(s.t, want, have)
	require.Equal(s.t, rollout.PhaseHealthy, s.engine.Rollout(s.object.GetName()).Phase)
}

// watching starts `kubectl get rollout -w`.
func (s *appliedDocument) watching() *harness.Process {
	s.t.Helper()
	return harness.Run(s.t, s.engine.Binary("kubectl"),
		[]string{"get", "rollouts." + s.version.Version + "." + s.version.Group, s.object.GetName(), "-w",
			"-n", s.namespace, "--kubeconfig", s.Kubeconfig}, nil)
}

// requireShown requires the watch to have shown every waiting step in order, and the end.
func (s *appliedDocument) requireShown(watch *harness.Process, d releaseCase) {
	s.t.Helper()
	rest := ""
	require.True(s.t, poll(func() bool {
		rest = watch.Output()
		for i, stage := range d.stages {
			if stage.passes {
				continue
			}
			_, after, found := cutFields(rest, "Progressing", fmt.Sprint(i+1), "StepPaused")
			if rest = after; !found {
				return false
			}
		}
		_, _, found := cutFields(rest, "Healthy", fmt.Sprint(len(d.stages)), "Completed")
		return found
	}), "kubectl get -w has shown:\n%s", watch.Output())
}

// cutFields is like strings.Cut at the first line that has these fields after its first one.
func cutFields(text string, fields ...string) (before, after string, found bool) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		have := strings.Fields(line)
		if len(have) > len(fields) && slices.Equal(have[1:len(fields)+1], fields) {
			return strings.Join(lines[:i], "\n"), strings.Join(lines[i+1:], "\n"), true
		}
	}
	return text, "", false
}
