package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/test/harness"
)

// moment is when in a serving's life the worker dies.
type moment string

// The moments, in the order of a life. A failing update has one death: on its way out or on its way back.
const (
	inCreate moment = "create"
	inUpdate moment = "update"
	inFail   moment = "failing update"
	inBack   moment = "way back"
	inDelete moment = "delete"
)

// servingKill is a death of the worker at a failpoint.
type servingKill struct {
	during moment
	point  string
	// after is how many hits of the point are let pass. Without a point the worker dies at a time of its own.
	after  int
	at     time.Duration
	reason string
	// short takes it into `make test`; `make test-soak` has all.
	short bool
}

// servingKills are the deaths before and after every kind of write of a serving's life.
var servingKills = []servingKill{
	{during: inCreate, point: "serving.status.begin.before", reason: "nothing is known of the creation but its workflow"},
	{during: inCreate, point: "serving.status.begin.after", reason: "it is its own predecessor when it begins again, and must not wait for itself"},
	{during: inCreate, point: "serving.Service.create.before", reason: "nothing is there yet"},
	{during: inCreate, point: "serving.Service.create.after", reason: "the Service that is there is its own, not somebody else's"},
	{during: inCreate, point: "serving.ConfigMap.create.before", reason: "a Service is there, and the rest follows"},
	{during: inCreate, point: "serving.ConfigMap.create.after", reason: "the ConfigMap that is there is its own"},
	{during: inCreate, point: "serving.Deployment.create.before", reason: "everything is there but what runs"},
	{during: inCreate, point: "serving.Deployment.create.after", reason: "the Deployment that is there is its own, claimed by itself: no second one", short: true},
	{during: inCreate, point: "serving.Deployment.free.before", reason: "the Deployment is whole, and its claim is not forgotten"},
	{during: inCreate, point: "serving.Deployment.free.after", reason: "it is free: to work on it once more claims it and gives it free again"},
	{during: inCreate, point: "serving.status.note.before", reason: "both parties run it and nobody knows"},
	{during: inCreate, point: "serving.status.note.after", reason: "the version that serves is written once more, the same"},

	{during: inUpdate, point: "serving.status.begin.before", reason: "the status is still that of the creation, done"},
	{during: inUpdate, point: "serving.status.begin.after", reason: "the creation is no predecessor that is under way"},
	{during: inUpdate, point: "serving.Service.update.before", reason: "the Service is of the version of before"},
	{during: inUpdate, point: "serving.Service.update.after", reason: "the Service is new and the Deployment old"},
	{during: inUpdate, point: "serving.Service.create.before", reason: "a port of the new version has no Service yet"},
	{during: inUpdate, point: "serving.Service.create.after", reason: "and has one, beside a Deployment that does not name it yet"},
	{during: inUpdate, point: "serving.ConfigMap.update.before", reason: "the files are those of before"},
	{during: inUpdate, point: "serving.ConfigMap.update.after", reason: "the files are new and the pods old"},
	{during: inUpdate, point: "serving.Deployment.update.before", reason: "one party may be on the new version and the other not yet: it goes on, not back"},
	{during: inUpdate, point: "serving.Deployment.update.after", reason: "its pods are replaced once, not twice", short: true},
	{during: inUpdate, point: "serving.Service.delete.before", reason: "the Service of a port that is no more is not left behind"},
	{during: inUpdate, point: "serving.Service.delete.after", reason: "what is gone already is no error"},
	{during: inUpdate, point: "serving.Deployment.free.before", reason: "the claim of an update is given back"},
	{during: inUpdate, point: "serving.Deployment.free.after", reason: "and taken and given back without new pods"},
	{during: inUpdate, point: "serving.status.note.before", reason: "the version of before is still written as the one that serves"},
	{during: inUpdate, point: "serving.status.note.after", reason: "the new version is, and stays"},

	{during: inFail, point: "serving.status.observe.before", reason: "what a party has seen is not lost with the worker that was told"},
	{during: inFail, point: "serving.status.observe.after", reason: "what is seen twice is the same"},
	{during: inFail, point: "serving.Deployment.update.before", reason: "who was not changed has nothing to take back, and is told to all the same"},
	{during: inFail, point: "serving.Deployment.update.after", reason: "a change that nobody answered for is taken back"},
	{during: inFail, point: "serving.ConfigMap.update.after", reason: "files that no pod has are taken back too"},
	{during: inFail, point: "serving.Service.create.after", reason: "a Service that no Deployment names yet is removed on the way back"},

	{during: inBack, point: "serving.status.note.before", reason: "that it goes back is not said yet, and it goes back"},
	{during: inBack, point: "serving.status.note.after", reason: "that it goes back is said once"},
	{during: inBack, point: "serving.Service.update.before", reason: "nothing is taken back yet"},
	{during: inBack, point: "serving.Service.update.after", reason: "the Service is back and the Deployment is not"},
	{during: inBack, point: "serving.Deployment.update.before", reason: "a way back is owed"},
	{during: inBack, point: "serving.Deployment.update.after", reason: "it is gone once: no third change of the pods", short: true},
	{during: inBack, point: "serving.Service.delete.before", reason: "what the failed version had besides is not left behind"},
	{during: inBack, point: "serving.Service.delete.after", reason: "what is gone already is no error on the way back"},
	{during: inBack, point: "serving.Deployment.free.before", reason: "the way back gives its claim back"},
	{during: inBack, point: "serving.Deployment.free.after", reason: "everybody is back, and only the end is not written"},
	{during: inBack, point: "serving.status.note.before", after: 1, reason: "that it is over is not written yet"},
	{during: inBack, point: "serving.status.note.after", after: 1, reason: "why it went back stays in the status"},

	{during: inDelete, point: "serving.status.begin.before", reason: "the finalizer holds the serving until its removal has begun"},
	{during: inDelete, point: "serving.status.begin.after", reason: "the removal has begun, and nobody begins another"},
	{during: inDelete, point: "serving.Service.delete.before", reason: "everything is still there"},
	{during: inDelete, point: "serving.Service.delete.after", reason: "a Service is gone, and its party must not have it made anew"},
	{during: inDelete, point: "serving.Deployment.delete.before", reason: "the pods still run"},
	{during: inDelete, point: "serving.Deployment.delete.after", reason: "the pods go, and nothing of the Deployment comes back"},
	{during: inDelete, point: "serving.ConfigMap.delete.before", reason: "the last object is not left behind"},
	{during: inDelete, point: "serving.ConfigMap.delete.after", reason: "everything is gone but the serving"},
	{during: inDelete, point: "serving.release.before", reason: "the finalizer is all that is left"},
	{during: inDelete, point: "serving.release.after", reason: "the serving is gone: to let it go again is no error", short: true},
}

// crashedLives spread the deaths over as few servings as there must be: each moment of a life has one at most.
func crashedLives(kills []servingKill) []map[moment]servingKill {
	slot := map[moment]moment{inCreate: inCreate, inUpdate: inUpdate, inFail: inFail, inBack: inFail, inDelete: inDelete}
	used := map[moment]int{}
	var lives []map[moment]servingKill
	for _, k := range kills {
		n := used[slot[k.during]]
		used[slot[k.during]]++
		if n == len(lives) {
			lives = append(lives, map[moment]servingKill{})
		}
		lives[n][k.during] = k
	}
	return lives
}

// servingLanes is how many engines share the lives: a death is noticed after seconds, in which the machine has nothing to do.
const servingLanes = 6

// The worker dies before and after every write of a serving's creation, of an update, of an update that fails and goes back, and of its deletion, each
// time once, and comes back: the serving goes its way as if nothing had been.
func TestSoakServingWorkerKilledAtEveryFailpoint(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	dieInLives(t, servingKills)
}

// A handful of those deaths.
func TestServingWorkerKilledAtFailpoints(t *testing.T) {
	t.Parallel()
	dieInLives(t, slices.DeleteFunc(slices.Clone(servingKills), func(k servingKill) bool { return !k.short }))
}

func dieInLives(t *testing.T, kills []servingKill) {
	t.Helper()
	harness.Covered(t, len(kills), "kills of a worker at failpoints of a serving")
	lives := crashedLives(kills)
	for lane := range min(servingLanes, len(lives)) {
		t.Run(fmt.Sprintf("Lane%d", lane+1), func(t *testing.T) {
			t.Parallel()
			c := newSupervised(t)
			for n := lane; n < len(lives); n += servingLanes {
				t.Run(fmt.Sprintf("Life%d", n+1), func(t *testing.T) { liveThrough(t, c, lives[n]) })
			}
			for _, point := range c.points() {
				point = strings.TrimPrefix(point, "killed ")
				if strings.HasPrefix(point, "serving.record.") {
					continue // TestServingRecordsOutliveCrashes has those
				}
				require.True(t, slices.ContainsFunc(servingKills, func(k servingKill) bool { return k.point == point }), "the worker is killed at %s as well", point)
			}
		})
	}
}

// The worker dies at random moments of a serving's life.
func TestLongServingWorkerKilledAtRandom(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	killDuringLives(t, 1)
}

func TestSoakServingWorkerKilledAtRandom(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	killDuringLives(t, 25)
}

func killDuringLives(t *testing.T, lives int) {
	t.Helper()
	random := harness.Random(t)
	c := newSupervised(t)
	harness.Covered(t, 4*lives, "random kills of a worker during a serving")
	for life := range lives {
		kills := map[moment]servingKill{}
		for _, at := range []moment{inCreate, inUpdate, inFail, inDelete} {
			kills[at] = servingKill{during: at, at: time.Duration(random.Int64N(int64(4 * time.Second)))}
		}
		t.Run(fmt.Sprintf("Life%d", life+1), func(t *testing.T) { liveThrough(t, c, kills) })
	}
}

// mortal is a serving whose worker dies.
type mortal struct {
	*union
	c     *supervised
	id    string
	kills map[moment]servingKill
	// made are the Deployments that were ever made in a party.
	made map[string]func() []types.UID
	// revisions count how often the pods of the parties were replaced.
	revisions map[string]int64
	served    kuscia.Served
}

// liveThrough takes a serving through its whole life.
func liveThrough(t *testing.T, c *supervised, kills map[moment]servingKill) {
	e := c.For(t)
	m := &mortal{c: c, id: harness.RandomName("mortal"), kills: kills, revisions: map[string]int64{}, made: map[string]func() []types.UID{},
		union: &union{Engine: e, t: t, alice: e.Namespace(t, "alice"), bob: e.Namespace(t, "bob")}}
	m.good, m.better = m.shaped("v1", "HTTP", "internal"), m.shaped("v2", "GRPC", "metrics")
	alices, bobs := m.shaped("v3", "HTTP", "internal"), m.shaped("bad", "HTTP", "internal")
	for _, domain := range m.domains() {
		m.made[domain] = deploymentsMade(t, e, domain)
	}

	dead := m.arm(inCreate)
	m.create(m.id, serving.Policy{})
	dead()
	m.requireEnd("v1", 1, harness.ServingAvailable)

	dead = m.arm(inUpdate)
	m.update(m.id, m.better, m.better)
	dead()
	m.requireEnd("v2", 1, harness.ServingAvailable)
	if kills[inCreate].point == "serving.Deployment.create.after" {
		m.Record(serving.WorkflowPrefix(m.id)+"1", "serving-created-after-a-death")
	}

	m.policy(m.id, serving.Policy{ProgressDeadlineSeconds: 15})
	before := m.served
	dead = m.arm(inFail)
	m.update(m.id, alices, bobs)
	dead()
	m.awaitFailing()
	m.arm(inBack)()
	kd := m.requireEnd("v2", 2, func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingDone(kd) && kd.Status.Phase == kuscia.PhaseAvailable && kd.Status.Reason == serving.ReasonUpdateRolledBack
	})
	require.Equal(t, before, m.served, "the version that serves is not lost")

	dead = m.arm(inDelete)
	m.remove(m.id)
	dead()
	m.requireGone(kd)
}

func (m *mortal) domains() []string { return []string{m.alice, m.bob} }

// arm has the worker die if that is due at this moment; the answer waits until it is dead. A failpoint that is never reached fails the test.
func (m *mortal) arm(at moment) (awaitDeath func()) {
	m.t.Helper()
	k, dies := m.kills[at]
	if !dies {
		return func() {}
	}
	died := m.c.dead()
	if k.point == "" {
		m.t.Logf("%s: kill after %s", at, k.at)
		time.AfterFunc(k.at, m.c.killNow)
		return func() {
			m.t.Helper()
			require.Eventually(m.t, func() bool { return m.c.dead() > died }, harness.Patience, harness.Tick)
		}
	}
	m.t.Logf("%s: kill at %s (%s)", at, k.point, k.reason)
	killed := m.killsAt(k.point)
	require.NoError(m.t, os.WriteFile(m.c.arm, fmt.Appendf(nil, `{"name":%q,"after":%d}`, k.point, k.after), 0o600))
	return func() {
		m.t.Helper()
		require.Eventually(m.t, func() bool { return m.c.dead() > died }, harness.Patience, harness.Tick, "during the %s the worker never came by %s: %s", at, k.point, k.reason)
		require.Equal(m.t, killed+1, m.killsAt(k.point), "it died there, and once")
	}
}

func (m *mortal) killsAt(point string) int {
	raw, err := os.ReadFile(m.c.log)
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(m.t, err)
	return strings.Count(string(raw), "killed "+point+"\n")
}

// awaitFailing waits until alice runs the version that is to fail, and bob's pods do not come up: what is written from then on is written on the way back.
func (m *mortal) awaitFailing() {
	if _, dies := m.kills[inBack]; !dies {
		return
	}
	require.Eventually(m.t, func() bool {
		return m.tag(m.alice, m.id) == "v3" && m.deployment(m.alice, m.id).Annotations[workloadops.AnnotationClaimedBy] == "" && m.tag(m.bob, m.id) == "bad"
	}, harness.Patience, harness.Tick)
}

// requireEnd waits for the end of an operation and wants the parties to be as if no worker had died. changes is how often pods were
// replaced since the operation before.
func (m *mortal) requireEnd(tag string, changes int64, is func(*kuscia.KusciaDeployment) bool) *kuscia.KusciaDeployment {
	m.t.Helper()
	kd := m.WaitServing(m.id, "the end of an operation", is)
	require.NotNil(m.t, kd.Status.Served)
	m.served = *kd.Status.Served
	version, err := serving.Unpack(m.served.Version)
	require.NoError(m.t, err)
	for _, domain := range m.domains() {
		place, has := version.Place(domain, m.id)
		require.True(m.t, has)
		objects, err := serving.Render(version, place)
		require.NoError(m.t, err)
		d := m.requireObjects(domain, objects)
		require.Equal(m.t, m.served.Digest, d.Annotations[serving.AnnotationVersion])
		require.Equal(m.t, tag, m.tag(domain, m.id))
		require.NotContains(m.t, d.Annotations, workloadops.AnnotationClaimedBy, "nobody holds it any more")
		require.NotContains(m.t, d.Labels, workloadops.LabelClaimed)
		require.Equal(m.t, []types.UID{d.UID}, m.made[domain](), "it is the only Deployment that was ever made in %s", domain)
		revision, err := strconv.ParseInt(d.Annotations["deployment.kubernetes.io/revision"], 10, 64)
		require.NoError(m.t, err)
		made := revision - m.revisions[domain]
		m.revisions[domain] = revision
		if domain == m.alice && changes == 2 && made == 0 {
			continue // the update was given up before it came to alice
		}
		require.Equal(m.t, changes, made, "the pods of %s are replaced as often as without a crash", domain)
	}
	require.Empty(m.t, kd.Status.PartyDeploymentStatuses[m.alice][m.id].Failure+kd.Status.PartyDeploymentStatuses[m.bob][m.id].Failure)
	return kd
}

// requireObjects wants a party to have the objects of its version, and no others.
func (m *mortal) requireObjects(domain string, wanted serving.Objects) *appsv1.Deployment {
	m.t.Helper()
	ctx, options := m.t.Context(), metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentName + "=" + m.id}
	services, err := m.Kube.CoreV1().Services(domain).List(ctx, options)
	require.NoError(m.t, err)
	is, asked := map[string][]corev1.ServicePort{}, map[string][]corev1.ServicePort{}
	for _, s := range services.Items {
		is[s.Name+" "+s.Annotations["kuscia.secretflow/protocol"]] = s.Spec.Ports
	}
	for _, s := range wanted.Services {
		asked[s.Name+" "+s.Annotations["kuscia.secretflow/protocol"]] = s.Spec.Ports
	}
	require.Equal(m.t, asked, is, "the Services of %s", domain)
	configMaps, err := m.Kube.CoreV1().ConfigMaps(domain).List(ctx, options)
	require.NoError(m.t, err)
	require.Len(m.t, configMaps.Items, 1)
	require.Equal(m.t, wanted.ConfigMap.Name, configMaps.Items[0].Name)
	require.Equal(m.t, wanted.ConfigMap.Data, configMaps.Items[0].Data, "the files of %s", domain)
	deployments, err := m.Kube.AppsV1().Deployments(domain).List(ctx, options)
	require.NoError(m.t, err)
	require.Len(m.t, deployments.Items, 1)
	d := &deployments.Items[0]
	require.Equal(m.t, wanted.Deployment.Spec.Template.Annotations, d.Spec.Template.Annotations)
	require.Equal(m.t, wanted.Deployment.Spec.Template.Spec.Containers[0].Image, d.Spec.Template.Spec.Containers[0].Image)
	require.Equal(m.t, wanted.Deployment.Spec.Template.Spec.Containers[0].Env, d.Spec.Template.Spec.Containers[0].Env)
	return d
}

// requireGone waits for the end of a deletion: of the serving, which its finalizer would keep, of everything in its parties, and of the workflow.
func (m *mortal) requireGone(last *kuscia.KusciaDeployment) {
	m.t.Helper()
	require.Eventually(m.t, func() bool { return m.Serving(m.Home, m.id) == nil }, harness.Patience, harness.Tick)
	ctx, cancel := context.WithTimeout(m.t.Context(), harness.Patience)
	defer cancel()
	workflow := fmt.Sprintf("%s%d", serving.WorkflowPrefix(m.id), last.Generation+1)
	require.NoError(m.t, m.Workflows.GetWorkflow(ctx, workflow, "").Get(ctx, nil), "%s ends well", workflow)
	for _, domain := range m.domains() {
		require.Zero(m.t, leftOf(m.t, m.Engine, domain, m.id))
		require.Len(m.t, m.made[domain](), 1, "nothing came back in %s", domain)
	}
}

// deploymentsMade counts the Deployments that are ever made in a namespace.
func deploymentsMade(t *testing.T, e *harness.Engine, namespace string) func() []types.UID {
	t.Helper()
	watch, err := e.Kube.AppsV1().Deployments(namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	t.Cleanup(watch.Stop)
	var mu sync.Mutex
	made := map[types.UID]bool{}
	go func() {
		for event := range watch.ResultChan() {
			if d, is := event.Object.(*appsv1.Deployment); is {
				mu.Lock()
				made[d.UID] = true
				mu.Unlock()
			}
		}
	}()
	return func() []types.UID {
		mu.Lock()
		defer mu.Unlock()
		return slices.Collect(maps.Keys(made))
	}
}
