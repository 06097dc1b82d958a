package bench

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// figures are what the tests of this run have measured, each as often as it was run (go test -count).
var figures = struct {
	mu sync.Mutex
	// order is that in which tests and figures came first.
	order []figure
	by    map[figure][]float64
}{by: map[figure][]float64{}}

// figure is one figure of a test.
type figure struct{ test, name string }

// noted notes what a test has measured.
func noted(t *testing.T, name string, value float64) {
	f := figure{t.Name(), name}
	figures.mu.Lock()
	defer figures.mu.Unlock()
	if figures.by[f] == nil {
		figures.order = append(figures.order, f)
	}
	figures.by[f] = append(figures.by[f], value)
}

// median is the one in the middle; of an even number the lower one of the two.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}

// TestMain prints the medians when all was measured more than once. A process of this program may be a part of a test instead.
func TestMain(m *testing.M) {
	if namespace := os.Getenv(idleWorker); namespace != "" {
		if err := waitIdle(namespace); err != nil {
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
