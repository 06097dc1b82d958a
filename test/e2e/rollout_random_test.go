package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// randomActions are things that another client does at random moments of a rollout, while the rollout's worker is
// killed at random moments too. The observer checks what the engine can guarantee: never fewer ready pods than the
// workload's own limits allow, and always a ready pod behind the stable Service. Damage by the client itself does not
// count: a pod that it deletes lowers the floor by one, and a canary Service or Ingress that it deletes serves no pod
// until it is restored. It never deletes all pods, the stable Service or the workload, and never scales to 0. After an
// action, the number of pods of each version and the traffic split until the next decision are attributed to the client
// (RolloutWatch.Neighbour).
var randomActions = map[string]func(n *randomClient){
	"minReadySeconds": patchAction(`{"spec":{"minReadySeconds":null}}`, `{"spec":{"minReadySeconds":0}}`,
		`{"spec":{"minReadySeconds":1}}`),
	"deadline": patchAction(`{"spec":{"progressDeadlineSeconds":700}}`,
		`{"spec":{"progressDeadlineSeconds":null}}`),
	"limits": patchAction(`{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":1,"maxSurge":1}}}}`,
		`{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":0,"maxSurge":1}}}}`),
	"history": patchAction(`{"spec":{"revisionHistoryLimit":1}}`, `{"spec":{"revisionHistoryLimit":0}}`),
	"paused":  patchAction(`{"spec":{"paused":true}}`, `{"spec":{"paused":null}}`),
	"scale":   patchAction(`{"spec":{"replicas":3}}`, `{"spec":{"replicas":5}}`, `{"spec":{"replicas":6}}`),
	"image": patchAction(
		`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"registry.test/order:somebody"}]`),
	"claim label": patchAction(`{"metadata":{"labels":{"slipway.io/claimed":null}}}`,
		`{"metadata":{"labels":{"team":"other"}}}`),
	"rollout undo":     undoAction,
	"rollout pause":    kubectlAction("rollout", "pause"),
	"rollout resume":   kubectlAction("rollout", "resume"),
	"rollout restart":  kubectlAction("rollout", "restart"),
	"pod":              func(n *randomClient) { n.deletePod() },
	"canary Service":   deleteAction("service", strategy.CanarySuffix),
	"canary Ingress":   deleteAction("ingress", strategy.CanarySuffix),
	"extra Deployment": deleteAction("deployment", strategy.CanarySuffix),
	"unpin": func(n *randomClient) {
		n.TryKubectl("-n", n.Apps, "patch", "service", n.rollout.Name, "--type=json", "-p",
			`[{"op":"replace","path":"/spec/selector","value":{"app":"order"}}]`)
	},
}

// randomClient is another client that edits the objects of one rollout.
type randomClient struct {
	*release
	random *rand.Rand
	// podDeleted is true once a pod was deleted: one is enough for a workload of four.
	podDeleted bool
	// template is the stable pod template, which an operator would have at hand.
	template any
	// undoneAt is the time of the last `kubectl rollout undo`, which replaces the Deployment's annotations by those of
	// an old ReplicaSet, even after the release has ended.
	undoneAt time.Time
}

func undoAction(n *randomClient) {
	n.undoneAt = time.Now()
	kubectlAction("rollout", "undo")(n)
}

func patchAction(choices ...string) func(n *randomClient) {
	return func(n *randomClient) {
		patch, kind := choices[n.random.IntN(len(choices))], "merge"
		if patch[0] == '[' {
			kind = "json"
		}
		n.TryKubectl("-n", n.Apps, "patch", "deployment", n.rollout.Name, "--type="+kind, "-p", patch)
	}
}

// kubectlAction runs a kubectl command that may be refused, for example an undo of a paused Deployment.
func kubectlAction(args ...string) func(n *randomClient) {
	return func(n *randomClient) {
		n.TryKubectl(append(slices.Clone(args), "-n", n.Apps, "deployment/"+n.rollout.Name)...)
	}
}

func deleteAction(kind, suffix string) func(n *randomClient) {
	return func(n *randomClient) {
		n.TryKubectl("-n", n.Apps, "delete", kind, n.rollout.Name+suffix, "--ignore-not-found", "--wait=false")
	}
}

func (n *randomClient) deletePod() {
	pods, err := n.Kube.CoreV1().Pods(n.Apps).List(context.Background(),
		metav1.ListOptions{LabelSelector: "app=" + n.rollout.Name})
	if err != nil || len(pods.Items) == 0 || n.podDeleted {
		return
	}
	n.podDeleted = true
	n.watch.ForeignPodDeletion(n.t)
	_ = n.Kube.CoreV1().Pods(n.Apps).Delete(context.Background(), pods.Items[n.random.IntN(len(pods.Items))].Name,
		metav1.DeleteOptions{})
}

// About 500 actions: 168 for each style.
func TestSoakRolloutKeepsPromises_WithRandomClientActions(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	runRandomClients(t, 168)
}

// actionsPerRollout is the number of actions of the other client during one rollout.
const actionsPerRollout = 4

func runRandomClients(t *testing.T, each int) {
	t.Helper()
	for _, place := range styles {
		t.Run(string(place.style), func(t *testing.T) {
			t.Parallel()
			random := harness.Random(t)
			c := newSupervised(t)
			for round := 0; round*actionsPerRollout < each; round++ {
				t.Run(fmt.Sprint(round+1), func(t *testing.T) { runWithRandomClient(t, c, place, random) })
			}
			harness.Covered(t, each, "random actions by another client during a rollout")
		})
	}
}

func runWithRandomClient(t *testing.T, c *supervised, place cell, random *rand.Rand) {
	t.Helper()
	r := prepare(t, c.Engine, place, func(_ map[string]any, r *harness.Rollout) {
		r.Policy = map[string]any{"stepDeadlineSeconds": 20}
	})
	n := &randomClient{release: r, random: random,
		template: r.readValue(r.rollout.Kind.GVR, r.rollout.Name, "/spec/template")}
	r.watch.ForeignChanges(t)
	r.StartRollout(r.rollout)
	done := make(chan struct{})
	moment := time.Duration(random.Int64N(int64(15 * time.Second)))
	t.Logf("the worker is killed after %s", moment)
	kill := time.AfterFunc(moment, func() {
		r.watch.WorkerKilled()
		c.killNow()
	})
	defer kill.Stop()
	names := slices.Sorted(maps.Keys(randomActions))
	go func() {
		defer close(done)
		for range actionsPerRollout {
			name := names[random.IntN(len(names))]
			wait := time.NewTimer(time.Duration(random.Int64N(int64(4 * time.Second))))
			<-wait.C
			t.Logf("%s: %s", time.Now().Format("15:04:05.000"), name)
			randomActions[name](n)
		}
	}()
	status, over := n.resolveUntilDone(done)
	t.Logf("it ended %s: %s", status.Phase, status.Reason)
	r.watch.RequirePromises(t)
	var excused []string
	if !n.undoneAt.Before(over.Add(-time.Second)) {
		excused = []string{"Deployment/" + r.rollout.Name}
	}
	r.watch.RequireNoLeftovers(t, excused...)
}

// resolveUntilDone approves waiting steps and retries after disturbances until the client is done and the rollout has
// ended. It stops a rollout that cannot continue.
func (n *randomClient) resolveUntilDone(done <-chan struct{}) (end rollout.Status, over time.Time) {
	n.t.Helper()
	r := n.release
	tries, answered, stopped := 0, "", false
	for {
		ended := func(s rollout.Status) bool { return s.Phase.Final() || s.FinishedAt != nil } // Failed: it never began
		status := r.WaitRollout(r.rollout.Name, "something to decide, or its end", func(s rollout.Status) bool {
			if ended(s) || s.WaitingFor == nil {
				return ended(s)
			}
			kind := s.WaitingFor.Kind
			return (kind == rollout.WaitDrift || kind == rollout.WaitResume || kind == rollout.WaitApproval) &&
				waitID(s) != answered
		})
		if ended(status) {
			over = time.Now()
			<-done
			return status, over
		}
		if strings.Contains(status.Reason, "by hand") { // the client deleted the revision with the template
			patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template",
				"value": n.template}})
			require.NoError(n.t, err)
			n.TryKubectl("-n", n.Apps, "patch", "deployment", n.rollout.Name, "--type=json", "-p", string(patch))
		}
		verb, body := "retry", "{}"
		switch {
		case status.WaitingFor.Kind == rollout.WaitApproval:
			verb, body = "approve", fmt.Sprintf(`{"step":%d,"gate":%q}`, status.CurrentStepIndex,
				status.WaitingFor.Gate)
		case tries > actionsPerRollout/2 && !stopped: // a failing rollback is retried
			verb, body = "stop", `{"to":"stable"}`
		default:
			tries++
		}
		if verb != "approve" && r.rollout.Strategy.Style == strategy.StyleCanary {
			// the pause is the client's, not the release's
			r.TryKubectl("rollout", "resume", "-n", r.Apps, "deployment/"+r.rollout.Name)
		}
		if r.RolloutVerb(r.rollout.Name, verb, body).Status == http.StatusOK {
			answered, stopped = waitID(status), stopped || verb == "stop"
		}
		require.Less(r.t, tries, 50)
	}
}

// waitID identifies one wait for a user: a second failure for the same reason is another wait.
func waitID(s rollout.Status) string {
	return fmt.Sprint(s.WaitingFor.Gate, s.WaitingFor.Kind, s.WaitingFor.Since)
}
