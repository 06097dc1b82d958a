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

// story is a made-up timeline: four pods of a Deployment with maxUnavailable 1 and maxSurge 1, a Service and an
// Ingress.
type story struct {
	first   []runtime.Object
	changes []change
	marks   []mark
	version uint64
	// quickFrom is the version from which a change takes a tenth of a second; 0: none.
	quickFrom uint64
}

const size = 4

func newStory() *story {
	s := &story{version: 10}
	one, n := intstr.FromInt32(1), int32(size)
	s.first = append(s.first, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "order"},
		Spec: appsv1.DeploymentSpec{Replicas: &n,
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &one, MaxSurge: &one}}}})
	for _, name := range []string{"s1", "s2", "s3", "s4"} {
		s.first = append(s.first, podOf("order", name, "old", true))
	}
	s.first = append(s.first, service("order", "old"), slice("order", "s1", "s2", "s3", "s4"),
		ingress("order", "order", nil))
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
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "order-" + revision},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
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
	out := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: service + "-1",
		Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
	for _, name := range pods {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: name}})
	}
	return out
}

func ingress(name, service string, annotations map[string]string) *networkingv1.Ingress {
	prefix := networkingv1.PathTypePrefix
	return &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "shop.test",
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix,
					Backend: networkingv1.IngressBackend{
						Service: &networkingv1.IngressServiceBackend{Name: service}}}}}}}}}}
}

func (s *story) put(objects ...runtime.Object) *story {
	for _, obj := range objects {
		s.version++
		s.changes = append(s.changes, change{s.version, watch.Modified, obj})
	}
	return s
}

func (s *story) deleted(objects ...runtime.Object) *story {
	for _, obj := range objects {
		s.version++
		s.changes = append(s.changes, change{s.version, watch.Deleted, obj})
	}
	return s
}

// swap replaces an old pod with a new ready one, within the limits.
func (s *story) swap(old, new string) *story {
	return s.deleted(podOf("order", old, "old", true)).put(podOf("order", new, "new", false),
		podOf("order", new, "new", true))
}

func (s *story) scaled(to int32) *story {
	d, _ := s.first[0].DeepCopyObject().(*appsv1.Deployment)
	d.Spec.Replicas = &to
	return s.put(d)
}

// canary routes a share to the canary Service with these pods as endpoints.
func (s *story) canary(weight string, pods ...string) *story {
	return s.put(service("order-canary", "new"), slice("order-canary", pods...), s.weight(weight))
}

func (s *story) weight(weight string) runtime.Object {
	return ingress("order-canary", "order-canary",
		map[string]string{"nginx.ingress.kubernetes.io/canary": "true",
			"nginx.ingress.kubernetes.io/canary-weight": weight})
}

func (s *story) mark(reach, pausedAt int) *story {
	s.version++
	s.marks = append(s.marks, mark{version: s.version, reach: reach, pausedAt: pausedAt})
	return s
}

// later lets seconds pass.
func (s *story) later(seconds uint64) *story {
	s.version += seconds
	return s
}

// quick lets a tenth of a second pass for each change from here on, in place of a second.
func (s *story) quick() *story {
	s.quickFrom = s.version
	return s
}

// foreign declares that another client changes the workload from here on.
func (s *story) foreign() *story {
	s.mark(4, 0)
	s.marks[len(s.marks)-1].foreign = true
	return s
}

// storyRollout is the rollout of the stories: a quarter of the pods with 20 % of the traffic, half of both, then all.
func storyRollout(style strategy.Style, routed bool) Rollout {
	step := func(replicas string, traffic int32) strategy.Step {
		s := strategy.Step{Replicas: intstr.FromString(replicas)}
		if routed {
			s.Traffic = &traffic
		}
		return s
	}
	r := Rollout{Workload: order, Style: style, Steps: []strategy.Step{step("25%", 20), step("50%", 50),
		step("100%", 100)}}
	if routed {
		r.Routings = []strategy.Routing{{Service: "order",
			Ingress: &strategy.IngressRef{Class: "nginx", Name: "order"}}}
	}
	return r
}

func (s *story) judge(r Rollout) *judge {
	j := newJudge(r, limitsOf(s.first[0]), "old", s.marks)
	seen := map[uint64]time.Time{}
	for _, c := range s.changes {
		seen[c.version] = time.Unix(int64(c.version), 0) // one second per version
		if s.quickFrom > 0 && c.version > s.quickFrom {
			seen[c.version] = time.Unix(int64(s.quickFrom), 0).Add(time.Duration(c.version-s.quickFrom) * time.Second / 10)
		}
	}
	j.judge(s.first, s.changes, seen)
	return j
}

// TestJudge_ReportsBreach_OfEachPromise breaks every promise once, next to the same story without the breach.
func TestJudge_ReportsBreach_OfEachPromise(t *testing.T) {
	t.Parallel()
	extraPod := func(name string) *corev1.Pod { return podOf("order-canary", name, "new", true) }
	partition, routed, blueGreen, extra := storyRollout(strategy.StylePartition, false),
		storyRollout(strategy.StylePartition, true), storyRollout(strategy.StyleBlueGreen, false),
		storyRollout(strategy.StyleCanary, false)
	cases := map[string]struct {
		reason string
		asked  Rollout
		story  *story
		broken string
	}{
		"one unavailable": {"maxUnavailable is one", partition,
			newStory().put(podOf("order", "s1", "old", false)), ""},
		"two unavailable": {"two unavailable pods exceed maxUnavailable", partition,
			newStory().put(podOf("order", "s1", "old", false), podOf("order", "s2", "old", false)), PromiseAvailable},
		"scaled up": {"new pods need a moment after scaling up", partition,
			newStory().scaled(8).put(podOf("order", "s5", "old", true)), ""},
		"scaled up, pods lost": {"scaling up excuses no lost pods", partition,
			newStory().scaled(8).put(podOf("order", "s1", "old", false), podOf("order", "s2", "old", false)),
			PromiseAvailable},
		"one in excess": {"maxSurge is one", partition, newStory().put(podOf("order", "n1", "new", false)),
			""},
		"two in excess": {"the workload's own maxSurge is one", partition,
			newStory().mark(3, 0).put(podOf("order", "n1", "new", false), podOf("order", "n2", "new", false)),
			PromiseSurge},
		"one surplus": {"a pod beyond its ReplicaSet's size is about to be deleted", partition,
			newStory().mark(3, 0).put(podOf("order", "n1", "new", true), replicaSet("old", 3),
				podOf("order", "n2", "new", false)), ""},
		"no surplus": {"the ReplicaSets ask for all five pods and a sixth", partition,
			newStory().mark(3, 0).put(podOf("order", "n1", "new", true), replicaSet("old", 4),
				podOf("order", "n2", "new", false)), PromiseSurge},
		"a third revision": {"the controller's cache may lack its last growth of another ReplicaSet", partition,
			newStory().mark(3, 0).foreign().put(podOf("order", "n1", "new", true), podOf("order", "n2", "newer", false)),
			""},
		"a third revision, two in excess": {"one growth may be missing, not two", partition,
			newStory().mark(3, 0).foreign().put(podOf("order", "n1", "new", true), podOf("order", "n2", "newer", false),
				podOf("order", "n3", "newer", false)), PromiseSurge},
		"two revisions": {"another client excuses no excess by itself", partition,
			newStory().mark(3, 0).foreign().put(podOf("order", "n1", "new", true), podOf("order", "n2", "new", false)),
			PromiseSurge},
		"scaled down": {"deletion of pods needs a moment after scaling down", partition,
			newStory().scaled(1), ""},
		"scaled down during update": {"the native controller may replace pods before it observes the smaller size",
			partition, newStory().foreign().scaled(3).put(podOf("order", "n1", "new", false)), ""},
		"scaled up during update": {"the native controller may replace pods before it observes the larger size",
			partition, newStory().put(podOf("order", "n1", "new", true)).foreign().scaled(5).put(
				podOf("order", "s1", "old", false), podOf("order", "s2", "old", false)), ""},
		"scaled up, seconds later": {"seconds later the larger size holds", partition,
			newStory().put(podOf("order", "n1", "new", true)).foreign().scaled(5).later(3).put(
				podOf("order", "n1", "new", true), podOf("order", "s1", "old", false),
				podOf("order", "s2", "old", false)), PromiseAvailable},
		"scaled down, seconds later": {"seconds later the smaller size holds", partition,
			newStory().foreign().scaled(3).later(3).put(podOf("order", "n1", "new", false),
				podOf("order", "n2", "new", false)), PromiseSurge},
		"replaced": {"a deleted pod does not count as excess", partition,
			newStory().mark(4, 0).swap("s1", "n1").swap("s2", "n2").put(podOf("order", "n3", "new", true)), ""},
		"a batch too large": {"step 1 asks for one new pod", partition,
			newStory().swap("s1", "n1").swap("s2", "n2"), PromiseBatch},
		"the next batch": {"once the test allows step 2, two new pods are right", partition,
			newStory().swap("s1", "n1").mark(2, 0).swap("s2", "n2"), ""},
		"paused":          {"step 1 has exactly one new pod", partition, newStory().swap("s1", "n1").mark(1, 1), ""},
		"paused, too few": {"step 1 lacks its new pod", partition, newStory().mark(1, 1), PromisePaused},
		"paused, not ready": {"the new pod of step 1 is not ready", partition,
			newStory().deleted(podOf("order", "s1", "old", true)).put(podOf("order", "n1", "new", false)).mark(1, 1),
			PromisePaused},
		"paused, pod lost": {"no pod may change while the rollout waits", partition,
			newStory().swap("s1", "n1").mark(1, 1).put(podOf("order", "n1", "new", false)), PromisePaused},
		"deleted": {"the workload is deleted", partition, newStory().deleted(newStory().first[0]),
			PromiseWorkloadExists},

		"pods, then traffic": {"the share is sent after the pod is ready", routed,
			newStory().swap("s1", "n1").canary("20", "n1").mark(1, 1), ""},
		"traffic, then pods": {"the share is sent before the pod is ready", routed,
			newStory().put(podOf("order", "n1", "new", false)).canary("20",
				"n1").put(podOf("order", "n1", "new", true)), PromiseOrder},
		"the next step's share": {"half of the traffic is for two pods", routed,
			newStory().swap("s1", "n1").canary("50", "n1"), PromiseOrder},
		"another share": {"30 % instead of 20 %", routed,
			newStory().swap("s1", "n1").swap("s2", "n2").canary("30", "n1").mark(1, 1), PromiseTraffic},
		"no share": {"no share instead of 20 %", routed,
			newStory().swap("s1", "n1").mark(1, 1), PromiseTraffic},
		"not pinned": {"new pods behind the stable Service get more than requested",
			routed, newStory().swap("s1", "n1").put(service("order", ""),
				slice("order", "n1", "s2", "s3", "s4")).canary("20", "n1").mark(1, 1), PromiseTraffic},
		"no endpoint yet": {"the canary Service has a pod, but no endpoint yet", routed,
			newStory().swap("s1", "n1").canary("20"), PromiseReachable},
		"canary pods deleted": {"endpoints of deleted pods serve no requests", routed,
			newStory().swap("s1", "n1").canary("20", "n1").deleted(podOf("order", "n1", "new", true)),
			PromiseReachable},
		"one stale endpoint": {"one stale endpoint among live ones is normal in a rolling update", routed,
			newStory().deleted(podOf("order", "s1", "old", true)), ""},
		"canary Service deleted": {"a route to a deleted Service", routed,
			newStory().swap("s1", "n1").canary("20", "n1").deleted(service("order-canary", "")), PromiseReachable},
		"foreign pod deletion": {"the route is removed at once", routed,
			newStory().swap("s1", "n1").canary("20",
				"n1").foreign().deleted(podOf("order", "n1", "new", true)).deleted(newStory().weight("20")), ""},
		"foreign Service deletion, recreated": {"a canary Service deleted by another client may be missing until it " +
			"is recreated", routed, newStory().swap("s1", "n1").canary("20",
			"n1").foreign().deleted(service("order-canary", "")).later(9).put(service("order-canary", "new")), ""},
		"foreign Service deletion, not recreated": {"the canary Service must be recreated in time", routed,
			newStory().swap("s1", "n1").canary("20",
				"n1").foreign().deleted(service("order-canary", "")).later(16).put(podOf("order", "n1", "new", true)),
			PromiseReachable},
		"Service recreated without endpoints": {"the endpoints of a recreated Service have the usual time only",
			routed, newStory().swap("s1", "n1").canary("20", "n1").foreign().deleted(service("order-canary", ""),
				slice("order-canary", "n1")).put(service("order-canary", "new")).later(4).put(
				podOf("order", "n1", "new", true)), PromiseReachable},
		"scaled during a write": {"a route write may predate a size change of the same second",
			routed, newStory().swap("s1", "n1").put(service("order-canary", "new"),
				slice("order-canary", "n1")).foreign().scaled(8).put(newStory().weight("20")), ""},
		"endpoints restored": {"a share that reappears with endpoints was routed before", routed,
			newStory().swap("s1", "n1").canary("20",
				"n1").foreign().scaled(8).put(slice("order-canary")).put(slice("order-canary", "n1")), ""},
		"foreign pod deletion during a write": {"a route write may predate the deletion of a pod", routed,
			newStory().swap("s1", "n1").put(service("order-canary", "new"),
				slice("order-canary", "n1")).foreign().deleted(podOf("order", "n1", "new", true)).put(
				newStory().weight("20")).deleted(newStory().weight("20")), ""},
		"foreign pod deletions during a write": {"a template edit removes one pod after the other", routed,
			newStory().mark(2, 0).swap("s1", "n1").swap("s2", "n2").put(service("order-canary", "new"),
				slice("order-canary", "n1", "n2")).foreign().quick().deleted(podOf("order", "n1", "new", true)).put(
				podOf("order", "s5", "old", true)).deleted(podOf("order", "n2", "new", true)).put(
				newStory().weight("50")).deleted(newStory().weight("50")), ""},
		"foreign pod deletion, write seconds later": {"a route write seconds later must respect the deletion", routed,
			newStory().swap("s1", "n1").put(service("order-canary", "new"),
				slice("order-canary", "n1")).foreign().deleted(podOf("order", "n1", "new", true)).later(3).put(
				newStory().weight("20")), PromiseOrder},
		"scaled long before": {"25 % of eight are two", routed,
			newStory().swap("s1", "n1").foreign().scaled(8).later(3).canary("20", "n1"), PromiseOrder},
		"user's route deleted": {"the release cannot recreate a user's route that another client " +
			"deletes", routed, newStory().foreign().deleted(newStory().first[len(newStory().first)-1]), ""},
		"user's Service deleted": {"the release cannot recreate a user's Service", routed,
			newStory().foreign().deleted(newStory().first[5]).later(5).put(podOf("order", "s1", "old", true)), ""},
		"user's route missing": {"without a foreign change the user's route must exist", routed,
			newStory().deleted(newStory().first[len(newStory().first)-1]), PromiseReachable},
		"route not removed": {"routes still lead to deleted pods", routed,
			newStory().swap("s1", "n1").canary("20", "n1").foreign().deleted(podOf("order", "n1", "new", true)),
			PromiseReachable},
		"stable Service stays empty": {"the stable Service must serve despite foreign changes", routed,
			newStory().swap("s1", "n1").canary("20", "n1").foreign().put(slice("order")), PromiseReachable},
		"stable Service empty": {"pinned to a version that has no pods", routed,
			newStory().put(slice("order")), PromiseReachable},

		"blue-green": {"all new pods in addition to all old ones", blueGreen,
			newStory().mark(3, 0).put(podOf("order", "n1", "new", true), podOf("order", "n2", "new", true),
				podOf("order", "n3", "new", true), podOf("order", "n4", "new", true)).mark(3, 3), ""},
		"blue-green too soon": {"step 1 asks for one", blueGreen,
			newStory().put(podOf("order", "n1", "new", true), podOf("order", "n2", "new", true)), PromiseSurge},
		"blue-green, old deleted": {"every old pod stays until the end", blueGreen,
			newStory().swap("s1", "n1").mark(1, 1), PromisePaused},

		"extra workload": {"the new version runs in its own Deployment", extra,
			newStory().put(extraPod("c1")).mark(1, 1), ""},
		"extra workload too much": {"at most one pod is allowed", extra, newStory().put(extraPod("c1"), extraPod("c2")),
			PromiseBatch},
		"stable workload changed": {"the stable Deployment keeps its pods until the end", extra,
			newStory().put(extraPod("c1")).swap("s1", "n1"), PromiseBatch},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := tc.story.judge(tc.asked)
			if tc.broken == "" {
				require.Empty(t, j.broken, "%s\n%s", tc.reason, strings.Join(j.trace, "\n"))
				return
			}
			broken := map[string]bool{}
			for _, b := range j.broken {
				broken[b.Promise] = true
			}
			require.Contains(t, broken, tc.broken, "%s\n%v\n%s", tc.reason, j.broken, strings.Join(j.trace, "\n"))
		})
	}
}

// TestReach_StopsAtStepThatWaits checks how far a rollout goes without approval, by style and pauses.
func TestReach_StopsAtStepThatWaits(t *testing.T) {
	t.Parallel()
	timed := int64(5)
	r := storyRollout(strategy.StylePartition, false)
	require.Equal(t, 1, r.reach(1), "a step without a pause waits for approval")
	require.Equal(t, 4, r.reach(3), "a canary's last step at 100 % passes by itself: it finishes")
	r.Steps[0].PauseSeconds = &timed
	require.Equal(t, 2, r.reach(1), "a timed step needs no approval")
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
		"rounded up":                      {intstr.FromString("21%"), strategy.StylePartition, 10, 3},
		"a number":                        {intstr.FromInt32(3), strategy.StylePartition, 10, 3},
		"a number beyond":                 {intstr.FromInt32(30), strategy.StylePartition, 10, 10},
		"never the last one":              {intstr.FromString("95%"), strategy.StylePartition, 4, 3},
		"all":                             {intstr.FromString("100%"), strategy.StylePartition, 4, 4},
		"the only one":                    {intstr.FromString("10%"), strategy.StylePartition, 1, 1},
		"blue-green is not limited by it": {intstr.FromString("95%"), strategy.StyleBlueGreen, 4, 4},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Rollout{Style: tc.style, Steps: []strategy.Step{{Replicas: tc.replicas}}}
			require.Equal(t, tc.want, r.target(1, tc.size), name)
		})
	}
}

// TestUnreachableService_IsExcused_WhileWorkerRestarts checks that an empty Service is excused while the worker
// restarts, and only then.
func TestUnreachableService_IsExcused_WhileWorkerRestarts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason        string
		killed, empty int64
		broken        bool
	}{
		{"killed while the Service is empty", 2, 8, false},
		{"killed long before", -20, 8, true},
		{"killed, and empty for longer than a restart takes", 2, 14, true},
		{"killed afterwards", 30, 8, true},
	} {
		s := newStory().swap("s1", "n1").canary("20", "n1").foreign().put(slice("order"))
		begun := time.Unix(int64(s.version), 0)
		s.later(uint64(tc.empty)).put(podOf("order", "n1", "new", true))
		j := newJudge(storyRollout(strategy.StylePartition, true), limitsOf(s.first[0]), "old", s.marks)
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
