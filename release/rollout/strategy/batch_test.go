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
		{"a percentage is rounded up", part("5%"), 10, 1},
		{"a percentage that yields a whole number is exact", part("7%"), 100, 7},
		{"a percentage below 100 % keeps one stable pod", part("99%"), 10, 9},
		{"half of three is two", part("50%"), 3, 2},
		{"the only pod is replaced", part("1%"), 1, 1},
		{"100 % is all pods", part("100%"), 3, 3},
		{"a number is used unchanged", pods(3), 10, 3},
		{"a number may cover all pods", pods(10), 10, 10},
		{"the result is at most the size", pods(11), 10, 10},
		{"a workload without pods", part("100%"), 0, 0},
		{"a workload without pods", pods(5), 0, 0},
		{"the largest size does not overflow", part("100%"), math.MaxInt32, math.MaxInt32},
	} {
		require.Equal(t, test.want, Target(StylePartition, test.replicas, test.size), "%s: %s of %d",
			test.reason, test.replicas.String(), test.size)
	}
}

// The pods of an extra workload are beside all stable ones: rounding up takes none of them.
func TestTarget_OfExtraWorkload_IsRoundedUp(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		percent    string
		size, want int32
	}{{"80%", 3, 3}, {"99%", 10, 10}, {"50%", 3, 2}, {"1%", 10, 1}, {"100%", 3, 3}, {"80%", 0, 0}} {
		require.Equal(t, test.want, Target(StyleCanary, part(test.percent), test.size), test)
	}
	require.Equal(t, int32(2), Target(StylePartition, part("80%"), 3))
	require.Equal(t, int32(2), Target(StyleBlueGreen, part("80%"), 3))
}

func TestBackTarget(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason     string
		replicas   intstr.IntOrString
		from, want int32
	}{
		{"a percentage of the pods that were new", part("50%"), 5, 3},
		{"the last pod may go back at any percentage", part("99%"), 10, 10},
		{"a number of them", pods(2), 5, 2},
		{"at most the pods that were new", pods(9), 5, 5},
		{"no pod was new", part("100%"), 0, 0},
	} {
		require.Equal(t, test.want, RollbackTarget(test.replicas, test.from), "%s: %s of %d", test.reason,
			test.replicas.String(), test.from)
	}
}

func TestOwnLimits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason                     string
		unavailable, surge         intstr.IntOrString
		size                       int32
		wantUnavailable, wantSurge int32
	}{
		{"a Deployment's defaults: maxUnavailable is rounded down, maxSurge up", part("25%"), part("25%"), 10, 2, 3},
		{"both round to 0: one pod may be unavailable", part("25%"), pods(0), 3, 1, 0},
		{"both are 0: one pod may be unavailable", pods(0), pods(0), 3, 1, 0},
		{"surge alone", pods(0), part("1%"), 3, 0, 1},
		{"numbers are used unchanged", pods(2), pods(3), 1, 2, 3},
		{"the surge may exceed the size", pods(0), part("200%"), 3, 0, 6},
	} {
		unavailable, surge := ResolveLimits(test.unavailable, test.surge, test.size)
		require.Equal(t, test.wantUnavailable, unavailable, test.reason)
		require.Equal(t, test.wantSurge, surge, test.reason)
	}
}

func TestTolerated(t *testing.T) {
	t.Parallel()
	two := intstr.FromInt32(2)
	require.EqualValues(t, 0, ToleratedUnready(nil, 5), "without a threshold no pod may be unready")
	require.EqualValues(t, 2, ToleratedUnready(&two, 5), "a number is used unchanged")
	require.EqualValues(t, 1, ToleratedUnready(&two, 2), "one pod has to be ready")
	require.EqualValues(t, 1, ToleratedUnready(threshold("10%"), 5), "a percentage is rounded up")
	require.EqualValues(t, 0, ToleratedUnready(threshold("100%"), 1), "one pod has to be ready")
	require.EqualValues(t, 0, ToleratedUnready(threshold("100%"), 0), "without pods none is unready")
}

func anyReplicas(t *rapid.T, name string) intstr.IntOrString {
	if rapid.Bool().Draw(t, name+" is a percentage") {
		return intstr.FromString(fmt.Sprintf("%d%%", rapid.Int32Range(1, 100).Draw(t, name)))
	}
	return intstr.FromInt32(rapid.Int32Range(1, 2000).Draw(t, name))
}

func TestTargetProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int32Range(0, 1000).Draw(t, "size")
		step := anyReplicas(t, "replicas")
		got := Target(StylePartition, step, size)
		require.LessOrEqual(t, got, size, "never more than the size")
		require.GreaterOrEqual(t, got, min(size, 1), "a step replaces at least one pod if there is one")
		larger := rapid.Int32Range(size, 1200).Draw(t, "larger size")
		require.GreaterOrEqual(t, Target(StylePartition, step, larger), got,
			"a larger workload never has fewer new pods")
		if step.Type == intstr.Int {
			return
		}
		n := int32(percentOf(step.StrVal))
		more := intstr.FromString(formatPercent(rapid.Int32Range(n, 100).Draw(t, "larger percentage")))
		require.GreaterOrEqual(t, Target(StylePartition, more, size), got,
			"a larger percentage never replaces fewer pods")
		require.Equal(t, size, Target(StylePartition, part("100%"), size), "100 % replaces all pods")
		if n < 100 && size > 1 {
			require.Less(t, got, size, "a percentage below 100 % keeps a stable pod")
			require.GreaterOrEqual(t, int64(got)*100, min(int64(n)*int64(size), 100*int64(size-1)),
				"and is no smaller than requested")
		}
		require.Less(t, int64(got-1)*100, int64(n)*int64(size)+1, "it is rounded up by less than one pod")
	})
}

func TestBackProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Int32Range(0, 1000).Draw(t, "from")
		n := rapid.Int32Range(1, 100).Draw(t, "percentage")
		back := RollbackTarget(part(formatPercent(n)), from)
		require.LessOrEqual(t, back, from)
		require.LessOrEqual(t, back, RollbackTarget(
			part(formatPercent(rapid.Int32Range(n, 100).Draw(t, "larger percentage"))), from),
			"a larger percentage never rolls back fewer pods")
		require.Equal(t, from, RollbackTarget(part("100%"), from))
	})
}

func TestLimitsProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int32Range(0, 1000).Draw(t, "size")
		unavailable, surge := ResolveLimits(anyReplicas(t, "maxUnavailable"), anyReplicas(t, "maxSurge"), size)
		require.Positive(t, unavailable+surge, "the update can always progress")
		limit := anyReplicas(t, "threshold")
		target := rapid.Int32Range(0, size).Draw(t, "target")
		require.LessOrEqual(t, ToleratedUnready(&limit, target), max(target-1, 0),
			"at least one new pod has to be ready")
	})
}
