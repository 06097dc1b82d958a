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
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
)

// killPhase is the operation of a serving during which the worker is killed.
type killPhase string

// The phases, in the order of a lifecycle. A failing update has at most one kill: before or during its rollback.
const (
	duringCreate        killPhase = "create"
	duringUpdate        killPhase = "update"
	duringFailingUpdate killPhase = "failing update"
	duringRollback      killPhase = "rollback"
	duringDelete        killPhase = "delete"
)

// servingKill is one kill of the worker, at a failpoint or at a random time.
type servingKill struct {
	during killPhase
	point  string
	// after is the number of hits of the point before the one that kills.
	after int
	// at is the delay of the kill if there is no point.
	at     time.Duration
	reason string
	// short includes the kill in `make test`; `make test-soak` runs all.
	short bool
}

// servingKills are kills before and after every kind of write in a serving's lifecycle.
var servingKills = []servingKill{
	{during: duringCreate, point: "serving.status.begin.before", reason: "only the workflow of the creation exists"},
	{during: duringCreate, point: "serving.status.begin.after",
		reason: "the repeated operation finds itself as its predecessor and must not wait for itself"},
	{during: duringCreate, point: "serving.Service.create.before", reason: "no object exists yet"},
	{during: duringCreate, point: "serving.Service.create.after",
		reason: "the existing Service belongs to the serving, not to another client"},
	{during: duringCreate, point: "serving.ConfigMap.create.before",
		reason: "a Service exists, the other objects follow"},
	{during: duringCreate, point: "serving.ConfigMap.create.after",
		reason: "the existing ConfigMap belongs to the serving"},
	{during: duringCreate, point: "serving.Deployment.create.before",
		reason: "everything exists except the Deployment"},
	{during: duringCreate, point: "serving.Deployment.create.after",
		reason: "the existing Deployment belongs to the serving and has its claim: no second one is created",
		short:  true},
	{during: duringCreate, point: "serving.Deployment.free.before",
		reason: "the Deployment is complete, and its claim is still released"},
	{during: duringCreate, point: "serving.Deployment.free.after",
		reason: "the claim is released: the repetition claims the Deployment and releases it again"},
	{during: duringCreate, point: "serving.status.note.before",
		reason: "both parties run the version, but the status does not show it"},
	{during: duringCreate, point: "serving.status.note.after", reason: "the same serving version is written again"},

	{during: duringUpdate, point: "serving.status.begin.before",
		reason: "the status is still that of the completed creation"},
	{during: duringUpdate, point: "serving.status.begin.after",
		reason: "the completed creation is not a running predecessor"},
	{during: duringUpdate, point: "serving.Service.update.before", reason: "the Service is of the previous version"},
	{during: duringUpdate, point: "serving.Service.update.after", reason: "the Service is new and the Deployment old"},
	{during: duringUpdate, point: "serving.Service.create.before",
		reason: "a port of the new version has no Service yet"},
	{during: duringUpdate, point: "serving.Service.create.after",
		reason: "the Service exists, but the Deployment does not have the port yet"},
	{during: duringUpdate, point: "serving.ConfigMap.update.before",
		reason: "the files are those of the previous version"},
	{during: duringUpdate, point: "serving.ConfigMap.update.after", reason: "the files are new and the pods old"},
	{during: duringUpdate, point: "serving.Deployment.update.before",
		reason: "one party may be on the new version and the other not yet: the update continues and does not roll back"},
	{during: duringUpdate, point: "serving.Deployment.update.after", reason: "the pods are replaced once, not twice",
		short: true},
	{during: duringUpdate, point: "serving.Service.delete.before", reason: "the Service of a removed port is deleted"},
	{during: duringUpdate, point: "serving.Service.delete.after", reason: "an already deleted object is no error"},
	{during: duringUpdate, point: "serving.Deployment.free.before", reason: "the claim of the update is released"},
	{during: duringUpdate, point: "serving.Deployment.free.after",
		reason: "the claim is taken and released again without new pods"},
	{during: duringUpdate, point: "serving.status.note.before",
		reason: "the status still shows the previous version as the serving one"},
	{during: duringUpdate, point: "serving.status.note.after",
		reason: "the status shows the new version, and keeps it"},

	{during: duringFailingUpdate, point: "serving.status.observe.before",
		reason: "the report of a party is not lost with the worker that received it"},
	{during: duringFailingUpdate, point: "serving.status.observe.after", reason: "a repeated report changes nothing"},
	{during: duringFailingUpdate, point: "serving.Deployment.update.before",
		reason: "an unchanged party has nothing to roll back, but gets the request anyway"},
	{during: duringFailingUpdate, point: "serving.Deployment.update.after",
		reason: "a change without a reported result is rolled back"},
	{during: duringFailingUpdate, point: "serving.ConfigMap.update.after",
		reason: "files that no pod has loaded are rolled back too"},
	{during: duringFailingUpdate, point: "serving.Service.create.after",
		reason: "the rollback deletes a Service whose port the Deployment does not have yet"},

	{during: duringRollback, point: "serving.status.note.before",
		reason: "the status does not show the rollback yet, and the rollback takes place"},
	{during: duringRollback, point: "serving.status.note.after", reason: "the status shows the rollback once"},
	{during: duringRollback, point: "serving.Service.update.before", reason: "no object is rolled back yet"},
	{during: duringRollback, point: "serving.Service.update.after",
		reason: "the Service is rolled back, the Deployment is not"},
	{during: duringRollback, point: "serving.Deployment.update.before",
		reason: "the rollback of the Deployment is pending"},
	{during: duringRollback, point: "serving.Deployment.update.after",
		reason: "the Deployment is rolled back once: the pods do not change a third time", short: true},
	{during: duringRollback, point: "serving.Service.delete.before",
		reason: "the additional Service of the failed version is deleted"},
	{during: duringRollback, point: "serving.Service.delete.after",
		reason: "an already deleted object is no error during the rollback"},
	{during: duringRollback, point: "serving.Deployment.free.before", reason: "the rollback releases its claim"},
	{during: duringRollback, point: "serving.Deployment.free.after",
		reason: "every party is rolled back, only the end is not in the status"},
	{during: duringRollback, point: "serving.status.note.before", after: 1,
		reason: "the status does not show the end yet"},
	{during: duringRollback, point: "serving.status.note.after", after: 1,
		reason: "the status keeps the reason of the rollback"},

	{during: duringDelete, point: "serving.status.begin.before",
		reason: "the finalizer keeps the serving until its deletion has begun"},
	{during: duringDelete, point: "serving.status.begin.after",
		reason: "the deletion has begun, and no second one starts"},
	{during: duringDelete, point: "serving.Service.delete.before", reason: "all objects still exist"},
	{during: duringDelete, point: "serving.Service.delete.after",
		reason: "a Service is deleted, and its party must not create it again"},
	{during: duringDelete, point: "serving.Deployment.delete.before", reason: "the pods still run"},
	{during: duringDelete, point: "serving.Deployment.delete.after",
		reason: "the pods terminate, and the Deployment is not created again"},
	{during: duringDelete, point: "serving.ConfigMap.delete.before", reason: "the last object is deleted too"},
	{during: duringDelete, point: "serving.ConfigMap.delete.after", reason: "everything is deleted except the serving"},
	{during: duringDelete, point: "serving.release.before", reason: "only the finalizer is left"},
	{during: duringDelete, point: "serving.release.after",
		reason: "the serving is deleted: a second removal of the finalizer is no error", short: true},
}

// planLifecycles distributes the kills over as few servings as possible: one kill per phase, and one for a failing
// update with its rollback.
func planLifecycles(kills []servingKill) []map[killPhase]servingKill {
	slot := map[killPhase]killPhase{duringCreate: duringCreate, duringUpdate: duringUpdate,
		duringFailingUpdate: duringFailingUpdate, duringRollback: duringFailingUpdate, duringDelete: duringDelete}
	used := map[killPhase]int{}
	var lives []map[killPhase]servingKill
	for _, k := range kills {
		n := used[slot[k.during]]
		used[slot[k.during]]++
		if n == len(lives) {
			lives = append(lives, map[killPhase]servingKill{})
		}
		lives[n][k.during] = k
	}
	return lives
}

// servingLanes is the number of engines that run lifecycles in parallel: Temporal notices a killed worker after
// seconds, in which the machine would be idle.
const servingLanes = 6

// The worker is killed once before and once after every write of a serving's creation, update, failing update with its
// rollback, and deletion. After the restart the serving continues, with the same result as without the kill.
func TestSoakServing_SurvivesWorkerKill_AtEveryFailpoint(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	testKillsAtFailpoints(t, servingKills)
}

// The short selection of those kills.
func TestServing_SurvivesWorkerKill_AtFailpoints(t *testing.T) {
	t.Parallel()
	testKillsAtFailpoints(t, slices.DeleteFunc(slices.Clone(servingKills), func(k servingKill) bool {
		return !k.short
	}))
}

func testKillsAtFailpoints(t *testing.T, kills []servingKill) {
	t.Helper()
	harness.Covered(t, len(kills), "kills of a worker at failpoints of a serving")
	lives := planLifecycles(kills)
	for lane := range min(servingLanes, len(lives)) {
		t.Run(fmt.Sprintf("Lane%d", lane+1), func(t *testing.T) {
			t.Parallel()
			c := newSupervised(t)
			for n := lane; n < len(lives); n += servingLanes {
				t.Run(fmt.Sprintf("Life%d", n+1), func(t *testing.T) { runLifecycle(t, c, lives[n]) })
			}
			for _, point := range c.passedFailpoints() {
				point = strings.TrimPrefix(point, "killed ")
				if strings.HasPrefix(point, "serving.record.") {
					continue // TestLongServingRecords_AreCompleted_WhenWorkerIsKilled has those
				}
				require.True(t, slices.ContainsFunc(servingKills, func(k servingKill) bool {
					return k.point == point
				}), "no kill covers the failpoint %s", point)
			}
		})
	}
}

// The worker is killed at random times in a serving's lifecycle.
func TestLongServing_SurvivesWorkerKill_AtRandomTimes(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	testKillsAtRandomTimes(t, 1)
}

func TestSoakServing_SurvivesWorkerKill_AtRandomTimes(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	testKillsAtRandomTimes(t, 25)
}

func testKillsAtRandomTimes(t *testing.T, lives int) {
	t.Helper()
	random := harness.Random(t)
	c := newSupervised(t)
	harness.Covered(t, 4*lives, "random kills of a worker during a serving")
	for life := range lives {
		kills := map[killPhase]servingKill{}
		for _, at := range []killPhase{duringCreate, duringUpdate, duringFailingUpdate, duringDelete} {
			kills[at] = servingKill{during: at, at: time.Duration(random.Int64N(int64(4 * time.Second)))}
		}
		t.Run(fmt.Sprintf("Life%d", life+1), func(t *testing.T) { runLifecycle(t, c, kills) })
	}
}

// servingUnderKills is a serving whose worker is killed.
type servingUnderKills struct {
	*twoParties
	c     *supervised
	id    string
	kills map[killPhase]servingKill
	// made returns the UIDs of all Deployments that were ever created in a party.
	made map[string]func() []types.UID
	// revisions are the Deployment revisions of the parties: they count how often the pods were replaced.
	revisions map[string]int64
	served    kuscia.Served
}

// runLifecycle takes a serving through its whole lifecycle.
func runLifecycle(t *testing.T, c *supervised, kills map[killPhase]servingKill) {
	e := c.ForTest(t)
	m := &servingUnderKills{c: c, id: harness.RandomName("mortal"), kills: kills, revisions: map[string]int64{},
		made:       map[string]func() []types.UID{},
		twoParties: &twoParties{Engine: e, t: t, alice: e.Namespace(t, "alice"), bob: e.Namespace(t, "bob")}}
	m.good, m.better = m.imageOfShape("v1", "HTTP", "internal"), m.imageOfShape("v2", "GRPC", "metrics")
	alices, bobs := m.imageOfShape("v3", "HTTP", "internal"), m.imageOfShape("bad", "HTTP", "internal")
	for _, domain := range m.domains() {
		m.made[domain] = deploymentsMade(t, e, domain)
	}

	dead := m.arm(duringCreate)
	m.create(m.id, serving.Policy{})
	dead()
	m.requireEnd("v1", 1, harness.ServingAvailable)

	dead = m.arm(duringUpdate)
	m.update(m.id, m.better, m.better)
	dead()
	m.requireEnd("v2", 1, harness.ServingAvailable)

	m.policy(m.id, serving.Policy{ProgressDeadlineSeconds: 15})
	before := m.served
	dead = m.arm(duringFailingUpdate)
	m.update(m.id, alices, bobs)
	dead()
	m.awaitFailing()
	m.arm(duringRollback)()
	kd := m.requireEnd("v2", 2, func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingDone(kd) && kd.Status.Phase == kuscia.PhaseAvailable &&
			kd.Status.Reason == serving.ReasonUpdateRolledBack
	})
	require.Equal(t, before, m.served, "the serving version stays the same")

	dead = m.arm(duringDelete)
	m.remove(m.id)
	dead()
	m.requireDeleted(kd)
}

func (m *servingUnderKills) domains() []string { return []string{m.alice, m.bob} }

// arm schedules the kill of the phase, if there is one. The returned function waits until the worker is dead; a
// failpoint that is never reached fails the test.
func (m *servingUnderKills) arm(at killPhase) (awaitDeath func()) {
	m.t.Helper()
	k, dies := m.kills[at]
	if !dies {
		return func() {}
	}
	died := m.c.deathCount()
	if k.point == "" {
		m.t.Logf("%s: kill after %s", at, k.at)
		time.AfterFunc(k.at, m.c.killNow)
		return func() {
			m.t.Helper()
			require.Eventually(m.t, func() bool { return m.c.deathCount() > died }, harness.Patience, harness.Tick)
		}
	}
	m.t.Logf("%s: kill at %s (%s)", at, k.point, k.reason)
	killed := m.killsAt(k.point)
	require.NoError(m.t, os.WriteFile(m.c.armFile, fmt.Appendf(nil, `{"name":%q,"after":%d}`, k.point, k.after), 0o600))
	return func() {
		m.t.Helper()
		require.Eventually(m.t, func() bool {
			return m.c.deathCount() > died
		}, harness.Patience, harness.Tick, "during the %s the worker never reached %s: %s", at, k.point, k.reason)
		require.Equal(m.t, killed+1, m.killsAt(k.point), "the worker was killed there, once")
	}
}

func (m *servingUnderKills) killsAt(point string) int {
	raw, err := os.ReadFile(m.c.passedFile)
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(m.t, err)
	return strings.Count(string(raw), "killed "+point+"\n")
}

// awaitFailing waits until alice runs the new version and bob has the failing image: every later write belongs to the
// rollback.
func (m *servingUnderKills) awaitFailing() {
	if _, dies := m.kills[duringRollback]; !dies {
		return
	}
	require.Eventually(m.t, func() bool {
		return m.tag(m.alice, m.id) == "v3" && m.deployment(m.alice,
			m.id).Annotations[workload.AnnotationClaimedBy] == "" && m.tag(m.bob, m.id) == "bad"
	}, harness.Patience, harness.Tick)
}

// requireEnd waits for the end of an operation and requires the parties to be in the same state as without a kill.
// changes is the number of times that the pods were replaced since the previous operation.
func (m *servingUnderKills) requireEnd(tag string, changes int64,
	is func(*kuscia.KusciaDeployment) bool) *kuscia.KusciaDeployment {
	m.t.Helper()
	kd := m.WaitServing(m.id, "the end of an operation", is)
	require.NotNil(m.t, kd.Status.Served)
	m.served = *kd.Status.Served
	version, err := serving.Unpack(m.served.Version)
	require.NoError(m.t, err)
	for _, domain := range m.domains() {
		place, has := version.PartyIndex(domain, m.id)
		require.True(m.t, has)
		objects, err := serving.Render(version, place)
		require.NoError(m.t, err)
		d := m.requireObjects(domain, objects)
		require.Equal(m.t, m.served.Digest, d.Annotations[serving.AnnotationVersion])
		require.Equal(m.t, tag, m.tag(domain, m.id))
		require.NotContains(m.t, d.Annotations, workload.AnnotationClaimedBy, "the claim is released")
		require.NotContains(m.t, d.Labels, workload.LabelClaimed)
		require.Equal(m.t, []types.UID{d.UID}, m.made[domain](),
			"it is the only Deployment that was ever created in %s", domain)
		revision, err := strconv.ParseInt(d.Annotations["deployment.kubernetes.io/revision"], 10, 64)
		require.NoError(m.t, err)
		made := revision - m.revisions[domain]
		m.revisions[domain] = revision
		if domain == m.alice && changes == 2 && made == 0 {
			continue // the update was abandoned before it reached alice
		}
		require.Equal(m.t, changes, made, "the pods of %s are replaced as often as without a crash", domain)
	}
	require.Empty(m.t, kd.Status.PartyDeploymentStatuses[m.alice][m.id].Failure+
		kd.Status.PartyDeploymentStatuses[m.bob][m.id].Failure)
	return kd
}

// requireObjects requires a party to have exactly the objects of its version.
func (m *servingUnderKills) requireObjects(domain string, wanted serving.Objects) *appsv1.Deployment {
	m.t.Helper()
	ctx, options := m.t.Context(), metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentName + "=" + m.id}
	services, err := m.Kube.CoreV1().Services(domain).List(ctx, options)
	require.NoError(m.t, err)
	actual, want := map[string][]corev1.ServicePort{}, map[string][]corev1.ServicePort{}
	for _, s := range services.Items {
		actual[s.Name+" "+s.Annotations["kuscia.secretflow/protocol"]] = s.Spec.Ports
	}
	for _, s := range wanted.Services {
		want[s.Name+" "+s.Annotations["kuscia.secretflow/protocol"]] = s.Spec.Ports
	}
	require.Equal(m.t, want, actual, "the Services of %s", domain)
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
	require.Equal(m.t, wanted.Deployment.Spec.Template.Spec.Containers[0].Image,
		d.Spec.Template.Spec.Containers[0].Image)
	require.Equal(m.t, wanted.Deployment.Spec.Template.Spec.Containers[0].Env, d.Spec.Template.Spec.Containers[0].Env)
	return d
}

// requireDeleted waits until the deletion is complete: of the serving, of all objects in its parties, and of the
// workflow.
func (m *servingUnderKills) requireDeleted(last *kuscia.KusciaDeployment) {
	m.t.Helper()
	require.Eventually(m.t, func() bool { return m.Serving(m.Home, m.id) == nil }, harness.Patience, harness.Tick)
	ctx, cancel := context.WithTimeout(m.t.Context(), harness.Patience)
	defer cancel()
	workflow := fmt.Sprintf("%s%d", serving.WorkflowPrefix(m.id), last.Generation+1)
	require.NoError(m.t, m.Workflows.GetWorkflow(ctx, workflow, "").Get(ctx, nil), "%s ends without an error", workflow)
	for _, domain := range m.domains() {
		require.Zero(m.t, remainingObjects(m.t, m.Engine, domain, m.id))
		require.Len(m.t, m.made[domain](), 1, "no Deployment was created again in %s", domain)
	}
}

// deploymentsMade watches a namespace and returns a function that returns the UIDs of all Deployments seen in it.
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
