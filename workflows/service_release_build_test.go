package workflows

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

const (
	builtCommit = "0123456789abcdef0123456789abcdef01234567"
	builtImage  = "registry.test/order@sha256:" + packageDigest
)

// smithy plays the worker of a party that builds.
type smithy struct {
	depot
	// asked are the requests, with the activity's name.
	asked   []string
	resolve func(build.Request) (build.Resolved, error)
	build   func(build.Request) (build.Built, error)
}

func (y *smithy) serve(s *stage) {
	y.depot.serve(s)
	s.RegisterActivityWithOptions(func(_ context.Context, in build.Request) (build.Resolved, error) {
		y.asked = append(y.asked, build.ActivityResolve+" "+in.Party+" "+in.Namespace+" "+in.Branch)
		if y.resolve != nil {
			return y.resolve(in)
		}
		return build.Resolved{Commit: builtCommit}, nil
	}, activity.RegisterOptions{Name: build.ActivityResolve})
	s.RegisterActivityWithOptions(func(_ context.Context, in build.Request) (build.Built, error) {
		y.asked = append(y.asked, build.ActivityBuild+" "+in.Party+" "+in.Commit+" "+in.By)
		if y.build != nil {
			return y.build(in)
		}
		return build.Built{Job: in.JobName(), Yield: build.Yield{Image: builtImage}, Log: "done"}, nil
	}, activity.RegisterOptions{Name: build.ActivityBuild})
}

// compileFor is an item that compiles an image or a package for workloads of these parties.
func compileFor(toPackage bool, parties ...string) (ServiceReleaseInput, []operation.WorkloadOrder) {
	in, orders := uploadTo(parties...)
	in.Outline.Deployment = plan.CompileDeploy
	order := &build.Order{Service: string(in.Outline.ServiceID), Repository: "git@git.test:order.git",
		Shown: "git.test:order.git", Branch: "main", TemplateSHA256: "t"}
	for i := range orders {
		q := &orders[i].Request
		q.Operation = plan.CompileDeploy
		if toPackage {
			q.Package.URL, q.Package.Shown, q.Package.Hidden = "https://packages.test/order-{{commit}}.zip",
				"https://packages.test/order-{{commit}}.zip", false
			q.Package.File = "order-{{commit}}.zip"
			continue
		}
		q.Package, q.Image = nil, &source.Image{Container: "app"}
	}
	orders[0].Request.Build = order
	return in, orders
}

func TestServiceRelease_BuildsOnceForAllParties(t *testing.T) {
	in, orders := compileFor(false, "alice", "default", "alice")
	y := &smithy{}
	var mu sync.Mutex
	var ran []operation.Request
	result, _ := through(t, in, func(s *stage) {
		s.orders = orders
		y.serve(s)
		s.run = func(r operation.Request) (workload.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, r)
			return workload.Result{Message: "deployed", Changed: true}, nil
		}
	})
	require.Equal(t, plan.ItemSucceeded, result.State, result.Reason)
	by := plan.ItemWorkflowID(in.Task, in.Item, in.Outline.ServiceID)
	require.Equal(t, []string{"source.Resolve alice " + orders[0].Request.Workload.Namespace + " main",
		"source.Build alice " + builtCommit + " " + by}, y.asked,
		"the party of the first workload builds")
	require.Empty(t, y.depot.asked, "an image needs no package")
	require.Len(t, ran, 3)
	for _, r := range ran {
		require.Equal(t, &source.Image{Container: "app", Reference: builtImage}, r.Image)
		require.Equal(t, r.Image.Marker(), r.Marker)
	}
	require.Equal(t, &plan.BuildStatus{Repository: "git.test:order.git", Branch: "main", Commit: builtCommit,
		Party:     "alice",
		Namespace: orders[0].Request.Workload.Namespace, Job: result.Build.Job, Image: builtImage, Log: "done"},
		result.Build)
}

func TestABuiltPackageIsFetchedAndPinned(t *testing.T) {
	in, orders := compileFor(true, "default", "alice")
	const url = "https://packages.test/order-" + builtCommit + ".zip"
	y := &smithy{build: func(in build.Request) (build.Built, error) {
		return build.Built{Job: "j", Reused: true, Yield: build.Yield{Package: url, SHA256: packageDigest}}, nil
	}}
	var fetched []source.FetchRequest
	y.fetch = func(r source.FetchRequest) (source.Fetched, error) {
		fetched = append(fetched, r)
		return source.Fetched{SHA256: packageDigest, Bytes: 2048, Format: "zip", Stored: true}, nil
	}
	result, _ := through(t, in, func(s *stage) {
		s.orders = orders
		y.serve(s)
		s.run = func(r operation.Request) (workload.Result, error) {
			return workload.Result{Changed: r.Package.SHA256 == packageDigest && r.Package.URL == url}, nil
		}
	})
	require.Equal(t, plan.ItemSucceeded, result.State, result.Reason)
	require.Len(t, fetched, 2)
	for _, r := range fetched {
		require.Equal(t, url, r.URL)
		require.Equal(t, packageDigest, r.SHA256,
			"bytes that differ from the build's are refused, also at the first party")
		require.True(t, r.Built)
		require.Equal(t, "order-"+builtCommit+".zip", r.File)
	}
	for _, w := range result.Workloads {
		require.True(t, w.Changed)
	}
	require.True(t, result.Build.Reused)
	require.Equal(t, url, result.Package.URL)
}

func TestServiceRelease_ChangesNothing_WhenBuildFails(t *testing.T) {
	missing := func(build.Request) (build.Resolved, error) {
		return build.Resolved{}, temporal.NewNonRetryableApplicationError("the repository has no branch main",
			string(failure.Refused), nil)
	}
	broken := func(in build.Request) (build.Built, error) {
		data, err := json.Marshal(build.Built{Job: in.JobName(), Log: "a\nb"})
		if err != nil {
			return build.Built{}, err
		}
		return build.Built{}, temporal.NewNonRetryableApplicationError("build failed: exit code 3",
			string(failure.WorkloadFailed), nil, failure.Details{Data: data})
	}
	for name, tc := range map[string]struct {
		smithy *smithy
		says   string
		log    string
	}{
		"no branch": {&smithy{resolve: missing}, "no branch main", ""},
		"broken":    {&smithy{build: broken}, "exit code 3", "a\nb"},
	} {
		t.Run(name, func(t *testing.T) {
			in, orders := compileFor(false, "default", "default")
			began := 0
			result, _ := through(t, in, func(s *stage) {
				s.orders = orders
				tc.smithy.serve(s)
				s.run = func(operation.Request) (workload.Result, error) {
					began++
					return workload.Result{}, nil
				}
			})
			require.Equal(t, plan.ItemFailed, result.State)
			require.Contains(t, result.Reason, tc.says)
			require.Zero(t, began)
			for _, w := range result.Workloads {
				require.Equal(t, plan.ItemSkipped, w.State)
			}
			if tc.log == "" {
				require.Nil(t, result.Build)
				return
			}
			require.Equal(t, tc.log, result.Build.Log)
			require.Equal(t, builtCommit, result.Build.Commit)
		})
	}
}

// An unreachable cluster interrupts the item during a build; the resolved commit is kept.
func TestBuildContinues_AfterInterruption(t *testing.T) {
	in, orders := compileFor(false, "default")
	away := true
	y := &smithy{}
	var spent []int64
	y.build = func(in build.Request) (build.Built, error) {
		spent = append(spent, in.SpentSeconds)
		if away {
			return build.Built{}, temporal.NewNonRetryableApplicationError("the cluster is unreachable",
				string(failure.Unreachable), nil, failure.Details{SpentSeconds: 40})
		}
		return build.Built{Job: "j", Yield: build.Yield{Image: builtImage}}, nil
	}
	result, _ := through(t, in, func(s *stage) {
		s.orders = orders
		y.serve(s)
		s.RegisterDelayedCallback(func() {
			away = false
			s.SignalWorkflow(SignalItemResume, VerbRequest{})
		}, time.Hour)
	})
	require.Equal(t, plan.ItemSucceeded, result.State, result.Reason)
	require.Equal(t, []int64{0, 40}, spent, "the used time counts")
	require.Len(t, y.asked, 3, "the branch is not resolved again: it may have moved")
}

// A long item that continues as new deploys the same build to its last workload as to its first.
func TestBuildStaysPinned_AfterContinueAsNew(t *testing.T) {
	parties := make([]string, 1000)
	for i := range parties {
		parties[i] = "default"
	}
	in, orders := compileFor(false, parties...)
	y := &smithy{}
	var mu sync.Mutex
	images := map[string]int{}
	result, counters := through(t, in, func(s *stage) {
		s.orders = orders
		y.serve(s)
		s.run = func(r operation.Request) (workload.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			images[r.Image.Reference]++
			return workload.Result{Changed: true}, nil
		}
	})
	require.Equal(t, plan.ItemSucceeded, result.State, result.Reason)
	require.Greater(t, len(counters), 1)
	require.Equal(t, map[string]int{builtImage: 1000}, images)
	require.Len(t, y.asked, 2, "it is resolved and built once")
	require.Equal(t, builtCommit, result.Build.Commit)
}
