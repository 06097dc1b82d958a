package bench

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// figures are the results of this run's tests; a test that ran several times (go test -count) has several values.
var figures = struct {
	mu sync.Mutex
	// order is the order in which the figures first appeared.
	order []figure
	by    map[figure][]float64
}{by: map[figure][]float64{}}

// figure names one result of a test.
type figure struct{ test, name string }

// recordFigure adds a measured value.
func recordFigure(t *testing.T, name string, value float64) {
	f := figure{t.Name(), name}
	figures.mu.Lock()
	defer figures.mu.Unlock()
	if figures.by[f] == nil {
		figures.order = append(figures.order, f)
	}
	figures.by[f] = append(figures.by[f], value)
}

// median returns the middle value, or the lower of the two middle values.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}

// TestMain prints the medians if the tests ran more than once. With idleWorker set, the process is the idle worker of a
// test instead.
func TestMain(m *testing.M) {
	if namespace := os.Getenv(idleWorker); namespace != "" {
		if err := runIdleWorker(namespace); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	printMedians()
	os.Exit(code)
}

func printMedians() {
	last := ""
	for _, f := range figures.order {
		values := figures.by[f]
		if len(values) < 2 {
			continue
		}
		if f.test != last {
			fmt.Printf("\n%s, median of %d (least to most)\n", f.test, len(values))
			last = f.test
		}
		fmt.Printf("  %-34s %10.2f  (%.2f to %.2f)\n", f.name, median(values), slices.Min(values), slices.Max(values))
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		is     float64
	}{{[]float64{3}, 3}, {[]float64{3, 1, 2}, 2}, {[]float64{9, 1}, 1}} {
		if got := median(c.values); got != c.is {
			t.Errorf("the median of %v is %v, not %v", c.values, c.is, got)
		}
	}
}
