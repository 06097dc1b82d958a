package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// obstacle keeps the new pods of a namespace from coming.
type obstacle struct {
	name string
	// create puts it into force in the test's namespace; nil: it is in the new pod template.
	create func(t *testing.T, e *harness.Engine)
	// podSpec is the part of the new pod template's spec that meets the obstacle; "": any pod does.
	podSpec string
	// says is what the API server says.
	says string
	// deadline is the deadline of a step in seconds. patience is after how many seconds the release ends at the
	// earliest, most at the latest.
	deadline, patience, most int
}

// obstacles are the rows of the table in docs/rollouts.md that a cluster without real nodes can play.
var obstacles = []obstacle{
	{name: "ResourceQuota", create: fillQuota, says: "exceeded quota: full", deadline: 40, patience: 20, most: 38},
	{name: "LimitRange", create: createLimitRange, says: "maximum memory usage per Pod is 1Mi", deadline: 120,
		patience: 10, most: 40},
	{name: "ValidatingAdmissionPolicy", create: createPodPolicy, says: "denied request: no pods today", deadline: 120,
		patience: 10, most: 40},
	{name: "WebhookDown", create: createDeadWebhook, says: "failed calling webhook", deadline: 25, patience: 25,
		most: 60},
	{name: "ServiceAccount", podSpec: `{"serviceAccountName":"nobody"}`, says: `serviceaccount "nobody" not found`,
		deadline: 40, patience: 20, most: 38},
	{name: "NoNode", podSpec: `{"containers":[{"name":"app","resources":{"requests":{"cpu":"4000"}}}]}`,
		says: "Insufficient cpu", deadline: 25, patience: 25, most: 60},
}

// fillQuota creates a quota that has no room left.
func fillQuota(t *testing.T, e *harness.Engine) {
	_, err := e.Kube.CoreV1().ResourceQuotas(e.Apps).Create(context.Background(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{"pods": resource.MustParse("1")}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	waitNoPods(t, e, "exceeded quota")
}

// createLimitRange creates a limit that no pod without limits keeps.
func createLimitRange(t *testing.T, e *harness.Engine) {
	_, err := e.Kube.CoreV1().LimitRanges(e.Apps).Create(context.Background(), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "tiny"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypePod, Max: corev1.ResourceList{"memory": resource.MustParse("1Mi")}}}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	waitNoPods(t, e, "maximum memory usage per Pod")
}

// newPods matches the creation of pods.
func newPods() admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}
}

// inNamespace selects the test's namespace.
func inNamespace(e *harness.Engine) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: e.Apps}}
}

// createPodPolicy creates an admission policy that denies every new pod of the namespace.
func createPodPolicy(t *testing.T, e *harness.Engine) {
	api, ctx, name := e.Kube.AdmissionregistrationV1(), context.Background(), "no-pods-"+e.Apps
	_, err := api.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
				{RuleWithOperations: newPods()}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "no pods today"}}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = api.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: inNamespace(e)}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = api.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{})
		_ = api.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})
	})
	waitNoPods(t, e, "no pods today")
}

// createDeadWebhook registers a webhook for the namespace's new pods at which no process listens.
func createDeadWebhook(t *testing.T, e *harness.Engine) {
	api, ctx, name := e.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations(), context.Background(),
		"dead-"+e.Apps
	_, err := api.Create(ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{{Name: "pods.dead.test", NamespaceSelector: inNamespace(e),
			Rules:         []admissionv1.RuleWithOperations{newPods()},
			FailurePolicy: new(admissionv1.Fail), SideEffects: new(admissionv1.SideEffectClassNone),
			TimeoutSeconds: new(int32(1)), AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = api.Delete(ctx, name, metav1.DeleteOptions{}) })
	waitNoPods(t, e, "failed calling webhook")
}

// waitNoPods waits until the API server refuses new pods of the namespace with this message.
func waitNoPods(t *testing.T, e *harness.Engine, message string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := e.Kube.CoreV1().Pods(e.Apps).Create(context.Background(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "probe"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "x"}}}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), message)
	}, harness.Patience, harness.Tick, "the API server does not say %q", message)
}

// reportedWithin is how long it may take until a release says why its pods don't come: 10 s, and time for a loaded test
// machine.
const reportedWithin = 10*time.Second + 5*time.Second

// startBlocked starts a rollout that meets an obstacle.
func startBlocked(t *testing.T, e *harness.Engine, c cell, o obstacle) *release {
	t.Helper()
	r := prepareUnobserved(t, e, c, nil)
	r.rollout.Policy = map[string]any{"stepDeadlineSeconds": o.deadline}
	if o.create != nil {
		o.create(t, r.Engine)
	}
	body := r.rollout.Body(r.Apps)
	if o.podSpec != "" {
		delete(body, "images")
		body["templatePatch"] = map[string]any{"spec": json.RawMessage(o.podSpec)}
	}
	document, err := json.Marshal(body)
	require.NoError(t, err)
	answer := r.Call(http.MethodPost, "/api/v1/rollouts", string(document))
	require.Equal(t, http.StatusAccepted, answer.Status, "%s", answer.Body)
	return r
}

// waitReported waits until status, watch, list and events of a rollout's workload say why its pods don't come.
func (r *release) waitReported(o obstacle) {
	r.t.Helper()
	begun := time.Now()
	r.WaitRollout(r.rollout.Name, "the reason", func(s rollout.Status) bool {
		return s.WaitingFor != nil && strings.Contains(s.WaitingFor.Message, o.says) || s.Phase == rollout.PhaseFailed
	})
	var listed, events string
	ok := func() bool {
		listed = string(r.Call(http.MethodGet, "/api/v1/rollouts?namespace="+r.Apps, "").Body)
		list, err := r.Kube.CoreV1().Events(r.Apps).List(context.Background(),
			metav1.ListOptions{FieldSelector: "reason=ReleaseBlocked,involvedObject.name=" + r.rollout.Name})
		require.NoError(r.t, err)
		events = ""
		for _, event := range list.Items {
			events += event.Message + "\n"
		}
		quoted, _ := json.Marshal(o.says)
		return strings.Contains(listed, strings.Trim(string(quoted), `"`)) && strings.Contains(events, o.says) &&
			strings.Contains(r.Rollout(r.rollout.Name).Reason, o.says)
	}
	if !assert.Eventually(r.t, ok, harness.Patience, harness.Tick) {
		require.FailNow(r.t, "not reported", "lists: %s\nevents: %s", listed, events)
	}
	took := time.Since(begun)
	r.t.Logf("reported after %s", took.Round(100*time.Millisecond))
	require.Less(r.t, took, reportedWithin)
}

// testBlockedRollout runs a rollout that meets an obstacle: it says why within 10 s, and fails when the table says.
func testBlockedRollout(t *testing.T, e *harness.Engine, c cell, o obstacle) {
	t.Run(fmt.Sprintf("%s/%s/%s", o.name, c.kind.Title, c.style), func(t *testing.T) {
		t.Parallel()
		begun := time.Now()
		r := startBlocked(t, e, c, o)
		r.waitReported(o)
		status := r.WaitRollout(r.rollout.Name, "a failure", func(s rollout.Status) bool {
			return s.Phase == rollout.PhaseFailed || s.Phase.Final()
		})
		took := int(time.Since(begun) / time.Second)
		require.Equal(t, rollout.PhaseFailed, status.Phase)
		require.Contains(t, status.Reason, o.says)
		require.GreaterOrEqual(t, took, o.patience, "it waits for what may pass")
		require.Less(t, took, o.most+int(reportedWithin/time.Second), "it does not wait for what does not pass")
		t.Logf("failed after %d s: %s", took, status.Reason)
	})
}

// blockedCells are the kinds and styles whose pods Kubernetes itself creates.
var blockedCells = []cell{
	deploymentCell(strategy.StylePartition, harness.NoProvider),
	deploymentCell(strategy.StyleCanary, harness.NoProvider),
	deploymentCell(strategy.StyleBlueGreen, harness.NoProvider),
	{harness.StatefulSet, strategy.StylePartition, harness.NoProvider},
	{harness.DaemonSet, strategy.StylePartition, harness.NoProvider},
}

// A rollout whose pods can't be created says why, in the API server's words, and ends as the table in docs/rollouts.md
// says.
func TestRolloutSaysWhyPodsDontCome(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	for i, o := range obstacles[1:5] { // the longest ones in TestLong…
		testBlockedRollout(t, e, blockedCells[i%len(blockedCells)], o)
	}
}

// Every obstacle, with every kind and style.
func TestLongRolloutSaysWhyPodsDontCome_ForEveryKindAndStyle(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	for _, o := range obstacles {
		for _, c := range blockedCells {
			testBlockedRollout(t, e, c, o)
		}
	}
}

// A ReplicaSet that can't be created is reported too, in every style of a Deployment.
func TestLongRolloutSaysWhyItsReplicaSetIsNotCreated(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	o := obstacle{name: "ReplicaSetQuota", says: "exceeded quota: sets", deadline: 40, patience: 20, most: 38,
		create: func(t *testing.T, e *harness.Engine) {
			quotas := e.Kube.CoreV1().ResourceQuotas(e.Apps)
			_, err := quotas.Create(context.Background(), &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Name: "sets"}, Spec: corev1.ResourceQuotaSpec{
					Hard: corev1.ResourceList{"count/replicasets.apps": resource.MustParse("1")}}}, metav1.CreateOptions{})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				quota, err := quotas.Get(context.Background(), "sets", metav1.GetOptions{})
				return err == nil && len(quota.Status.Used) > 0
			}, harness.Patience, harness.Tick)
		}}
	for _, c := range blockedCells[:3] {
		testBlockedRollout(t, e, c, o)
	}
}

// A quota that is raised while the step waits lets the step go on, and a retry goes on after the step has failed.
func TestRolloutGoesOn_WhenQuotaIsRaised(t *testing.T) {
	t.Parallel()
	o := obstacles[0]
	o.deadline = 300
	r := startBlocked(t, harness.Shared(t), blockedCells[3], o)
	r.waitReported(o)
	require.NoError(t, r.Kube.CoreV1().ResourceQuotas(r.Apps).Delete(context.Background(), "full",
		metav1.DeleteOptions{}))
	status := r.WaitForApproval(r.rollout.Name, 1)
	require.Equal(t, int32(1), status.CanaryReadyReplicas)
	r.MustVerb(r.rollout.Name, "rollback", `{"actor":"ann"}`)
	r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
}
