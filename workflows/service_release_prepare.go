package workflows

import (
	"encoding/json"
	"strings"
	"time"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
)

// prepare builds and fetches what the item deploys. If that fails, no pod has been changed.
func (r *itemRun) prepare() error {
	if err := r.build(); err != nil {
		return err
	}
	return r.fetch()
}

// build lets the party of the first workload build what the item deploys to all of them. It resolves the branch's
// commit first, then runs a Job, unless that commit was built before.
func (r *itemRun) build() error {
	if len(r.orders) == 0 || r.orders[0].Request.Build == nil {
		return nil
	}
	if state := r.in.State; state != nil && state.Build != nil {
		r.building, r.built = &state.Build.Shown, &state.Build.Built
		r.pinBuild()
		return nil
	}
	first := r.orders[0].Request
	request := build.Request{Order: *first.Build, Party: first.Workload.PartyOrDefault(),
		Namespace: first.Workload.Namespace,
		By:        plan.ItemWorkflowID(r.in.Task, r.in.Item, r.in.Outline.ServiceID)}
	if err := r.resolve(&request); err != nil {
		return err
	}
	return r.compile(request)
}

// resolve fills in the commit.
func (r *itemRun) resolve(request *build.Request) error {
	summary := "finding branch " + request.Branch + " of " + request.Shown
	question := *request
	question.Template = nil
	var resolved build.Resolved
	if err := r.runBuilder(build.ActivityResolve, summary, question, &resolved); err != nil {
		return err
	}
	request.Commit = resolved.Commit
	r.building = &plan.BuildStatus{Repository: request.Shown, Branch: request.Branch, Commit: request.Commit,
		Party: request.Party, Namespace: request.Namespace, Job: request.JobName()}
	return nil
}

// compile builds the commit and pins all workloads to the result. A failed build reports its log.
func (r *itemRun) compile(request build.Request) error {
	var built build.Built
	summary := "building commit " + build.Short(request.Commit) + " by Job " + request.Namespace + "/" +
		request.JobName()
	request.ReportBlocked = true
	err := r.runBuilder(build.ActivityBuild, summary, request, &built)
	if err == nil && built.Blocked != "" {
		request.ReportBlocked, request.SpentSeconds = false, built.SpentSeconds
		r.reportBlocked(summary + ": " + built.Blocked)
		built = build.Built{}
		if err = r.runBuilder(build.ActivityBuild, summary, request, &built); err == nil {
			r.reportUnblocked()
		}
	}
	if err != nil {
		if data := detailsOf(err).Data; len(data) > 0 && json.Unmarshal(data, &built) == nil {
			r.showBuild(built)
		}
		return err
	}
	r.showBuild(built)
	r.built = &built
	r.pinBuild()
	return nil
}

// runBuilder executes an activity at the party that builds; it survives interruptions.
func (r *itemRun) runBuilder(activity, summary string, request build.Request, answer any) error {
	if !strings.HasPrefix(r.reason, summary) { // it does not say more already
		r.say(summary)
	}
	queue := r.orders[0].Queue
	return r.retryUntilResumed(r.ctx, partyName(r.orders[0].Request), func(spent int64) error {
		request.SpentSeconds = max(request.SpentSeconds, spent)
		return perform(withActivity(r.ctx, partyRun(queue, r.budget), summary), activity, request, answer)
	})
}

// showBuild copies the build's result into the status.
func (r *itemRun) showBuild(built build.Built) {
	b := r.building
	b.Job, b.Image, b.Package, b.Reused, b.Log = built.Job, built.Image, built.Package, built.Reused, built.Log
	b.StartedAt, b.FinishedAt = built.StartedAt, built.FinishedAt
}

// pinBuild makes every workload deploy exactly what was built. A package is fetched first.
func (r *itemRun) pinBuild() {
	r.orders[0].Request.Build = nil // operations do not need it, and it need not be in the history again
	for i := range r.orders {
		q := &r.orders[i].Request
		if q.Image != nil {
			q.Image = &source.Image{Container: q.Image.Container, Reference: r.built.Image}
			q.Marker = q.Image.Marker()
		}
		if q.Package != nil {
			q.Package.URL, q.Package.Shown = r.built.Package, r.built.Package
			q.Package.Hidden, q.Package.Built, q.Package.SHA256 = false, true, r.built.SHA256
			q.Package.File = catalog.FillCommit(q.Package.File, r.building.Commit)
		}
	}
	r.say("deploying " + r.building.Yields())
}

// buildState is what the next run needs of the build; nil before it has ended.
func (r *itemRun) buildState() *BuildState {
	if r.built == nil {
		return nil
	}
	return &BuildState{Shown: *r.building, Built: *r.built}
}

// fetch lets the worker of every party fetch the package that the item deploys, and pins all workloads to the same
// bytes. If the source is missing or changes in between, the item ends before any pod is changed.
func (r *itemRun) fetch() error {
	if len(r.orders) == 0 || r.orders[0].Request.Package == nil {
		return nil
	}
	if state := r.in.State; state != nil && state.Package != nil {
		r.pinPackage(*state.Package)
		return nil
	}
	requests := r.fetchRequests()
	for n := range requests {
		if n > 0 {
			requests[n].SHA256 = requests[0].Previous.SHA256
		}
		if err := r.runFetch(source.ActivityFetch, "fetching package", &requests[n]); err != nil {
			return err
		}
	}
	for n := range requests {
		requests[n].SHA256 = requests[0].Previous.SHA256
		if err := r.runFetch(source.ActivityConfirm, "confirming package", &requests[n]); err != nil {
			return err
		}
	}
	fetched := requests[0].Previous
	for _, request := range requests {
		fetched.Stored = fetched.Stored && request.Previous.Stored
	}
	r.pinPackage(fetched)
	return nil
}

// partyFetch is a request with its result.
type partyFetch struct {
	source.FetchRequest
	// order is the first of the party's workloads.
	order operation.WorkloadOrder
}

// fetchRequests returns one request per party, in the catalogue's order of their workloads.
func (r *itemRun) fetchRequests() []partyFetch {
	var requests []partyFetch
	asked := map[string]bool{}
	for _, order := range r.orders {
		q := order.Request
		party := q.Workload.PartyOrDefault()
		if asked[party] {
			continue
		}
		asked[party] = true
		requests = append(requests, partyFetch{order: order, FetchRequest: source.FetchRequest{
			Package: *q.Package, Party: party, Namespace: q.Workload.Namespace, Service: string(r.in.Outline.ServiceID),
			DeadlineSeconds: q.DeadlineSeconds}})
	}
	return requests
}

// runFetch executes an activity at the party's worker, survives interruptions, and stores the result in the request.
func (r *itemRun) runFetch(activity, doing string, request *partyFetch) error {
	summary := doing + " " + request.Shown
	r.say(summary)
	return r.retryUntilResumed(r.ctx, partyName(request.order.Request), func(int64) error {
		// a download may take as long as the operation's deadline
		options := partyRun(request.order.Queue, r.budget)
		options.StartToCloseTimeout = time.Duration(request.DeadlineSeconds)*time.Second + time.Minute
		var answer source.Fetched
		err := perform(withActivity(r.ctx, options, summary), activity, request.FetchRequest, &answer)
		if err == nil {
			request.Previous = answer
		}
		return err
	})
}

// pinPackage makes every workload deploy exactly these bytes.
func (r *itemRun) pinPackage(fetched source.Fetched) {
	for i := range r.orders {
		q := &r.orders[i].Request
		q.Package.SHA256, q.Package.Bytes = fetched.SHA256, fetched.Bytes
		q.Marker = q.Package.Marker()
	}
	r.fetched = &fetched
	r.say("deploying package " + r.orders[0].Request.Package.String())
}

// packageStatus is the package in the status; nil before it is fetched.
func (r *itemRun) packageStatus() *plan.PackageStatus {
	if r.fetched == nil {
		return nil
	}
	f := *r.fetched
	url := r.orders[0].Request.Package.Shown
	return &plan.PackageStatus{URL: url, SHA256: f.SHA256, Bytes: f.Bytes, UnpackedBytes: f.UnpackedBytes,
		Format: f.Format, Stored: f.Stored}
}
