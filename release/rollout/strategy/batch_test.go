package strategy

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

func TestTarget(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason   string
		replicas intstr.IntOrString
		size     int32
		want     int32
	}{
		{"a share is rounded up", part("5%"), 10, 1},
		{"a share that comes out even is exact", part("7%"), 100, 7},
		{"a share below all leaves the last stable pod", part("99%"), 10, 9},
		{"half of three is two", part("50%"), 3, 2},
		{"the only pod is taken", part("1%"), 1, 1},
		{"all is all", part("100%"), 3, 3},
		{"a number is itself", pods(3), 10, 3},
		{"a number may take all pods", pods(10), 10, 10},
		{"no more pods than there are", pods(11), 10, 10},
		{"a workload without pods", part("100%"), 0, 0},
		{"a workload without pods", pods(5), 0, 0},
		{"the largest size does not overflow", part("100%"), math.MaxInt32, math.MaxInt32},
	} {
		require.Equal(t, test.want, Target(test.replicas, test.size), "%s: %s of %d", test.reason, test.replicas.String(), test.size)
	}
}

func TestBackTarget(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason     string
		replicas   intstr.IntOrString
		from, want int32
	}{
		{"a share of the pods that were new", part("50%"), 5, 3},
		{"the last one may go back at any share", part("99%"), 10, 10},
		{"a number of them", pods(2), 5, 2},
		{"no more than there were", pods(9), 5, 5},
		{"nothing was new", part("100%"), 0, 0},
	} {
		require.Equal(t, test.want, BackTarget(test.replicas, test.from), "%s: %s of %d", test.reason, test.replicas.String(), test.from)
	}
}

func TestOwnLimits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason             string
		unavailable, surge intstr.IntOrString
		size               int32
		wantOut, wantMore  int32
	}{
		{"the defaults of a Deployment: down and up", part("25%"), part("25%"), 10, 2, 3},
		{"both come to nothing: one may be out", part("25%"), pods(0), 3, 1, 0},
		{"both are nothing: one may be out", pods(0), pods(0), 3, 1, 0},
		{"surge alone", pods(0), part("1%"), 3, 0, 1},
		{"numbers are themselves", pods(2), pods(3), 1, 2, 3},
		{"more than all may surge", pods(0), part("200%"), 3, 0, 6},
	} {
		out, more := OwnLimits(test.unavailable, test.surge, test.size)
		require.Equal(t, test.wantOut, out, test.reason)
		require.Equal(t, test.wantMore, more, test.reason)
	}
}

func TestTolerated(t *testing.T) {
	t.Parallel()
	two := intstr.FromInt32(2)
	require.EqualValues(t, 0, Tolerated(nil, 5), "no threshold tolerates none")
	require.EqualValues(t, 2, Tolerated(&two, 5), "a number is itself")
	require.EqualValues(t, 1, Tolerated(&two, 2), "one has to be ready")
	require.EqualValues(t, 1, Tolerated(threshold("10%"), 5), "a share is rounded up")
	require.EqualValues(t, 0, Tolerated(threshold("100%"), 1), "one has to be ready")
	require.EqualValues(t, 0, Tolerated(threshold("100%"), 0), "of no pods none is unready")
}

func anyReplicas(t *rapid.T, name string) intstr.IntOrString {
	if rapid.Bool().Draw(t, name+" is a share") {
		return intstr.FromString(fmt.Sprintf("%d%%", rapid.Int32Range(1, 100).Draw(t, name)))
	}
	return intstr.FromInt32(rapid.Int32Range(1, 2000).Draw(t, name))
}

func TestTargetProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int32Range(0, 1000).Draw(t, "size")
		step := anyReplicas(t, "replicas")
		got := Target(step, size)
		require.LessOrEqual(t, got, size, "never more pods than there are")
		require.GreaterOrEqual(t, got, min(size, 1), "a step always takes a pod, where there is one")
		larger := rapid.Int32Range(size, 1200).Draw(t, "larger size")
		require.GreaterOrEqual(t, Target(step, larger), got, "a larger workload never has fewer new pods")
		if step.Type == intstr.Int {
			return
		}
		n, ok := percentNumber(step.StrVal)
		require.True(t, ok)
		more := intstr.FromString(percentText(rapid.Int32Range(n, 100).Draw(t, "larger share")))
		require.GreaterOrEqual(t, Target(more, size), got, "a larger share never takes fewer")
		require.Equal(t, size, Target(part("100%"), size), "the last step takes all")
		if n < 100 && size > 1 {
			require.Less(t, got, size, "a share below all leaves a stable pod")
			require.GreaterOrEqual(t, int64(got)*100, min(int64(n)*int64(size), 100*int64(size-1)), "and is no smaller than asked")
		}
		require.Less(t, int64(got-1)*100, int64(n)*int64(size)+1, "it is rounded up by less than a pod")
	})
}

func TestBackProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Int32Range(0, 1000).Draw(t, "from")
		n := rapid.Int32Range(1, 100).Draw(t, "share")
		back := BackTarget(part(percentText(n)), from)
		require.LessOrEqual(t, back, from)
		require.LessOrEqual(t, back, BackTarget(part(percentText(rapid.Int32Range(n, 100).Draw(t, "larger share"))), from), "each batch brings back no fewer")
		require.Equal(t, from, BackTarget(part("100%"), from))
	})
}

func TestLimitsProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int32Range(0, 1000).Draw(t, "size")
		out, more := OwnLimits(anyReplicas(t, "maxUnavailable"), anyReplicas(t, "maxSurge"), size)
		require.Positive(t, out+more, "something can always move")
		limit := anyReplicas(t, "threshold")
		target := rapid.Int32Range(0, size).Draw(t, "target")
		require.LessOrEqual(t, Tolerated(&limit, target), max(target-1, 0), "one new pod has to be ready")
	})
}
