package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workloadops"
)

// fetch has the worker of every party fetch the package that the item deploys, and pins all workloads to the same bytes. A source that is
// gone, or that has changed in between, ends the item before any pod is touched.
func (r *itemRun) fetch() error {
	if len(r.orders) == 0 || r.orders[0].Request.Package == nil {
		return nil
	}
	if state := r.in.State; state != nil && state.Package != nil {
		r.pin(*state.Package)
		return nil
	}
	requests := r.fetchRequests()
	for n := range requests {
		if n > 0 {
			requests[n].SHA256 = requests[0].Was.SHA256
		}
		if err := r.ask(source.ActivityFetch, "fetching package", &requests[n]); err != nil {
			return err
		}
	}
	for n := range requests {
		requests[n].SHA256 = requests[0].Was.SHA256
		if err := r.ask(source.ActivityConfirm, "confirming package", &requests[n]); err != nil {
			return err
		}
	}
	fetched := requests[0].Was
	for _, request := range requests {
		fetched.Stored = fetched.Stored && request.Was.Stored
	}
	r.pin(fetched)
	return nil
}

// partyFetch is a request and the queue that answers it.
type partyFetch struct {
	source.FetchRequest
	queue string
	// order is the first of the party's workloads.
	order workloadops.WorkloadOrder
}

// fetchRequests are one request for each party, in the order in which their workloads stand in the catalogue.
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

// ask asks a party's worker, over interruptions; its answer is what the party has fetched.
func (r *itemRun) ask(activity, doing string, request *partyFetch) error {
	summary := doing + " " + request.Shown
	r.reason = summary
	r.show()
	return r.persist(r.ctx, partyName(request.order.Request), func(int64) error {
		ctx := withActivity(r.ctx, partyDownload(request.queue, r.budget, request.DeadlineSeconds), summary)
		var answer source.Fetched
		err := perform(ctx, activity, request.FetchRequest, &answer)
		if err == nil {
			request.Was = answer
		}
		return err
	})
}

// pin has every workload run these bytes and no others.
func (r *itemRun) pin(fetched source.Fetched) {
	for i := range r.orders {
		q := &r.orders[i].Request
		q.Package.SHA256, q.Package.Bytes = fetched.SHA256, fetched.Bytes
		q.Marker = q.Package.Marker()
	}
	r.fetched = &fetched
	r.reason = "deploying package " + r.orders[0].Request.Package.String()
	r.show()
}

// packageStatus is the package as the status shows it; nil before it was fetched.
func (r *itemRun) packageStatus() *plan.PackageStatus {
	if r.fetched == nil {
		return nil
	}
	f := *r.fetched
	url := r.orders[0].Request.Package.Shown
	return &plan.PackageStatus{URL: url, SHA256: f.SHA256, Bytes: f.Bytes, UnpackedBytes: f.UnpackedBytes, Format: f.Format, Stored: f.Stored}
}

// partyDownload is for a download, which may last as long as the operation may.
func partyDownload(queue string, pickUp time.Duration, deadlineSeconds int64) workflow.ActivityOptions {
	o := partyRun(queue, pickUp)
	o.StartToCloseTimeout = time.Duration(deadlineSeconds)*time.Second + time.Minute
	return o
}
