package workload_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/observer"
)

// releasing is one rollout of a test's workload, run activity by activity as its workflow does.
type releasing struct {
	b    *bench
	name observer.Name
	// apiVersion defaults to apps/v1.
	apiVersion string
	// run is the first run ID of its workflow.
	run      string
	style    strategy.Style
	change   strategy.Change
	deadline int64
	budget   int64
	metadata *strategy.PodMetadata
	begun    rollout.BeginResult
	template string
	last     rollout.MoveResult
	// messages are those of attempts that ended with NotReady.
	messages []string
	// progress is what the attempts of the last activity have left.
	progress *workload.Progress
}

// release prepares the rollout of an image on a Deployment.
func (b *bench) release(name string, style strategy.Style, image string) *releasing {
	return &releasing{b: b, name: observer.Name{Kind: "Deployment", Name: name}, style: style, deadline: 60, budget: 30,
		change: strategy.Change{Images: map[string]string{"app": image}}}
}

func (r *releasing) subject() rollout.Subject {
	return rollout.Subject{
		Workload: catalog.Workload{Namespace: r.b.namespace,
			WorkloadRef: catalog.WorkloadRef{APIVersion: cmp.Or(r.apiVersion, "apps/v1"), Kind: r.name.Kind,
				Name: r.name.Name}},
		Name: r.name.Name, Claim: workload.Holder{WorkflowID: "rollout/default/ns/" + r.name.Name,
			RunID: cmp.Or(r.run, "run-1")}.String(),
		DeadlineSeconds: r.deadline, UnreachableBudgetSeconds: r.budget,
	}
}

func (r *releasing) strategy() strategy.Strategy {
	return strategy.Strategy{Style: r.style, Steps: []strategy.Step{{Replicas: intstr.FromString("100%")}},
		PatchPodTemplateMetadata: r.metadata}
}

// call runs an activity attempt after attempt, as Temporal does, and reads its result.
func (r *releasing) call(name string, req, result any) error {
	r.b.t.Helper()
	r.progress = nil
	for range 50 {
		err := r.attempt(name, req, result)
		var app *temporal.ApplicationError
		if errors.As(err, &app) && app.Type() == string(failure.NotReady) {
			r.messages = append(r.messages, app.Message())
			continue
		}
		return err
	}
	r.b.t.Fatalf("%s did not end: %v", name, r.messages)
	return nil
}

// The names by which the tests execute one action of a leg.
const (
	activityBegin  = "begin"
	activityMove   = "move"
	activityFinish = "finish"
)

func (r *releasing) attempt(name string, req, result any) error {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(patience)
	env.SetWorkerOptions(r.b.process)
	for n, f := range map[string]any{rollout.ActivityPreflight: r.b.acts.PreflightRollouts,
		activityBegin: r.b.acts.Begin,
		activityMove:  r.b.acts.Move, activityFinish: r.b.acts.Finish} {
		env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: n})
	}
	if r.progress != nil {
		env.SetHeartbeatDetails(*r.progress)
	}
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		var p workload.Progress
		if details.Get(&p) == nil {
			r.progress = &p
		}
	})
	value, err := env.ExecuteActivity(name, req)
	if err != nil {
		return err
	}
	return value.Get(result)
}

func (r *releasing) begin() rollout.BeginResult {
	r.b.t.Helper()
	require.NoError(r.b.t, r.call(activityBegin,
		rollout.BeginRequest{Subject: r.subject(), Strategy: r.strategy(), Change: r.change}, &r.begun))
	return r.begun
}

func (r *releasing) moveRequest(step int, replicas string) rollout.MoveRequest {
	return rollout.MoveRequest{Subject: r.subject(), Step: step, Style: r.style, Replicas: intstr.Parse(replicas),
		Change: r.change, Template: r.template,
		Settle: true, CanaryMetadata: r.metadata}
}

// move makes a step that must succeed.
func (r *releasing) move(step int, replicas string) rollout.MoveResult {
	r.b.t.Helper()
	return r.moved(r.moveRequest(step, replicas))
}

func (r *releasing) moved(req rollout.MoveRequest) rollout.MoveResult {
	r.b.t.Helper()
	r.last = rollout.MoveResult{}
	require.NoError(r.b.t, r.call(activityMove, req, &r.last))
	if r.last.Template != "" {
		r.template = r.last.Template
	}
	return r.last
}

// moveFails makes a step that must fail.
func (r *releasing) moveFails(req rollout.MoveRequest, kind failure.Kind) *temporal.ApplicationError {
	r.b.t.Helper()
	return requireFailure(r.b.t, r.call(activityMove, req, &rollout.MoveResult{}), kind)
}

func (r *releasing) finishRequest(action rollout.FinishAction, to rollout.Side) rollout.FinishRequest {
	return rollout.FinishRequest{Subject: r.subject(), Action: action, To: to, Template: r.template, Change: r.change}
}

func (r *releasing) finish(action rollout.FinishAction, to rollout.Side) rollout.MoveResult {
	r.b.t.Helper()
	var result rollout.MoveResult
	require.NoError(r.b.t, r.call(activityFinish, r.finishRequest(action, to), &result))
	return result
}

func (r *releasing) preflightRequest() rollout.PreflightRequest {
	return rollout.PreflightRequest{Subject: r.subject(), Strategy: r.strategy(), Change: r.change}
}

// preflight checks the rollout, which must be possible to check.
func (r *releasing) preflight() rollout.PreflightResult {
	r.b.t.Helper()
	result := r.preflights(r.preflightRequest())[0]
	require.Empty(r.b.t, result.Unchecked)
	return result
}

// preflights checks several rollouts together.
func (r *releasing) preflights(rollouts ...rollout.PreflightRequest) (results []rollout.PreflightResult) {
	r.b.t.Helper()
	require.NoError(r.b.t, r.call(rollout.ActivityPreflight, rollout.PreflightRequests{Rollouts: rollouts}, &results))
	require.Len(r.b.t, results, len(rollouts))
	return results
}

// split is the number of ready pods of each image, without pods that are being deleted.
func (b *bench) split(name string) map[string]int {
	b.t.Helper()
	out := map[string]int{}
	for _, p := range b.pods(name) {
		if p.DeletionTimestamp == nil && isReady(p) {
			out[p.Spec.Containers[0].Image]++
		}
	}
	return out
}

// reaches waits for a split of ready pods, with no other pod left.
func (b *bench) reaches(name string, want map[string]int) {
	b.t.Helper()
	total := 0
	for _, n := range want {
		total += n
	}
	require.Eventually(b.t, func() bool {
		got := b.split(name)
		for image, n := range want {
			if got[image] != n {
				return false
			}
		}
		return len(b.pods(name)) == total
	}, patience, tick, "the split %v of %s was not reached", want, name)
}

// holds waits until the Deployment's controller has seen the newest spec, and checks that the split is unchanged.
func (b *bench) holds(name string, want map[string]int) {
	b.t.Helper()
	b.reaches(name, want)
	marker := b.touch(name)
	require.Eventually(b.t, func() bool {
		d, err := b.kube.AppsV1().Deployments(b.namespace).Get(b.t.Context(), name, metav1.GetOptions{})
		require.NoError(b.t, err)
		return d.Status.ObservedGeneration >= marker
	}, patience, tick)
	require.Equal(b.t, want, b.split(name))
}

// touch changes the spec in a way that moves no pod, so that the controller processes it again; it returns the
// generation.
func (b *bench) touch(name string) int64 {
	b.t.Helper()
	d, err := b.kube.AppsV1().Deployments(b.namespace).Get(b.t.Context(), name, metav1.GetOptions{})
	require.NoError(b.t, err)
	limit := int32(10)
	if d.Spec.RevisionHistoryLimit != nil {
		limit = *d.Spec.RevisionHistoryLimit
	}
	patch := []byte(`{"spec":{"revisionHistoryLimit":` + intText(limit+1) + `}}`)
	d, err = b.kube.AppsV1().Deployments(b.namespace).Patch(b.t.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	require.NoError(b.t, err)
	generation := d.Generation
	_, err = b.kube.AppsV1().Deployments(b.namespace).Patch(b.t.Context(), name, types.MergePatchType,
		[]byte(`{"spec":{"revisionHistoryLimit":`+intText(limit)+`}}`), metav1.PatchOptions{})
	require.NoError(b.t, err)
	return generation
}

func intText(n int32) string {
	i := intstr.FromInt32(n)
	return i.String()
}

// realWrites counts the patches that the server has accepted so far, without dry runs.
func (b *bench) realWrites() int { return b.traffic.written() }

// requireFinalised checks that a Deployment is unchanged except for its template, that it carries nothing of a rollout,
// and that all pods are of one image.
func (b *bench) requireFinalised(before workloadState, name, image string, size int) {
	b.t.Helper()
	b.reaches(name, map[string]int{image: size})
	after := b.state(observer.Name{Kind: "Deployment", Name: name})
	require.Equal(b.t, strings.ReplaceAll(before.spec, "x:good", image), after.spec,
		"its own settings must be restored")
	for key := range after.annotations {
		require.False(b.t, strings.HasPrefix(key, "slipway.io/"), "annotation %s is left", key)
	}
	require.NotContains(b.t, after.labels, workload.LabelClaimed)
}

// watchFloor records the pods at every change; stop checks that ready pods never were fewer than the floor, nor pods
// more than the ceiling allows.
func (b *bench) watchFloor(name string, floor, ceiling int) (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	list, err := b.kube.CoreV1().Pods(b.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	require.NoError(b.t, err)
	pods := map[string]corev1.Pod{}
	for _, p := range list.Items {
		pods[p.Name] = p
	}
	events, err := b.kube.CoreV1().Pods(b.namespace).Watch(ctx,
		metav1.ListOptions{LabelSelector: "app=" + name, ResourceVersion: list.ResourceVersion})
	require.NoError(b.t, err)
	done, low, high := make(chan struct{}), 1<<30, 0
	var seen []string
	go func() {
		defer close(done)
		for e := range events.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			if pods[p.Name] = *p; e.Type == "DELETED" {
				delete(pods, p.Name)
			}
			ready, alive := 0, 0
			for _, p := range pods {
				if p.DeletionTimestamp == nil {
					alive++
					if isReady(p) {
						ready++
					}
				}
			}
			low, high = min(low, ready), max(high, alive)
			seen = append(seen, fmt.Sprintf("%s %s %s %s ready=%t going=%t: %d ready, %d alive",
				p.ResourceVersion, e.Type, p.Name, p.UID[:8], isReady(*p), p.DeletionTimestamp != nil, ready, alive))
		}
	}()
	return func() {
		b.t.Helper()
		events.Stop()
		cancel()
		<-done
		require.GreaterOrEqual(b.t, low, floor, "fewer pods were ready than its own limits allow:\n%s",
			strings.Join(seen, "\n"))
		// One ReplicaSet creates its pods while another still deletes its own, so that for a moment there is one more
		// of each.
		require.LessOrEqual(b.t, high, ceiling+(ceiling-floor), "more pods were there than its own limits allow:\n%s",
			strings.Join(seen, "\n"))
	}
}

// own sets a Deployment's limits.
func own(unavailable, surge string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		u, s := intstr.Parse(unavailable), intstr.Parse(surge)
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &u, MaxSurge: &s}}
	}
}
