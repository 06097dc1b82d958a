package observer

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"slipway.io/slipway/release/rollout/strategy"
)

// story is a made-up timeline: four pods of a Deployment that lets one be out and one be in excess, a Service, an Ingress.
type story struct {
	first   []runtime.Object
	changes []change
	marks   []mark
	version uint64
}

const size = 4

func newStory() *story {
	s := &story{version: 10}
	one, n := intstr.FromInt32(1), int32(size)
	s.first = append(s.first, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "order"}, Spec: appsv1.DeploymentSpec{Replicas: &n,
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &one, MaxSurge: &one}}}})
	for _, name := range []string{"s1", "s2", "s3", "s4"} {
		s.first = append(s.first, podOf("order", name, "old", true))
	}
	s.first = append(s.first, service("order", "old"), slice("order", "s1", "s2", "s3", "s4"), ingress("order", "order", nil))
	return s
}

func podOf(deployment, name, revision string, isReady bool) *corev1.Pod {
	p := pod(name, isReady, false)
	p.Labels = map[string]string{"app": "order", "pod-template-hash": revision}
	p.OwnerReferences[0].Name = deployment + "-" + revision
	p.UID = types.UID(name)
	return p
}

func replicaSet(revision string, replicas int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "order-" + revision}, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
}

func service(name, revision string) *corev1.Service {
	selector := map[string]string{"app": "order"}
	if revision != "" {
		selector["pod-template-hash"] = revision
	}
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Selector: selector}}
}

func slice(service string, pods ...string) *discoveryv1.EndpointSlice {
	yes := true
	out := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
	for _, name := range pods {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: name}})
	}
	return out
}

func ingress(name, service string, annotations map[string]string) *networkingv1.Ingress {
	prefix := networkingv1.PathTypePrefix
	return &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "shop.test", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service}}}}}}}}}}
}

func (s *story) put(objects ...runtime.Object) *story {
	for _, obj := range objects {
		s.version++
		s.changes = append(s.changes, change{s.version, watch.Modified, obj})
	}
	return s
}

func (s *story) gone(objects ...runtime.Object) *story {
	for _, obj := range objects {
		s.version++
		s.changes = append(s.changes, change{s.version, watch.Deleted, obj})
	}
	return s
}

// swap replaces an old pod by a new one that is ready, within the limits.
func (s *story) swap(old, new string) *story {
	return s.gone(podOf("order", old, "old", true)).put(podOf("order", new, "new", false), podOf("order", new, "new", true))
}

func (s *story) scaled(to int32) *story {
	d, _ := s.first[0].DeepCopyObject().(*appsv1.Deployment)
	d.Spec.Replicas = &to
	return s.put(d)
}

// canary routes a share to the canary Service, whose endpoints are these pods.
func (s *story) canary(weight string, pods ...string) *story {
	return s.put(service("order-canary", "new"), slice("order-canary", pods...), s.weight(weight))
}

func (s *story) weight(weight string) runtime.Object {
	return ingress("order-canary", "order-canary", map[string]string{"nginx.ingress.kubernetes.io/canary": "true", "nginx.ingress.kubernetes.io/canary-weight": weight})
}

func (s *story) mark(reach, resting int) *story {
	s.version++
	s.marks = append(s.marks, mark{version: s.version, reach: reach, resting: resting})
	return s
}

// later lets seconds go by.
func (s *story) later(seconds uint64) *story {
	s.version += seconds
	return s
}

// theirs has somebody else change the workload from here on.
func (s *story) theirs() *story {
	s.mark(4, 0)
	s.marks[len(s.marks)-1].foreign = true
	return s
}

// asked is the rollout of the stories: a quarter of the pods with 20 % of the traffic, half of both, then all.
func asked(style strategy.Style, routed bool) Rollout {
	step := func(replicas string, traffic int32) strategy.Step {
		s := strategy.Step{Replicas: intstr.FromString(replicas)}
		if routed {
			s.Traffic = &traffic
		}
		return s
	}
	r := Rollout{Workload: order, Style: style, Steps: []strategy.Step{step("25%", 20), step("50%", 50), step("100%", 100)}}
	if routed {
		r.Routings = []strategy.Routing{{Service: "order", Ingress: &strategy.IngressRef{Class: "nginx", Name: "order"}}}
	}
	return r
}

func (s *story) judge(r Rollout) *judge {
	j := newJudge(r, limitsOf(s.first[0]), "old", s.marks)
	seen := map[uint64]time.Time{}
	for _, c := range s.changes {
		seen[c.version] = time.Unix(int64(c.version), 0) // a second each, long ago
	}
	j.judge(s.first, s.changes, seen)
	return j
}

// Every promise is broken once on purpose, beside the same story without the breach.
func TestThePromisesGoRed(t *testing.T) {
	t.Parallel()
	extraPod := func(name string) *corev1.Pod { return podOf("order-canary", name, "new", true) }
	partition, routed, blueGreen, extra := asked(strategy.StylePartition, false), asked(strategy.StylePartition, true), asked(strategy.StyleBlueGreen, false), asked(strategy.StyleCanary, false)
	cases := map[string]struct {
		reason string
		asked  Rollout
		story  *story
		broken string
	}{
		"one out":          {"one pod may be out", partition, newStory().put(podOf("order", "s1", "old", false)), ""},
		"two out":          {"two pods out at once are one too many", partition, newStory().put(podOf("order", "s1", "old", false), podOf("order", "s2", "old", false)), PromiseAvailable},
		"not counted up":   {"a workload that was scaled up needs a moment", partition, newStory().scaled(8).put(podOf("order", "s5", "old", true)), ""},
		"fallen meanwhile": {"while it grows it loses nothing", partition, newStory().scaled(8).put(podOf("order", "s1", "old", false), podOf("order", "s2", "old", false)), PromiseAvailable},
		"one in excess":    {"one pod may be in excess", partition, newStory().put(podOf("order", "n1", "new", false)), ""},
		"two in excess":    {"the workload's own surge is one", partition, newStory().mark(3, 0).put(podOf("order", "n1", "new", false), podOf("order", "n2", "new", false)), PromiseSurge},
		"one dismissed":    {"a pod that its ReplicaSet asks for no longer is on its way out", partition, newStory().mark(3, 0).put(podOf("order", "n1", "new", true), replicaSet("old", 3), podOf("order", "n2", "new", false)), ""},
		"none dismissed":   {"all five are asked for, and a sixth", partition, newStory().mark(3, 0).put(podOf("order", "n1", "new", true), replicaSet("old", 4), podOf("order", "n2", "new", false)), PromiseSurge},
		"scaled down":      {"a workload that was scaled down needs a moment", partition, newStory().scaled(1), ""},
		"fewer and newer":  {"the native controller exchanges pods before it has heard of the smaller size", partition, newStory().theirs().scaled(3).put(podOf("order", "n1", "new", false)), ""},
		"more and newer":   {"nor of the larger one", partition, newStory().put(podOf("order", "n1", "new", true)).theirs().scaled(5).put(podOf("order", "s1", "old", false), podOf("order", "s2", "old", false)), ""},
		"more for long":    {"which it goes by seconds later", partition, newStory().put(podOf("order", "n1", "new", true)).theirs().scaled(5).later(3).put(podOf("order", "n1", "new", true), podOf("order", "s1", "old", false), podOf("order", "s2", "old", false)), PromiseAvailable},
		"fewer for long":   {"it has heard of it seconds later", partition, newStory().theirs().scaled(3).later(3).put(podOf("order", "n1", "new", false), podOf("order", "n2", "new", false)), PromiseSurge},
		"leaving":          {"a pod on its way out is not in excess", partition, newStory().mark(4, 0).swap("s1", "n1").swap("s2", "n2").put(podOf("order", "n3", "new", true)), ""},
		"a batch too large": {"step 1 asks for one new pod", partition,
			newStory().swap("s1", "n1").swap("s2", "n2"), PromiseBatch},
		"the next batch":  {"once the test lets it go on, two are right", partition, newStory().swap("s1", "n1").mark(2, 0).swap("s2", "n2"), ""},
		"at rest":         {"exactly one new pod", partition, newStory().swap("s1", "n1").mark(1, 1), ""},
		"too few at rest": {"a rest without its pod", partition, newStory().mark(1, 1), PromiseRest},
		"not ready": {"a rest whose new pod is not ready", partition,
			newStory().gone(podOf("order", "s1", "old", true)).put(podOf("order", "n1", "new", false)).mark(1, 1), PromiseRest},
		"stirs at rest": {"nothing moves while it rests", partition, newStory().swap("s1", "n1").mark(1, 1).put(podOf("order", "n1", "new", false)), PromiseRest},
		"deleted":       {"somebody deletes the workload", partition, newStory().gone(newStory().first[0]), PromiseWhole},

		"pods, then traffic":         {"the share comes when the pod is there", routed, newStory().swap("s1", "n1").canary("20", "n1").mark(1, 1), ""},
		"traffic, then pods":         {"a share before its pod", routed, newStory().put(podOf("order", "n1", "new", false)).canary("20", "n1").put(podOf("order", "n1", "new", true)), PromiseOrder},
		"the next step's":            {"half of the traffic is for two pods", routed, newStory().swap("s1", "n1").canary("50", "n1"), PromiseOrder},
		"another share":              {"30 % where 20 % were asked", routed, newStory().swap("s1", "n1").swap("s2", "n2").canary("30", "n1").mark(1, 1), PromiseTraffic},
		"no share":                   {"none where 20 % were asked", routed, newStory().swap("s1", "n1").mark(1, 1), PromiseTraffic},
		"not pinned":                 {"new pods behind the stable Service get more than asked", routed, newStory().swap("s1", "n1").put(service("order", ""), slice("order", "n1", "s2", "s3", "s4")).canary("20", "n1").mark(1, 1), PromiseTraffic},
		"no endpoint yet":            {"the canary Service has a pod, and its endpoints do not know it", routed, newStory().swap("s1", "n1").canary("20"), PromiseNowhere},
		"the pods of it gone":        {"endpoints that are left behind are nobody", routed, newStory().swap("s1", "n1").canary("20", "n1").gone(podOf("order", "n1", "new", true)), PromiseNowhere},
		"one endpoint behind":        {"one endpoint that is left behind among living ones is the way of every rolling update", routed, newStory().gone(podOf("order", "s1", "old", true)), ""},
		"the canary Service gone":    {"a route to a Service that was removed", routed, newStory().swap("s1", "n1").canary("20", "n1").gone(service("order-canary", "")), PromiseNowhere},
		"somebody else's deed":       {"routes follow the pods at once", routed, newStory().swap("s1", "n1").canary("20", "n1").theirs().gone(podOf("order", "n1", "new", true)).gone(newStory().weight("20")), ""},
		"theirs, and made again":     {"the canary Service that they delete serves nobody until it is there again", routed, newStory().swap("s1", "n1").canary("20", "n1").theirs().gone(service("order-canary", "")).later(9).put(service("order-canary", "new")), ""},
		"theirs, and never again":    {"but not without end", routed, newStory().swap("s1", "n1").canary("20", "n1").theirs().gone(service("order-canary", "")).later(16).put(podOf("order", "n1", "new", true)), PromiseNowhere},
		"made again for nobody":      {"once it is there its endpoints have no longer than others", routed, newStory().swap("s1", "n1").canary("20", "n1").theirs().gone(service("order-canary", ""), slice("order-canary", "n1")).put(service("order-canary", "new")).later(4).put(podOf("order", "n1", "new", true)), PromiseNowhere},
		"scaled beside a write":      {"routes that are being written need not know of a size that came this second", routed, newStory().swap("s1", "n1").put(service("order-canary", "new"), slice("order-canary", "n1")).theirs().scaled(8).put(newStory().weight("20")), ""},
		"endpoints that are back":    {"a share that comes with endpoints was routed before", routed, newStory().swap("s1", "n1").canary("20", "n1").theirs().scaled(8).put(slice("order-canary")).put(slice("order-canary", "n1")), ""},
		"their pod, our write":       {"a write on its way cannot know that the pod has just gone", routed, newStory().swap("s1", "n1").put(service("order-canary", "new"), slice("order-canary", "n1")).theirs().gone(podOf("order", "n1", "new", true)).put(newStory().weight("20")).gone(newStory().weight("20")), ""},
		"our write, long after":      {"seconds later it has to know", routed, newStory().swap("s1", "n1").put(service("order-canary", "new"), slice("order-canary", "n1")).theirs().gone(podOf("order", "n1", "new", true)).later(3).put(newStory().weight("20")), PromiseOrder},
		"scaled long before":         {"25 % of eight are two", routed, newStory().swap("s1", "n1").theirs().scaled(8).later(3).canary("20", "n1"), PromiseOrder},
		"their own route deleted":    {"a route of the user's that somebody else deletes routes nothing", routed, newStory().theirs().gone(newStory().first[len(newStory().first)-1]), ""},
		"their own Service deleted":  {"nor does a Service of theirs serve", routed, newStory().theirs().gone(newStory().first[5]).later(5).put(podOf("order", "s1", "old", true)), ""},
		"our promise of their route": {"while nobody else acts it is there", routed, newStory().gone(newStory().first[len(newStory().first)-1]), PromiseNowhere},
		"nobody follows":             {"routes stay where the pods are gone", routed, newStory().swap("s1", "n1").canary("20", "n1").theirs().gone(podOf("order", "n1", "new", true)), PromiseNowhere},
		"the stable one stays empty": {"the stable Service serves whatever they do", routed, newStory().swap("s1", "n1").canary("20", "n1").theirs().put(slice("order")), PromiseNowhere},
		"the stable Service empty":   {"pinned to a version that has no pods", routed, newStory().put(slice("order")), PromiseNowhere},

		"blue-green":           {"all new pods beside all old ones", blueGreen, newStory().mark(3, 0).put(podOf("order", "n1", "new", true), podOf("order", "n2", "new", true), podOf("order", "n3", "new", true), podOf("order", "n4", "new", true)).mark(3, 3), ""},
		"blue-green too soon":  {"step 1 asks for one", blueGreen, newStory().put(podOf("order", "n1", "new", true), podOf("order", "n2", "new", true)), PromiseSurge},
		"blue-green, old gone": {"every old pod stays until the end", blueGreen, newStory().swap("s1", "n1").mark(1, 1), PromiseRest},

		"extra workload":          {"the new version in a Deployment of its own", extra, newStory().put(extraPod("c1")).mark(1, 1), ""},
		"extra workload too much": {"one is asked for", extra, newStory().put(extraPod("c1"), extraPod("c2")), PromiseBatch},
		"stable one touched":      {"the stable Deployment keeps its pods until the end", extra, newStory().put(extraPod("c1")).swap("s1", "n1"), PromiseBatch},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := tc.story.judge(tc.asked)
			if tc.broken == "" {
				require.Empty(t, j.broken, "%s\n%s", tc.reason, strings.Join(j.drawn, "\n"))
				return
			}
			broken := map[string]bool{}
			for _, b := range j.broken {
				broken[b.Promise] = true
			}
			require.Contains(t, broken, tc.broken, "%s\n%v\n%s", tc.reason, j.broken, strings.Join(j.drawn, "\n"))
		})
	}
}

// A blue-green, an extra workload's end and a jump reach as far as their pauses let them.
func TestReach(t *testing.T) {
	t.Parallel()
	timed := int64(5)
	r := asked(strategy.StylePartition, false)
	require.Equal(t, 1, r.reach(1), "a step without a pause waits for a person")
	require.Equal(t, 4, r.reach(3), "a canary's last step at 100 % passes by itself: it finishes")
	r.Steps[0].PauseSeconds = &timed
	require.Equal(t, 2, r.reach(1), "a timer needs nobody")
	r.Style = strategy.StyleBlueGreen
	require.Equal(t, 3, r.reach(3), "a blue-green's last step always waits")
}

func TestTarget(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		replicas intstr.IntOrString
		style    strategy.Style
		size     int32
		want     int32
	}{
		"rounded up":                       {intstr.FromString("21%"), strategy.StylePartition, 10, 3},
		"a number":                         {intstr.FromInt32(3), strategy.StylePartition, 10, 3},
		"a number beyond":                  {intstr.FromInt32(30), strategy.StylePartition, 10, 10},
		"never the last one":               {intstr.FromString("95%"), strategy.StylePartition, 4, 3},
		"all":                              {intstr.FromString("100%"), strategy.StylePartition, 4, 4},
		"the only one":                     {intstr.FromString("10%"), strategy.StylePartition, 1, 1},
		"blue-green takes nothing from it": {intstr.FromString("95%"), strategy.StyleBlueGreen, 4, 4},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Rollout{Style: tc.style, Steps: []strategy.Step{{Replicas: tc.replicas}}}
			require.Equal(t, tc.want, r.target(1, tc.size), name)
		})
	}
}

// While no worker runs nobody unpins. Whoever is back does it within the time of any other.
func TestAKilledWorkerIsAway(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason        string
		killed, empty int64
		broken        bool
	}{
		{"killed while the Service is empty", 2, 8, false},
		{"killed long before", -20, 8, true},
		{"killed, and empty for longer than it takes to be back", 2, 14, true},
		{"killed afterwards", 30, 8, true},
	} {
		s := newStory().swap("s1", "n1").canary("20", "n1").theirs().put(slice("order"))
		begun := time.Unix(int64(s.version), 0)
		s.later(uint64(tc.empty)).put(podOf("order", "n1", "new", true))
		j := newJudge(asked(strategy.StylePartition, true), limitsOf(s.first[0]), "old", s.marks)
		j.kills = []time.Time{begun.Add(time.Duration(tc.killed) * time.Second)}
		seen := map[uint64]time.Time{}
		for _, c := range s.changes {
			seen[c.version] = time.Unix(int64(c.version), 0)
		}
		s.put(slice("order", "s2", "s3", "s4"))
		seen[s.version] = time.Unix(int64(s.version), 0)
		j.judge(s.first, s.changes, seen)
		require.Equal(t, tc.broken, len(j.broken) > 0, "%s: %v", tc.reason, j.broken)
	}
}
