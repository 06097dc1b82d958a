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

// Somebody else does things at random moments of a rollout, while its worker is killed at random moments too. The observer judges what the engine can keep:
// never fewer ready pods than the workload's own limits allow, and the stable Service always finds a ready pod. What a neighbour takes away with its own hands
// is no outage of the engine's: a pod that it deletes lowers the floor by one, the canary Service or Ingress that it deletes serves nobody until it is back,
// and nobody here deletes all pods, the stable Service or the workload, or scales to nothing. How many pods are of which version after such a deed, and how
// the traffic is split until somebody has decided, is theirs (RolloutWatch.Neighbour).
var randomDeeds = map[string]func(n *randomNeighbour){
	"minReadySeconds": patches(`{"spec":{"minReadySeconds":null}}`, `{"spec":{"minReadySeconds":0}}`, `{"spec":{"minReadySeconds":1}}`),
	"deadline":        patches(`{"spec":{"progressDeadlineSeconds":700}}`, `{"spec":{"progressDeadlineSeconds":null}}`),
	"limits": patches(`{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":1,"maxSurge":1}}}}`,
		`{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":0,"maxSurge":1}}}}`),
	"history":          patches(`{"spec":{"revisionHistoryLimit":1}}`, `{"spec":{"revisionHistoryLimit":0}}`),
	"paused":           patches(`{"spec":{"paused":true}}`, `{"spec":{"paused":null}}`),
	"scale":            patches(`{"spec":{"replicas":3}}`, `{"spec":{"replicas":5}}`, `{"spec":{"replicas":6}}`),
	"image":            patches(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"registry.test/order:somebody"}]`),
	"claim label":      patches(`{"metadata":{"labels":{"slipway.io/claimed":null}}}`, `{"metadata":{"labels":{"team":"other"}}}`),
	"rollout undo":     undo,
	"rollout pause":    kubectl("rollout", "pause"),
	"rollout resume":   kubectl("rollout", "resume"),
	"rollout restart":  kubectl("rollout", "restart"),
	"pod":              func(n *randomNeighbour) { n.deletePod() },
	"canary Service":   deletes("service", strategy.CanarySuffix),
	"canary Ingress":   deletes("ingress", strategy.CanarySuffix),
	"extra Deployment": deletes("deployment", strategy.CanarySuffix),
	"unpin": func(n *randomNeighbour) {
		n.TryKubectl("-n", n.Apps, "patch", "service", n.rollout.Name, "--type=json", "-p", `[{"op":"replace","path":"/spec/selector","value":{"app":"order"}}]`)
	},
}

// randomNeighbour is somebody else beside one rollout.
type randomNeighbour struct {
	*release
	random *rand.Rand
	// taken says that a pod was deleted: one is enough for a workload of four.
	taken bool
	// template is the stable pod template, which a person has at hand.
	template any
	// undone is when kubectl last undid a rollout: that puts the annotations of an old ReplicaSet in the place of the Deployment's, also behind the release's end.
	undone time.Time
}

func undo(n *randomNeighbour) {
	n.undone = time.Now()
	kubectl("rollout", "undo")(n)
}

func patches(choices ...string) func(n *randomNeighbour) {
	return func(n *randomNeighbour) {
		patch, kind := choices[n.random.IntN(len(choices))], "merge"
		if patch[0] == '[' {
			kind = "json"
		}
		n.TryKubectl("-n", n.Apps, "patch", "deployment", n.rollout.Name, "--type="+kind, "-p", patch)
	}
}

// kubectl may refuse: an undo of a paused Deployment, say.
func kubectl(args ...string) func(n *randomNeighbour) {
	return func(n *randomNeighbour) {
		n.TryKubectl(append(slices.Clone(args), "-n", n.Apps, "deployment/"+n.rollout.Name)...)
	}
}

func deletes(kind, suffix string) func(n *randomNeighbour) {
	return func(n *randomNeighbour) {
		n.TryKubectl("-n", n.Apps, "delete", kind, n.rollout.Name+suffix, "--ignore-not-found", "--wait=false")
	}
}

func (n *randomNeighbour) deletePod() {
	pods, err := n.Kube.CoreV1().Pods(n.Apps).List(context.Background(), metav1.ListOptions{LabelSelector: "app=" + n.rollout.Name})
	if err != nil || len(pods.Items) == 0 || n.taken {
		return
	}
	n.taken = true
	n.watch.PodTaken(n.t)
	_ = n.Kube.CoreV1().Pods(n.Apps).Delete(context.Background(), pods.Items[n.random.IntN(len(pods.Items))].Name, metav1.DeleteOptions{})
}

// 500 of them.
func TestSoakRandomNeighbours(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	randomNeighbours(t, 168)
}

// deedsBeside is how many things somebody else does beside one rollout.
const deedsBeside = 4

func randomNeighbours(t *testing.T, each int) {
	t.Helper()
	for _, place := range styles {
		t.Run(string(place.style), func(t *testing.T) {
			t.Parallel()
			random := harness.Random(t)
			c := newSupervised(t)
			for round := 0; round*deedsBeside < each; round++ {
				t.Run(fmt.Sprint(round+1), func(t *testing.T) { besideRandomNeighbours(t, c, place, random) })
			}
			harness.Covered(t, each, "random neighbours of a rollout")
		})
	}
}

func besideRandomNeighbours(t *testing.T, c *supervised, place cell, random *rand.Rand) {
	t.Helper()
	r := prepare(t, c.Engine, place, func(_ map[string]any, r *harness.Rollout) { r.Policy = map[string]any{"stepDeadlineSeconds": 20} })
	n := &randomNeighbour{release: r, random: random, template: r.written(r.rollout.Kind.GVR, r.rollout.Name, "/spec/template")}
	r.watch.Neighbour(t)
	r.StartRollout(r.rollout)
	done := make(chan struct{})
	moment := time.Duration(random.Int64N(int64(15 * time.Second)))
	t.Logf("the worker is killed after %s", moment)
	kill := time.AfterFunc(moment, func() {
		r.watch.WorkerKilled()
		c.killNow()
	})
	defer kill.Stop()
	names := slices.Sorted(maps.Keys(randomDeeds))
	go func() {
		defer close(done)
		for range deedsBeside {
			name := names[random.IntN(len(names))]
			wait := time.NewTimer(time.Duration(random.Int64N(int64(4 * time.Second))))
			<-wait.C
			t.Logf("%s: %s", time.Now().Format("15:04:05.000"), name)
			randomDeeds[name](n)
		}
	}()
	status, over := n.muddleThrough(done)
	t.Logf("it ended %s: %s", status.Phase, status.Reason)
	r.watch.RequirePromises(t)
	var excused []string
	if !n.undone.Before(over.Add(-time.Second)) {
		excused = []string{"Deployment/" + r.rollout.Name}
	}
	r.watch.RequireNothingOfOurs(t, excused...)
}

// muddleThrough approves what waits and tries again what was disturbed, until the neighbour is done and the rollout is over. What cannot go on is stopped.
func (n *randomNeighbour) muddleThrough(done <-chan struct{}) (end rollout.Status, over time.Time) {
	n.t.Helper()
	r := n.release
	tries, answered, stopped := 0, "", false
	for {
		status := r.WaitRollout(r.rollout.Name, "something to decide, or its end", func(s rollout.Status) bool {
			if s.Phase.Final() || s.WaitingFor == nil {
				return s.Phase.Final()
			}
			kind := s.WaitingFor.Kind
			return (kind == rollout.WaitDrift || kind == rollout.WaitResume || kind == rollout.WaitApproval) && visitOf(s) != answered
		})
		if status.Phase.Final() {
			over = time.Now()
			<-done
			return status, over
		}
		if strings.Contains(status.Reason, "by hand") { // the neighbour has taken the revision that holds the template
			patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template", "value": n.template}})
			require.NoError(n.t, err)
			n.TryKubectl("-n", n.Apps, "patch", "deployment", n.rollout.Name, "--type=json", "-p", string(patch))
		}
		verb, body := "retry", "{}"
		switch {
		case status.WaitingFor.Kind == rollout.WaitApproval:
			verb, body = "approve", fmt.Sprintf(`{"step":%d,"gate":%q}`, status.CurrentStepIndex, status.WaitingFor.Gate)
		case tries > deedsBeside/2 && !stopped: // on its way back it is tried again
			verb, body = "stop", `{"to":"stable"}`
		default:
			tries++
		}
		if verb != "approve" && r.rollout.Strategy.Style == strategy.StyleCanary {
			r.TryKubectl("rollout", "resume", "-n", r.Apps, "deployment/"+r.rollout.Name) // it is not the release's that it is paused
		}
		if r.RolloutVerb(r.rollout.Name, verb, body).Status == http.StatusOK {
			answered, stopped = visitOf(status), stopped || verb == "stop"
		}
		require.Less(r.t, tries, 50)
	}
}

// visitOf tells one wait for a person from others: what fails twice for the same reason waits twice.
func visitOf(s rollout.Status) string {
	return fmt.Sprint(s.WaitingFor.Gate, s.WaitingFor.Kind, s.WaitingFor.Since)
}
