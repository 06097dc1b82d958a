package workloadops_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/workloadops"
)

func TestProgressCountsOnlyTimeInWhichTheClusterWasSeen(t *testing.T) {
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
		"steady":          {"the time between reads counts", []read{{0, false}, {5, false}, {12, false}}, 12 * time.Second},
		"first":           {"nothing is used before the first read", []read{{100, false}}, 0},
		"worker down":     {"of a long gap only the limit counts: no worker ran", []read{{0, false}, {10, false}, {3610, false}}, 40 * time.Second},
		"unreachable":     {"time in which the cluster was out of reach does not count", []read{{0, false}, {5, false}, {8, true}, {90, true}, {95, false}, {97, false}}, 7 * time.Second},
		"clocks disagree": {"a worker whose clock is behind takes nothing away", []read{{100, false}, {40, false}, {43, false}}, 3 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p workloadops.Progress
			for _, r := range tc.reads {
				// What an attempt knows goes through JSON to the next one.
				raw, err := json.Marshal(p)
				require.NoError(t, err)
				p = workloadops.Progress{}
				require.NoError(t, json.Unmarshal(raw, &p))
				if r.fails {
					p.Failed(at(r.second))
				} else {
					p.Read(at(r.second))
					p.Reached()
				}
			}
			require.Equal(t, tc.elapsed, p.Elapsed(), tc.reason)
		})
	}
}

func TestProgressMeasuresTheOutageFromItsFirstFailure(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	var p workloadops.Progress
	p.Read(start)
	require.Zero(t, p.Failed(start.Add(60*time.Second)), "the outage begins with the first failed read, not with the last good one")
	require.Equal(t, 40*time.Second, p.Failed(start.Add(100*time.Second)))
	p.Read(start.Add(101 * time.Second))
	require.Equal(t, 102*time.Second, p.Failed(start.Add(162*time.Second)), "a cluster that answers reads but no writes is still out of reach")
	p.Read(start.Add(163 * time.Second))
	p.Reached()
	require.Nil(t, p.UnreachableSince, "an answer to all that was asked ends the outage")
	require.Zero(t, p.Elapsed(), "and nothing of it counts")
}
