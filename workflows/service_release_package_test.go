package workflows

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

const packageDigest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

// depot plays the workers of parties that fetch packages.
type depot struct {
	// asked are the requests, with the activity's name and the party.
	asked   []string
	fetch   func(source.FetchRequest) (source.Fetched, error)
	confirm func(source.FetchRequest) (source.Fetched, error)
	// unnamed are the answers of a party's store, by cursor; sweeps are the calls of a sweep.
	unnamed map[string]source.Unreferenced
	sweeps  []string
}

func (d *depot) serve(s *stage) {
	answer := func(name string, with *func(source.FetchRequest) (source.Fetched, error)) {
		s.RegisterActivityWithOptions(func(_ context.Context, in source.FetchRequest) (source.Fetched, error) {
			d.asked = append(d.asked, name+" "+in.Party+" "+in.SHA256)
			if *with != nil {
				return (*with)(in)
			}
			return source.Fetched{SHA256: packageDigest, Bytes: 2048, Format: "zip", Stored: true}, nil
		}, activity.RegisterOptions{Name: name})
	}
	s.RegisterActivityWithOptions(func(_ context.Context, in source.UnreferencedRequest) (source.Unreferenced, error) {
		d.sweeps = append(d.sweeps, "unnamed after "+in.After)
		return d.unnamed[in.After], nil
	}, activity.RegisterOptions{Name: source.ActivityUnnamed})
	s.RegisterActivityWithOptions(func(_ context.Context, in source.Unreferenced) (source.Unreferenced, error) {
		return source.Unreferenced{SHA256: slices.DeleteFunc(in.SHA256, func(digest string) bool {
			return digest == "recorded"
		})}, nil
	}, activity.RegisterOptions{Name: source.ActivityUnrecorded})
	s.RegisterActivityWithOptions(func(_ context.Context, in source.Unreferenced) (source.Removed, error) {
		d.sweeps = append(d.sweeps, "remove "+strings.Join(in.SHA256, ","))
		return source.Removed{Packages: len(in.SHA256)}, nil
	}, activity.RegisterOptions{Name: source.ActivityRemove})
	answer(source.ActivityFetch, &d.fetch)
	answer(source.ActivityConfirm, &d.confirm)
}

// uploadTo is an item that deploys a package to workloads of these parties.
func uploadTo(parties ...string) (ServiceReleaseInput, []operation.WorkloadOrder) {
	in, orders := releaseOf(plan.Parallel, len(parties))
	in.Outline.Deployment = plan.HTTPUploadDeploy
	for i := range orders {
		q := &orders[i].Request
		q.Workload.Party, q.Operation = parties[i], plan.HTTPUploadDeploy
		orders[i].Queue = catalog.PartyQueue(parties[i])
		q.Package = &source.Package{URL: "https://packages.test/order.zip", Hidden: true,
			Shown: "https://packages.test/order.zip?…", Task: "shop-1", Item: 1, Container: "app", MountPath: "/app"}
	}
	return in, orders
}

func TestAPackageIsFetchedByEachPartyAndPinned(t *testing.T) {
	in, orders := uploadTo("default", "alice", "default")
	d := &depot{confirm: func(in source.FetchRequest) (source.Fetched, error) {
		return source.Fetched{SHA256: packageDigest, Bytes: 2048, Format: "zip", Stored: in.Party != "alice"}, nil
	}}
	var mu sync.Mutex
	var ran []operation.Request
	result, _ := through(t, in, func(s *stage) {
		s.orders = orders
		d.serve(s)
		s.run = func(r operation.Request) (workload.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, r)
			return workload.Result{Message: "deployed", Changed: true}, nil
		}
	})
	require.Equal(t, plan.ItemSucceeded, result.State, result.Reason)
	require.Equal(t, []string{"source.Fetch default ", "source.Fetch alice " + packageDigest,
		"source.Confirm default " + packageDigest, "source.Confirm alice " + packageDigest}, d.asked,
		"every other party must get the first party's bytes; all confirm them before the first pod is changed")
	require.Len(t, ran, 3)
	for _, r := range ran {
		require.Equal(t, packageDigest, r.Package.SHA256)
		require.Equal(t, r.Package.Marker(), r.Marker)
	}
	require.Equal(t, &plan.PackageStatus{URL: "https://packages.test/order.zip?…", SHA256: packageDigest, Bytes: 2048,
		Format: "zip"},
		result.Package, "Stored is true only if every party's store has it")
}

func TestServiceRelease_ChangesNothing_WhenPackageUnavailable(t *testing.T) {
	absent := func(source.FetchRequest) (source.Fetched, error) {
		return source.Fetched{}, temporal.NewNonRetryableApplicationError("package of service 1 can't be fetched: 404",
			string(failure.Refused), nil)
	}
	for name, d := range map[string]*depot{
		"missing at the start":               {fetch: absent},
		"changed between the start and roll": {confirm: absent},
	} {
		t.Run(name, func(t *testing.T) {
			in, orders := uploadTo("default", "default")
			var began []string
			result, _ := through(t, in, func(s *stage) {
				s.orders = orders
				d.serve(s)
				s.run = func(r operation.Request) (workload.Result, error) {
					began = append(began, r.Workload.String())
					return workload.Result{}, nil
				}
			})
			require.Equal(t, plan.ItemFailed, result.State)
			require.Contains(t, result.Reason, "404")
			require.Empty(t, began)
			for _, w := range result.Workloads {
				require.Equal(t, plan.ItemSkipped, w.State, "an unchanged workload has not failed")
				require.Contains(t, w.Message, "404")
			}
		})
	}
}

// An unreachable party interrupts the item; completed fetches are not repeated.
func TestFetchContinues_AfterInterruption(t *testing.T) {
	in, orders := uploadTo("default", "alice")
	away := true
	d := &depot{}
	d.fetch = func(r source.FetchRequest) (source.Fetched, error) {
		if r.Party == "alice" && away {
			return source.Fetched{}, temporal.NewNonRetryableApplicationError("alice is unreachable",
				string(failure.Unreachable), nil)
		}
		return source.Fetched{SHA256: packageDigest}, nil
	}
	result, _ := through(t, in, func(s *stage) {
		s.orders = orders
		d.serve(s)
		s.RegisterDelayedCallback(func() {
			away = false
			s.SignalWorkflow(SignalItemResume, VerbRequest{})
		}, time.Hour)
	})
	require.Equal(t, plan.ItemSucceeded, result.State, result.Reason)
	require.Equal(t, []string{"source.Fetch default ", "source.Fetch alice " + packageDigest,
		"source.Fetch alice " + packageDigest}, d.asked[:3])
}

// A long item that continues as new deploys the same bytes to its last workload as to its first.
func TestPackageStaysPinned_AfterContinueAsNew(t *testing.T) {
	parties := make([]string, 1000)
	for i := range parties {
		parties[i] = "default"
	}
	in, orders := uploadTo(parties...)
	d := &depot{}
	var mu sync.Mutex // activities of one workflow run concurrently
	digests := map[string]int{}
	result, counters := through(t, in, func(s *stage) {
		s.orders = orders
		d.serve(s)
		s.run = func(r operation.Request) (workload.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			digests[r.Package.SHA256]++
			return workload.Result{Changed: true}, nil
		}
	})
	require.Equal(t, plan.ItemSucceeded, result.State, result.Reason)
	require.Greater(t, len(counters), 1)
	require.Equal(t, map[string]int{packageDigest: 1000}, digests)
	require.Len(t, d.asked, 2, "fetched and confirmed once")
}

// Packages that nothing names are deleted from the store, page by page; packages named by a record stay.
func TestPackageSweepDeletesUnnamedPackages(t *testing.T) {
	s := newStage(t)
	d := &depot{unnamed: map[string]source.Unreferenced{"": {SHA256: []string{"a", "recorded"}, Next: "b"},
		"b": {Next: "c"}, "c": {SHA256: []string{"d", "e"}}}}
	d.serve(s)
	s.ExecuteWorkflow(TypePackageSweep, PackageSweepInput{Party: "default", Queue: catalog.PartyQueue("default")})
	require.NoError(t, s.GetWorkflowError())
	var removed source.Removed
	require.NoError(t, s.GetWorkflowResult(&removed))
	require.Equal(t, source.Removed{Packages: 3}, removed)
	require.Equal(t, []string{"unnamed after ", "remove a", "unnamed after b", "unnamed after c", "remove d,e"},
		d.sweeps)
}
