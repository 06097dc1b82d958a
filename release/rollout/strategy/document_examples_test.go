package strategy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The YAML examples of the API specification. It shows some of them only in part; their files are complete and note
// that.
var (
	exampleBeta         = exampleOf("canary-v1beta1")
	exampleAlpha        = exampleOf("canary-v1alpha1")
	exampleRefBeta      = exampleOf("workload-v1beta1")
	exampleRefAlpha     = exampleOf("workload-v1alpha1")
	exampleRoutings     = exampleOf("routings-v1beta1")
	exampleSharedBeta   = exampleOf("reference-v1beta1")
	exampleSharedAlpha  = exampleOf("reference-v1alpha1")
	exampleCanaryBeta   = exampleOf("steps-v1beta1")
	exampleCanaryAlpha  = exampleOf("steps-v1alpha1")
	exampleBlueGreen    = exampleOf("bluegreen-v1beta1")
	exampleStatusCanary = exampleOf("status")
)

func exampleOf(name string) string {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "test", "documents", name+".yaml"))
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// underRollout returns a request for the document.
func underRollout(document string) []byte {
	return []byte("images: {app: registry/echo:2}\nrollout:\n  " +
		strings.ReplaceAll(strings.TrimSpace(document), "\n", "\n  ") + "\n")
}

func replaced(text string, pairs ...string) string {
	return strings.NewReplacer(pairs...).Replace(text)
}

const (
	refAlpha    = "spec:\n  objectRef: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: echo}}\n"
	anyRoutings = "      trafficRoutings: [{service: echo, ingress: {name: echo}}]\n"
)

// Every example decodes unchanged, except for those that are refused below.
func TestDecodeRequest_AcceptsExamplesOfSpecification(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, text string
		style        Style
		steps        int
	}{
		"Beta":     {"the first example", exampleBeta, StyleCanary, 3},
		"Alpha":    {"the first example of v1alpha1", exampleAlpha, StylePartition, 3},
		"RefBeta":  {"a workload alone, with a strategy", exampleRefBeta, StylePartition, 2},
		"RefAlpha": {"a workload alone, with a strategy", exampleRefAlpha, StylePartition, 2},
		"SharedAlpha": {"a TrafficRouting by annotation; a Deployment has the extra workload in v1alpha1",
			exampleSharedAlpha, StyleCanary, 1},
		"SharedBeta": {"a TrafficRouting next to canary; the metadata is for the extra workload, which the example " +
			"leaves out",
			replaced(exampleSharedBeta, "    canary:\n", "    canary:\n      enableExtraWorkloadForCanary: true\n"),
			StyleCanary, 1},
		"Routings": {"several routings, each with its own Service",
			replaced(exampleRoutings, "- service: your-workload-name\n        ingress", "- service: a\n        ingress",
				"- service: your-workload-name\n        gateway", "- service: b\n        gateway",
				"- service: your-workload-name\n        custom", "- service: c\n        custom"), StylePartition, 2},
		"CanaryBeta":  {"the steps of a canary", exampleCanaryBeta + anyRoutings, StyleCanary, 2},
		"CanaryAlpha": {"the steps of a canary of v1alpha1", exampleCanaryAlpha + anyRoutings, StyleCanary, 2},
		"BlueGreen":   {"the steps of a blue-green", exampleBlueGreen, StyleBlueGreen, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, errs := DecodeRequest(underRollout(test.text))
			require.NoError(t, errs.Err(), test.reason)
			require.Equal(t, test.style, got.Spec.Strategy.Style, test.reason)
			require.Len(t, got.Spec.Strategy.Steps, test.steps, test.reason)
		})
	}
}

// The examples that are refused as the specification shows them, with the fields and the reasons.
func TestDecodeRequest_RefusesIncompleteExamplesOfSpecification(t *testing.T) {
	t.Parallel()
	workloadAlone, _, _ := strings.Cut(exampleRefBeta, "  strategy:\n")
	stepsAlone := replaced(exampleCanaryBeta, "  workloadRef:\n    apiVersion: apps/v1\n    kind: Deployment\n    "+
		"name: your-workload-name\n", "",
		"replicas: 10%", "replicas: 1 or 10%", "        replicas: 20%\n", "")
	for name, test := range map[string]struct {
		reason, text string
		fields       map[string]string
	}{
		"RefBeta": {"a strategy is required", workloadAlone,
			map[string]string{"rollout.spec.strategy": "is required"}},
		"SharedBeta": {"patchPodTemplateMetadata needs the extra workload", exampleSharedBeta,
			map[string]string{
				"rollout.spec.strategy.canary.patchPodTemplateMetadata": "enableExtraWorkloadForCanary: true"}},
		"CanaryBeta": {"replicas has no default, and traffic needs routings", stepsAlone, map[string]string{
			"rollout.spec.workloadRef":                       "is required",
			"rollout.spec.strategy.canary.steps[0].replicas": `not "1 or 10%"`,
			"rollout.spec.strategy.canary.steps[1].replicas": "is required",
			"rollout.spec.strategy.canary.steps[0].traffic":  "trafficRoutings",
			"rollout.spec.strategy.canary.steps[0].matches":  "trafficRoutings",
			"rollout.spec.strategy.canary.steps[1].traffic":  "trafficRoutings"}},
		"Status": {"a status alone is not a rollout", exampleStatusCanary,
			map[string]string{"rollout.apiVersion": "is required", "rollout.spec": "is required"}},
		"SameService": {"only one routing may move a Service", exampleRoutings, map[string]string{
			"rollout.spec.strategy.canary.trafficRoutings[1]": "names Service your-workload-name, which",
			"rollout.spec.strategy.canary.trafficRoutings[2]": "names Service your-workload-name, which"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, errs := DecodeRequest(underRollout(test.text))
			got := map[string]string{}
			for _, one := range errs {
				got[one.Field] = one.Reason
				require.Positive(t, one.Line, "%s: %v", test.reason, one)
			}
			require.Len(t, got, len(test.fields), "%s: %v", test.reason, errs)
			for field, part := range test.fields {
				require.Contains(t, got[field], part, "%s: %s", test.reason, field)
			}
		})
	}
}

func TestDecodeRequest_ReadsV1beta1ExampleCompletely(t *testing.T) {
	t.Parallel()
	got, errs := DecodeRequest(underRollout(exampleBeta))
	require.NoError(t, errs.Err())
	require.Empty(t, got.Warnings)
	two, none := int64(7200), int64(0)
	require.Equal(t, Spec{
		Party: "default", Namespace: "default", Name: "rollouts-demo", WorkloadRef: deploymentRef("echoserver"),
		Strategy: Strategy{
			Style: StyleCanary,
			Steps: []Step{
				{Replicas: pods(1), Traffic: share(5)},
				{Replicas: part("50%"), Traffic: share(50), PauseSeconds: &two},
				{Replicas: part("100%"), Traffic: share(100), PauseSeconds: &none},
			},
			Routings: []Routing{{Service: "echoserver", GraceSeconds: 10,
				Ingress: &IngressRef{Class: "nginx", Name: "echoserver"}}},
		},
		Policy: Policy{StepDeadlineSeconds: 600, SettleSeconds: 60, OnFailure: OnFailurePause,
			OnExpiry: OnFailurePause},
		Change: Change{Images: map[string]string{"app": "registry/echo:2"}},
	}, got.Spec)
}

func TestDecodeRequest_ReadsV1alpha1ExampleCompletely(t *testing.T) {
	t.Parallel()
	got, errs := DecodeRequest(underRollout(replaced(exampleCanaryAlpha, "  name: your-rollout\n", "") + anyRoutings))
	require.NoError(t, errs.Err())
	s := got.Spec.Strategy
	require.Equal(t, part("5%"), s.Steps[0].Replicas, "a weight sets the number of pods if the step has no replicas")
	require.Equal(t, share(5), s.Steps[0].Traffic)
	require.Equal(t, int64(1000), *s.Steps[0].PauseSeconds)
	require.Equal(t, part("10%"), s.Steps[1].Replicas)
	require.Equal(t, map[string]string{"opensergo.io/canary-gray": "gray"}, s.PatchPodTemplateMetadata.Labels)
	require.Equal(t, "your-workload-name", got.Spec.Name, "the rollout's default name is the workload's name")
	require.Len(t, got.Warnings, 1)
	require.Contains(t, got.Warnings[0], "is ignored, since the step has matches")
}

func TestDecodeRequest_BlueGreenExampleWaitsForApprovalInEveryStep(t *testing.T) {
	t.Parallel()
	got, errs := DecodeRequest(underRollout(exampleBlueGreen))
	require.NoError(t, errs.Err())
	for i, step := range got.Spec.Strategy.Steps {
		require.Nil(t, step.PauseSeconds, "step %d waits for an approval, the last one too", i+1)
	}
	require.Equal(t, share(0), got.Spec.Strategy.Steps[0].Traffic,
		"a blue-green step may keep all traffic on the old version")
}

func TestDecodeRequest_AcceptsDocumentAsKubectlPrintsIt(t *testing.T) {
	t.Parallel()
	text := replaced(exampleBeta, "metadata:\n", "metadata:\n  uid: 1b\n  resourceVersion: \"7\"\n  generation: 2\n  "+
		"creationTimestamp: null\n  managedFields: [{manager: kubectl}]\n"+
		"  annotations: {rollouts.kruise.io/hash: abc, kubectl.kubernetes.io/last-applied-configuration: \"{}\", "+
		"rollouts.kruise.io/rollout-id: \"7\"}\n") +
		"status:\n  phase: Healthy\n  canaryStatus: {currentStepIndex: 3}\n"
	got, errs := DecodeRequest(underRollout(text))
	require.NoError(t, errs.Err())
	require.Equal(t, "7", got.Spec.RolloutID)
	require.Len(t, got.Warnings, 1)
	require.Contains(t, got.Warnings[0], "rollout.status: is ignored")
}

func TestDecodeRequest_AcceptsExampleOfRolloutsGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../docs/rollouts.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(guide), "```yaml\n")
	body, _, found := strings.Cut(rest, "```")
	require.True(t, found)
	got, errs := DecodeRequest([]byte(body))
	require.NoError(t, errs.Err())
	require.Empty(t, got.Warnings)
	require.Len(t, got.Spec.Strategy.Steps, 3)
}
