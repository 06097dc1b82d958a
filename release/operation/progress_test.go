package operation_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/workload"
)

func TestProgress_CountsOnlyTimeWithReachableCluster(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return time.Unix(1_700_000_000+int64(seconds), 0).UTC() }
	type read struct {
		second int
		fails  bool
	}
	cases := map[string]struct {
		reason  string
		reads   []read
		elapsed time.Duration
	}{
		"steady": {"the time between reads counts", []read{{0, false}, {5, false}, {12, false}},
			12 * time.Second},
		"first": {"no time counts before the first read", []read{{100, false}}, 0},
		"worker down": {"of a long gap only the limit counts, since no worker ran",
			[]read{{0, false}, {10, false}, {3610, false}}, 40 * time.Second},
		"unreachable": {"time in which the cluster was unreachable does not count",
			[]read{{0, false}, {5, false}, {8, true}, {90, true}, {95, false}, {97, false}}, 7 * time.Second},
		"clocks disagree": {"a worker whose clock is behind subtracts nothing",
			[]read{{100, false}, {40, false}, {43, false}}, 3 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p workload.Progress
			for _, r := range tc.reads {
				// Progress passes from one attempt to the next as JSON.
				raw, err := json.Marshal(p)
				require.NoError(t, err)
				p = workload.Progress{}
				require.NoError(t, json.Unmarshal(raw, &p))
				if r.fails {
					p.RecordFailure(at(r.second))
				} else {
					p.RecordRead(at(r.second))
					p.RecordReachable()
				}
			}
			require.Equal(t, tc.elapsed, p.Elapsed(), tc.reason)
		})
	}
}

func TestProgress_MeasuresOutageFromFirstFailedRead(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	var p workload.Progress
	p.RecordRead(start)
	require.Zero(t, p.RecordFailure(start.Add(60*time.Second)),
		"the outage begins with the first failed read, not with the last good one")
	require.Equal(t, 40*time.Second, p.RecordFailure(start.Add(100*time.Second)))
	p.RecordRead(start.Add(101 * time.Second))
	require.Equal(t, 102*time.Second, p.RecordFailure(start.Add(162*time.Second)),
		"a cluster that answers reads but no writes is still unreachable")
	p.RecordRead(start.Add(163 * time.Second))
	p.RecordReachable()
	require.Nil(t, p.UnreachableSince, "the outage ends once all requests are answered")
	require.Zero(t, p.Elapsed(), "and none of its time counts")
}
