package bench

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

// crowd is what stands in a cluster beside what is released: Deployments, of which sized have a pod, servings of two parties, and records of releases that are over.
type crowd struct{ deployments, sized, servings, records int }

const (
	// revisions is how many records there are of a name.
	revisions = 50
	// crowdNamespaces is how many namespaces the Deployments stand in.
	crowdNamespaces = 10
	// servingsAtOnce is how many servings are created at once.
	servingsAtOnce = 100
	// alone is how many rollouts are measured, one after the other.
	alone = 15
	// A process that has just started looks at all there is. It is quiet when it uses less than quietCPU of CPU, in seconds, within quietFor; it is waited for at
	// most mostWindows times that.
	quietFor    = 10 * time.Second
	quietCPU    = 1.0
	mostWindows = 30
)

func TestSoakFewBigCluster(t *testing.T) {
	harness.Soak(t)
	measureCrowd(t, crowd{deployments: 100, sized: 10, servings: 5, records: 500})
}

// The size that the figures are told for.
func TestSoakBigCluster(t *testing.T) {
	harness.Soak(t)
	measureCrowd(t, crowd{deployments: 10_000, sized: 200, servings: 1_000, records: 50_000})
}

// measureCrowd releases in a cluster that is nearly empty, and in one with a crowd.
func measureCrowd(t *testing.T, c crowd) {
	o := harness.Options{Apart: true}
	e := harness.Start(t, o)
	for i := range alone {
		e.Deployment(deploymentName(i), rolloutPods, nil)
	}
	waitReleased(t, e, alone, ":v1")
	plainEmpty := plainOneByOne(t, e, ":v1b")
	before := requestsServed(t, e)
	empty := oneByOne(t, e, ":v2")
	emptyServed := requestsServed(t, e).since(before)
	c.fill(t, e)

	for _, p := range slices.Backward(e.Processes) {
		require.NoError(t, p.Stop())
	}
	started := time.Now()
	e.Processes = []*harness.Process{e.Server(o), e.Worker(o)}
	e.WaitReady()
	ready := time.Since(started)
	rests, settled := untilQuiet(t, e)
	plainFull := plainOneByOne(t, e, ":v2b")
	var full durations
	before = requestsServed(t, e)
	busy := measure(t, e, func() { full = oneByOne(t, e, ":v3") })
	served := requestsServed(t, e).since(before)
	list := measureList(t, e)

	fmt.Printf("\n%d Deployments (%d of them with a pod), %d servings, %d records\n", c.deployments, c.sized, c.servings, c.records)
	fmt.Printf("  a plain rolling update alone, median of %d: %.0f ms in an empty cluster, %.0f ms in this one, ratio %.2f\n", alone, plainEmpty.at(50), plainFull.at(50),
		plainFull.at(50)/plainEmpty.at(50))
	fmt.Printf("  a rollout alone, median of %d: %.0f ms in an empty cluster, %.0f ms in this one, ratio %.2f\n", alone, empty.at(50), full.at(50), full.at(50)/empty.at(50))
	printServed(alone, emptyServed, served)
	fmt.Printf("  from start to ready: %.1f s\n", ready.Seconds())
	fmt.Printf("  quiet after another %.0f s: CPU of slipway until then %.1f s, of which the server %.1f s\n", settled.Seconds(), rests.slipway(), rests.by[oursParts[0]])
	fmt.Printf("  the list of rollouts: p50 %.0f ms, longest %.0f ms\n", list.at(50), list.at(100))
	fmt.Printf("  peak memory at rest: server %d MiB, worker %d MiB; while rollouts go: server %d MiB, worker %d MiB\n\n", rests.serverRSS>>20, rests.workerRSS>>20,
		busy.serverRSS>>20, busy.workerRSS>>20)
	harness.Covered(t, c.deployments+c.servings+c.records, "objects beside what is released")
}

// untilQuiet returns what the processes have used until they were quiet, and when that was.
func untilQuiet(t *testing.T, e *harness.Engine) (used usage, settled time.Duration) {
	used.by = map[string]float64{}
	for range mostWindows {
		timer := time.NewTimer(quietFor)
		window := measure(t, e, func() { <-timer.C })
		for part, seconds := range window.by {
			used.by[part] += seconds
		}
		used.serverRSS, used.workerRSS = max(used.serverRSS, window.serverRSS), max(used.workerRSS, window.workerRSS)
		if window.slipway() < quietCPU {
			return used, settled
		}
		settled += quietFor
	}
	return used, settled
}

// oneByOne rolls the Deployments out one after the other.
func oneByOne(t *testing.T, e *harness.Engine, tag string) durations {
	var took durations
	for i := range alone {
		from := time.Now()
		startRollout(t, e, deploymentName(i), tag, 0)
		e.WaitPhase(deploymentName(i), rollout.PhaseHealthy)
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	return took
}

// plainOneByOne updates the Deployments without a release, one after the other: how fast the cluster itself is.
func plainOneByOne(t *testing.T, e *harness.Engine, tag string) durations {
	var took durations
	for i := range alone {
		from := time.Now()
		setImage(t, e, deploymentName(i), tag)
		waitSome(t, e, 1, i, tag)
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	return took
}

// measureList reads the list once a second: each answer is read anew.
func measureList(t *testing.T, e *harness.Engine) durations {
	var took durations
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for range 10 {
		from := time.Now()
		require.NoError(t, answered(http.DefaultClient, e.URL+"/api/v1/rollouts"))
		took = append(took, time.Since(from))
		<-again.C
	}
	slices.Sort(took)
	return took
}

// fill makes the crowd, the servings first and some at a time: an API server of two cores that has everything else in memory already spends its time on collecting
// garbage.
func (c crowd) fill(t *testing.T, e *harness.Engine) {
	parties, image := []string{e.Namespace(t, "alice"), e.Namespace(t, "bob")}, servingImage(t, e)
	for made := 0; made < c.servings; {
		made = min(made+servingsAtOnce, c.servings)
		createServings(t, e, parties, image, made)
	}
	spread := spreadOver(t, e, 1+crowdNamespaces)[1:] // beside what is released
	each(c.deployments, func(i int) {
		size := int32(0)
		if i < c.sized {
			size = 1
		}
		spread[i%len(spread)].Deployment("idle-"+strconv.Itoa(i), size, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = new(int32) })
	})
	c.fillRecords(t, e)
}

// fillRecords copies the record of a rollout that is over.
func (c crowd) fillRecords(t *testing.T, e *harness.Engine) {
	records, err := store.New(e.REST, e.Home, e.Home)
	require.NoError(t, err)
	found, err := records.FindRecords(t.Context(), map[string]string{v1alpha1.LabelKind: v1alpha1.KindRollout})
	require.NoError(t, err)
	require.NotEmpty(t, found)
	model, err := records.GetRelease(t.Context(), found[0].Name)
	require.NoError(t, err)
	require.NotNil(t, model.Outcome)
	each(c.records, func(i int) {
		name, revision := "past-"+strconv.Itoa(i/revisions), int64(i%revisions+1)
		record := model.DeepCopy()
		record.ObjectMeta = metav1.ObjectMeta{Name: v1alpha1.RecordName(v1alpha1.KindRollout, name+"-"+strconv.FormatInt(revision, 10)), Labels: record.Labels}
		for label, value := range store.RolloutLabels(catalog.DefaultParty, e.Apps, name) {
			record.Labels[label] = value
		}
		record.Labels[v1alpha1.LabelRevision] = strconv.FormatInt(revision, 10)
		record.Spec.Subject = v1alpha1.RolloutSubject(catalog.DefaultParty, e.Apps, name)
		record.Spec.WorkflowID = rollout.WorkflowID("", e.Apps, name)
		require.NoError(t, records.CreateRecord(context.Background(), record))
	})
}
