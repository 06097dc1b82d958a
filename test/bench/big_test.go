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

// otherObjects are the objects in a cluster in addition to what is released: Deployments, of which sized have a pod,
// servings of two parties, and records of ended releases.
type otherObjects struct{ deployments, sized, servings, records int }

const (
	// recordsPerName is the number of records of one name.
	recordsPerName = 50
	// otherNamespaces is the number of namespaces over which the Deployments are spread.
	otherNamespaces = 10
	// servingsPerBatch is the number of servings that are created at once.
	servingsPerBatch = 100
	// sequentialRollouts is the number of rollouts that are measured, one after the other.
	sequentialRollouts = 15
	// A process that has just started reads all objects. It is quiet when it uses less than quietCPU seconds of CPU
	// within quietFor. The measurement waits at most maxQuietWindows times quietFor for that.
	quietFor        = 10 * time.Second
	quietCPU        = 1.0
	maxQuietWindows = 30
)

func TestSoakFewBigCluster(t *testing.T) {
	harness.Soak(t)
	measureBigCluster(t, otherObjects{deployments: 100, sized: 10, servings: 5, records: 500})
}

// TestSoakBigCluster has the size for which figures are published.
func TestSoakBigCluster(t *testing.T) {
	harness.Soak(t)
	measureBigCluster(t, otherObjects{deployments: 10_000, sized: 200, servings: 1_000, records: 50_000})
}

// measureBigCluster measures releases in a nearly empty cluster, and then in one with many other objects.
func measureBigCluster(t *testing.T, c otherObjects) {
	o := harness.Options{SeparateWorker: true}
	e := harness.Start(t, o)
	for i := range sequentialRollouts {
		e.Deployment(deploymentName(i), rolloutPods, nil)
	}
	waitReleased(t, e, sequentialRollouts, ":v1")
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
	idle, settled := waitQuiet(t, e)
	plainFull := plainOneByOne(t, e, ":v2b")
	var full durations
	before = requestsServed(t, e)
	busy := measure(t, e, func() { full = oneByOne(t, e, ":v3") })
	served := requestsServed(t, e).since(before)
	list := measureList(t, e)

	fmt.Printf("\n%d Deployments (%d of them with a pod), %d servings, %d records\n", c.deployments, c.sized,
		c.servings, c.records)
	fmt.Printf("  a plain rolling update alone, median of %d: %.0f ms in an empty cluster, %.0f ms in this one, "+
		"ratio %.2f\n", sequentialRollouts, plainEmpty.at(50), plainFull.at(50),
		plainFull.at(50)/plainEmpty.at(50))
	fmt.Printf("  a rollout alone, median of %d: %.0f ms in an empty cluster, %.0f ms in this one, ratio %.2f\n",
		sequentialRollouts, empty.at(50), full.at(50), full.at(50)/empty.at(50))
	printServed(sequentialRollouts, emptyServed, served)
	fmt.Printf("  from start to ready: %.1f s\n", ready.Seconds())
	fmt.Printf("  quiet after another %.0f s: CPU of slipway until then %.1f s, of which the server %.1f s\n",
		settled.Seconds(), idle.slipway(), idle.by[slipwayParts[0]])
	fmt.Printf("  the list of rollouts: p50 %.0f ms, longest %.0f ms\n", list.at(50), list.at(100))
	fmt.Printf("  peak memory when idle: server %d MiB, worker %d MiB; during rollouts: server %d MiB, worker %d "+
		"MiB\n\n", idle.serverRSS>>20, idle.workerRSS>>20,
		busy.serverRSS>>20, busy.workerRSS>>20)
	harness.Covered(t, c.deployments+c.servings+c.records, "objects in addition to what is released")
}

// waitQuiet waits until the processes are quiet. It returns what they used until then and the time that it took.
func waitQuiet(t *testing.T, e *harness.Engine) (used usage, settled time.Duration) {
	used.by = map[string]float64{}
	for range maxQuietWindows {
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
	for i := range sequentialRollouts {
		from := time.Now()
		startRollout(t, e, deploymentName(i), tag, 0)
		e.WaitPhase(deploymentName(i), rollout.PhaseHealthy)
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	return took
}

// plainOneByOne updates the Deployments without a release, one after the other, which measures the cluster itself.
func plainOneByOne(t *testing.T, e *harness.Engine, tag string) durations {
	var took durations
	for i := range sequentialRollouts {
		from := time.Now()
		setImage(t, e, deploymentName(i), tag)
		waitReleasedFrom(t, e, 1, i, tag)
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	return took
}

// measureList reads the list once a second. At that interval no answer comes from a cache.
func measureList(t *testing.T, e *harness.Engine) durations {
	var took durations
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for range 10 {
		from := time.Now()
		require.NoError(t, expectJSON(http.DefaultClient, e.URL+"/api/v1/rollouts"))
		took = append(took, time.Since(from))
		<-again.C
	}
	slices.Sort(took)
	return took
}

// fill creates the objects, the servings first and in batches: an API server on two cores that already has everything
// else in memory spends its time on garbage collection.
func (c otherObjects) fill(t *testing.T, e *harness.Engine) {
	parties, image := []string{e.Namespace(t, "alice"), e.Namespace(t, "bob")}, servingImage(t, e)
	for made := 0; made < c.servings; {
		made = min(made+servingsPerBatch, c.servings)
		createServings(t, e, parties, image, made)
	}
	spread := spreadOver(t, e, 1+otherNamespaces)[1:] // the first holds what is released
	each(c.deployments, func(i int) {
		size := int32(0)
		if i < c.sized {
			size = 1
		}
		spread[i%len(spread)].Deployment("idle-"+strconv.Itoa(i), size, func(d *appsv1.Deployment) {
			d.Spec.RevisionHistoryLimit = new(int32)
		})
	})
	c.fillRecords(t, e)
}

// fillRecords copies the record of an ended rollout.
func (c otherObjects) fillRecords(t *testing.T, e *harness.Engine) {
	records, err := store.New(e.REST, e.Home, e.Home)
	require.NoError(t, err)
	found, err := records.FindRecords(t.Context(), map[string]string{v1alpha1.LabelKind: v1alpha1.KindRollout})
	require.NoError(t, err)
	require.NotEmpty(t, found)
	model, err := records.GetRelease(t.Context(), found[0].Name)
	require.NoError(t, err)
	require.NotNil(t, model.Outcome)
	each(c.records, func(i int) {
		name, revision := "past-"+strconv.Itoa(i/recordsPerName), int64(i%recordsPerName+1)
		record := model.DeepCopy()
		record.ObjectMeta = metav1.ObjectMeta{Name: v1alpha1.RecordName(v1alpha1.KindRollout,
			name+"-"+strconv.FormatInt(revision, 10)), Labels: record.Labels}
		for label, value := range store.RolloutLabels(catalog.DefaultParty, e.Apps, name) {
			record.Labels[label] = value
		}
		record.Labels[v1alpha1.LabelRevision] = strconv.FormatInt(revision, 10)
		record.Spec.Subject = v1alpha1.RolloutSubject(catalog.DefaultParty, e.Apps, name)
		record.Spec.WorkflowID = rollout.WorkflowID("", e.Apps, name)
		require.NoError(t, records.CreateRecord(context.Background(), record))
	})
}
