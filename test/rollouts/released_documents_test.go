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

// stage is how a document describes one of its steps.
type stage struct {
	// pods are the new ones while the step rests. A last step of all pods passes without rest.
	pods   int
	passes bool
	// ingress are annotations of the Ingress of the new version, which is not there when it is nil. on is its name, less "-canary".
	on      string
	ingress map[string]string
}

// released is a document that is released, step by step.
type released struct {
	file   string
	reason string
	stages []stage
	// place makes what it routes.
	place func(s *specimen)
	// gray says that the pods of the first step have the label that it asks for.
	gray bool
}

func plain(pods ...int) (all []stage) {
	for _, n := range pods {
		all = append(all, stage{pods: n})
	}
	return all
}

func nginx(s *specimen) { s.route(s.wl, harness.Nginx) }

func shared(s *specimen) {
	s.route("spring-cloud-a", harness.Nginx)
	s.routing()
	s.waitTraffic("Healthy")
}

// mse is what the TrafficRouting of the specification makes.
var mse = map[string]string{header: "User-Agent", "nginx.ingress.kubernetes.io/canary-by-header-value": "Andriod",
	"mse.ingress.kubernetes.io/request-header-control-update": "x-mse-tag gray"}

var shortDocuments = []released{
	{"workload-v1beta1", "a StatefulSet", []stage{{pods: 1}, {pods: size, passes: true}}, nil, false},
	{"workload-v1alpha1", "a StatefulSet in the older version", []stage{{pods: 1}, {pods: size, passes: true}}, nil, false},
}

var longDocuments = []released{
	{"canary-v1beta1", "the first example", []stage{
		{pods: 1, on: "echoserver", ingress: map[string]string{weight: "5"}},
		{pods: 5, on: "echoserver", ingress: map[string]string{weight: "50"}},
		{pods: size, passes: true}}, nginx, false},
	{"canary-v1alpha1", "the first example in the older version: by partition, and weight in its first step only", []stage{
		{pods: 1, on: "echoserver", ingress: map[string]string{weight: "5"}}, {pods: 5, on: "echoserver"}, {pods: size, passes: true}}, nginx, false},
	{"steps-v1beta1", "an extra workload with labels of its own; without routes, steps move pods only", plain(1, 2), nil, true},
	{"steps-v1alpha1", "a weight is the number of pods too", plain(1, 1), nil, true},
	{"routings-v1beta1", "an Ingress, an HTTPRoute and a custom object: all of them apply", []stage{
		{pods: 1, on: "your-workload-name", ingress: map[string]string{weight: "20"}}, {pods: size, passes: true}},
		func(s *specimen) { s.route(s.wl, harness.Nginx, harness.Gateway, harness.Istio) }, false},
	{"reference-v1beta1", "a TrafficRouting by reference; a partition has no pods of its own to label",
		[]stage{{pods: 1, on: "spring-cloud-a", ingress: mse}}, shared, false},
	{"reference-v1alpha1", "the same by annotation, with the extra workload that is the older version's default",
		[]stage{{pods: 1, on: "spring-cloud-a", ingress: mse}}, shared, true},
	{"bluegreen-v1beta1", "all pods twice, then requests by header, then all", []stage{
		{pods: size, on: "your-workload-name", ingress: map[string]string{weight: "0"}},
		{pods: size, on: "your-workload-name", ingress: map[string]string{header: "matched-header-name"}},
		{pods: size, on: "your-workload-name", ingress: map[string]string{weight: "100"}}}, nginx, false},
}

// Documents of the API specification, applied as they stand, go through their steps as it describes, and can be read and written in the other
// version at each.
func TestDocumentsAreReleased(t *testing.T) {
	t.Parallel()
	releaseAll(t, shortDocuments)
}

// The same of all others, with what routes requests.
func TestLongDocumentsAreReleased(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	releaseAll(t, longDocuments)
}

func releaseAll(t *testing.T, documents []released) {
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
			s.through(d)
			require.Equal(t, before, s.routes(), "what routes is as its owner has written it")
			s.requireRecord(d)
			s.requireShown(watch, d)
		})
	}
}

// through goes from the first step to the end.
func (s *specimen) through(d released) {
	s.t.Helper()
	for i, stage := range d.stages {
		if stage.passes {
			continue
		}
		step := int32(i + 1)
		s.wait(fmt.Sprintf("at rest at step %d", step), func(st v1beta1.RolloutStatus) bool {
			return commonIn(st).CurrentStepIndex == step && commonIn(st).CurrentStepState == "StepPaused"
		})
		count, labels := s.newPods()
		require.Equal(s.t, stage.pods, count, "new pods of step %d", step)
		if d.gray && i == 0 {
			require.Equal(s.t, "gray", labels["opensergo.io/canary-gray"])
		}
		s.requireIngress(stage, step)
		s.waitRouting(stage, "Progressing")
		s.otherwise(fmt.Sprint("step-", step))
		s.approve()
	}
	end := s.wait("over", func(st v1beta1.RolloutStatus) bool {
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
	s.otherwise("end")
}

func (s *specimen) requireIngress(stage stage, step int32) {
	s.t.Helper()
	if stage.ingress == nil {
		s.requireNoIngress(stage.on)
		return
	}
	found, err := s.Kube.NetworkingV1().Ingresses(s.namespace).Get(testContext(s.t), stage.on+"-canary", metav1.GetOptions{})
	require.NoError(s.t, err, "step %d routes", step)
	for key, value := range stage.ingress {
		require.Equal(s.t, value, found.Annotations[key], "step %d: %v", step, found.Annotations)
	}
}

// waitRouting returns when the TrafficRouting of a stage whose routes are not the workload's own is in a phase.
func (s *specimen) waitRouting(stage stage, phase string) {
	s.t.Helper()
	if stage.on != "" && stage.on != s.wl {
		s.waitTraffic(phase)
	}
}

// waitTraffic waits for the phase of the TrafficRouting.
func (s *specimen) waitTraffic(phase string) {
	s.t.Helper()
	have := ""
	require.True(s.t, poll(func() bool {
		found, err := s.Dynamic(s.t).Resource(trafficRoutings).Namespace(s.namespace).Get(testContext(s.t), "mse-traffic", metav1.GetOptions{})
		require.NoError(s.t, err)
		have, _, _ = unstructured.NestedString(found.Object, "status", "phase")
		return have == phase
	}), "the TrafficRouting is %q, and not %s", lazily(func() string { return have }), phase)
}

// lazily is a text that is made when it is printed.
type lazily func() string

func (l lazily) String() string { return l() }

func (s *specimen) requireNoIngress(name string) {
	s.t.Helper()
	if name == "" {
		return
	}
	_, err := s.Kube.NetworkingV1().Ingresses(s.namespace).Get(testContext(s.t), name+"-canary", metav1.GetOptions{})
	require.True(s.t, apierrors.IsNotFound(err), "Ingress %s-canary is there", name)
}

// requireRecord fails unless the release was started and approved, and nothing else.
func (s *specimen) requireRecord(d released) {
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

// watching is `kubectl get rollout -w`.
func (s *specimen) watching() *harness.Process {
	s.t.Helper()
	return harness.Run(s.t, s.engine.Binary("kubectl"), []string{"get", "rollouts." + s.version.Version + "." + s.version.Group, s.object.GetName(), "-w",
		"-n", s.namespace, "--kubeconfig", s.Kubeconfig}, nil)
}

// requireShown fails unless the watch has shown each step's rest in its order, and the end.
func (s *specimen) requireShown(watch *harness.Process, d released) {
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

// cutFields is strings.Cut at the first line with these fields.
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
