package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
)

// The rate at which a live release and a list are read.
const (
	readers        = 16
	readsPerSecond = 200
)

func TestSoakFewReads(t *testing.T) {
	harness.Soak(t)
	measureReads(t, 60, 10*time.Second)
}

// TestSoakReads has the size for which figures are published.
func TestSoakReads(t *testing.T) {
	harness.Soak(t)
	measureReads(t, 1000, time.Minute)
}

// measureReads makes n rollouts wait, and reads one of them and then the list of all of them, for the given time each.
func measureReads(t *testing.T, n int, long time.Duration) {
	e := harness.Start(t, harness.Options{SeparateWorker: true})
	each(n, func(i int) { e.Deployment(deploymentName(i), 1, nil) })
	waitReleased(t, e, n, ":v1")
	each(n, func(i int) { startWaiting(t, e, deploymentName(i)) })
	require.Eventually(t, func() bool {
		return countWorkflows(e, "SlipwayWaitingFor = 'approval'") == n
	}, 20*time.Minute, time.Second)
	fmt.Printf("\n%d waiting rollouts; each path is read %d times a second from %d connections, for %s\n", n,
		readsPerSecond, readers, long)
	for _, c := range []struct{ what, path string }{
		{"a live rollout", "/api/v1/rollouts/" + e.Apps + "/" + deploymentName(0)},
		{"the list, 100 of them a page", "/api/v1/rollouts"},
		{"24 different lists", "/api/v1/rollouts?limit=%d"},
	} {
		var took durations
		used := measure(t, e, func() { took = readAtRate(t, e, c.path, long) })
		fmt.Printf("  %-30s p50 %6.1f ms, p99 %6.1f ms, longest %6.1f ms   CPU: slipway %.1f s, Temporal %.1f s\n",
			c.what, took.at(50), took.at(99), took.at(100),
			used.slipway(), used.temporal())
	}
	harness.Covered(t, n, "rollouts that are read")
}

// durations is a sorted list.
type durations []time.Duration

// at returns a percentile in milliseconds.
func (d durations) at(percent int) float64 {
	return float64(d[min(len(d)*percent/100, len(d)-1)].Microseconds()) / 1000
}

// readAtRate reads a path at a constant rate, independent of the response times; no read may fail. A response time
// counts from when the request was due.
func readAtRate(t *testing.T, e *harness.Engine, path string, long time.Duration) durations {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: readers, MaxConnsPerHost: readers}}
	due := make(chan time.Time, readsPerSecond)
	var mu sync.Mutex
	var took durations
	var all sync.WaitGroup
	for reader := range readers {
		all.Go(func() {
			for n := 0; ; n++ {
				at, more := <-due
				if !more {
					return
				}
				address := e.URL + path
				if strings.HasSuffix(path, "%d") {
					address = e.URL + fmt.Sprintf(path, 77+(n*readers+reader)%24)
				}
				if err := expectJSON(client, address); err != nil {
					t.Errorf("%s: %v", address, err)
				}
				mu.Lock()
				took = append(took, time.Since(at))
				mu.Unlock()
			}
		})
	}
	ticker := time.NewTicker(time.Second / readsPerSecond)
	defer ticker.Stop()
	for end := time.Now().Add(long); time.Now().Before(end); {
		due <- <-ticker.C
	}
	close(due)
	all.Wait()
	slices.Sort(took)
	return took
}

func expectJSON(client *http.Client, address string) error {
	response, err := client.Get(address)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode == http.StatusOK && json.Valid(body) {
		return err
	}
	return fmt.Errorf("%d: %s", response.StatusCode, body)
}
