package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
)

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

// partyFetch is a request, its queue and its result.
type partyFetch struct {
	source.FetchRequest
	queue string
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
		requests = append(requests, partyFetch{queue: order.Queue, order: order, FetchRequest: source.FetchRequest{
			Package: *q.Package, Party: party, Namespace: q.Workload.Namespace, Service: string(r.in.Outline.ServiceID),
			DeadlineSeconds: q.DeadlineSeconds}})
	}
	return requests
}

// runFetch executes an activity at the party's worker, survives interruptions, and stores the result in the request.
func (r *itemRun) runFetch(activity, doing string, request *partyFetch) error {
	summary := doing + " " + request.Shown
	r.reason = summary
	r.show()
	return r.retryUntilResumed(r.ctx, partyName(request.order.Request), func(int64) error {
		ctx := withActivity(r.ctx, partyDownload(request.queue, r.budget, request.DeadlineSeconds), summary)
		var answer source.Fetched
		err := perform(ctx, activity, request.FetchRequest, &answer)
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
	r.reason = "deploying package " + r.orders[0].Request.Package.String()
	r.show()
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

// partyDownload is for a download, which may take as long as the operation's deadline.
func partyDownload(queue string, pickUp time.Duration, deadlineSeconds int64) workflow.ActivityOptions {
	o := partyRun(queue, pickUp)
	o.StartToCloseTimeout = time.Duration(deadlineSeconds)*time.Second + time.Minute
	return o
}
